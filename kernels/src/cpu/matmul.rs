//! Products of packed weights with rows of activations, on all threads.

use super::dot::{ROWS, Rows, tile};
use super::share::Share;
use super::{Acts, BLOCK, Isa, Matrix, Pool, TILE, vector};

/// What becomes of a product.
#[derive(Clone, Copy, Debug)]
pub enum Into<'a> {
    /// It replaces what is there; the bias, one number per output, is added.
    Set(Option<&'a [f32]>),
    /// It is added to what is there.
    Add,
}

/// Bytes of weights that one chunk should read: long enough to make taking it
/// cheap, short enough to share the work evenly.
const CHUNK_BYTES: usize = 24 << 10;

/// `out[row] = stacked matrices x acts[row]`, `out` being `[rows][outputs]`.
///
/// The matrices share the activations and are stacked in the output; each may
/// have a format of its own.
///
/// # Panics
/// When the sizes do not fit each other.
pub fn matmul(pool: &Pool, matrices: &[&Matrix], acts: &Acts, into: Into<'_>, out: &mut [f32]) {
    matmul_with(Isa::best(), pool, matrices, acts, into, out);
}

/// [`matmul`] with a given instruction set, for comparing them.
///
/// # Panics
/// When the sizes do not fit each other or the machine lacks the set.
pub fn matmul_with(
    isa: Isa,
    pool: &Pool,
    matrices: &[&Matrix],
    acts: &Acts,
    into: Into<'_>,
    out: &mut [f32],
) {
    let outputs: usize = matrices.iter().map(|matrix| matrix.outputs()).sum();
    assert_eq!(out.len(), acts.rows() * outputs);
    assert!(matrices.iter().all(|matrix| matrix.columns() == acts.columns()));
    if let Into::Set(Some(bias)) = into {
        assert_eq!(bias.len(), outputs);
    }
    // (matrix, where its outputs begin, first tile, tiles)
    let mut chunks = Vec::new();
    let mut begin = 0;
    for matrix in matrices {
        let step = (CHUNK_BYTES / matrix.tile_bytes()).max(1);
        for first in (0..matrix.tiles()).step_by(step) {
            chunks.push((*matrix, begin, first, step.min(matrix.tiles() - first)));
        }
        begin += matrix.outputs();
    }
    let shared = Share::new(out);
    pool.run(chunks.len(), &|chunk| {
        let (matrix, begin, first, count) = chunks[chunk];
        for at in first..first + count {
            let lanes = TILE.min(matrix.outputs() - at * TILE);
            let begin = begin + at * TILE;
            for first in (0..acts.rows()).step_by(ROWS) {
                let rows = ROWS.min(acts.rows() - first);
                let mut products = [[0.0; TILE]; ROWS];
                tile(isa, matrix, at, Rows::of(acts, first, rows), &mut products[..rows]);
                for (row, products) in products[..rows].iter().enumerate() {
                    // SAFETY: no other chunk has these outputs of this row.
                    let out = unsafe { shared.part((first + row) * outputs + begin, lanes) };
                    match into {
                        Into::Set(None) => out.copy_from_slice(&products[..lanes]),
                        Into::Set(Some(bias)) => {
                            let bias = &bias[begin..][..lanes];
                            for ((out, product), bias) in out.iter_mut().zip(products).zip(bias) {
                                *out = product + bias;
                            }
                        }
                        Into::Add => {
                            out.iter_mut().zip(products).for_each(|(out, product)| *out += product);
                        }
                    }
                }
            }
        }
    });
}

/// The first half of SwiGLU in one section: `out = silu(gate x) * (up x)`,
/// rounded to codes at once by the thread that computed it.
///
/// # Panics
/// When the sizes do not fit each other or the outputs are no multiple of 32.
pub fn gate_up(pool: &Pool, gate: &Matrix, up: &Matrix, acts: &Acts, out: &mut Acts) {
    let outputs = gate.outputs();
    assert!(up.outputs() == outputs && outputs.is_multiple_of(BLOCK));
    assert!(gate.columns() == acts.columns() && up.columns() == acts.columns());
    out.resize(acts.rows(), outputs);
    let blocks = outputs / BLOCK;
    let code = Share::new(&mut out.code);
    let scale = Share::new(&mut out.scale);
    let sum = Share::new(&mut out.sum);
    let isa = Isa::best();
    pool.run(blocks, &|block| {
        for first in (0..acts.rows()).step_by(ROWS) {
            let count = ROWS.min(acts.rows() - first);
            let rows = Rows::of(acts, first, count);
            let mut halves = [[[0.0_f32; BLOCK]; ROWS]; 2];
            for (matrix, half) in [gate, up].into_iter().zip(&mut halves) {
                for part in 0..BLOCK / TILE {
                    let mut products = [[0.0; TILE]; ROWS];
                    tile(isa, matrix, block * (BLOCK / TILE) + part, rows, &mut products[..count]);
                    for (half, products) in half.iter_mut().zip(&products[..count]) {
                        half[part * TILE..][..TILE].copy_from_slice(products);
                    }
                }
            }
            let [gates, ups] = &halves;
            for (row, (gate, up)) in gates.iter().zip(ups).take(count).enumerate() {
                let mut values = [0.0; BLOCK];
                vector::silu_mul(gate, up, &mut values);
                let at = (first + row) * blocks + block;
                // SAFETY: no other chunk has this block of columns.
                let (code, scale, sum) =
                    unsafe { (code.part(at * BLOCK, BLOCK), scale.part(at, 1), sum.part(at, 1)) };
                vector::quantize(&values, code, scale, sum);
            }
        }
    });
}

