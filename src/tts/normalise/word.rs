//! Abbreviations, acronyms, names in mixed case, and signs between words.

use super::number::cardinal;
use super::{Text, Token, is_combining};

/// When an abbreviation means this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    /// A name follows.
    Name,
    /// A number follows.
    Number,
}

use When::{Always, Name, Number};

/// Abbreviations that are written with a full stop, without it and in lower case.
const ABBREVIATIONS: &[(&str, &str, When)] = &[
    ("dr", "Doctor", Name),
    ("dr", "Drive", Always),
    ("st", "Saint", Name),
    ("st", "Street", Always),
    ("mr", "Mister", Always),
    ("mrs", "Missus", Always),
    ("ms", "Miss", Always),
    ("prof", "Professor", Always),
    ("rev", "Reverend", Name),
    ("gen", "General", Name),
    ("col", "Colonel", Name),
    ("capt", "Captain", Name),
    ("lt", "Lieutenant", Name),
    ("sgt", "Sergeant", Name),
    ("sen", "Senator", Name),
    ("rep", "Representative", Name),
    ("gov", "Governor", Name),
    ("pres", "President", Name),
    ("mt", "Mount", Name),
    ("ft", "Fort", Name),
    ("jr", "Junior", Always),
    ("sr", "Senior", Always),
    ("vs", "versus", Always),
    ("etc", "et cetera", Always),
    ("e.g", "for example", Always),
    ("i.e", "that is", Always),
    ("approx", "approximately", Always),
    ("no", "number", Number),
    ("nos", "numbers", Number),
    ("fig", "figure", Number),
    ("vol", "volume", Number),
    ("ch", "chapter", Number),
    ("pp", "pages", Number),
    ("p", "page", Number),
    ("inc", "Incorporated", Always),
    ("ltd", "Limited", Always),
    ("corp", "Corporation", Always),
    ("co", "Company", Always),
    ("ave", "Avenue", Always),
    ("blvd", "Boulevard", Always),
    ("rd", "Road", Always),
    ("apt", "apartment", Number),
    ("dept", "department", Always),
    ("est", "established", Number),
    ("min", "minutes", Always),
    ("max", "maximum", Always),
    ("misc", "miscellaneous", Always),
    ("jan", "January", Always),
    ("feb", "February", Always),
    ("aug", "August", Always),
    ("sept", "September", Always),
    ("oct", "October", Always),
    ("nov", "November", Always),
    ("dec", "December", Always),
    ("ph.d", "P.H.D", Always),
];

/// Acronyms that are said as words, some of them not as they are written.
const SAID: &[(&str, &str)] = &[
    ("OK", "okay"),
    ("NASA", "NASA"),
    ("NATO", "NATO"),
    ("UNICEF", "Unicef"),
    ("UNESCO", "Unesco"),
    ("OPEC", "opec"),
    ("AIDS", "aids"),
    ("COVID", "covid"),
    ("SARS", "sars"),
    ("FEMA", "feema"),
    ("SWAT", "swat"),
    ("IKEA", "ikea"),
    ("RAM", "ram"),
    ("ROM", "rom"),
    ("LAN", "lan"),
    ("SIM", "sim"),
    ("PIN", "pin"),
    ("LASER", "laser"),
    ("SCUBA", "scuba"),
    ("GIF", "gif"),
    ("JPEG", "jay-peg"),
    ("JSON", "jason"),
    ("YAML", "yammel"),
    ("CAPTCHA", "captcha"),
    ("ZIP", "zip"),
];

/// Words that stress sets in capitals.
const STRESSED: &[&str] = &[
    "a", "all", "always", "and", "any", "are", "big", "but", "can", "do", "does", "done", "each", "every",
    "free", "from", "go", "has", "have", "hello", "hey", "hi", "how", "i", "if", "in", "is", "just", "like",
    "love", "many", "more", "most", "must", "my", "never", "new", "no", "not", "note", "now", "of", "off",
    "oh", "on", "only", "or", "other", "our", "out", "over", "real", "same", "so", "some", "stop", "that",
    "the", "then", "there", "they", "this", "to", "too", "very", "wait", "was", "we", "well", "what", "when",
    "where", "why", "will", "with", "wow", "yes", "you", "your", "best", "good", "great", "huge", "last",
    "first", "open", "run", "see", "thank", "bad",
];

const ROMAN: &[(&str, u64)] = &[
    ("II", 2),
    ("III", 3),
    ("IV", 4),
    ("VI", 6),
    ("VII", 7),
    ("VIII", 8),
    ("IX", 9),
    ("XI", 11),
    ("XII", 12),
    ("XIII", 13),
    ("XIV", 14),
    ("XV", 15),
    ("XVI", 16),
];

