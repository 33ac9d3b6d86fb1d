//! The block formats of weight files (GGUF), read to numbers or to codes.
//!
//! Layouts: ggml's `ggml-quants.c`. Checked in the engine's tests against an
//! independent reader.

use half::{bf16, f16};

use super::BLOCK;

/// How a tensor is stored in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are ggml's own")]
pub enum Quant {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4K,
    Q5K,
    Q6K,
}

/// One row as small integers: `value = scale * code + offset`, per block of 32.
#[derive(Debug, Default)]
pub(crate) struct Codes {
    pub code: Vec<i16>,
    pub scale: Vec<f32>,
    pub offset: Vec<f32>,
}

impl Codes {
    pub(crate) fn resize(&mut self, columns: usize) {
        self.code.resize(columns, 0);
        self.scale.resize(columns / BLOCK, 0.0);
        self.offset.resize(columns / BLOCK, 0.0);
    }
}

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Scale and minimum `j` of a k-quant's twelve packed bytes (`get_scale_min_k4`).
fn scale_min(j: usize, packed: &[u8]) -> (u8, u8) {
    if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        (packed[j + 4] & 15 | packed[j - 4] >> 6 << 4, packed[j + 4] >> 4 | packed[j] >> 6 << 4)
    }
}

impl Quant {
    /// Numbers in one block.
    pub fn block_len(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// Bytes of a row of `columns` numbers; `None` when blocks do not fill it.
    pub fn row_bytes(self, columns: usize) -> Option<usize> {
        columns.is_multiple_of(self.block_len()).then(|| columns / self.block_len() * self.block_bytes())
    }

    /// Reads one row.
    ///
    /// # Panics
    /// When `bytes` is not exactly the row of `out.len()` numbers.
    pub fn dequantize(self, bytes: &[u8], out: &mut [f32]) {
        assert_eq!(Some(bytes.len()), self.row_bytes(out.len()), "a row of {} {self:?}", out.len());
        let blocks = bytes.chunks_exact(self.block_bytes()).zip(out.chunks_exact_mut(self.block_len()));
        match self {
            Self::F32 => {
                blocks.for_each(|(b, o)| o[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            }
            Self::F16 => blocks.for_each(|(b, o)| o[0] = half_at(b, 0)),
            Self::BF16 => blocks.for_each(|(b, o)| o[0] = bf16::from_le_bytes([b[0], b[1]]).to_f32()),
            Self::Q6K => blocks.for_each(|(b, o)| q6k(b, o)),
            _ => {
                let mut codes = Codes::default();
                codes.resize(self.block_len());
                for (block, out) in blocks {
                    self.block_codes(block, &mut codes.code, &mut codes.scale, &mut codes.offset);
                    for (i, value) in out.iter_mut().enumerate() {
                        *value =
                            codes.scale[i / BLOCK].mul_add(f32::from(codes.code[i]), codes.offset[i / BLOCK]);
                    }
                }
            }
        }
    }

    /// Whether the format is codes with one scale (and offset) per 32 columns.
    pub(crate) fn has_codes(self) -> bool {
        !matches!(self, Self::F32 | Self::F16 | Self::BF16 | Self::Q6K)
    }

    /// Reads one row to codes. Only when [`Quant::has_codes`].
    pub(crate) fn codes(self, bytes: &[u8], out: &mut Codes) {
        let (len, per) = (self.block_len(), self.block_len() / BLOCK);
        for (i, block) in bytes.chunks_exact(self.block_bytes()).enumerate() {
            self.block_codes(
                block,
                &mut out.code[i * len..][..len],
                &mut out.scale[i * per..][..per],
                &mut out.offset[i * per..][..per],
            );
        }
    }

    fn block_codes(self, b: &[u8], code: &mut [i16], scale: &mut [f32], offset: &mut [f32]) {
        let nibbles = |code: &mut [i16], from: &[u8]| {
            for i in 0..16 {
                code[i] = i16::from(from[i] & 15);
                code[i + 16] = i16::from(from[i] >> 4);
            }
        };
        let fifth = |code: &mut [i16], from: &[u8]| {
            let bits = u32::from_le_bytes([from[0], from[1], from[2], from[3]]);
            for (i, code) in code.iter_mut().enumerate() {
                *code |= ((bits >> i & 1) as i16) << 4;
            }
        };
        match self {
            Self::Q4_0 => {
                nibbles(code, &b[2..]);
                (scale[0], offset[0]) = (half_at(b, 0), -8.0 * half_at(b, 0));
            }
            Self::Q4_1 => {
                nibbles(code, &b[4..]);
                (scale[0], offset[0]) = (half_at(b, 0), half_at(b, 2));
            }
            Self::Q5_0 => {
                nibbles(code, &b[6..]);
                fifth(code, &b[2..6]);
                (scale[0], offset[0]) = (half_at(b, 0), -16.0 * half_at(b, 0));
            }
            Self::Q5_1 => {
                nibbles(code, &b[8..]);
                fifth(code, &b[4..8]);
                (scale[0], offset[0]) = (half_at(b, 0), half_at(b, 2));
            }
            Self::Q8_0 => {
                (scale[0], offset[0]) = (half_at(b, 0), 0.0);
                for (code, byte) in code.iter_mut().zip(&b[2..]) {
                    *code = i16::from(*byte as i8);
                }
            }
            Self::Q4K | Self::Q5K => {
                let (d, dmin) = (half_at(b, 0), half_at(b, 2));
                let low = if self == Self::Q4K { &b[16..] } else { &b[48..] };
                for j in 0..8 {
                    let (s, m) = scale_min(j, &b[4..16]);
                    (scale[j], offset[j]) = (d * f32::from(s), -dmin * f32::from(m));
                    for l in 0..BLOCK {
                        let byte = low[j / 2 * 32 + l];
                        let mut q = i16::from(if j % 2 == 0 { byte & 15 } else { byte >> 4 });
                        if self == Self::Q5K {
                            q |= i16::from(b[16 + l] >> j & 1) << 4;
                        }
                        code[j * BLOCK + l] = q;
                    }
                }
            }
            Self::F32 | Self::F16 | Self::BF16 | Self::Q6K => unreachable!("{self:?} has no codes"),
        }
    }
}

fn q6k(b: &[u8], out: &mut [f32]) {
    let (low, high, scales, d) = (&b[..128], &b[128..192], &b[192..208], half_at(b, 208));
    for half in 0..2 {
        let (low, high, scales) = (&low[half * 64..], &high[half * 32..], &scales[half * 8..]);
        for l in 0..32 {
            let q = [
                low[l] & 15 | (high[l] & 3) << 4,
                low[l + 32] & 15 | (high[l] >> 2 & 3) << 4,
                low[l] >> 4 | (high[l] >> 4 & 3) << 4,
                low[l + 32] >> 4 | (high[l] >> 6) << 4,
            ];
            for (i, q) in q.into_iter().enumerate() {
                let scale = d * f32::from(scales[l / 16 + 2 * i] as i8);
                out[half * 128 + i * 32 + l] = scale * (f32::from(q) - 32.0);
            }
        }
    }
}