/// Scores some outputs anew for one row of activations: each `(output, score)`
/// gets the score that [`matmul`] would give, bit for bit.
///
/// # Panics
/// When there is not exactly one row, or the sizes do not fit each other.
pub fn pick(matrix: &Matrix, acts: &Acts, outputs: &mut [(u32, f32)]) {
    assert_eq!(acts.rows(), 1);
    let (isa, rows) = (Isa::best(), Rows::of(acts, 0, 1));
    for (output, score) in outputs {
        let output = *output as usize;
        assert!(output < matrix.outputs());
        let mut products = [[0.0; TILE]];
        tile(isa, matrix, output / TILE, rows, &mut products);
        *score = products[0][output % TILE];
    }
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::*;

    fn values(seed: usize, len: usize) -> Vec<f32> {
        (0..len).map(|i| (((i + seed) * 7919 % 1013) as f32 - 506.0) / 300.0).collect()
    }

    fn random(pool: &Pool, format: Format, outputs: usize, columns: usize) -> Matrix {
        let w = values(outputs, outputs * columns);
        Matrix::quantize(pool, format, columns, outputs, &|row, out| {
            out.copy_from_slice(&w[row * columns..][..columns]);
        })
    }

    /// The product computed from the packed numbers, row by row.
    fn plain(matrices: &[&Matrix], acts: &Acts) -> Vec<f32> {
        let mut out = Vec::new();
        let columns = acts.columns();
        for row in 0..acts.rows() {
            for matrix in matrices {
                let mut w = vec![0.0; columns];
                for output in 0..matrix.outputs() {
                    matrix.row(output, &mut w);
                    let x = (0..columns).map(|c| {
                        f64::from(acts.code[row * columns + c])
                            * f64::from(acts.scale[(row * columns + c) / BLOCK])
                    });
                    out.push(w.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum::<f64>() as f32);
                }
            }
        }
        out
    }

    #[test]
    fn shapes_threads_and_stacking() {
        for threads in [1, 3] {
            let pool = Pool::new(threads);
            for (columns, outputs) in [(32, 1), (64, 9), (576, 65), (896, 130)] {
                let a = random(&pool, Format::U5, outputs, columns);
                let b = random(&pool, Format::I8, outputs.div_ceil(3), columns);
                let bias = values(5, a.outputs() + b.outputs());
                for rows in [1, 2, 7, 8, 9, 20] {
                    let mut acts = Acts::default();
                    acts.set(columns, &values(rows, rows * columns));
                    let wanted = plain(&[&a, &b], &acts);
                    let mut out = vec![f32::NAN; wanted.len()];
                    matmul(&pool, &[&a, &b], &acts, Into::Set(Some(&bias)), &mut out);
                    for (i, (got, wanted)) in out.iter().zip(&wanted).enumerate() {
                        let wanted = wanted + bias[i % bias.len()];
                        assert!((got - wanted).abs() < 1e-3 * columns as f32 / 30.0, "{got} {wanted}");
                    }
                    let before = out.clone();
                    matmul(&pool, &[&a, &b], &acts, Into::Add, &mut out);
                    for ((got, before), wanted) in out.iter().zip(&before).zip(&wanted) {
                        assert!((got - before - wanted).abs() < 1e-3 * columns as f32 / 30.0);
                    }
                }
            }
        }
    }

    #[test]
    fn a_row_does_not_depend_on_its_neighbours() {
        let pool = Pool::new(2);
        let (columns, outputs) = (576, 96);
        let (gate, up) =
            (random(&pool, Format::U4, outputs, columns), random(&pool, Format::U5, outputs, columns));
        let x = values(3, 20 * columns);
        let (mut all, mut one) = (Acts::default(), Acts::default());
        all.set(columns, &x);
        let (mut all_out, mut one_out) = (Acts::default(), Acts::default());
        gate_up(&pool, &gate, &up, &all, &mut all_out);
        let mut product = vec![0.0; 20 * outputs];
        matmul(&pool, &[&gate], &all, Into::Set(None), &mut product);
        for row in 0..20 {
            one.set(columns, &x[row * columns..][..columns]);
            gate_up(&pool, &gate, &up, &one, &mut one_out);
            assert_eq!(one_out.code, all_out.code[row * outputs..][..outputs]);
            assert_eq!(one_out.scale, all_out.scale[row * outputs / BLOCK..][..outputs / BLOCK]);
            let mut single = vec![0.0; outputs];
            let mut some = [(5, 0.0), (95, 0.0), (0, 0.0)];
            pick(&gate, &one, &mut some);
            for (output, score) in some {
                assert_eq!(score, product[row * outputs + output as usize]);
            }
            for isa in Isa::available() {
                matmul_with(isa, &pool, &[&gate], &one, Into::Set(None), &mut single);
                assert_eq!(single, product[row * outputs..][..outputs], "{isa:?}");
            }
        }
    }

    #[test]
    fn gate_up_is_silu_of_the_one_times_the_other() {
        let pool = Pool::new(2);
        let (columns, outputs) = (64, 64);
        let (gate, up) =
            (random(&pool, Format::I8, outputs, columns), random(&pool, Format::U6, outputs, columns));
        let mut acts = Acts::default();
        acts.set(columns, &values(9, 3 * columns));
        let (g, u) = (plain(&[&gate], &acts), plain(&[&up], &acts));
        let mut out = Acts::default();
        gate_up(&pool, &gate, &up, &acts, &mut out);
        for i in 0..3 * outputs {
            let wanted = g[i] / (1.0 + (-g[i]).exp()) * u[i];
            let got = f32::from(out.code[i]) * out.scale[i / BLOCK];
            assert!((got - wanted).abs() <= out.scale[i / BLOCK] * 0.51 + 1e-3, "{got} {wanted}");
        }
    }
}
