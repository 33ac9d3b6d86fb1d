//! Cuts streamed text into clauses that can be spoken.
//!
//! The cutter looks at one character at a time and decides from what came
//! before it, never from how the text was split on its way here: the same text
//! gives the same clauses whatever the deltas. The clauses are contiguous and
//! cover everything fed.
//!
//! The first clause leaves as early as is safe, because a caller is waiting
//! for it; each later one may be longer, because by then there is sound to
//! bridge the wait and longer clauses sound better. A clause never ends inside
//! a number, an abbreviation, initials, an ellipsis, a URL or an e-mail
//! address: none of them holds a mark followed by a space, but for the
//! abbreviations, which are listed here.

use crate::config::tts::Tts;

/// When a clause is long enough to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Words after which the first clause is cut at a natural joint.
    pub first_words: usize,
    /// Characters after which a later clause is cut at a comma.
    pub chars: usize,
    /// Characters at which a clause is cut wherever it is.
    pub max_chars: usize,
}

impl From<&Tts> for Limits {
    fn from(settings: &Tts) -> Self {
        Self {
            first_words: settings.first_clause_words,
            chars: settings.clause_chars,
            max_chars: settings.max_clause_chars,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::from(&Tts::default())
    }
}

/// A piece of the fed text that is spoken in one breath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    /// The text as fed, marks and spaces included.
    pub text: String,
    /// Its first byte, counted in everything fed.
    pub from: usize,
    /// Whether it begins inside a code fence.
    pub in_code: bool,
}

impl Clause {
    /// The byte after its last, counted in everything fed.
    pub fn to(&self) -> usize {
        self.from + self.text.len()
    }
}

/// The cutter of one stream.
#[derive(Clone, Debug)]
pub struct Cutter {
    limits: Limits,
    text: String,
    chars: usize,
    /// Whole words in `text`.
    words: usize,
    /// Whether `text` holds anything to say.
    speakable: bool,
    /// First byte of `text` in everything fed.
    from: usize,
    /// Clauses handed out.
    cut: usize,
    /// Inside a code fence, now and where `text` begins.
    fence: bool,
    began_in_code: bool,
}

/// What the end of a word says about the place after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// A sentence ends here.
    Sentence,
    /// A pause is due here.
    Pause,
    /// A sentence ends here if the next word begins with a capital.
    IfCapital,
    /// A sentence ends here unless a number follows.
    UnlessNumber,
    /// Nothing ends here.
    Nothing,
}

