//! Bytes to samples and back: raw PCM, G.711, WAV.

pub mod g711;
pub mod pcm;
pub mod wav;
