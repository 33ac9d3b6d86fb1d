//! Audio to words.
//!
//! Owns: the recogniser's model, its worker thread, partial and final
//! transcripts, the guards against loops and hallucinations. Must not know:
//! sessions, protocols, the language model.

mod board;
mod decode;
mod guards;
mod level;
pub mod scripted;
mod utterance;
mod whisper;
mod worker;

use tokio::sync::mpsc;

use crate::error::{Classify, Kind, Private};

pub use whisper::Whisper;

/// What a recogniser may be told about one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecognitionOptions {
    /// ISO 639-1 code; `None` detects the language.
    pub language: Option<String>,
    /// Words that are likely to be said (names, jargon), given to the decoder.
    pub prompt: Option<String>,
    /// Whether partial transcripts are wanted while the caller speaks.
    pub partials: bool,
}

/// One recognised word with its place in the stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Word {
    /// The word as written, with its punctuation.
    pub text: String,
    /// Start in samples at [`crate::audio::HEARING_RATE`] from the stream's first sample.
    pub start: u64,
    /// End, same unit.
    pub end: u64,
}

/// A finished transcript.
#[derive(Clone, Debug, PartialEq)]
pub struct Transcript {
    /// The words; empty when nothing was said (silence, noise, a hallucination that a guard dropped).
    pub text: Private<String>,
    /// Language that was set or detected (ISO 639-1).
    pub language: Option<String>,
    /// Mean probability that the audio holds no speech, 0..=1.
    pub no_speech: f32,
    /// Samples of audio it covers.
    pub samples: u64,
}

/// What comes out of a recognition stream.
#[derive(Clone, Debug, PartialEq)]
pub enum RecognitionEvent {
    /// The words so far; replaces the partial before it.
    Partial { text: Private<String> },
    /// Answer to [`RecognitionStream::flush`] with the same marker: everything pushed before it, decoded.
    Final { marker: u64, transcript: Transcript },
    /// The stream failed for this marker (`None`: as a whole).
    Failed { marker: Option<u64>, message: String },
}

/// Opens recognition streams; shared by all sessions.
pub trait Recognizer: Send + Sync + 'static {
    /// Opens a stream. Events go to `events`; a closed receiver ends the stream's work.
    ///
    /// # Errors
    /// [`SttError::Busy`] when no stream is free; [`SttError::Language`] for an unknown language.
    fn open(
        &self,
        options: &RecognitionOptions,
        events: mpsc::Sender<RecognitionEvent>,
    ) -> Result<Box<dyn RecognitionStream>, SttError>;
}

/// One utterance being recognised. Dropping it cancels the work, within one decoder step.
pub trait RecognitionStream: Send {
    /// Adds mono samples at [`crate::audio::HEARING_RATE`]. Never blocks.
    fn push(&mut self, samples: &[f32]);

    /// Asks for the final transcript of everything pushed so far. Pushing may
    /// go on afterwards (the end was retracted) and flush be called again: the
    /// newest flush wins, an older unanswered one may be skipped.
    fn flush(&mut self, marker: u64);
}

/// Why recognition cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SttError {
    /// Every stream is taken.
    #[error("all recognition streams are busy")]
    Busy,
    /// Not a language this model knows.
    #[error("language '{0}' is not known to the speech model")]
    Language(String),
    /// The model cannot be loaded.
    #[error("speech model: {0}")]
    Model(String),
}

impl Classify for SttError {
    fn kind(&self) -> Kind {
        match self {
            Self::Busy => Kind::Capacity,
            Self::Language(_) => Kind::Client,
            Self::Model(_) => Kind::Upstream,
        }
    }
}
