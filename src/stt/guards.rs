//! What of a decoding may be believed.
//!
//! Whisper writes something for every piece of audio: on noise it writes what
//! its training data had over noise, and now and then it repeats itself. These
//! rules are pure; the thresholds were set on the recordings of `tests/data`
//! and fifty more, of which six are noise, whole and in pieces of 0.7-3 s.

use super::decode::Decoded;

/// The signal's side of the evidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Signal {
    /// Loud parts over quiet parts (95th over 10th percentile of 20 ms frames), in dB.
    pub range_db: f32,
}

/// The operator's thresholds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub no_speech: f32,
    pub min_logprob: f32,
}

/// Speech rises and falls by 20 dB and more; steady noise does not.
const FLAT_DB: f32 = 12.0;
/// Mean log probability below which a text over steady noise is not believed.
const FLAT_LOGPROB: f32 = -0.7;
/// The same for a text that Whisper itself doubts to be speech.
const DOUBTED_LOGPROB: f32 = -0.6;
/// No-speech probability from which a phrase of the list is not believed.
const PHRASE_NO_SPEECH: f32 = 0.5;
/// Mean log probability below which it is not believed.
const PHRASE_LOGPROB: f32 = -0.9;
/// No-speech probability from which laughter, coughs and the like (one short
/// sound over and over) are not taken for words.
const LOOP_NO_SPEECH: f32 = 0.4;

/// What Whisper writes over silence and noise (normalised). Real callers say
/// some of these: they fall only when the evidence agrees.
const PHRASES: &[&str] = &[
    "you",
    "bye",
    "bye bye",
    "thank you",
    "thank you so much",
    "thank you very much",
    "thank you for watching",
    "thanks for watching",
    "thanks for watching bye",
    "thanks for listening",
    "please subscribe",
    "subscribe",
    "please subscribe to my channel",
    "like and subscribe",
    "see you next time",
    "see you in the next video",
    "i'll see you next time",
    "i'm sorry",
    "oh",
    "okay",
    "so",
    "the end",
    "music",
    "applause",
    "silence",
    "subtitles by the amara org community",
    "transcription by castingwords",
    "untertitel der amara org community",
    "sous titres réalisés par la communauté d'amara org",
    "subtítulos realizados por la comunidad de amara org",
    "ご視聴ありがとうございました",
    "字幕由amara org社区提供",
];

/// Whether a decoding should be tried again with more context: it repeats
/// itself, or the model is unsure although it hears speech.
pub(super) fn doubtful(decoded: &Decoded, limits: Limits) -> bool {
    let unsure = decoded.logprob < limits.min_logprob && decoded.no_speech < LOOP_NO_SPEECH;
    unsure || (repeats(decoded) && !is_whole_loop(decoded))
}

/// Whether the text ends in a loop.
pub(super) fn repeats(decoded: &Decoded) -> bool {
    repetition(&words(&decoded.text)).is_some()
}

/// A loop of whole sentences cut by the token limit needs no second try: the
/// first round is what was said.
fn is_whole_loop(decoded: &Decoded) -> bool {
    let words = words(&decoded.text);
    repetition(&words).is_some_and(|l| l.start == 0 && l.unit >= 5 && decoded.cut)
}

/// The text that is believed; empty when none is.
pub(super) fn believed(decoded: &Decoded, signal: Signal, limits: Limits) -> String {
    let text = without_annotations(&decoded.text);
    let flat = signal.range_db < FLAT_DB;
    let (p, logprob) = (decoded.no_speech, decoded.logprob);
    let phrase = PHRASES.contains(&normalised(&text).as_str());
    let unbelievable = logprob < limits.min_logprob
        || (p > limits.no_speech && logprob < DOUBTED_LOGPROB)
        || (flat && logprob < FLAT_LOGPROB)
        || (phrase && (flat || p > PHRASE_NO_SPEECH || logprob < PHRASE_LOGPROB));
    if unbelievable {
        return String::new();
    }
    let all = words(&text);
    match repetition(&all) {
        Some(l) if l.start == 0 && l.unit <= 2 && p > LOOP_NO_SPEECH => String::new(),
        Some(l) => all[..l.start + l.unit].join(" "),
        None => text,
    }
}

/// A run of words said over and over up to the end of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loop {
    /// Index of the first word of the first round.
    start: usize,
    /// Words in one round.
    unit: usize,
}

