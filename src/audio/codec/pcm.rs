//! 16-bit little-endian linear PCM.
//!
//! A sample `s` is `s / 32768`; encoding rounds to nearest and saturates, so
//! decode followed by encode gives back the same bytes. NaN encodes as 0.

/// Bytes of one sample.
pub const BYTES: usize = 2;

/// One sample as `f32`.
pub fn to_f32(sample: i16) -> f32 {
    f32::from(sample) / 32768.0
}

/// One sample as 16 bits, saturating.
pub fn to_i16(sample: f32) -> i16 {
    // `as` saturates and maps NaN to 0.
    (sample * 32768.0).round() as i16
}

/// Samples to bytes.
pub fn encode(samples: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(samples.len() * BYTES);
    for &sample in samples {
        bytes.extend_from_slice(&to_i16(sample).to_le_bytes());
    }
    bytes
}

/// Bytes to samples for a stream whose pieces may end inside a sample.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    half: Option<u8>,
}

impl Decoder {
    /// A decoder at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// The samples completed by these bytes; an odd last byte waits for the next piece.
    pub fn push(&mut self, mut bytes: &[u8]) -> Vec<f32> {
        let mut samples = Vec::with_capacity(bytes.len() / BYTES + 1);
        if let (Some(low), Some((&high, rest))) = (self.half, bytes.split_first()) {
            samples.push(to_f32(i16::from_le_bytes([low, high])));
            self.half = None;
            bytes = rest;
        }
        let pairs = bytes.chunks_exact(BYTES);
        if let [low] = *pairs.remainder() {
            self.half = Some(low);
        }
        samples.extend(pairs.map(|pair| to_f32(i16::from_le_bytes([pair[0], pair[1]]))));
        samples
    }

    /// Forgets a waiting half sample.
    pub fn reset(&mut self) {
        self.half = None;
    }
}

/// Whole bytes to samples; a single odd last byte is ignored.
pub fn decode(bytes: &[u8]) -> Vec<f32> {
    Decoder::new().push(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_survives_both_ways() {
        let bytes: Vec<u8> = (i16::MIN..=i16::MAX).flat_map(i16::to_le_bytes).collect();
        assert_eq!(encode(&decode(&bytes)), bytes);
    }

    #[test]
    fn saturates_and_takes_nan_for_silence() {
        assert_eq!(
            [2.0, -2.0, f32::NAN, 1.0, f32::INFINITY].map(to_i16),
            [i16::MAX, i16::MIN, 0, i16::MAX, i16::MAX]
        );
    }

    #[test]
    fn pieces_may_end_inside_a_sample() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        let mut decoder = Decoder::new();
        let mut samples = decoder.push(&bytes[..3]);
        samples.extend(decoder.push(&[]));
        samples.extend(decoder.push(&bytes[3..4]));
        samples.extend(decoder.push(&bytes[4..]));
        assert_eq!(samples, decode(&bytes));
    }
}
