//! Whisper's log-mel features, as Smart Turn v3 wants them.
//!
//! Follows `transformers.WhisperFeatureExtractor(chunk_length=8)` with
//! `do_normalize=True`: the last 8 s, zeros in front when there is less, zero
//! mean and unit variance over that buffer, reflected by half a window at both
//! ends, periodic Hann window 400 every 160 samples, power spectrum, 80
//! Slaney mel bands, log10, clamped to 8 below the maximum, `(x + 4) / 4`, the
//! last frame dropped. Normalised in 32 bits, spectrum and mel in 64, exactly as
//! the reference: the model quantises its activations, and a difference in the
//! seventh digit of a feature was seen to move a probability near 0.5 by 0.09.
//! Goldens in `tests/data/turn`.

use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};

use crate::audio::HEARING_RATE;

/// Samples the features look at: 8 s.
pub const SAMPLES: usize = 8 * HEARING_RATE as usize;
/// Mel bands.
pub const BANDS: usize = 80;
/// Frames of 10 ms.
pub const FRAMES: usize = SAMPLES / HOP;

const WINDOW: usize = 400;
const HOP: usize = 160;
const BINS: usize = WINDOW / 2 + 1;
const FLOOR: f64 = 1e-10;
const VARIANCE_FLOOR: f32 = 1e-7;

/// A prepared extractor: window, filters and transform.
pub struct Features {
    transform: Arc<dyn RealToComplex<f64>>,
    window: Vec<f64>,
    filters: Vec<Filter>,
}

/// One triangular mel filter: weights from bin `first` on.
struct Filter {
    first: usize,
    weights: Vec<f64>,
}

impl Features {
    /// Prepares window, filters and transform.
    pub fn new() -> Self {
        let window = (0..WINDOW)
            .map(|n| {
                let turn = std::f64::consts::TAU * n as f64 / WINDOW as f64;
                0.5 - 0.5 * turn.cos()
            })
            .collect();
        Self { transform: RealFftPlanner::new().plan_fft_forward(WINDOW), window, filters: mel_filters() }
    }

    /// Features of the last 8 s of `audio` at 16 kHz, `[BANDS][FRAMES]` in row-major order.
    pub fn extract(&self, audio: &[f32]) -> Vec<f32> {
        let wave = normalised(audio);
        let mut input = vec![0.0; WINDOW];
        let mut spectrum = vec![Complex::default(); BINS];
        let mut scratch = self.transform.make_scratch_vec();
        let mut power = [0.0; BINS];
        let mut logs = vec![0.0; BANDS * FRAMES];
        let mut loudest = f64::MIN;
        // Frames within the padding all equal the first one.
        let padding = WINDOW / 2 + SAMPLES - audio.len().min(SAMPLES);
        for frame in 0..FRAMES {
            let start = frame * HOP;
            if frame > 0 && start + WINDOW <= padding {
                for band in 0..BANDS {
                    logs[band * FRAMES + frame] = logs[band * FRAMES];
                }
                continue;
            }
            for ((slot, sample), weight) in
                input.iter_mut().zip(&wave[start..start + WINDOW]).zip(&self.window)
            {
                *slot = sample * weight;
            }
            self.transform
                .process_with_scratch(&mut input, &mut spectrum, &mut scratch)
                .expect("the buffers were made for this transform");
            for (slot, bin) in power.iter_mut().zip(&spectrum) {
                *slot = bin.norm_sqr();
            }
            for (band, filter) in self.filters.iter().enumerate() {
                let bins = &power[filter.first..filter.first + filter.weights.len()];
                let sum: f64 = bins.iter().zip(&filter.weights).map(|(bin, weight)| bin * weight).sum();
                let log = sum.max(FLOOR).log10();
                loudest = loudest.max(log);
                logs[band * FRAMES + frame] = log;
            }
        }
        logs.into_iter().map(|log: f64| ((log.max(loudest - 8.0) + 4.0) / 4.0) as f32).collect()
    }
}

impl Default for Features {
    fn default() -> Self {
        Self::new()
    }
}

