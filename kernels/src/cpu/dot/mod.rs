//! One tile of weights times some rows of activations.

mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::{Acts, BLOCK, Isa, Matrix, TILE};

/// Rows of activations that one call multiplies.
pub(crate) const ROWS: usize = 8;

/// Rows of activations, as the kernels read them.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    /// `[rows][columns]`
    code: &'a [i8],
    /// `[rows][columns / 32]`
    scale: &'a [f32],
    sum: &'a [i32],
    blocks: usize,
}

impl<'a> Rows<'a> {
    /// Rows `first..first + count`.
    pub(crate) fn of(acts: &'a Acts, first: usize, count: usize) -> Self {
        let blocks = acts.columns / BLOCK;
        Self {
            code: &acts.code[first * acts.columns..][..count * acts.columns],
            scale: &acts.scale[first * blocks..][..count * blocks],
            sum: &acts.sum[first * blocks..][..count * blocks],
            blocks,
        }
    }
}

/// Products of one tile with `out.len()` rows (1 to 8): `out[row][lane]`.
///
/// For each output: the sum over blocks, in order, of
/// `fma(integer sum, weight scale * activation scale, total)`, and for U4
/// then `fma(offset, activation scale * activation sum, total)`. The integer
/// sums are exact, so every path gives the same bits.
pub(crate) fn tile(isa: Isa, matrix: &Matrix, tile: usize, rows: Rows<'_>, out: &mut [[f32; TILE]]) {
    assert!((1..=ROWS).contains(&out.len()));
    assert_eq!(rows.blocks * BLOCK, matrix.columns());
    assert_eq!(rows.code.len(), out.len() * matrix.columns());
    let bytes = matrix.tile(tile);
    assert_eq!(bytes.len(), rows.blocks * matrix.format().block_bytes());
    assert!(isa <= Isa::best());
    match isa {
        Isa::Portable => portable::tile(matrix.format(), bytes, rows, out),
        // SAFETY: the machine has the instruction set (asserted), and the sizes
        // that the kernels rely on are the ones asserted above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { x86::avx2::tile(matrix.format(), bytes, rows, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Vnni => unsafe { x86::vnni::tile(matrix.format(), bytes, rows, out) },
        #[cfg(not(target_arch = "x86_64"))]
        Isa::Avx2 | Isa::Vnni => unreachable!("asserted to be available"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Format, Pool, Quant};
    use super::*;

    /// A small generator: tests need no quality, only variety.
    fn noise(seed: u64, len: usize) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1 << 24) as f32 - 0.5
        };
        (0..len).map(|_| next() * 2.0 + next()).collect()
    }

    fn matrix(pool: &Pool, format: Format, columns: usize, outputs: usize) -> Matrix {
        let values = noise(columns as u64 * 31 + outputs as u64, columns * outputs);
        Matrix::quantize(pool, format, columns, outputs, &|row, out| {
            out.copy_from_slice(&values[row * columns..][..columns]);
        })
    }

    #[test]
    fn every_path_gives_the_same_bits_for_any_number_of_rows() {
        let pool = Pool::new(1);
        for format in [Format::U4, Format::U5, Format::U6, Format::I8] {
            for columns in [32, 64, 160, 576, 896] {
                for outputs in [1, 8, 13] {
                    let matrix = matrix(&pool, format, columns, outputs);
                    let mut acts = Acts::default();
                    acts.set(columns, &noise(7, ROWS * columns));
                    for at in 0..matrix.tiles() {
                        let mut plain = [[0.0; TILE]; ROWS];
                        tile(Isa::Portable, &matrix, at, Rows::of(&acts, 0, ROWS), &mut plain);
                        for isa in Isa::available() {
                            for count in 1..=ROWS {
                                for first in 0..=ROWS - count {
                                    let mut out = [[f32::NAN; TILE]; ROWS];
                                    let rows = Rows::of(&acts, first, count);
                                    tile(isa, &matrix, at, rows, &mut out[..count]);
                                    assert_eq!(
                                        out[..count],
                                        plain[first..first + count],
                                        "{isa:?} {matrix:?} tile {at} rows {first}+{count}"
                                    );
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn extreme_codes_do_not_overflow() {
        let pool = Pool::new(1);
        for format in [Format::U4, Format::U5, Format::U6, Format::I8] {
            for sign in [1.0, -1.0] {
                let matrix = Matrix::quantize(&pool, format, 64, 8, &|_, out| out.fill(sign));
                let mut acts = Acts::default();
                acts.set(64, &[[1.0_f32; 64], [-1.0; 64]].concat());
                for isa in Isa::available() {
                    let mut out = [[0.0; TILE]; 2];
                    tile(isa, &matrix, 0, Rows::of(&acts, 0, 2), &mut out);
                    for lane in 0..TILE {
                        assert!((out[0][lane] - sign * 64.0).abs() < 0.2, "{isa:?} {format:?} {out:?}");
                        assert!((out[1][lane] + sign * 64.0).abs() < 0.2, "{isa:?} {format:?} {out:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn close_to_the_product_of_the_numbers() {
        let pool = Pool::new(2);
        for (format, tolerance) in
            [(Format::U4, 0.15), (Format::U5, 0.08), (Format::U6, 0.04), (Format::I8, 0.02)]
        {
            let (columns, outputs) = (896, 24);
            let packed = matrix(&pool, format, columns, outputs);
            let x = noise(5, columns);
            let mut acts = Acts::default();
            acts.set(columns, &x);
            let mut row = vec![0.0; columns];
            for at in 0..packed.tiles() {
                let mut out = [[0.0; TILE]];
                tile(Isa::best(), &packed, at, Rows::of(&acts, 0, 1), &mut out);
                for (lane, got) in out[0].into_iter().enumerate() {
                    packed.row(at * TILE + lane, &mut row);
                    let exact: f32 = row.iter().zip(&x).map(|(w, x)| w * x).sum();
                    let size: f32 = row.iter().zip(&x).map(|(w, x)| (w * x).powi(2)).sum::<f32>().sqrt();
                    assert!((got - exact).abs() < 0.02 * size, "{format:?} {exact} {got}");
                }
            }
            // The rounding of the weights themselves.
            let values = noise(columns as u64 * 31 + outputs as u64, columns * outputs);
            packed.row(3, &mut row);
            for (got, wanted) in row.iter().zip(&values[3 * columns..]) {
                assert!((got - wanted).abs() < tolerance * 1.5, "{format:?} {got} {wanted}");
            }
        }
    }

    #[test]
    fn file_formats_survive_packing() {
        let pool = Pool::new(1);
        for quant in [Quant::Q4_0, Quant::Q4_1, Quant::Q5_0, Quant::Q8_0, Quant::Q4K, Quant::Q6K, Quant::Q5K]
        {
            let columns = 512;
            let row_bytes = quant.row_bytes(columns).expect("512 is a multiple of every block");
            let mut bytes: Vec<u8> =
                noise(11, row_bytes * 9).iter().map(|v| (v * 4000.0) as i32 as u8).collect();
            // No encoder writes -128: its mirror image does not exist.
            if quant == Quant::Q8_0 {
                bytes.iter_mut().filter(|byte| **byte == 128).for_each(|byte| *byte = 129);
            }
            // Scales are halves somewhere in the block: keep them small and finite.
            for block in bytes.chunks_exact_mut(quant.block_bytes()) {
                let at: &[usize] = match quant {
                    Quant::Q4_0 | Quant::Q5_0 | Quant::Q8_0 => &[0],
                    Quant::Q6K => &[208],
                    _ => &[0, 2],
                };
                for &at in at {
                    let tame = half::f16::from_f32(f32::from(block[at]) / 8192.0 + 0.001);
                    block[at..at + 2].copy_from_slice(&tame.to_le_bytes());
                }
            }
            let rows = [4, 0, 8, 1, 2, 3, 5, 6, 7, 4];
            let packed = Matrix::pack(&pool, quant, &bytes, columns, &rows);
            let (mut got, mut wanted) = (vec![0.0; columns], vec![0.0; columns]);
            for (at, row) in rows.into_iter().enumerate() {
                packed.row(at, &mut got);
                quant.dequantize(&bytes[row as usize * row_bytes..][..row_bytes], &mut wanted);
                let most = wanted.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
                for (got, wanted) in got.iter().zip(&wanted) {
                    let lossy = matches!(quant, Quant::Q6K | Quant::Q5K | Quant::Q4K);
                    let tolerance = if lossy { most / 200.0 } else { most / 1000.0 };
                    assert!((got - wanted).abs() <= tolerance, "{quant:?} {got} {wanted}");
                }
            }
        }
    }
}
