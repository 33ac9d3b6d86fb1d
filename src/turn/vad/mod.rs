//! Voice or not: one score per frame of 32 ms.
//!
//! Owns: the scorers behind [`super::VoiceActivity`] and the level of a frame.
//! Must not know: what a score leads to ([`super::endpoint`]).

pub mod silero;

/// Level of a frame in dB relative to full scale (a full-scale square wave is 0 dB); -100 for digital silence.
pub fn level_db(frame: &[f32]) -> f32 {
    if frame.is_empty() {
        return SILENCE_DB;
    }
    let power = frame.iter().map(|sample| sample * sample).sum::<f32>() / frame.len() as f32;
    (10.0 * power.max(1e-12).log10()).max(SILENCE_DB)
}

/// What [`level_db`] says of digital silence.
pub const SILENCE_DB: f32 = -100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_relative_to_full_scale() {
        assert!((level_db(&[1.0, -1.0]) - 0.0).abs() < 1e-4);
        assert!((level_db(&[0.1; 512]) + 20.0).abs() < 1e-3);
        assert_eq!(level_db(&[0.0; 512]), SILENCE_DB);
        assert_eq!(level_db(&[]), SILENCE_DB);
    }
}