/// Reads a word or a sign between words; gives the place after it.
pub fn read(text: &Text, at: usize, out: &mut Vec<Token>) -> Option<usize> {
    if !text.char(at).is_alphabetic() {
        return sign(text, at, out);
    }
    abbreviation(text, at, out).or_else(|| initials(text, at, out)).or_else(|| Some(letters(text, at, out)))
}

fn sign(text: &Text, at: usize, out: &mut Vec<Token>) -> Option<usize> {
    let (before, after) = (text.before(at), text.char(at + 1));
    let spaced = before == ' ' && after == ' ';
    let near_number = |c: char| c.is_ascii_digit();
    let figures = near_number(before) && near_number(after)
        || spaced
            && near_number(text.before(at.saturating_sub(1)))
            && (near_number(text.char(at + 2)) || matches!(text.char(at + 2), '$' | '-'));
    let name = match text.char(at) {
        '&' => "and",
        '@' if after.is_alphanumeric() || spaced => "at",
        '%' => "percent",
        '+' if figures || before.is_alphanumeric() => "plus",
        '=' => "equals",
        '−' | '-' if figures && spaced => "minus",
        '×' if figures => "times",
        '÷' => "divided by",
        '<' if figures => "is less than",
        '>' if figures => "is greater than",
        '≤' => "is at most",
        '≥' => "is at least",
        '°' => "degrees",
        '²' => "squared",
        '³' => "cubed",
        '§' => "section",
        '€' => "euros",
        '£' => "pounds",
        '$' if after == ' ' => "dollars",
        // "node.js", but a sentence may follow without its space.
        '.' if before.is_alphanumeric() && after.is_alphanumeric() && !after.is_uppercase() => "dot",
        '/' if before.is_ascii_digit() && after.is_ascii_digit() => "slash",
        _ => return None,
    };
    out.push(text.word(at, at + 1, name));
    Some(at + 1)
}

/// Puts the full stop back that an abbreviation took, when the text ends with it.
pub fn ends_sentence(text: &Text, end: usize, out: &mut Vec<Token>) {
    let rest = text.skip(end, |c| c.is_whitespace() || matches!(c, '"' | '\'' | ')' | '’'));
    if text.before(end) == '.' && rest == text.chars.len() {
        out.push(Token::Mark('.'));
    }
}

fn abbreviation(text: &Text, at: usize, out: &mut Vec<Token>) -> Option<usize> {
    if !text.begins(at) {
        return None;
    }
    if text.is_here(at, "w/") && !text.char(at + 2).is_ascii_digit() {
        let without = text.is_here(at + 2, "o") && text.ends(at + 3);
        let end = at + 2 + usize::from(without);
        out.push(text.word(at, end, if without { "without" } else { "with" }));
        return Some(end);
    }
    let (end, spoken) = ABBREVIATIONS.iter().find_map(|(written, spoken, when)| {
        let end = at + written.len();
        if !text.is_here(at, written) || text.char(end) != '.' || text.char(end + 1).is_alphanumeric() {
            return None;
        }
        let next = text.char(text.skip_spaces(end + 1));
        let fits = match when {
            Always => true,
            Name => next.is_uppercase(),
            Number => next.is_ascii_digit(),
        };
        // "No. It is not": lower case words of this spelling end sentences too.
        let is_word =
            matches!(*written, "no" | "max" | "min" | "co") && text.skip_spaces(end + 1) == text.chars.len();
        (fits && !is_word).then_some((end + 1, *spoken))
    })?;
    out.push(text.word(at, end, spoken));
    ends_sentence(text, end, out);
    Some(end)
}

/// "U.S.", "J. R. R. Tolkien".
fn initials(text: &Text, at: usize, out: &mut Vec<Token>) -> Option<usize> {
    if !text.begins(at) {
        return None;
    }
    let mut letters = Vec::new();
    let mut end = at;
    while text.char(end).is_alphabetic() && text.char(end + 1) == '.' && !text.char(end + 2).is_lowercase()
        || text.char(end).is_alphabetic() && text.char(end + 1) == '.' && text.char(end + 3) == '.'
    {
        letters.push(text.char(end).to_uppercase().to_string());
        end += 2;
    }
    // "U.S.A", its last full stop left out.
    if !letters.is_empty() && text.char(end).is_alphabetic() && text.ends(end + 1) {
        letters.push(text.char(end).to_uppercase().to_string());
        end += 1;
    }
    let single = letters.len() == 1;
    let next = text.char(text.skip_spaces(end));
    if letters.is_empty()
        || single && (!text.char(at).is_uppercase() || text.char(at) == 'I' || !next.is_uppercase())
    {
        return None;
    }
    out.push(text.word(at, end, letters.join(".")));
    ends_sentence(text, end, out);
    Some(end)
}

