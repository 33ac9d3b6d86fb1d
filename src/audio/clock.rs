//! Time counted in samples, and its conversion to milliseconds.
//!
//! Conversions round to the nearest unit and cannot overflow for any length a
//! conversation can have (they go through 128 bits).

use super::{HEARING_RATE, SPEAKING_RATE};

/// Samples per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u32);

impl Rate {
    /// The clock of a conversation: [`HEARING_RATE`].
    pub const HEARING: Self = Self(HEARING_RATE);
    /// The clock of what is spoken: [`SPEAKING_RATE`].
    pub const SPEAKING: Self = Self(SPEAKING_RATE);

    /// A rate in Hz; `None` for zero.
    pub const fn new(hz: u32) -> Option<Self> {
        if hz == 0 { None } else { Some(Self(hz)) }
    }

    /// In Hz.
    pub const fn hz(self) -> u32 {
        self.0
    }

    /// Samples in this many milliseconds, to the nearest.
    pub const fn samples(self, time: Millis) -> u64 {
        scale(time.0, self.0, 1000)
    }

    /// Milliseconds in this many samples, to the nearest.
    pub const fn millis(self, samples: u64) -> Millis {
        Millis(scale(samples, 1000, self.0))
    }

    /// Seconds in this many samples.
    pub fn seconds(self, samples: u64) -> f64 {
        samples as f64 / f64::from(self.0)
    }

    /// The position on another clock that means the same instant, to the nearest sample.
    pub const fn convert(self, samples: u64, to: Self) -> u64 {
        scale(samples, to.0, self.0)
    }
}

/// A length or position in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// This length in samples at [`HEARING_RATE`].
    pub const fn heard(self) -> u64 {
        Rate::HEARING.samples(self)
    }
}

/// A position that advances with every sample that passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    rate: Rate,
    at: u64,
}

impl Clock {
    /// A clock at its start.
    pub const fn new(rate: Rate) -> Self {
        Self { rate, at: 0 }
    }

    /// Lets `samples` pass and returns the new position.
    pub fn advance(&mut self, samples: usize) -> u64 {
        self.at += samples as u64;
        self.at
    }

    /// Samples since the start.
    pub const fn now(self) -> u64 {
        self.at
    }

    /// Milliseconds since the start.
    pub const fn millis(self) -> Millis {
        self.rate.millis(self.at)
    }

    /// Its rate.
    pub const fn rate(self) -> Rate {
        self.rate
    }
}

/// `value * by / per`, to the nearest.
const fn scale(value: u64, by: u32, per: u32) -> u64 {
    let wide = value as u128 * by as u128 + per as u128 / 2;
    (wide / per as u128) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_to_the_nearest() {
        assert_eq!(Millis(32).heard(), 512);
        assert_eq!(Rate::HEARING.millis(8), Millis(1));
        assert_eq!(Rate::HEARING.millis(7), Millis(0));
        assert_eq!(Rate::HEARING.convert(160, Rate::SPEAKING), 240);
        assert_eq!(Rate::new(44_100).map(|rate| rate.samples(Millis(10))), Some(441));
        assert_eq!(Rate::new(0), None);
    }

    #[test]
    fn a_year_does_not_overflow() {
        let year = Millis(365 * 24 * 3600 * 1000);
        assert_eq!(Rate::SPEAKING.millis(Rate::SPEAKING.samples(year)), year);
    }

    #[test]
    fn the_clock_counts_samples() {
        let mut clock = Clock::new(Rate::HEARING);
        clock.advance(160);
        assert_eq!(clock.advance(160), 320);
        assert_eq!(clock.millis(), Millis(20));
    }
}
