//! Who holds the floor.
//!
//! Owns: voice-activity and completion scorers (run by the session's driver)
//! and the pure policies over their scores: end of turn and barge-in. Must not
//! know: history, async, the wall clock. Times are samples heard at
//! [`crate::audio::HEARING_RATE`].

pub mod barge_in;
pub mod endpoint;
pub mod local;
pub mod scripted;
pub mod semantic;
pub mod vad;
pub mod words;

mod background;

pub use endpoint::Eagerness;

use crate::error::{Classify, Kind};

/// A position on the conversation's clock: samples heard since its start.
pub type AudioTime = u64;

/// Scores one frame of [`crate::audio::VAD_FRAME`] samples for voice.
pub trait VoiceActivity: Send {
    /// Probability of voice in this frame, 0..=1. Keeps state across frames.
    ///
    /// # Errors
    /// When the model fails; the caller may go on with the next frame.
    fn score(&mut self, frame: &[f32]) -> Result<f32, TurnError>;
    /// Forgets the state, for a new caller or after a long gap.
    fn reset(&mut self);
}

/// Scores how finished an utterance sounds.
pub trait Completion: Send + Sync {
    /// Probability that the turn is complete, from the audio so far (the last
    /// 8 s at most are looked at, [`crate::audio::HEARING_RATE`]). Blocks for tens of milliseconds.
    ///
    /// # Errors
    /// When the model fails.
    fn score(&self, utterance: &[f32]) -> Result<f32, TurnError>;
}

/// Makes the scorers of a session; shared by all sessions.
pub trait TurnModels: Send + Sync + 'static {
    /// A fresh voice-activity scorer.
    ///
    /// # Errors
    /// When the model cannot be loaded.
    fn voice_activity(&self) -> Result<Box<dyn VoiceActivity>, TurnError>;
    /// The shared completion scorer.
    fn completion(&self) -> std::sync::Arc<dyn Completion>;
}

/// Why a scorer fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TurnError {
    #[error("{model}: {reason}")]
    Model { model: &'static str, reason: String },
}

impl Classify for TurnError {
    fn kind(&self) -> Kind {
        Kind::Upstream
    }
}
