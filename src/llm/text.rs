//! Tokens back to text, as it streams.
//!
//! Owns: what may be shown now ([`Detokenizer`]), where a stop string cuts
//! ([`StopStrings`]), and when the model repeats itself ([`RepeatGuard`]).

/// Turns token bytes into text that is never cut inside a character or an
/// emoji sequence (Unicode TS 51: skin tones, joiners, flags, keycaps).
#[derive(Clone, Debug, Default)]
pub struct Detokenizer {
    /// Bytes that are no whole character yet, at most three.
    bytes: Vec<u8>,
    /// Whole characters whose sequence may go on.
    held: String,
}

impl Detokenizer {
    /// Adds the bytes of a token; gives what is settled. Bytes that are no
    /// UTF-8 become U+FFFD.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.bytes.extend_from_slice(bytes);
        self.decode();
        let keep = open_sequence(&self.held);
        let rest = self.held.split_off(keep);
        std::mem::replace(&mut self.held, rest)
    }

    /// The rest, when no more tokens come.
    pub fn finish(&mut self) -> String {
        let mut text = std::mem::take(&mut self.held);
        if !std::mem::take(&mut self.bytes).is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
        text
    }

    fn decode(&mut self) {
        let mut at = 0;
        while at < self.bytes.len() {
            match std::str::from_utf8(&self.bytes[at..]) {
                Ok(text) => {
                    self.held.push_str(text);
                    at = self.bytes.len();
                }
                Err(error) => {
                    let good = at + error.valid_up_to();
                    // These bytes were found valid.
                    self.held.push_str(&String::from_utf8_lossy(&self.bytes[at..good]));
                    at = good;
                    match error.error_len() {
                        Some(bad) => {
                            self.held.push(char::REPLACEMENT_CHARACTER);
                            at += bad;
                        }
                        None => break,
                    }
                }
            }
        }
        self.bytes.drain(..at);
    }
}

/// Where the run of emoji characters at the end begins: what comes next may
/// belong to it. A run longer than any sequence in use is let go.
fn open_sequence(text: &str) -> usize {
    const LONGEST: usize = 64;
    let start = text.char_indices().rev().take_while(|(_, c)| is_emoji_part(*c)).last();
    match start {
        Some((at, _)) if text.len() - at <= LONGEST => at,
        _ => text.len(),
    }
}

fn is_emoji_part(c: char) -> bool {
    matches!(u32::from(c),
        0x200D | 0xFE0F | 0x20E3        // joiner, emoji presentation, keycap
        | 0x2190..=0x21FF | 0x2300..=0x23FF | 0x2600..=0x27BF | 0x2B00..=0x2BFF // older pictographs
        | 0x1F000..=0x1FAFF             // pictographs, flags, skin tones
        | 0xE0020..=0xE007F) // tags of regional flags
}

/// Cuts a stream of text at the first of some strings.
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    held: String,
    stopped: bool,
}

impl StopStrings {
    /// Stops at any of these; empty strings are dropped.
    pub fn new(stops: impl IntoIterator<Item = String>) -> Self {
        let stops = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        Self { stops, ..Self::default() }
    }

