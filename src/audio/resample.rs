//! Anti-aliased sample-rate conversion of a stream.
//!
//! A windowed-sinc polyphase filter (rubato's sinc resampler with one
//! pre-computed phase for every position that the two rates can meet at, so
//! nothing is interpolated). State is kept across pushes of any size: pieces
//! give exactly the samples that one push of the whole gives.
//!
//! The filter's delay is taken out: output sample `k` is the input at time
//! `k / to`, and after [`Resampler::flush`] there are
//! `round(input samples * to / from)` samples. Until then the newest
//! [`Resampler::latency`] input samples are held back. Pass band to 0.9 of the
//! lower rate's half, images and aliases below -65 dB.

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{
    Async, FixedAsync, Resampler as _, SincInterpolationParameters, SincInterpolationType, WindowFunction,
    calculate_cutoff,
};

use super::clock::Rate;
use crate::error::{Classify, Kind};

/// Filter length in samples of the lower of the two rates: 4 ms each way at 8 kHz.
const TAPS: usize = 64;
const WINDOW: WindowFunction = WindowFunction::Blackman;
/// Input is worked off in pieces of this part of a second (2.5 ms).
const PIECES_PER_SECOND: u32 = 400;
/// Bounds of a rate that is taken, in Hz.
const RATES: std::ops::RangeInclusive<u32> = 4_000..=192_000;
/// Largest filter table, in coefficients (4 MiB): rates with hardly a common divisor need too many phases.
const MAX_TABLE: usize = 1 << 20;

/// Why a conversion is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResampleError {
    /// A rate outside 4..=192 kHz, or a pair with hardly a common divisor.
    #[error("cannot convert audio from {from} Hz to {to} Hz: {reason}")]
    Rates {
        /// Rate of the input, in Hz.
        from: u32,
        /// Rate asked for, in Hz.
        to: u32,
        /// What is wrong with them.
        reason: &'static str,
    },
}

impl Classify for ResampleError {
    fn kind(&self) -> Kind {
        Kind::Client
    }
}

/// Converts one mono stream from one rate to another.
pub struct Resampler {
    from: u32,
    to: u32,
    /// `None`: the rates are equal and samples pass untouched.
    filter: Option<Filter>,
}

struct Filter {
    inner: Async<f32>,
    /// Input that does not fill a piece yet.
    waiting: Vec<f32>,
    piece: usize,
    scratch: Vec<f32>,
    /// Silence before the stream, so that its start falls on an output sample.
    pad: usize,
    /// Output samples that lie before the stream's start.
    delay: usize,
    /// Those of them still to be dropped.
    skip: usize,
    taken: u64,
    given: u64,
}

impl Resampler {
    /// A converter at the start of a stream; rates in Hz.
    ///
    /// # Errors
    /// When a rate is outside 4..=192 kHz or the pair needs too large a filter.
    pub fn new(from: u32, to: u32) -> Result<Self, ResampleError> {
        let refuse = |reason| ResampleError::Rates { from, to, reason };
        if !RATES.contains(&from) || !RATES.contains(&to) {
            return Err(refuse("rates from 4000 to 192000 Hz are taken"));
        }
        if from == to {
            return Ok(Self { from, to, filter: None });
        }
        let phases = (to / gcd(from, to)) as usize;
        // The filter must span TAPS samples of the lower rate.
        let taps = (TAPS * from.max(to) as usize / to as usize).next_multiple_of(8);
        if phases * taps > MAX_TABLE {
            return Err(refuse("the rates have too small a common divisor"));
        }
        let parameters = SincInterpolationParameters::new(taps, WINDOW)
            .f_cutoff(calculate_cutoff(TAPS, WINDOW))
            .oversampling_factor(phases)
            .interpolation(SincInterpolationType::Nearest);
        let piece = (from / PIECES_PER_SECOND) as usize;
        let ratio = f64::from(to) / f64::from(from);
        let inner = Async::new_sinc(ratio, 1.0, &parameters, piece, 1, FixedAsync::Input)
            .map_err(|_| refuse("the filter cannot be made"))?;
        let scratch = vec![0.0; inner.output_frames_max()];
        let (pad, delay) = alignment(taps, from, to);
        let mut filter =
            Filter { inner, waiting: Vec::new(), piece, scratch, pad, delay, skip: 0, taken: 0, given: 0 };
        filter.reset();
        Ok(Self { from, to, filter: Some(filter) })
    }