/// A word of letters, or the first part of a name in mixed case.
fn letters(text: &Text, at: usize, out: &mut Vec<Token>) -> usize {
    let run = run(text, at);
    let written = text.slice(at, run);
    let shouted = is_shouted(text);
    if !shouted && let Some((length, spoken)) = acronym(&written, out, text) {
        out.push(text.word(at, at + length, spoken));
        return at + length;
    }
    let end = at + part(&written);
    let mut spoken = text.slice(at, end).replace('’', "'");
    if shouted {
        spoken = spoken.to_lowercase();
    }
    // "well-known" is one word; "GPT-like" was parted above.
    if end == run
        && text.char(end) == '-'
        && text.char(end + 1).is_lowercase()
        && spoken.chars().all(|c| c.is_lowercase() || c == '\'' || c == '-')
    {
        let next = self::run(text, end + 1);
        let rest = text.slice(end + 1, next);
        if rest.chars().all(|c| c.is_lowercase()) {
            spoken = format!("{spoken}-{rest}");
            out.push(text.word(at, next, spoken));
            return next;
        }
    }
    out.push(text.word(at, end, spoken));
    end
}

/// The place after the letters, apostrophes between them included.
fn run(text: &Text, at: usize) -> usize {
    let mut end = at;
    loop {
        let c = text.char(end);
        let apostrophe = matches!(c, '\'' | '’') && text.char(end + 1).is_alphabetic() && end > at;
        if !(c.is_alphabetic() || is_combining(c) || apostrophe) || end >= text.chars.len() {
            return end;
        }
        end += 1;
    }
}

/// How many characters the first part of a name in mixed case has: `Java`Script, `HTML`Parser.
fn part(written: &str) -> usize {
    let chars: Vec<char> = written.chars().collect();
    if written.starts_with("Mc") || written.starts_with("Mac") {
        return chars.len();
    }
    for at in 1..chars.len() {
        let (before, here, after) = (chars[at - 1], chars[at], chars.get(at + 1));
        if before.is_lowercase() && here.is_uppercase()
            || before.is_uppercase()
                && here.is_uppercase()
                && after.is_some_and(|c| c.is_lowercase())
                && at >= 2
        {
            return at;
        }
    }
    chars.len()
}

/// Capitals that are spelled or are a word of their own: how many characters, and how they are said.
fn acronym(written: &str, out: &[Token], text: &Text) -> Option<(usize, String)> {
    if written == "PhD" {
        return Some((3, "P.H.D".to_owned()));
    }
    if written.eq_ignore_ascii_case("ok") {
        return Some((2, "okay".to_owned()));
    }
    let capitals = written.chars().take_while(|c| c.is_ascii_uppercase()).count();
    let rest = &written[capitals..];
    // "APIs", "NASA's"; in "HTMLParser" the last capital is the next part's.
    let (capitals, tail) = match rest {
        "" => (capitals, ""),
        "s" if capitals >= 2 => (capitals, "s"),
        "'s" | "’s" => (capitals, "'s"),
        _ => (part(written).min(capitals), ""),
    };
    let length = capitals + if tail.is_empty() { 0 } else { rest.chars().count() };
    let letters = written.get(..capitals).filter(|letters| letters.len() >= 2)?;
    if let Some((_, word)) = SAID.iter().find(|(known, _)| *known == letters) {
        return Some((length, format!("{word}{tail}")));
    }
    let after_name = matches!(out.last(), Some(Token::Word { from, .. }) if text
        .chars
        .iter()
        .any(|char| char.from == *from && char.c.is_uppercase()));
    if let Some((_, value)) = ROMAN.iter().find(|(known, _)| *known == letters)
        && after_name
    {
        return Some((length, cardinal(*value)));
    }
    let lower = letters.to_lowercase();
    if letters.len() > 5 || STRESSED.contains(&lower.as_str()) {
        return Some((length, format!("{lower}{tail}")));
    }
    let spelled: Vec<String> = letters.chars().map(String::from).collect();
    let tail = if tail.is_empty() { "" } else { "'s" };
    Some((length, format!("{}{tail}", spelled.join("."))))
}

/// Whether the text is in capitals as a whole, so that capitals mean nothing.
fn is_shouted(text: &Text) -> bool {
    let (mut upper, mut lower) = (0, 0);
    for char in &text.chars {
        upper += usize::from(char.c.is_uppercase());
        lower += usize::from(char.c.is_lowercase());
    }
    upper > 12 && upper > lower * 4
}