    /// Adds text; gives what is surely before any stop string.
    pub fn push(&mut self, text: &str) -> String {
        if self.stopped {
            return String::new();
        }
        self.held.push_str(text);
        if let Some(at) = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min() {
            self.stopped = true;
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let keep = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        std::mem::replace(&mut self.held, rest)
    }

    /// Whether a stop string was seen.
    pub const fn stopped(&self) -> bool {
        self.stopped
    }

    /// The rest, when no more text comes.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Bytes at the end of `text` that are a proper beginning of `mark`.
pub(super) fn overlap(text: &str, mark: &str) -> usize {
    let lengths = mark.char_indices().map(|(at, _)| at).skip(1).collect::<Vec<_>>();
    lengths.into_iter().rev().find(|at| text.ends_with(&mark[..*at])).unwrap_or(0)
}

/// Sees the same sentence come again and again: greedy decoding of a small
/// model falls into such loops, and a voice agent must not babble.
#[derive(Clone, Debug)]
pub struct RepeatGuard {
    limit: u32,
    last: String,
    open: String,
    count: u32,
}

impl RepeatGuard {
    /// Fires when one sentence was said this many times in a row.
    pub const fn new(limit: u32) -> Self {
        Self { limit, last: String::new(), open: String::new(), count: 0 }
    }

    /// Adds text; `true` when the limit is reached.
    pub fn push(&mut self, text: &str) -> bool {
        for c in text.chars() {
            if !matches!(c, '.' | '!' | '?' | '\n' | '。' | '！' | '？') {
                if c.is_alphanumeric() {
                    self.open.extend(c.to_lowercase());
                }
                continue;
            }
            // Short ones ("No. No. No.") are how people speak, and numbers are counted with stops.
            if self.open.chars().count() < 8 {
                if !self.open.is_empty() {
                    self.last.clear();
                    self.count = 0;
                }
            } else if self.open == self.last {
                self.count += 1;
            } else {
                std::mem::swap(&mut self.open, &mut self.last);
                self.count = 1;
            }
            self.open.clear();
            if self.count >= self.limit {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn characters_and_emoji_stay_whole() {
        let text = "née 👩🏽‍💻 and 🇫🇷🇩🇪! 1️⃣ 你好 🏳️‍🌈";
        let wholes = ["👩🏽‍💻", "🇫🇷🇩🇪", "🏳️‍🌈"];
        for size in 1..7 {
            let mut detokenizer = Detokenizer::default();
            let mut parts: Vec<String> =
                text.as_bytes().chunks(size).map(|bytes| detokenizer.push(bytes)).collect();
            parts.push(detokenizer.finish());
            assert_eq!(parts.concat(), text);
            for whole in wholes {
                assert_eq!(parts.iter().filter(|part| part.contains(whole)).count(), 1, "{whole} {parts:?}");
            }
        }
    }

    #[test]
    fn plain_text_is_not_held() {
        let mut detokenizer = Detokenizer::default();
        assert_eq!(detokenizer.push(b"Hello 42"), "Hello 42");
        assert_eq!(detokenizer.push(&[0xC3]), "");
        assert_eq!(detokenizer.push(&[0xA9, b'!']), "é!");
        assert_eq!(detokenizer.push(&[0xFF, b'a']), "\u{FFFD}a");
        assert_eq!(detokenizer.push(&[0xE4, 0xBD]), "");
        assert_eq!(detokenizer.finish(), "\u{FFFD}");
    }

    #[test]
    fn a_stop_string_cuts_wherever_it_falls() {
        let mut stops = StopStrings::new(["END".to_owned(), String::new()]);
        assert_eq!(stops.push("the E"), "the ");
        assert_eq!(stops.push("N"), "");
        assert_eq!(stops.push("Gland EN"), "ENGland ");
        assert_eq!(stops.push("D after"), "");
        assert!(stops.stopped());
        assert_eq!(stops.push("more"), "");
        assert_eq!(stops.finish(), "");
    }

    #[test]
    fn a_sentence_said_thrice_is_a_loop() {
        let mut guard = RepeatGuard::new(3);
        assert!(!guard.push("I am happy to help. No. No. No. I am happy to help. I am happy to"));
        assert!(!guard.push(" help."));
        assert!(guard.push("\nI am happy to help."));
        let mut guard = RepeatGuard::new(3);
        assert!(!guard.push("I can count: one. two. three. 3.14. 3.14. 3.14. Then I can count again. Ok."));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_however_it_is_cut(text in "\\PC{0,40}", cuts in prop::collection::vec(1_usize..6, 0..60)) {
            let mut detokenizer = Detokenizer::default();
            let mut out = String::new();
            let mut rest = text.as_bytes();
            for cut in cuts {
                let (head, tail) = rest.split_at(cut.min(rest.len()));
                out.push_str(&detokenizer.push(head));
                rest = tail;
            }
            out.push_str(&detokenizer.push(rest));
            out.push_str(&detokenizer.finish());
            prop_assert_eq!(out, text);
        }
    }
}