    /// Rate of the input, in Hz.
    pub fn from(&self) -> u32 {
        self.from
    }

    /// Rate of the output, in Hz.
    pub fn to(&self) -> u32 {
        self.to
    }

    /// How many of the newest input samples may be held back, at most.
    pub fn latency(&self) -> usize {
        self.filter.as_ref().map_or(0, |filter| {
            filter.piece + (TAPS * self.from.max(self.to) as usize / self.to as usize).next_multiple_of(8) / 2
        })
    }

    /// Takes the next samples and returns what can be said now.
    pub fn push(&mut self, samples: &[f32]) -> Vec<f32> {
        match &mut self.filter {
            None => samples.to_vec(),
            Some(filter) => {
                filter.taken += samples.len() as u64;
                filter.work(samples)
            }
        }
    }

    /// Ends the stream: returns the rest and is ready for a new one.
    pub fn flush(&mut self) -> Vec<f32> {
        let Some(filter) = &mut self.filter else { return Vec::new() };
        let total = rate(self.from).convert(filter.taken, rate(self.to));
        let mut rest = Vec::new();
        let silence = vec![0.0; filter.piece];
        while filter.given < total {
            rest.extend(filter.work(&silence));
        }
        let over = (filter.given - total) as usize;
        rest.truncate(rest.len().saturating_sub(over));
        filter.reset();
        rest
    }
}

impl Filter {
    fn work(&mut self, samples: &[f32]) -> Vec<f32> {
        self.waiting.extend_from_slice(samples);
        let mut out = Vec::new();
        let mut used = 0;
        while self.waiting.len() - used >= self.piece {
            let input = InterleavedSlice::new(&self.waiting[used..used + self.piece], 1, self.piece)
                .expect("the slice was cut to one piece");
            let room = self.scratch.len();
            let mut output =
                InterleavedSlice::new_mut(&mut self.scratch, 1, room).expect("the slice is its own length");
            let (_, made) = self
                .inner
                .process_into_buffer(&input, &mut output, None)
                .expect("one whole piece goes in and the buffer holds the largest output");
            used += self.piece;
            let skip = self.skip.min(made);
            self.skip -= skip;
            out.extend_from_slice(&self.scratch[skip..made]);
        }
        self.waiting.drain(..used);
        self.given += out.len() as u64;
        out
    }

    fn reset(&mut self) {
        self.inner.reset();
        self.waiting.clear();
        self.waiting.resize(self.pad, 0.0);
        self.skip = self.delay;
        self.taken = 0;
        self.given = 0;
    }
}

impl std::fmt::Debug for Resampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resampler").field("from", &self.from).field("to", &self.to).finish_non_exhaustive()
    }
}

/// Converts a whole recording.
///
/// # Errors
/// As [`Resampler::new`].
pub fn convert(samples: &[f32], from: u32, to: u32) -> Result<Vec<f32>, ResampleError> {
    let mut resampler = Resampler::new(from, to)?;
    let mut out = resampler.push(samples);
    out.extend(resampler.flush());
    Ok(out)
}

/// Silent samples to put before the stream and output samples to drop, so that the first one kept lies
/// exactly at the stream's start.
///
/// rubato's output `j` lies at input time `(j + 1) * a/b + 1/b - taps/2` for `from/to = a/b` in lowest terms.
fn alignment(taps: usize, from: u32, to: u32) -> (usize, usize) {
    let (a, b) = ((from / gcd(from, to)) as usize, (to / gcd(from, to)) as usize);
    let pad = (0..a)
        .find(|pad| (b * (taps / 2 + pad)) % a == 1 % a)
        .expect("b is invertible modulo a, as they have no common divisor");
    (pad, (b * (taps / 2 + pad) - 1) / a - 1)
}

