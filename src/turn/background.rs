//! How loud it is when nobody speaks to us.
//!
//! The quiet tenth of the last seconds: between words even fast speech falls to
//! it, while steady noise, music and far-off talk fill it with their own level.

use std::collections::VecDeque;

use super::vad::SILENCE_DB;

/// Frames looked at: 4 s.
const FRAMES: usize = 125;
/// Frames needed before the background is known: half a second.
const ENOUGH: usize = 16;

/// Tracks the level of the background.
#[derive(Clone, Debug)]
pub struct Background {
    levels: VecDeque<f32>,
}

impl Background {
    /// Nothing heard yet.
    pub fn new() -> Self {
        Self { levels: VecDeque::with_capacity(FRAMES) }
    }

    /// Takes the level of one frame, in dB of full scale.
    pub fn push(&mut self, level_db: f32) {
        if self.levels.len() == FRAMES {
            self.levels.pop_front();
        }
        self.levels.push_back(level_db);
    }

    /// The background's level, in dB of full scale; silence until enough was heard.
    pub fn level_db(&self) -> f32 {
        if self.levels.len() < ENOUGH {
            return SILENCE_DB;
        }
        let mut sorted: Vec<f32> = self.levels.iter().copied().collect();
        sorted.sort_by(f32::total_cmp);
        sorted[sorted.len() / 10]
    }
}

impl Default for Background {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_show_the_background_and_noise_fills_it() {
        let mut background = Background::new();
        assert_eq!(background.level_db(), SILENCE_DB);
        for frame in 0..200 {
            background.push(if frame % 8 == 0 { -62.0 } else { -25.0 });
        }
        assert_eq!(background.level_db(), -62.0);
        for _ in 0..FRAMES {
            background.push(-30.0);
        }
        assert_eq!(background.level_db(), -30.0);
    }
}
