//! What the caller has heard of the agent's speech.
//!
//! Owns: when each stretch of audio was handed over and how loud it is. A
//! transport that reports its playback position overrides the estimate; without
//! reports, audio is taken to play from the moment it was handed over, each
//! stretch after the one before. Must not know: what was said.

use std::collections::VecDeque;
use std::time::Duration;

use crate::audio::SPEAKING_RATE;
use crate::turn::vad::level_db;

/// Samples over which one level is measured: as long as a voice-activity frame.
const LEVEL_WINDOW: usize = SPEAKING_RATE as usize * 32 / 1000;
/// Level of silence, dB of full scale.
const SILENCE_DB: f32 = -100.0;
/// How long levels are kept after they were played.
const KEEP: Duration = Duration::from_secs(2);
/// Sound quieter than this is not audible: -46 dB of full scale.
pub const AUDIBLE: f32 = 0.005;

/// Where a heard position comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The far end said so.
    Reported,
    /// From the clock.
    Estimated,
}

/// Playback of one response.
#[derive(Clone, Debug, Default)]
pub struct Playback {
    /// Start on the wall clock, samples.
    stretches: Vec<(Duration, u64)>,
    levels: VecDeque<(Duration, f32)>,
    until: Duration,
    samples: u64,
    reported: Option<u64>,
    /// It was stopped with this heard.
    stopped: Option<(u64, Source)>,
}

impl Playback {
    /// Audio was handed over at `now`; returns when it begins to play.
    pub fn push(&mut self, now: Duration, samples: &[f32]) -> Duration {
        let start = self.until.max(now);
        match self.stretches.last_mut() {
            // Contiguous audio is one stretch, however many pieces it came in.
            Some((_, count)) if start == self.until && now <= self.until => *count += samples.len() as u64,
            _ => self.stretches.push((start, samples.len() as u64)),
        }
        for (index, window) in samples.chunks(LEVEL_WINDOW).enumerate() {
            self.levels.push_back((start + length((index * LEVEL_WINDOW) as u64), level_db(window)));
        }
        self.samples += samples.len() as u64;
        self.until = start + length(samples.len() as u64);
        start
    }

    /// The far end says how much it has played, in samples.
    pub fn report(&mut self, samples: u64) {
        self.reported = Some(samples.min(self.samples));
    }

    /// The sound ends here: what was not played yet is dropped at the far end.
    pub fn stop(&mut self, now: Duration) {
        self.stopped = Some(self.heard(now));
        self.until = self.until.min(now);
        self.levels.clear();
    }

    /// Samples handed over.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// When the last sample handed over will have been played.
    pub fn until(&self) -> Duration {
        self.until
    }

    /// Whether something is being played.
    pub fn is_playing(&self, now: Duration) -> bool {
        match self.reported {
            _ if self.stopped.is_some() => false,
            Some(reported) => reported < self.samples && now < self.until + KEEP,
            None => now < self.until,
        }
    }

    /// Samples heard so far, and how that is known.
    pub fn heard(&self, now: Duration) -> (u64, Source) {
        if let Some(stopped) = self.stopped {
            return stopped;
        }
        if let Some(reported) = self.reported {
            return (reported, Source::Reported);
        }
        let heard = self
            .stretches
            .iter()
            .map(|(start, count)| {
                let played = now.saturating_sub(*start).as_secs_f64() * f64::from(SPEAKING_RATE);
                (played as u64).min(*count)
            })
            .sum();
        (heard, Source::Estimated)
    }

    /// Level of what plays at `now`, dB of full scale.
    pub fn level_db(&mut self, now: Duration) -> f32 {
        while self.levels.front().is_some_and(|(start, _)| *start + KEEP < now) {
            self.levels.pop_front();
        }
        if now >= self.until {
            return SILENCE_DB;
        }
        let after = self.levels.partition_point(|(start, _)| *start <= now);
        after.checked_sub(1).map_or(SILENCE_DB, |index| self.levels[index].1)
    }
}

/// How long samples at [`SPEAKING_RATE`] last.
pub fn length(samples: u64) -> Duration {
    Duration::from_nanos(samples * 1_000_000_000 / u64::from(SPEAKING_RATE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn audio_faster_than_real_time_plays_one_after_the_other() {
        let mut playback = Playback::default();
        assert_eq!(playback.push(ms(100), &[0.5; 2400]), ms(100));
        assert_eq!(playback.push(ms(100), &[0.5; 2400]), ms(200));
        assert_eq!(playback.heard(ms(150)), (1200, Source::Estimated));
        assert_eq!(playback.heard(ms(1000)).0, 4800);
        assert!(playback.is_playing(ms(299)) && !playback.is_playing(ms(300)));
    }

    #[test]
    fn a_late_stretch_leaves_a_hole() {
        let mut playback = Playback::default();
        playback.push(ms(0), &[0.5; 2400]);
        playback.push(ms(500), &[0.5; 2400]);
        assert_eq!(playback.heard(ms(400)).0, 2400, "the hole is not heard");
        assert_eq!(playback.heard(ms(550)).0, 3600);
        assert_eq!(playback.level_db(ms(300)), SILENCE_DB.max(playback.level_db(ms(300))));
    }

    #[test]
    fn a_report_counts_more_than_the_clock() {
        let mut playback = Playback::default();
        playback.push(ms(0), &[0.5; 24_000]);
        playback.report(1_000);
        assert_eq!(playback.heard(ms(900)), (1_000, Source::Reported));
        playback.report(99_999);
        assert_eq!(playback.heard(ms(900)).0, 24_000, "no more than was sent");
    }

    #[test]
    fn what_is_stopped_is_not_heard_any_more() {
        let mut playback = Playback::default();
        playback.push(ms(0), &[0.5; 24_000]);
        playback.stop(ms(250));
        assert_eq!(playback.heard(ms(900)), (6_000, Source::Estimated));
        assert!(!playback.is_playing(ms(260)) && playback.until() == ms(250));
        assert_eq!(playback.level_db(ms(250)), SILENCE_DB);
    }

    #[test]
    fn the_level_is_of_what_plays_now() {
        let mut playback = Playback::default();
        let mut samples = vec![0.0; 2400];
        samples.extend(vec![0.5; 2400]);
        playback.push(ms(0), &samples);
        assert!(playback.level_db(ms(20)) < -60.0);
        assert!(playback.level_db(ms(160)) > -20.0);
        assert_eq!(playback.level_db(ms(300)), SILENCE_DB);
    }
}
