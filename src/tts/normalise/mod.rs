//! Written text to words that can be said.
//!
//! Markdown, markup and emoji are taken out ([`markup`]); numbers, money,
//! times, dates, addresses, units and abbreviations are written out; what is
//! left are words and the marks between them. Every word keeps the bytes of
//! the fed text that it stands for, so that a word's sound points back at what
//! was written: `$3.50` is one word of the text, said in five.
//!
//! A word that is spelled is written with full stops between its letters
//! (`A.P.I`): espeak then says the letters' names with the stress of a word.
//!
//! Only English is written out. Of other languages the markup is taken out and
//! the rest left to espeak, which reads numbers in its own language.

mod address;
mod figure;
mod markup;
mod number;
mod when;
mod word;

/// Whose rules apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Everything is written out, dates the American way round.
    English,
    /// Only what no voice could say is taken out.
    Other,
}

impl Language {
    /// The rules for a voice of espeak's (`en-us`, `de`).
    pub fn of(espeak_voice: &str) -> Self {
        match espeak_voice.split(['-', '_']).next() {
            Some("en") => Self::English,
            _ => Self::Other,
        }
    }
}

/// A piece of what is to be said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// A word of the text.
    Word {
        /// How it is said: one or more words, no marks but full stops between letters that are spelled.
        spoken: String,
        /// First byte in everything fed.
        from: usize,
        /// Byte after the last in everything fed.
        to: usize,
    },
    /// A pause or a tone: one of `, . ? ! : ;`.
    Mark(char),
}

/// The words and marks of `text`, which begins at byte `base` of everything
/// fed, inside a code fence or not.
pub fn tokens(text: &str, base: usize, language: Language, in_code: bool) -> Vec<Token> {
    let text = Text { chars: markup::strip(text, base, in_code) };
    let mut out = Vec::new();
    let mut at = 0;
    while at < text.chars.len() {
        let c = text.char(at);
        let written = (language == Language::English)
            .then(|| {
                let rules: [Rule; 4] = [address::read, when::read, figure::read, word::read];
                rules.iter().find_map(|rule| rule(&text, at, &mut out))
            })
            .flatten();
        at = match written {
            Some(end) => end.max(at + 1),
            None if c.is_alphanumeric() => plain_word(&text, at, &mut out),
            None => {
                mark(&text, at, &mut out);
                at + 1
            }
        };
    }
    out
}

/// Reads what begins at a place, puts its words out, and gives the place after it.
type Rule = fn(&Text, usize, &mut Vec<Token>) -> Option<usize>;

/// Text without markup: each character with the bytes it stands for.
struct Text {
    chars: Vec<Char>,
}

#[derive(Clone, Copy, Debug)]
struct Char {
    c: char,
    from: usize,
    to: usize,
}

impl Text {
    /// The character at this place; a space beyond the ends.
    fn char(&self, at: usize) -> char {
        self.chars.get(at).map_or(' ', |char| char.c)
    }

    fn before(&self, at: usize) -> char {
        at.checked_sub(1).map_or(' ', |at| self.char(at))
    }

    /// Whether a word may begin here.
    fn begins(&self, at: usize) -> bool {
        !self.before(at).is_alphanumeric()
    }

    /// Whether a word may end before this place.
    fn ends(&self, at: usize) -> bool {
        !self.char(at).is_alphanumeric()
    }

    /// The place after as many characters as fit.
    fn skip(&self, mut at: usize, fits: impl Fn(char) -> bool) -> usize {
        while at < self.chars.len() && fits(self.char(at)) {
            at += 1;
        }
        at
    }

    fn skip_spaces(&self, at: usize) -> usize {
        self.skip(at, |c| c == ' ' || c == '\u{a0}' || c == '\u{202f}')
    }

    fn slice(&self, from: usize, to: usize) -> String {
        self.chars[from.min(self.chars.len())..to.min(self.chars.len())].iter().map(|char| char.c).collect()
    }

    /// The letters from here on.
    fn letters(&self, at: usize) -> (String, usize) {
        let end = self.skip(at, char::is_alphabetic);
        (self.slice(at, end), end)
    }

    /// The digits from here on.
    fn digits(&self, at: usize) -> (String, usize) {
        let end = self.skip(at, |c| c.is_ascii_digit());
        (self.slice(at, end), end)
    }

    /// Whether these characters stand here, upper and lower case alike.
    fn is_here(&self, at: usize, what: &str) -> bool {
        what.chars().enumerate().all(|(offset, c)| {
            at + offset < self.chars.len() && self.char(at + offset).eq_ignore_ascii_case(&c)
        })
    }

    /// The word said for the characters `from..to`.
    fn word(&self, from: usize, to: usize, spoken: impl Into<String>) -> Token {
        Token::Word { spoken: spoken.into(), from: self.chars[from].from, to: self.chars[to - 1].to }
    }
}

/// A word as it stands, with the marks that belong inside a word.
fn plain_word(text: &Text, at: usize, out: &mut Vec<Token>) -> usize {
    let mut end = at;
    while end < text.chars.len() {
        let c = text.char(end);
        let inside = matches!(c, '\'' | '’' | '-' | '.' | ',' | ':')
            && text.char(end + 1).is_alphanumeric()
            // A mark between letters parts words, but not between digits; an apostrophe or hyphen does not.
            && (matches!(c, '\'' | '’' | '-') || text.before(end).is_ascii_digit() && text.char(end + 1).is_ascii_digit());
        if !c.is_alphanumeric() && !inside && !is_combining(c) {
            break;
        }
        end += 1;
    }
    out.push(text.word(at, end, text.slice(at, end).replace('’', "'")));
    end
}