/// The padded, normalised buffer with half a window reflected at both ends.
fn normalised(audio: &[f32]) -> Vec<f64> {
    let audio = &audio[audio.len().saturating_sub(SAMPLES)..];
    let count = SAMPLES as f64;
    let mean = (audio.iter().map(|s| f64::from(*s)).sum::<f64>() / count) as f32;
    // The zeros in front count too: each is `mean` away from the mean.
    let squares: f64 = audio.iter().map(|s| f64::from(s - mean).powi(2)).sum::<f64>()
        + (SAMPLES - audio.len()) as f64 * f64::from(mean).powi(2);
    let deviation = ((squares / count) as f32 + VARIANCE_FLOOR).sqrt();
    let half = WINDOW / 2;
    let mut wave = vec![f64::from(-mean / deviation); SAMPLES + WINDOW];
    let start = half + SAMPLES - audio.len();
    for (slot, sample) in wave[start..half + SAMPLES].iter_mut().zip(audio) {
        *slot = f64::from((sample - mean) / deviation);
    }
    for offset in 1..=half {
        wave[half - offset] = wave[half + offset];
        wave[half + SAMPLES - 1 + offset] = wave[half + SAMPLES - 1 - offset];
    }
    wave
}

/// Slaney's mel filters from 0 to 8 kHz, area-normalised.
fn mel_filters() -> Vec<Filter> {
    let nyquist = f64::from(HEARING_RATE) / 2.0;
    let top = hertz_to_mel(nyquist);
    let edges: Vec<f64> = (0..BANDS + 2).map(|i| mel_to_hertz(top * i as f64 / (BANDS + 1) as f64)).collect();
    (0..BANDS)
        .map(|band| {
            let (low, middle, high) = (edges[band], edges[band + 1], edges[band + 2]);
            let area = 2.0 / (high - low);
            let weights: Vec<f64> = (0..BINS)
                .map(|bin| {
                    let hertz = nyquist * bin as f64 / (BINS - 1) as f64;
                    let rising = (hertz - low) / (middle - low);
                    let falling = (high - hertz) / (high - middle);
                    rising.min(falling).max(0.0) * area
                })
                .collect();
            let first = weights.iter().position(|weight| *weight > 0.0).unwrap_or(0);
            let end = weights.iter().rposition(|weight| *weight > 0.0).map_or(first, |last| last + 1);
            Filter { first, weights: weights[first..end].to_vec() }
        })
        .collect()
}

/// Slaney's scale: linear below 1 kHz, logarithmic above.
fn hertz_to_mel(hertz: f64) -> f64 {
    if hertz < 1000.0 { 3.0 * hertz / 200.0 } else { 15.0 + (hertz / 1000.0).ln() * 27.0 / 6.4f64.ln() }
}

fn mel_to_hertz(mel: f64) -> f64 {
    if mel < 15.0 { 200.0 * mel / 3.0 } else { 1000.0 * ((mel - 15.0) * 6.4f64.ln() / 27.0).exp() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tone_lights_its_band() {
        let tone: Vec<f32> =
            (0..SAMPLES).map(|i| (std::f32::consts::TAU * 1000.0 * i as f32 / 16_000.0).sin()).collect();
        let features = Features::new().extract(&tone);
        assert_eq!(features.len(), BANDS * FRAMES);
        let loudest = (0..BANDS)
            .max_by(|a, b| features[a * FRAMES + 400].total_cmp(&features[b * FRAMES + 400]))
            .expect("there are bands");
        let band = hertz_to_mel(1000.0) / hertz_to_mel(8000.0) * (BANDS + 1) as f64 - 1.0;
        assert!((loudest as f64 - band).abs() <= 1.0, "band {loudest}, expected about {band:.1}");
    }

    #[test]
    fn the_padding_is_not_computed_twice_but_comes_out_the_same() {
        let features = Features::new();
        let short: Vec<f32> = (0..20_000).map(|i| (i as f32 * 0.11).sin() * 0.3).collect();
        let mut padded = vec![0.0; SAMPLES - short.len()];
        padded.extend(&short);
        assert!(features.extract(&short) == features.extract(&padded));
    }

    #[test]
    fn silence_and_nothing_are_survived() {
        for audio in [vec![], vec![0.0; 100], vec![0.5; 2 * SAMPLES]] {
            assert!(Features::new().extract(&audio).iter().all(|value| value.is_finite()));
        }
    }
}
