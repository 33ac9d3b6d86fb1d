//! Does the utterance sound finished?
//!
//! Owns: the scorers behind [`super::Completion`] and their features. Must not
//! know: what a score leads to ([`super::endpoint`]).

mod features;
pub mod smart_turn;

pub use features::{BANDS, FRAMES, Features, SAMPLES};