impl Cutter {
    /// A cutter with nothing fed.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            text: String::new(),
            chars: 0,
            words: 0,
            speakable: false,
            from: 0,
            cut: 0,
            fence: false,
            began_in_code: false,
        }
    }

    /// Adds text and hands out the clauses that became whole.
    pub fn push(&mut self, text: &str, out: &mut impl FnMut(Clause)) {
        for c in text.chars() {
            self.text.push(c);
            self.chars += 1;
            self.speakable |= c.is_alphanumeric();
            if self.text.ends_with("```") {
                self.fence = !self.fence;
            }
            let (end, speakable) = (self.boundary(c), self.speakable);
            if c.is_whitespace() && last_token(&self.text).contains(char::is_alphanumeric) {
                self.words += 1;
            }
            if let Some(end) = end
                && speakable
            {
                out(self.take(end));
            }
        }
    }

    /// Everything left, as one last clause; `None` when nothing is left.
    pub fn finish(&mut self) -> Option<Clause> {
        (!self.text.is_empty()).then(|| self.take(self.text.len()))
    }

    fn take(&mut self, end: usize) -> Clause {
        let rest = self.text.split_off(end);
        let text = std::mem::replace(&mut self.text, rest);
        let clause = Clause { text, from: self.from, in_code: self.began_in_code };
        // What is left holds no fence: a cut is made at its end or at a space in its last line.
        self.began_in_code = self.fence;
        self.from = clause.to();
        self.cut += 1;
        self.chars = self.text.chars().count();
        self.speakable = self.text.contains(char::is_alphanumeric);
        let whole = self.text.rfind(char::is_whitespace).map_or("", |at| &self.text[..at]);
        self.words = whole.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
        clause
    }

    /// Whether the running clause ends, now that `c` is its last character:
    /// its length in bytes.
    fn boundary(&self, c: char) -> Option<usize> {
        let whole = self.text.len();
        if self.chars >= self.limits.max_chars {
            // A cut at a space when there is one, else the caller would wait for ever.
            let space = self.text.trim_end().rfind(char::is_whitespace).map(|at| at + 1);
            return Some(if c.is_whitespace() { whole } else { space.unwrap_or(whole) });
        }
        if self.fence {
            return None;
        }
        if c == '\n' {
            return Some(whole);
        }
        if matches!(c, '。' | '！' | '？') {
            return Some(whole);
        }
        if matches!(c, '，' | '、' | '；' | '：') {
            return self.pause_fits().then_some(whole);
        }
        let before = &self.text[..whole - c.len_utf8()];
        if !c.is_whitespace() {
            // The first letter of a word settles what the word before it left open.
            if !before.ends_with(char::is_whitespace) || is_opening(c) {
                return None;
            }
            let word_end = before.trim_end();
            let ends = match verdict(last_token(word_end), word_end) {
                Verdict::IfCapital => c.is_uppercase(),
                Verdict::UnlessNumber => !c.is_ascii_digit(),
                _ => false,
            };
            return ends.then_some(before.len());
        }
        if before.is_empty() || before.ends_with(char::is_whitespace) {
            return None;
        }
        match verdict(last_token(before), before) {
            Verdict::Sentence => Some(whole),
            Verdict::Pause => self.pause_fits().then_some(whole),
            Verdict::IfCapital | Verdict::UnlessNumber => None,
            Verdict::Nothing => self.joint(before),
        }
    }

    /// Whether the running clause is long enough to end at a comma.
    fn pause_fits(&self) -> bool {
        match self.cut {
            // The word before the comma is not counted yet.
            0 => self.words >= 1 || self.chars >= 12,
            1 => self.chars >= self.limits.chars / 3,
            _ => self.chars >= self.limits.chars,
        }
    }

    /// A cut where no mark came: before a word that opens a new phrase, or,
    /// when that is long in coming, after a word that needs no sequel.
    fn joint(&self, before: &str) -> Option<usize> {
        let (due, overdue) = match self.cut {
            0 => (self.words >= self.limits.first_words, self.words >= self.limits.first_words + 3),
            1 => (self.chars >= self.limits.chars, self.chars >= self.limits.chars * 2),
            _ => (self.chars >= self.limits.chars * 2, self.chars >= self.limits.chars * 2 + 40),
        };
        if !due {
            return None;
        }
        let word = last_token(before);
        let start = before.len() - word.len();
        let previous = last_token(before[..start].trim_end());
        let bare = |text: &str| text.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        let numeric = |text: &str| text.contains(|c: char| c.is_ascii_digit());
        if OPENS_PHRASE.contains(&bare(word).as_str()) {
            return (!numeric(previous)
                && !before[..start].trim_end().is_empty()
                && !NEEDS_SEQUEL.contains(&bare(previous).as_str()))
            .then_some(start);
        }
        (overdue && !numeric(word) && !NEEDS_SEQUEL.contains(&bare(word).as_str())).then_some(self.text.len())
    }
}

/// Words before which a reader may take breath.
const OPENS_PHRASE: &[&str] = &[
    "and",
    "but",
    "or",
    "so",
    "because",
    "which",
    "that",
    "who",
    "when",
    "where",
    "while",
    "if",
    "for",
    "with",
    "to",
    "in",
    "on",
    "at",
    "from",
    "by",
    "than",
    "then",
    "although",
    "though",
    "since",
    "until",
    "before",
    "after",
    "is",
    "are",
    "was",
    "were",
    "into",
    "about",
    "through",
    "during",
    "without",
    "including",
];

/// Words after which nobody takes breath.
const NEEDS_SEQUEL: &[&str] = &[
    "a", "an", "the", "of", "to", "in", "on", "at", "for", "from", "by", "with", "and", "or", "but", "so",
    "as", "my", "your", "his", "her", "its", "our", "their", "this", "that", "these", "those", "very",
    "more", "most", "some", "any", "no", "not", "is", "are", "was", "were", "be", "been", "i", "you", "he",
    "she", "we", "they", "it", "has", "have", "had", "will", "would", "can", "could", "should", "may",
    "might", "must", "do", "does", "than", "into", "about", "if", "when", "which", "who", "because", "dr",
    "mr", "mrs", "ms", "st", "don't",
];

/// Abbreviations that a name or a number always follows.
const NEVER_ENDS: &[&str] = &[
    "dr", "mr", "mrs", "ms", "mx", "prof", "st", "mt", "ft", "gen", "col", "maj", "capt", "lt", "sgt", "sen",
    "rep", "gov", "pres", "rev", "hon", "messrs", "vs", "v", "e.g", "i.e", "eg", "ie", "cf", "viz", "approx",
    "ca", "al", "esp", "incl", "sra", "srta", "hr", "fr", "bzw", "z.b", "d.h",
];