/// Finds the earliest loop: three whole rounds or more, or two of five words or
/// more, the last one followed by at most a part of the next. Digits may repeat
/// up to six times (account numbers do).
fn repetition(words: &[&str]) -> Option<Loop> {
    let plain: Vec<String> = words.iter().map(|w| normalised(w)).collect();
    let n = plain.len();
    for start in 0..n {
        for unit in 1..=(n - start) / 2 {
            let run = (start + unit..n).take_while(|&i| plain[i] == plain[i - unit]).count();
            if start + unit + run < n {
                continue;
            }
            let rounds = 1 + run / unit;
            let digits = plain[start..start + unit].iter().all(|w| w.chars().all(|c| c.is_ascii_digit()));
            let needed = match unit {
                _ if digits => 7,
                1 => 5,
                2 => 4,
                3 | 4 => 3,
                _ => 2,
            };
            if rounds >= needed {
                return Some(Loop { start, unit });
            }
        }
    }
    None
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// Lower case, letters and digits with single spaces and inner apostrophes.
fn normalised(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars().flat_map(char::to_lowercase) {
        if c.is_alphanumeric() || c == '\'' {
            out.push(c);
        } else if !out.ends_with(' ') && !out.is_empty() {
            out.push(' ');
        }
    }
    out.trim_end().to_owned()
}

/// Without `[Music]`, `(coughs)`, `*sighs*` and notes; empty when nothing is left that can be read out.
fn without_annotations(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut closing = None;
    for c in text.chars() {
        match (closing, c) {
            (Some(end), _) if c == end => closing = None,
            (Some(_), _) => {}
            (None, '[') => closing = Some(']'),
            (None, '(') => closing = Some(')'),
            (None, '*') => closing = Some('*'),
            (None, '♪' | '♫' | '♩' | '♬') => {}
            (None, c) => out.push(c),
        }
    }
    let out = out.split_whitespace().collect::<Vec<_>>().join(" ");
    if out.chars().any(char::is_alphanumeric) { out } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { no_speech: 0.6, min_logprob: -1.0 };
    const SPEECH: Signal = Signal { range_db: 30.0 };
    const NOISE: Signal = Signal { range_db: 6.0 };

    fn decoded(text: &str, no_speech: f32, logprob: f32) -> Decoded {
        Decoded { text: text.to_owned(), language: "en", no_speech, logprob, cut: false }
    }

    fn says(text: &str, no_speech: f32, logprob: f32, signal: Signal) -> String {
        believed(&decoded(text, no_speech, logprob), signal, LIMITS)
    }

    #[test]
    fn clear_speech_is_kept_as_it_is() {
        for text in ["How old is the Brooklyn Bridge?", "Yes.", "8, 0, 0, 5, 5, 5, 0, 1, 2, 3", "你好"] {
            assert_eq!(says(text, 0.1, -0.2, SPEECH), text);
        }
    }

    #[test]
    fn spoken_digits_are_kept_though_whisper_doubts_them() {
        assert_eq!(says("8, 0, 0, 5, 5, 5", 0.875, -0.15, SPEECH), "8, 0, 0, 5, 5, 5");
    }

    #[test]
    fn a_said_thank_you_is_kept_and_an_imagined_one_is_not() {
        assert_eq!(says("Thank you.", 0.1, -0.3, SPEECH), "Thank you.");
        assert_eq!(says("Thank you.", 0.64, -0.4, SPEECH), "", "Whisper doubts it");
        assert_eq!(says("Bye bye!", 0.1, -0.5, NOISE), "", "the signal is steady");
        assert_eq!(says("Thanks for watching!", 0.1, -0.95, SPEECH), "", "the words are unsure");
        assert_eq!(
            says("I said thank you for the order.", 0.55, -0.3, SPEECH),
            "I said thank you for the order."
        );
    }

    #[test]
    fn noise_says_nothing() {
        assert_eq!(says("I'm gonna go back to the car.", 0.84, -2.1, NOISE), "");
        assert_eq!(says("Tattu!", 0.14, -1.04, SPEECH), "");
        assert_eq!(says("We've never got a picture of us.", 0.46, -0.87, NOISE), "");
        assert_eq!(says("[Music] ♪ ♪ (coughs) *sighs* ...", 0.1, -0.1, SPEECH), "");
        assert_eq!(says(". . . . .", 0.1, -0.1, SPEECH), "");
    }

    #[test]
    fn an_annotation_beside_words_falls_alone() {
        assert_eq!(says("(coughs) Two tickets, please.", 0.1, -0.2, SPEECH), "Two tickets, please.");
    }

    #[test]
    fn a_loop_is_cut_to_its_first_round() {
        let hail = "Large hail and heavy rain. Large hail and heavy rain. Large hail and";
        assert_eq!(says(hail, 0.02, -0.04, SPEECH), "Large hail and heavy rain.");
        let able = "To resolve the ability to be able to be able to be able to be able to be";
        assert_eq!(says(able, 0.02, -0.3, SPEECH), "To resolve the ability to be able");
        assert_eq!(says("Ha ha ha ha ha ha ha ha ha", 0.457, -0.35, SPEECH), "");
        assert_eq!(says("Hi. Hi. Hi. Hi. Hi. Hi", 0.04, -0.2, SPEECH), "Hi.");
    }

    #[test]
    fn people_repeat_themselves() {
        for text in [
            "No, no, no, no.",
            "Hello, CQ, CQ, CQ, CQ, calling CQ.",
            "0 0 0 0 0 0",
            "I said left, I said left, now right.",
            "very very very good",
            "one more time, one more time",
        ] {
            assert_eq!(says(text, 0.1, -0.2, SPEECH), text);
        }
    }

    #[test]
    fn what_is_tried_again() {
        assert!(doubtful(&decoded("I am going to show you.", 0.04, -1.05), LIMITS), "unsure, yet speech");
        assert!(!doubtful(&decoded("I'm gonna die", 0.87, -2.3), LIMITS), "plain noise");
        assert!(doubtful(&decoded("Ha ha ha ha ha ha", 0.4, -0.3), LIMITS), "a loop of a sound");
        let mut whole = decoded("Large hail and heavy rain. Large hail and heavy rain. Large", 0.0, -0.04);
        assert!(doubtful(&whole, LIMITS), "perhaps it was said twice");
        whole.cut = true;
        assert!(!doubtful(&whole, LIMITS), "the first round is enough");
        assert!(!doubtful(&decoded("All is well.", 0.0, -0.2), LIMITS));
    }
}
