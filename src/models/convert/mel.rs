//! Mel filters as Whisper was trained with (`librosa.filters.mel`: Slaney's
//! scale, each filter normalised to unit area).

/// Rate Whisper hears at, in Hz.
const RATE: f64 = 16_000.0;
/// Samples of one spectrum.
const FFT: usize = 400;
/// Frequency bins of one spectrum.
pub(super) const BINS: usize = FFT / 2 + 1;

/// Slaney's mel scale is linear below this frequency and logarithmic above.
const KNEE_HZ: f64 = 1_000.0;
const HZ_PER_MEL: f64 = 200.0 / 3.0;
const KNEE_MEL: f64 = KNEE_HZ / HZ_PER_MEL;

fn log_step() -> f64 {
    6.4_f64.ln() / 27.0
}

fn hz_to_mel(hz: f64) -> f64 {
    if hz < KNEE_HZ { hz / HZ_PER_MEL } else { KNEE_MEL + (hz / KNEE_HZ).ln() / log_step() }
}

fn mel_to_hz(mel: f64) -> f64 {
    if mel < KNEE_MEL { mel * HZ_PER_MEL } else { KNEE_HZ * (log_step() * (mel - KNEE_MEL)).exp() }
}

/// `n_mels` rows of [`BINS`] weights.
pub(super) fn filters(n_mels: usize) -> Vec<f32> {
    let top = hz_to_mel(RATE / 2.0);
    let edge = |i: usize| mel_to_hz(top * i as f64 / (n_mels + 1) as f64);
    let mut out = Vec::with_capacity(n_mels * BINS);
    for m in 0..n_mels {
        let (low, centre, high) = (edge(m), edge(m + 1), edge(m + 2));
        let area = 2.0 / (high - low);
        out.extend((0..BINS).map(|bin| {
            let hz = bin as f64 * RATE / FFT as f64;
            let rise = (hz - low) / (centre - low);
            let fall = (high - hz) / (high - centre);
            (area * rise.min(fall).max(0.0)) as f32
        }));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of `librosa.filters.mel(sr=16000, n_fft=400, n_mels=80)`, as in
    /// OpenAI's `mel_filters.npz`.
    #[test]
    fn equals_the_published_filters() {
        let f = filters(80);
        assert_eq!(f.len(), 80 * BINS);
        assert!((f[1] - 0.024_862_594).abs() < 1e-7, "{}", f[1]);
        assert!((f[BINS + 1] - 0.001_990_822).abs() < 1e-7, "{}", f[BINS + 1]);
        assert!((f[BINS + 2] - 0.022_871_772).abs() < 1e-7, "{}", f[BINS + 2]);
    }

    #[test]
    fn every_filter_hears_something_and_none_hears_the_bottom() {
        let f = filters(80);
        for row in f.chunks_exact(BINS) {
            assert!(row.iter().any(|&w| w > 0.0));
            assert_eq!(row[0], 0.0);
        }
    }
}
