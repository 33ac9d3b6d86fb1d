//! Words to audio.
//!
//! Owns: the voice model, its worker thread, clause cutting, normalisation,
//! word timing. Must not know: sessions, protocols, the language model.

pub mod feed;
pub mod normalise;
pub mod piper;
mod port;
pub mod scripted;
pub mod worker;

pub use port::PlacedWord;

use tokio::sync::mpsc;

use crate::error::{Classify, Kind};

/// What a session asks of a voice.
#[derive(Clone, Debug, PartialEq)]
pub struct VoiceOptions {
    /// Voice name; an unknown one falls back to the default voice.
    pub voice: String,
    /// 1.0 is the voice's own speed; 0.25..=1.5.
    pub speed: f32,
}

impl Default for VoiceOptions {
    fn default() -> Self {
        Self { voice: "default".to_owned(), speed: 1.0 }
    }
}

/// What comes out of a synthesis stream. Sample positions count from the
/// stream's first sample at [`crate::audio::SPEAKING_RATE`].
#[derive(Clone, Debug, PartialEq)]
pub enum SynthesisEvent {
    /// A clause starts; `text` is what was fed, from `from` to `to` in bytes of everything fed to this stream.
    /// Its words and audio follow.
    Clause { from: usize, to: usize },
    /// A word's place: bytes `from..to` of everything fed, samples `start..end`. Comes before its audio.
    Word { from: usize, to: usize, start: u64, end: u64 },
    /// The next samples, mono, in order, without gaps.
    Audio { samples: Vec<f32> },
    /// Everything fed before `finish` has been delivered.
    Done,
    /// The stream failed; nothing follows.
    Failed { message: String },
}

/// Opens synthesis streams; shared by all sessions.
pub trait Synthesizer: Send + Sync + 'static {
    /// Opens a stream.
    ///
    /// # Errors
    /// [`TtsError::Busy`] when no stream is free.
    fn open(
        &self,
        voice: &VoiceOptions,
        events: mpsc::Sender<SynthesisEvent>,
    ) -> Result<Box<dyn SynthesisStream>, TtsError>;

    /// Names of the voices it has, default first.
    fn voices(&self) -> Vec<String>;
}

/// One answer being spoken. Dropping it cancels the work.
pub trait SynthesisStream: Send {
    /// Adds text as the language model writes it (any cut, even inside a
    /// word). The stream cuts it into clauses itself and starts on a clause
    /// as soon as it is whole. Never blocks.
    fn feed(&mut self, text: &str);

    /// No more text: speaks what is left, then sends [`SynthesisEvent::Done`].
    fn finish(&mut self);
}

/// Why synthesis cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TtsError {
    /// Every stream is taken.
    #[error("all synthesis streams are busy")]
    Busy,
    /// The voice cannot be loaded.
    #[error("voice model: {0}")]
    Model(String),
}

impl Classify for TtsError {
    fn kind(&self) -> Kind {
        match self {
            Self::Busy => Kind::Capacity,
            Self::Model(_) => Kind::Upstream,
        }
    }
}
