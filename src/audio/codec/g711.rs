//! G.711 mu-law and A-law at 8 kHz, one byte a sample.
//!
//! ITU-T G.711 (11/1988), with the bit handling of the reference software in
//! ITU-T G.191: 16-bit input, negative samples by one's complement, A-law's even
//! bits inverted. Decoded values are exact 16-bit integers over 32768.

use super::pcm;

/// Which of the two companding laws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Law {
    /// North America, Japan; `audio/pcmu`.
    Mu,
    /// Europe and elsewhere; `audio/pcma`.
    A,
}

/// Sample rate of both laws, in Hz.
pub const RATE: u32 = 8_000;

const MU: [i16; 256] = table(Law::Mu);
const A: [i16; 256] = table(Law::A);

impl Law {
    /// The 16-bit sample a code stands for.
    pub const fn expand(self, code: u8) -> i16 {
        match self {
            Self::Mu => MU[code as usize],
            Self::A => A[code as usize],
        }
    }

    /// The code of a 16-bit sample.
    pub const fn compress(self, sample: i16) -> u8 {
        match self {
            Self::Mu => compress_mu(sample),
            Self::A => compress_a(sample),
        }
    }

    /// Codes to samples.
    pub fn decode(self, codes: &[u8]) -> Vec<f32> {
        codes.iter().map(|&code| pcm::to_f32(self.expand(code))).collect()
    }

    /// Samples to codes.
    pub fn encode(self, samples: &[f32]) -> Vec<u8> {
        samples.iter().map(|&sample| self.compress(pcm::to_i16(sample))).collect()
    }
}

const fn table(law: Law) -> [i16; 256] {
    let mut values = [0; 256];
    let mut code = 0;
    while code < 256 {
        values[code] = match law {
            Law::Mu => expand_mu(code as u8),
            Law::A => expand_a(code as u8),
        };
        code += 1;
    }
    values
}

/// The 14-bit law's offset that makes every segment a power of two.
const MU_BIAS: i16 = 33;

const fn expand_mu(code: u8) -> i16 {
    let code = !code;
    let segment = (code >> 4) & 7;
    let step = (code & 15) as i16;
    let magnitude = (((step << 1) + MU_BIAS) << segment) - MU_BIAS;
    let value = magnitude << 2;
    if code & 0x80 != 0 { -value } else { value }
}

const fn compress_mu(sample: i16) -> u8 {
    let negative = sample < 0;
    let magnitude = if negative { !sample } else { sample } >> 2;
    let biased = magnitude + MU_BIAS;
    // 8159 + 33 needs a 14th bit: the loudest samples share the last code.
    let biased = if biased > 0x1FFF { 0x1FFF } else { biased };
    // The highest set bit is 5 in segment 0 and 12 in segment 7.
    let segment = (10 - biased.leading_zeros() as i16) as u8;
    let step = ((biased >> (segment + 1)) & 15) as u8;
    let code = (segment << 4) | step;
    !(if negative { code | 0x80 } else { code })
}

const fn expand_a(code: u8) -> i16 {
    let code = code ^ 0x55;
    let segment = (code >> 4) & 7;
    let step = (code & 15) as i16;
    let half = (step << 4) + 8;
    let value = if segment == 0 { half } else { (half + 0x100) << (segment - 1) };
    if code & 0x80 != 0 { value } else { -value }
}

const fn compress_a(sample: i16) -> u8 {
    let negative = sample < 0;
    let magnitude = if negative { !sample } else { sample } >> 4;
    let code = if magnitude < 32 {
        // Segments 0 and 1 are one straight line.
        magnitude as u8
    } else {
        // The highest set bit is 5 in segment 2 and 10 in segment 7.
        let segment = (11 - magnitude.leading_zeros() as i16 + 1) as u8;
        (segment << 4) | ((magnitude >> (segment - 1)) & 15) as u8
    };
    (if negative { code } else { code | 0x80 }) ^ 0x55
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Golden {
        expand: Vec<i16>,
        /// `[first sample, code]` of every run of equal codes over 0..=32767.
        compress: Vec<(i16, u8)>,
    }

    fn golden(law: Law) -> Golden {
        let text = match law {
            Law::Mu => include_str!("../../../tests/data/audio/g711_mu.json"),
            Law::A => include_str!("../../../tests/data/audio/g711_a.json"),
        };
        serde_json::from_str(text).expect("the golden file is JSON")
    }

    #[test]
    fn all_codes_expand_as_the_golden_vector() {
        for law in [Law::Mu, Law::A] {
            let values: Vec<i16> = (0..=255).map(|code| law.expand(code)).collect();
            assert_eq!(values, golden(law).expand, "{law:?}");
        }
    }

    #[test]
    fn all_samples_compress_as_the_golden_vector() {
        for law in [Law::Mu, Law::A] {
            let runs = golden(law).compress;
            assert!(runs.len() >= 127, "{law:?}: {} runs", runs.len());
            for sample in 0..=i16::MAX {
                let run = runs.partition_point(|(first, _)| *first <= sample) - 1;
                assert_eq!(law.compress(sample), runs[run].1, "{law:?} {sample}");
                // G.191: a negative sample is its one's complement with the sign bit turned.
                assert_eq!(law.compress(!sample), runs[run].1 ^ 0x80, "{law:?} {}", !sample);
            }
        }
    }

    #[test]
    fn a_code_survives_expanding_and_compressing() {
        for law in [Law::Mu, Law::A] {
            for code in 0..=255u8 {
                let back = law.compress(law.expand(code));
                // Mu-law has two zeros; negative zero cannot come back.
                let expected = if law == Law::Mu && code == 0x7F { 0xFF } else { code };
                assert_eq!(back, expected, "{law:?} {code:#04x}");
            }
        }
    }

    #[test]
    fn silence_is_silence() {
        assert_eq!(Law::Mu.encode(&[0.0]), [0xFF]);
        assert_eq!(Law::A.encode(&[0.0]), [0xD5]);
    }
}
