//! Audio vocabulary shared by every stage: rates, time in samples, codecs,
//! resampling.
//!
//! Inside the house audio is mono `f32` in -1.0..=1.0 at one of two fixed
//! rates: [`HEARING_RATE`] on the way in (what VAD, Smart Turn and Whisper
//! want) and [`SPEAKING_RATE`] on the way out. A dialect converts at the edge
//! with [`codec`] and [`resample`].
//!
//! Owns: conversions and the ring of what was heard. Must not know: what the
//! audio means. Everything here is synchronous and pure; tests: beside the code,
//! golden vectors in `tests/data/audio`.

pub mod clock;
pub mod codec;
pub mod resample;
pub mod ring;

/// Rate of everything heard, in Hz: conversation time counts these samples.
pub const HEARING_RATE: u32 = 16_000;
/// Rate of everything spoken, in Hz, before a dialect encodes it.
pub const SPEAKING_RATE: u32 = 24_000;
/// Samples in one voice-activity frame at [`HEARING_RATE`]: 32 ms.
pub const VAD_FRAME: usize = 512;