fn rate(hz: u32) -> Rate {
    Rate::new(hz).expect("the constructor took only rates above 0")
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::TAU;

    const OUTER: [u32; 6] = [8_000, 16_000, 22_050, 24_000, 44_100, 48_000];

    fn pairs() -> impl Iterator<Item = (u32, u32)> {
        OUTER.into_iter().flat_map(|outer| {
            [(outer, 16_000), (outer, 24_000), (16_000, outer), (24_000, outer)].into_iter()
        })
    }

    fn tone(rate: u32, hz: f64, samples: usize) -> Vec<f32> {
        (0..samples).map(|i| (TAU * hz * i as f64 / f64::from(rate)).sin() as f32 * 0.5).collect()
    }

    /// Level of a signal in dB against the tone above, ends left out.
    fn level(samples: &[f32]) -> f64 {
        let inner = &samples[samples.len() / 4..samples.len() * 3 / 4];
        let power = inner.iter().map(|s| f64::from(*s).powi(2)).sum::<f64>() / inner.len() as f64;
        10.0 * (power / 0.125).log10()
    }

    #[test]
    fn pieces_of_any_size_give_the_same_samples() {
        for (from, to) in pairs() {
            let input = tone(from, 440.0, from as usize / 3 + 17);
            let whole = convert(&input, from, to).expect("the rates are taken");
            let mut resampler = Resampler::new(from, to).expect("the rates are taken");
            for size in [1, 7, 160, 320, 441, 1_000, 5_000] {
                let mut out = Vec::new();
                for piece in input.chunks(size) {
                    out.extend(resampler.push(piece));
                }
                out.extend(resampler.flush());
                assert!(out == whole, "{from} -> {to} in pieces of {size}");
            }
        }
    }

    #[test]
    fn the_length_is_exact() {
        for (from, to) in pairs() {
            for samples in [0, 1, 2, 159, 1_000, 44_101] {
                let out = convert(&vec![0.1; samples], from, to).expect("the rates are taken");
                let exact = (samples as f64 * f64::from(to) / f64::from(from)).round() as usize;
                assert_eq!(out.len(), exact, "{samples} samples {from} -> {to}");
            }
        }
    }

    #[test]
    fn tones_stay_in_time_and_level() {
        for (from, to) in pairs() {
            for hz in [200.0, 1_000.0, 3_000.0] {
                let out = convert(&tone(from, hz, from as usize), from, to).expect("the rates are taken");
                let wanted = tone(to, hz, out.len());
                let error: Vec<f32> = out.iter().zip(&wanted).map(|(a, b)| a - b).collect();
                assert!(level(&error) < -60.0, "{hz} Hz {from} -> {to}: error {:.1} dB", level(&error));
            }
        }
    }

    #[test]
    fn what_the_lower_rate_cannot_hold_is_removed() {
        for (from, to, hz) in [
            (24_000, 8_000, 7_000.0),
            (24_000, 8_000, 4_600.0),
            (16_000, 8_000, 5_000.0),
            (24_000, 16_000, 9_200.0),
            (48_000, 16_000, 12_000.0),
            (44_100, 16_000, 10_000.0),
            (48_000, 24_000, 15_000.0),
        ] {
            let out = convert(&tone(from, hz, from as usize), from, to).expect("the rates are taken");
            assert!(level(&out) < -65.0, "{hz} Hz {from} -> {to}: {:.1} dB", level(&out));
        }
    }

    #[test]
    fn raising_the_rate_adds_no_images() {
        let out = convert(&tone(8_000, 3_000.0, 8_000), 8_000, 16_000).expect("the rates are taken");
        // What is not the tone is its image at 5 kHz.
        let wanted = tone(16_000, 3_000.0, out.len());
        let error: Vec<f32> = out.iter().zip(&wanted).map(|(a, b)| a - b).collect();
        assert!(level(&error) < -65.0, "{:.1} dB", level(&error));
    }

    #[test]
    fn little_is_held_back() {
        for (from, to) in pairs() {
            let mut resampler = Resampler::new(from, to).expect("the rates are taken");
            let frame = vec![0.0; from as usize / 50];
            let mut given = 0;
            for frames in 1..=20 {
                given += resampler.push(&frame).len();
                let wanted = frames * to as usize / 50;
                let held = (wanted.saturating_sub(given)) * from as usize / to as usize;
                assert!(held <= resampler.latency() + 2, "{from} -> {to}: {held} held");
                assert!(resampler.latency() * 1000 <= 8 * from as usize, "{from} -> {to}");
            }
        }
    }

    #[test]
    fn odd_rates_are_refused_in_words() {
        let error = Resampler::new(0, 16_000).expect_err("0 Hz is no rate").to_string();
        assert!(error.contains("0 Hz to 16000 Hz"), "{error}");
        assert!(Resampler::new(191_999, 16_001).is_err());
        assert!(Resampler::new(11_025, 16_000).is_ok());
    }
}
