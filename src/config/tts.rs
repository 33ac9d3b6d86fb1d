//! Speech synthesis.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Invalid, Section};

/// Speech synthesis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tts {
    /// The voices that can be asked for by name; the first is the default one.
    pub voices: Vec<Voice>,
    /// The program that turns words into phonemes (Debian package `espeak-ng`).
    pub espeak: PathBuf,
    /// Milliseconds after which a silent phonemizer is killed and started anew. 50..=60000.
    pub espeak_timeout_ms: u64,
    /// Threads that one clause may use. 1..=64.
    pub threads: usize,
    /// Answers that may be spoken at once; one more is refused. 1..=10000.
    pub max_streams: usize,
    /// Bytes of text that one answer may have; a longer one fails. 1..=10000000.
    pub max_stream_bytes: usize,
    /// Words after which the first clause is cut at a natural joint although no mark came. 2..=50.
    pub first_clause_words: usize,
    /// Characters after which a comma ends a clause, once the answer runs. 10..=1000.
    pub clause_chars: usize,
    /// Characters at which a clause is cut wherever it is. 20..=2000.
    pub max_clause_chars: usize,
    /// Part of the voice's own chance variation in sound and rhythm that is kept: 0 says the same text the
    /// same way every time, 1 is lively. 0..=1.
    pub variation: f32,
    /// Silence kept after a sentence, in milliseconds at speed 1. 0..=2000.
    pub sentence_pause_ms: u32,
    /// Silence kept after a comma and the like, in milliseconds at speed 1. 0..=2000.
    pub comma_pause_ms: u32,
    /// Silence kept where a clause was cut without a mark, in milliseconds at speed 1. 0..=2000.
    pub joint_pause_ms: u32,
}

impl Default for Tts {
    fn default() -> Self {
        Self {
            voices: vec![Voice {
                name: "joe".to_owned(),
                model: "piper-en-us-joe-medium".to_owned(),
                speaker: 0,
            }],
            espeak: PathBuf::from("espeak-ng"),
            espeak_timeout_ms: 2_000,
            threads: 2,
            max_streams: 64,
            max_stream_bytes: 65_536,
            first_clause_words: 7,
            clause_chars: 90,
            max_clause_chars: 240,
            variation: 1.0,
            sentence_pause_ms: 280,
            comma_pause_ms: 140,
            joint_pause_ms: 30,
        }
    }
}

impl Section for Tts {
    fn validate(&self) -> Result<(), Invalid> {
        let within = |key: &str, value: u64, range: std::ops::RangeInclusive<u64>| {
            range.contains(&value).then_some(()).ok_or_else(|| {
                Invalid::new(key, format!("must be from {} to {}", range.start(), range.end()))
            })
        };
        if self.voices.is_empty() {
            return Err(Invalid::new("voices", "must name at least one voice"));
        }
        if self.voices.iter().any(|voice| voice.name.trim().is_empty() || voice.model.trim().is_empty()) {
            return Err(Invalid::new("voices", "must give each voice a name and a model"));
        }
        within("espeak_timeout_ms", self.espeak_timeout_ms, 50..=60_000)?;
        within("threads", self.threads as u64, 1..=64)?;
        within("max_streams", self.max_streams as u64, 1..=10_000)?;
        within("max_stream_bytes", self.max_stream_bytes as u64, 1..=10_000_000)?;
        within("first_clause_words", self.first_clause_words as u64, 2..=50)?;
        within("clause_chars", self.clause_chars as u64, 10..=1_000)?;
        within("max_clause_chars", self.max_clause_chars as u64, 20..=2_000)?;
        if !(0.0..=1.0).contains(&self.variation) {
            return Err(Invalid::new("variation", "must be from 0 to 1"));
        }
        within("sentence_pause_ms", self.sentence_pause_ms.into(), 0..=2_000)?;
        within("comma_pause_ms", self.comma_pause_ms.into(), 0..=2_000)?;
        within("joint_pause_ms", self.joint_pause_ms.into(), 0..=2_000)
    }
}

/// A voice that can be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Voice {
    /// The name a client asks for.
    pub name: String,
    /// The model in the store: a folder with `voice.onnx` and `voice.onnx.json`.
    pub model: String,
    /// Which speaker of a model that has several.
    #[serde(default)]
    pub speaker: i64,
}