fn is_combining(c: char) -> bool {
    unicode_normalization::char::is_combining_mark(c)
}

/// What a character that is no word says about pause and tone.
fn mark(text: &Text, at: usize, out: &mut Vec<Token>) {
    let mark = match text.char(at) {
        '.' | '。' | '…' => '.',
        '?' | '？' => '?',
        '!' | '！' => '!',
        ',' | '，' | '、' | '(' | ')' | '—' | '–' | '|' => ',',
        ':' | '：' => ':',
        ';' | '；' => ';',
        '-' if text.before(at) == ' ' && text.char(at + 1) == ' ' => ',',
        '\n' => '.',
        _ => return,
    };
    match out.last() {
        // Nothing was said that a pause could follow.
        None => {}
        Some(Token::Mark(last)) if *last == mark || text.char(at) == '\n' => {}
        Some(_) => out.push(Token::Mark(mark)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words with the marks after them.
    fn said(text: &str, language: Language) -> String {
        let mut out = String::new();
        for token in tokens(text, 0, language, false) {
            match token {
                Token::Word { spoken, .. } => {
                    if !out.is_empty() {
                        out.push(' ');
                    }
                    out.push_str(&spoken);
                }
                Token::Mark(mark) => out.push(mark),
            }
        }
        out
    }

    #[test]
    fn the_golden_set_is_said_as_written_down() {
        let golden = include_str!("../../../tests/data/tts/normalise.tsv");
        let mut count = 0;
        let mut faults = Vec::new();
        for line in golden.lines().filter(|line| !line.is_empty() && !line.starts_with("//")) {
            let (text, wanted) = line.split_once('\t').expect("each line is text, tab, words");
            let got = said(&text.replace("\\n", "\n"), Language::English);
            if got != wanted {
                faults.push(format!("{text:?}\n  wanted {wanted:?}\n  got    {got:?}"));
            }
            count += 1;
        }
        assert!(count >= 100, "only {count} lines");
        assert!(faults.is_empty(), "{} of {count}:\n{}", faults.len(), faults.join("\n"));
    }

    #[test]
    fn words_point_at_the_text_they_stand_for() {
        let text = "Pay **$3.50** to Dr. Wu 😀 at [the shop](http://x.y), ok?";
        let words: Vec<(String, &str)> = tokens(text, 100, Language::English, false)
            .into_iter()
            .filter_map(|token| match token {
                Token::Word { spoken, from, to } => Some((spoken, &text[from - 100..to - 100])),
                Token::Mark(_) => None,
            })
            .collect();
        let expected = [
            ("Pay", "Pay"),
            ("three dollars and fifty cents", "$3.50"),
            ("to", "to"),
            ("Doctor", "Dr."),
            ("Wu", "Wu"),
            ("at", "at"),
            ("the", "the"),
            ("shop", "shop"),
            ("okay", "ok"),
        ];
        assert_eq!(words, expected.map(|(spoken, written)| (spoken.to_owned(), written)));
    }

    #[test]
    fn other_languages_keep_their_numbers() {
        assert_eq!(said("Das kostet **3,50** Euro, oder?", Language::Other), "Das kostet 3,50 Euro, oder?");
        assert_eq!(said("¿Cómo estás? ¡Bien!", Language::Other), "Cómo estás? Bien!");
        assert_eq!(said("你好。是吗？", Language::Other), "你好. 是吗?");
        assert_eq!(Language::of("en-gb"), Language::English);
        assert_eq!(Language::of("es-419"), Language::Other);
    }

    #[test]
    fn code_is_not_said() {
        assert_eq!(said("Look:\n```rust\nlet x = 1;\n```\nDone.", Language::English), "Look: Done.");
        assert!(tokens("let x = 1;\n", 0, Language::English, true).is_empty());
    }

    mod any_text {
        use proptest::prelude::*;

        use super::super::*;

        proptest! {
            #[test]
            fn words_are_in_order_and_inside(text in "([a-zA-Z$€£#@.,:;/_*\\-+()'\\[\\]<>`~|& ]|[0-9]|Dr\\.|pm|am|https://|Dec |½|😀|é|你){0,40}") {
                for language in [Language::English, Language::Other] {
                    let mut end = 0;
                    for token in tokens(&text, 0, language, false) {
                        if let Token::Word { spoken, from, to } = token {
                            prop_assert!(from >= end && from < to && to <= text.len(), "{spoken}: {from}..{to}");
                            prop_assert!(text.is_char_boundary(from) && text.is_char_boundary(to));
                            prop_assert!(spoken.contains(char::is_alphanumeric), "{spoken:?}");
                            if language == Language::English {
                                prop_assert!(!spoken.contains(|c: char| c.is_ascii_digit()), "{spoken}");
                            }
                            end = to;
                        }
                    }
                }
            }

            #[test]
            fn nothing_panics(text in any::<String>()) {
                tokens(&text, 0, Language::English, false);
                tokens(&text, 0, Language::Other, true);
            }
        }
    }
}