/// Abbreviations that end a sentence only when a capital follows.
const MAY_END: &[&str] = &[
    "etc", "inc", "ltd", "co", "corp", "jr", "sr", "est", "dept", "ave", "blvd", "rd", "hwy", "apt", "min",
    "max", "hrs", "hr", "mins", "sec", "secs", "lb", "lbs", "oz", "ph.d", "bros", "intl", "misc", "govt",
    "mon", "tue", "tues", "wed", "thu", "thur", "thurs", "fri",
];

/// Abbreviations that a number follows, else a sentence ends.
const WITH_NUMBER: &[&str] = &[
    "no", "nos", "p", "pp", "fig", "figs", "vol", "ch", "sec", "eq", "art", "para", "jan", "feb", "mar",
    "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec", "nr", "núm",
];

fn is_opening(c: char) -> bool {
    matches!(c, '"' | '\'' | '(' | '[' | '“' | '‘' | '«' | '*' | '_' | '¿' | '¡' | '`')
}

fn is_closing(c: char) -> bool {
    matches!(c, '"' | '\'' | ')' | ']' | '”' | '’' | '»' | '*' | '_' | '`' | '~')
}

/// What stands after the last space of `text`.
fn last_token(text: &str) -> &str {
    let text = text.trim_end();
    let start =
        text.char_indices().rev().find(|(_, c)| c.is_whitespace()).map_or(0, |(at, c)| at + c.len_utf8());
    &text[start..]
}

/// What `token`, the last word of the clause `text`, says about the place after it.
fn verdict(token: &str, text: &str) -> Verdict {
    let bare = token.trim_end_matches(is_closing);
    let Some(last) = bare.chars().next_back() else { return Verdict::Nothing };
    let has_word = bare.contains(char::is_alphanumeric);
    match last {
        '?' | '!' => Verdict::Sentence,
        '…' | '—' | '–' => Verdict::Pause,
        ',' | ';' | ':' if has_word || bare.len() == 1 => Verdict::Pause,
        '-' if !has_word => Verdict::Pause,
        '.' => full_stop(bare, text, token),
        _ => Verdict::Nothing,
    }
}

/// The verdict on a word that ends in a full stop.
fn full_stop(bare: &str, text: &str, token: &str) -> Verdict {
    let body = bare.trim_end_matches('.').trim_start_matches(is_opening);
    if bare.ends_with("..") {
        return Verdict::Pause;
    }
    if !body.contains(char::is_alphanumeric) {
        return Verdict::Nothing;
    }
    let first_of_line = text[..text.len() - token.len()]
        .trim_end_matches(|c: char| c.is_whitespace() && c != '\n')
        .chars()
        .next_back()
        .is_none_or(|c| c == '\n');
    if first_of_line && body.chars().all(|c| c.is_ascii_digit()) {
        return Verdict::Nothing;
    }
    let lower = body.to_lowercase();
    let mut letters = body.chars();
    if let (Some(only), None) = (letters.next(), letters.next())
        && only.is_alphabetic()
        && !matches!(only, 'I' | 'p' | 'v')
    {
        return Verdict::Nothing;
    }
    if NEVER_ENDS.contains(&lower.as_str()) {
        Verdict::Nothing
    } else if WITH_NUMBER.contains(&lower.as_str()) {
        Verdict::UnlessNumber
    } else if MAY_END.contains(&lower.as_str()) || is_dotted(&lower) {
        Verdict::IfCapital
    } else {
        Verdict::Sentence
    }
}

