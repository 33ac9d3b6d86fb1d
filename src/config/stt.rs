//! Speech recognition.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::{Invalid, Section};

/// Speech recognition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stt {
    /// Model of the final transcript: a name of the store (`whisper-tiny-en` hears
    /// English; `whisper-base` many languages, more slowly) or the path of a ggml file.
    pub model: String,
    /// Model of the partial transcripts; empty takes that of the final one,
    /// which also lets a final reuse a partial's work.
    pub partial_model: String,
    /// Language of callers who name none: ISO 639-1, or `auto` to detect it.
    pub language: String,
    /// With `auto`: the only languages to choose from; empty allows all the model knows.
    pub languages: Vec<String>,
    /// Threads that one decoding runs on, 1..=64.
    pub threads: usize,
    /// Decodings that run at the same time, 1..=16; each takes `threads` threads
    /// and memory of its own. More than cores / threads makes all of them slower.
    pub workers: usize,
    /// New speech after which a partial transcript is made, in ms, 100..=10000.
    pub partial_interval_ms: u32,
    /// Decode as soon as the voice falls quiet, before the end of the turn is
    /// decided, when a worker is idle: the final then only has to be read off.
    pub eager: bool,
    /// Speech after which a pause finishes a segment, in s, 3..=25: what lies
    /// before the pause is decoded at once and not again, so that the end of a
    /// long turn takes no longer than that of a short one.
    pub segment_s: f32,
    /// Longest utterance, in s, 30..=7200; what is said after it is refused.
    pub max_utterance_s: u32,
    /// Streams that may be open at the same time, 1..=10000.
    pub max_streams: usize,
    /// Text tokens that a second of audio may hold, 2..=50; more is a loop.
    pub tokens_per_s: f32,
    /// A transcript whose no-speech probability is above this and whose mean
    /// log probability is below `min_logprob` is dropped, 0..=1.
    pub no_speech: f32,
    /// See `no_speech`; -10..=0.
    pub min_logprob: f32,
}

impl Default for Stt {
    fn default() -> Self {
        Self {
            // On two cores it answers some 300 ms sooner than `whisper-base`, at the same words in English.
            model: "whisper-tiny-en".to_owned(),
            partial_model: String::new(),
            language: "auto".to_owned(),
            languages: Vec::new(),
            threads: 2,
            workers: 1,
            partial_interval_ms: 600,
            eager: true,
            segment_s: 8.0,
            max_utterance_s: 600,
            max_streams: 64,
            tokens_per_s: 6.0,
            no_speech: 0.6,
            min_logprob: -1.0,
        }
    }
}

impl Section for Stt {
    fn validate(&self) -> Result<(), Invalid> {
        fn within<T: PartialOrd + std::fmt::Display>(
            key: &str,
            value: T,
            range: RangeInclusive<T>,
        ) -> Result<(), Invalid> {
            if range.contains(&value) {
                return Ok(());
            }
            Err(Invalid::new(key, format!("must be from {} to {}", range.start(), range.end())))
        }
        if self.model.is_empty() {
            return Err(Invalid::new("model", "must name a model or a file"));
        }
        if self.language.is_empty() {
            return Err(Invalid::new("language", "must be a language code or 'auto'"));
        }
        within("threads", self.threads, 1..=64)?;
        within("workers", self.workers, 1..=16)?;
        within("partial_interval_ms", self.partial_interval_ms, 100..=10_000)?;
        within("segment_s", self.segment_s, 3.0..=25.0)?;
        within("max_utterance_s", self.max_utterance_s, 30..=7_200)?;
        within("max_streams", self.max_streams, 1..=10_000)?;
        within("tokens_per_s", self.tokens_per_s, 2.0..=50.0)?;
        within("no_speech", self.no_speech, 0.0..=1.0)?;
        within("min_logprob", self.min_logprob, -10.0..=0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_nonsense_is_not() {
        assert!(Stt::default().validate().is_ok());
        for (key, bad) in [
            ("model", Stt { model: String::new(), ..Stt::default() }),
            ("language", Stt { language: String::new(), ..Stt::default() }),
            ("threads", Stt { threads: 0, ..Stt::default() }),
            ("segment_s", Stt { segment_s: f32::NAN, ..Stt::default() }),
            ("no_speech", Stt { no_speech: 1.5, ..Stt::default() }),
        ] {
            let error = bad.validate().expect_err(key);
            assert_eq!(error.key, key);
        }
    }
}
