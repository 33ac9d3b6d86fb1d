//! The plain path: what the fast ones must equal.

use super::super::matrix::{code, scale_offset};
use super::super::{BLOCK, Format, TILE};
use super::Rows;

pub(super) fn tile(format: Format, bytes: &[u8], rows: Rows<'_>, out: &mut [[f32; TILE]]) {
    let zero = match format {
        Format::U5 => 16,
        Format::U6 => 32,
        Format::U4 | Format::I8 => 0,
    };
    let columns = rows.blocks * BLOCK;
    out.iter_mut().for_each(|row| *row = [0.0; TILE]);
    for (block, b) in bytes.chunks_exact(format.block_bytes()).enumerate() {
        for lane in 0..TILE {
            let mut weights = [0_i32; BLOCK];
            for (column, weight) in weights.iter_mut().enumerate() {
                *weight = i32::from(code(format, b, lane, column)) - zero;
            }
            let (scale, offset) = scale_offset(format, b, lane);
            for (row, out) in out.iter_mut().enumerate() {
                let x = &rows.code[row * columns + block * BLOCK..][..BLOCK];
                let sum: i32 = weights.iter().zip(x).map(|(w, x)| w * i32::from(*x)).sum();
                let x_scale = rows.scale[row * rows.blocks + block];
                out[lane] = (sum as f32).mul_add(scale * x_scale, out[lane]);
                if format == Format::U4 {
                    let x_sum = x_scale * rows.sum[row * rows.blocks + block] as f32;
                    out[lane] = offset.mul_add(x_sum, out[lane]);
                }
            }
        }
    }
}