/// `u.s`, `p.m`: letters with full stops between them.
fn is_dotted(lower: &str) -> bool {
    lower.contains('.')
        && lower.split('.').all(|part| part.chars().count() == 1 && part.chars().all(char::is_alphabetic))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(text: &str) -> Vec<String> {
        cut_as(&[text])
    }

    fn cut_as(deltas: &[&str]) -> Vec<String> {
        let mut cutter = Cutter::new(Limits::default());
        let mut clauses = Vec::new();
        for delta in deltas {
            cutter.push(delta, &mut |clause| clauses.push(clause));
        }
        clauses.extend(cutter.finish());
        let mut at = 0;
        for clause in &clauses {
            assert_eq!(clause.from, at, "clauses are contiguous");
            at = clause.to();
        }
        let whole = deltas.concat();
        assert_eq!(clauses.iter().map(|clause| clause.text.as_str()).collect::<String>(), whole);
        clauses.into_iter().map(|clause| clause.text).collect()
    }

    #[test]
    fn the_first_clause_leaves_early() {
        assert_eq!(cut("Of course, I can help you with that.")[0], "Of course, ");
        assert_eq!(cut("Yes. Paris it is.")[0], "Yes. ");
        assert_eq!(cut("Line one\nline two"), ["Line one\n", "line two"]);
        // A lone word before a comma is too short to stand alone.
        assert_eq!(cut("Sure, I can help you. What is it?")[0], "Sure, I can help you. ");
        let long = "The tall brown horse that lives behind the old stone barn eats apples";
        assert_eq!(cut(long)[0], "The tall brown horse that lives behind the old stone barn ");
        assert_eq!(
            cut("The capital of the French Republic today is called Paris by everyone")[0],
            "The capital of the French Republic today "
        );
    }

    #[test]
    fn nothing_is_cut_inside_what_belongs_together() {
        for whole in [
            "It costs $3.50 or 1,000 yen a day.",
            "Ask Dr. Smith, Mr. T. S. Eliot or Mrs. Jones.",
            "Some fruit, e.g. apples or pears i.e. food.",
            "See https://example.com/a?b=c,d.e!f:g for it.",
            "Write to joe.b@mail.example.com today.",
            "At 3:45 p.m. we met on Dec. 1 at No. 5 Elm St. Louis.",
            "Wait...what was it?",
        ] {
            let mut clauses = cut(&format!("Well then, {whole}"));
            clauses.remove(0);
            // Only the comma after "Smith" or "fruit" may be a place to pause.
            assert!(clauses.len() == 1, "{clauses:?}");
        }
    }

    #[test]
    fn open_abbreviations_wait_for_the_next_word() {
        assert_eq!(cut("We met at 5 p.m. Then we ate."), ["We met at 5 p.m. ", "Then we ate."]);
        assert_eq!(cut("We met at 5 p.m. and then we ate."), ["We met at 5 p.m. and then we ate."]);
        assert_eq!(cut("I said no. You left."), ["I said no. ", "You left."]);
        assert_eq!(cut("Take no. 7 there."), ["Take no. 7 there."]);
        assert_eq!(cut("1. Boil water.\n2. Add tea."), ["1. Boil water.\n", "2. Add tea."]);
    }

    #[test]
    fn other_scripts_have_their_own_marks() {
        assert_eq!(cut("你好。今天天气很好！是吗？"), ["你好。", "今天天气很好！", "是吗？"]);
        assert_eq!(cut("¿Cómo estás? ¡Muy bien! Gracias."), ["¿Cómo estás? ", "¡Muy bien! ", "Gracias."]);
        assert_eq!(cut("Bonjour ! Ça va ?"), ["Bonjour ! ", "Ça va ?"]);
    }

    #[test]
    fn a_clause_has_an_end() {
        let clauses = cut(&"a".repeat(1_000));
        assert!(clauses.iter().all(|clause| clause.chars().count() <= Limits::default().max_chars));
        assert_eq!(clauses.len(), 1_000usize.div_ceil(Limits::default().max_chars));
        let words = "word ".repeat(300);
        assert!(
            cut(&words)
                .iter()
                .all(|clause| clause.len() <= Limits::default().max_chars && clause.ends_with(' '))
        );
    }

    #[test]
    fn code_is_not_cut_at_its_marks() {
        assert_eq!(
            cut("Here it is: \n```\na. b. c\nd? e\n```\nDone."),
            ["Here it is: ", "\n```\na. b. c\nd? e\n```\n", "Done."]
        );
    }

    #[test]
    fn every_split_of_a_text_in_two_gives_the_same_clauses() {
        let text = "Well, Dr. No. 5 said: “it's 3.50, e.g. 1,000.” At 5 p.m. He left… ¿Qué? 你好。\n- a\n";
        let whole = cut(text);
        assert!(whole.len() > 5, "{whole:?}");
        for (at, _) in text.char_indices() {
            assert_eq!(cut_as(&[&text[..at], &text[at..]]), whole);
        }
    }

    proptest! {
        #[test]
        fn the_cut_does_not_depend_on_the_deltas(text in "([a-zA-Z]{1,8}|[0-9]{1,4}|[ .,?!:;\n…。\"'`-]{1,3}|Dr\\. |p\\.m\\. |no\\. ){0,80}", sizes in prop::collection::vec(1usize..9, 1..40)) {
            let whole = cut(&text);
            let mut deltas = Vec::new();
            let (mut rest, mut sizes) = (text.as_str(), sizes.iter().cycle());
            while !rest.is_empty() {
                let n = *sizes.next().expect("a cycle of at least one");
                let at = rest.char_indices().nth(n).map_or(rest.len(), |(at, _)| at);
                deltas.push(&rest[..at]);
                rest = &rest[at..];
            }
            prop_assert_eq!(cut_as(&deltas), whole);
        }
    }
}
