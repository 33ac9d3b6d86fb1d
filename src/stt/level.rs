//! How loud the audio is, frame by frame, and what in it may be a voice.
//!
//! No voice detector (the session has one): only the question which stretches
//! hold nothing, asked to find pauses and to reuse a decoding when only silence
//! has been added. In doubt the answer is "a voice".

use super::guards::Signal;
use crate::audio::HEARING_RATE;

/// Samples of one frame: 20 ms.
pub(super) const FRAME: usize = HEARING_RATE as usize / 50;
/// Nothing below this level (-70 dBFS) is speech; nor does a quieter floor say anything.
const SILENCE: f32 = 3e-4;
/// A range in dB below which loud and quiet cannot be told apart.
const FLAT_DB: f32 = 12.0;
/// Frames looked at to tell loud from quiet, at most.
const LOOK_BACK: usize = 1_500;
/// Where between floor and loud (in dB, 0..=1) a voice begins.
const VOICE_AT: f32 = 0.25;

/// Quiet and loud of a stretch: percentiles of its frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bounds {
    /// Third: one pause of 300 ms in ten seconds shows.
    floor: f32,
    /// Tenth.
    low: f32,
    /// 95th.
    loud: f32,
}

/// Levels of whole frames, from the first sample that is kept.
#[derive(Debug, Default)]
pub(super) struct Levels {
    rms: Vec<f32>,
    /// Of what was dropped: a pause alone knows neither quiet nor loud.
    before: Option<Bounds>,
}

impl Levels {
    /// Adds one whole frame.
    pub(super) fn push(&mut self, frame: &[f32]) {
        let power = frame.iter().map(|x| x * x).sum::<f32>() / frame.len().max(1) as f32;
        self.rms.push(power.sqrt());
    }

    /// Whole frames known.
    pub(super) fn len(&self) -> usize {
        self.rms.len()
    }

    /// Forgets the first `n` frames, whose bounds were `before`.
    pub(super) fn drop_front(&mut self, n: usize, before: Option<Bounds>) {
        self.before = before;
        self.rms.drain(..n.min(self.rms.len()));
    }

    /// Bounds of what was dropped.
    pub(super) fn before(&self) -> Option<Bounds> {
        self.before
    }

    /// Bounds of the frames `from..to`.
    pub(super) fn bounds(&self, from: usize, to: usize) -> Option<Bounds> {
        let mut sorted = self.rms.get(from..to.min(self.rms.len())).filter(|s| !s.is_empty())?.to_vec();
        sorted.sort_by(f32::total_cmp);
        let at = |p: f32| sorted[((sorted.len() - 1) as f32 * p) as usize].max(SILENCE);
        Some(Bounds { floor: at(0.03), low: at(0.1), loud: at(0.95) })
    }

    /// The evidence about the frames `from..to`.
    pub(super) fn signal(&self, from: usize, to: usize) -> Signal {
        Signal { range_db: self.bounds(from, to).map_or(0.0, |b| db(b.loud / b.low)) }
    }

    /// The level from which a frame may be a voice, judged by the frames
    /// `from..to` and by what came before them.
    fn threshold(&self, from: usize, to: usize, before: Option<Bounds>) -> f32 {
        let Some(Bounds { mut floor, mut loud, .. }) = self.bounds(from, to) else { return SILENCE };
        if let Some(before) = before {
            floor = floor.min(before.floor);
            // Half: the caller may have moved away from the microphone.
            loud = loud.max(before.loud / 2.0);
        }
        if db(loud / floor) < FLAT_DB {
            return SILENCE;
        }
        floor.powf(1.0 - VOICE_AT) * loud.powf(VOICE_AT)
    }

    /// Whether any of the frames `from..to` may be a voice.
    pub(super) fn voiced(&self, from: usize, to: usize) -> bool {
        let threshold = self.threshold(to.saturating_sub(LOOK_BACK), to, self.before);
        self.rms.get(from..to.min(self.rms.len())).is_some_and(|s| s.iter().any(|&l| l > threshold))
    }

    /// How many of the frames right before the newest hold no voice, when only
    /// those since `from` and `before` are considered.
    pub(super) fn quiet_run(&self, from: usize, before: Option<Bounds>) -> usize {
        let to = self.rms.len();
        let from = from.max(to.saturating_sub(LOOK_BACK));
        let threshold = self.threshold(from, to, before);
        self.rms[from..].iter().rev().take_while(|&&l| l <= threshold).count()
    }

    /// The middle of the quietest 100 ms among the frames `from..to`.
    pub(super) fn quietest(&self, from: usize, to: usize) -> usize {
        const SPAN: usize = 5;
        let power = |i: usize| self.rms[i..i + SPAN].iter().map(|l| l * l).sum::<f32>();
        let last = to.min(self.rms.len()).saturating_sub(SPAN);
        (from..=last).min_by(|&a, &b| power(a).total_cmp(&power(b))).unwrap_or(from) + SPAN / 2
    }
}

fn db(ratio: f32) -> f32 {
    20.0 * ratio.log10()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(parts: &[(f32, usize)]) -> Levels {
        let mut levels = Levels::default();
        for &(level, frames) in parts {
            (0..frames).for_each(|_| levels.push(&[level; FRAME]));
        }
        levels
    }

    #[test]
    fn a_pause_in_speech_is_found() {
        let l = levels(&[(0.001, 20), (0.1, 50), (0.001, 16)]);
        assert_eq!(l.quiet_run(0, None), 16);
        assert!(l.voiced(0, 86));
        assert!(!l.voiced(70, 86));
        assert!(l.signal(0, 86).range_db > 39.0);
    }

    #[test]
    fn in_steady_sound_all_may_be_a_voice() {
        let l = levels(&[(0.02, 40), (0.03, 40)]);
        assert_eq!(l.quiet_run(0, None), 0);
        assert!(l.voiced(0, 80));
    }

    #[test]
    fn digital_silence_holds_none() {
        let l = levels(&[(0.0, 100)]);
        assert!(!l.voiced(0, 100));
        assert_eq!(l.quiet_run(0, None), 100);
        assert_eq!(Levels::default().quiet_run(0, None), 0);
    }

    #[test]
    fn a_pause_that_stands_alone_remembers_the_speech_before_it() {
        let mut l = levels(&[(0.002, 20), (0.1, 50), (0.002, 30)]);
        let before = l.bounds(0, 80);
        l.drop_front(80, before);
        assert_eq!(l.len(), 20);
        assert!(!l.voiced(0, 20));
    }

    #[test]
    fn the_quietest_place_is_found() {
        let l = levels(&[(0.1, 30), (0.05, 5), (0.1, 30), (0.01, 5), (0.1, 10)]);
        assert_eq!(l.quietest(0, 80), 67);
        assert_eq!(l.quietest(0, 40), 32);
    }
}
