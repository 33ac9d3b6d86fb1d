//! What the words so far say about the end of a turn.

/// How the words recognised so far end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tail {
    /// No words yet.
    #[default]
    Nothing,
    /// In the middle of something.
    Open,
    /// With the mark of a whole sentence.
    Sentence,
    /// With digits: more may follow.
    Number,
}

const NUMBERS: [&str; 14] = [
    "zero", "oh", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "double",
    "triple",
];

impl Tail {
    /// How a text ends.
    pub fn of(text: &str) -> Self {
        let text = text.trim();
        let Some(last) = text.split_whitespace().next_back() else { return Self::Nothing };
        // Nobody goes on counting after a question.
        if text.ends_with(['?', '？']) {
            return Self::Sentence;
        }
        let bare = last.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        if bare.ends_with(|c: char| c.is_ascii_digit()) || NUMBERS.contains(&bare.as_str()) {
            return Self::Number;
        }
        if text.ends_with("...") || text.ends_with('…') {
            return Self::Open;
        }
        if text.ends_with(['.', '!', '。', '！']) { Self::Sentence } else { Self::Open }
    }
}

/// The words of a text, lower case, without marks.
pub fn words(text: &str) -> Vec<String> {
    text.split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase())
        .filter(|word| !word.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_told_apart() {
        for (text, tail) in [
            ("", Tail::Nothing),
            ("  ", Tail::Nothing),
            ("What is", Tail::Open),
            ("I would like...", Tail::Open),
            ("What is the capital of France?", Tail::Sentence),
            ("My number is 212, 555", Tail::Number),
            ("Four nine.", Tail::Number),
            ("What is two plus two?", Tail::Sentence),
            ("广州市房地产。", Tail::Sentence),
        ] {
            assert_eq!(Tail::of(text), tail, "{text:?}");
        }
        assert_eq!(words("Uh-huh, OK!"), ["uh-huh", "ok"]);
    }
}
