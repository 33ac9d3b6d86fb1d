//! Word error: how far a transcript is from what was said.
//!
//! Spelling that nobody hears does not count: case, punctuation and hyphens are
//! dropped, and numbers are brought to single digits on both sides, so that
//! "twenty ounce", "20 ounce" and "20-ounce" are equal, and so are "two one
//! zero" and "210".

/// Wrong words and words in the reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WordErrors {
    /// Substitutions, deletions and insertions (Levenshtein distance over words).
    pub errors: usize,
    /// Words in the normalised reference.
    pub words: usize,
}

impl WordErrors {
    /// Errors per reference word; 0 for an empty reference without errors.
    pub fn rate(self) -> f64 {
        if self.words == 0 { self.errors as f64 } else { self.errors as f64 / self.words as f64 }
    }
}

/// Compares a transcript with its reference.
pub fn word_errors(reference: &str, heard: &str) -> WordErrors {
    let (reference, heard) = (normalise(reference), normalise(heard));
    WordErrors { errors: distance(&reference, &heard), words: reference.len() }
}

/// The words that count: lower case, bare, numbers as single digits.
pub fn normalise(text: &str) -> Vec<String> {
    let mut bare = String::with_capacity(text.len());
    for c in text.to_lowercase().chars() {
        match c {
            // An apostrophe is inside a word, whatever its shape.
            '\'' | '\u{2019}' => {}
            // "p.m." is one word, "3.5" is two numbers.
            '.' if bare.ends_with(char::is_alphabetic) => {}
            c if c.is_alphanumeric() => bare.push(c),
            _ => bare.push(' '),
        }
    }
    let mut words = Vec::new();
    let mut number = Number::default();
    for word in bare.split_whitespace() {
        if !number.take(word) {
            number.finish(&mut words);
            words.push(word.to_owned());
        }
    }
    number.finish(&mut words);
    words
}

/// A run of number words or numerals being read.
#[derive(Default)]
struct Number {
    digits: String,
    /// The cardinal under way ("twenty" waits for "one").
    open: Option<u64>,
}

impl Number {
    /// Takes a word if it belongs to a number.
    fn take(&mut self, word: &str) -> bool {
        if word.chars().all(|c| c.is_ascii_digit()) {
            self.close();
            self.digits.push_str(word);
            return true;
        }
        if word == "hundred" || word == "thousand" {
            let Some(open) = self.open else { return false };
            self.open = Some(open * if word == "hundred" { 100 } else { 1000 });
            return true;
        }
        let value = match word {
            // "oh" is a digit only among digits.
            "oh" | "o" if !self.digits.is_empty() || self.open.is_some() => 0,
            _ => match value(word) {
                Some(value) => value,
                None => return false,
            },
        };
        match self.open {
            Some(open) if joins(open, value) => self.open = Some(open + value),
            _ => {
                self.close();
                self.open = Some(value);
            }
        }
        true
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.digits.push_str(&open.to_string());
        }
    }

    fn finish(&mut self, words: &mut Vec<String>) {
        self.close();
        words.extend(self.digits.drain(..).map(String::from));
    }
}

/// Whether `value` goes on with the cardinal `open`: "twenty" + "one", "four hundred" + "twelve".
fn joins(open: u64, value: u64) -> bool {
    let below = |unit: u64| open >= unit && open.is_multiple_of(unit) && value < unit && value > 0;
    below(1000)
        || below(100)
        || (open >= 20 && !open.is_multiple_of(100) && open.is_multiple_of(10) && (1..10).contains(&value))
}

fn value(word: &str) -> Option<u64> {
    const SMALL: [&str; 20] = [
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
    ];
    const TENS: [&str; 8] = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
    if let Some(index) = SMALL.iter().position(|small| *small == word) {
        return Some(index as u64);
    }
    TENS.iter().position(|tens| *tens == word).map(|index| (index as u64 + 2) * 10)
}

/// Levenshtein distance over words.
fn distance(a: &[String], b: &[String]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(left != right);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_does_not_count() {
        for (a, b) in [
            ("I'd like a twenty-ounce coffee.", "i\u{2019}d like a 20 ounce coffee"),
            ("Two one zero, six four seven.", "210-647"),
            ("Nine oh two one oh.", "90210"),
            ("at two thirty pm", "At 2:30 p.m."),
            ("four hundred twelve", "412"),
            ("Four, queen of clubs.", "4 Queen of Clubs"),
            ("One, two, three.", "1, 2, 3"),
        ] {
            assert_eq!(word_errors(a, b).errors, 0, "{a} / {b}: {:?} {:?}", normalise(a), normalise(b));
        }
    }

    #[test]
    fn errors_are_counted() {
        assert_eq!(word_errors("a b c d", "a x c"), WordErrors { errors: 2, words: 4 });
        assert_eq!(word_errors("", "noise").rate(), 1.0);
        assert_eq!(word_errors("one hundred", "1000").errors, 1);
        assert_eq!(word_errors("oh no", "no").errors, 1, "a lone oh is a word");
    }
}
