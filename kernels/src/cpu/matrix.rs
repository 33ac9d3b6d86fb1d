//! Weights packed for the kernels.
//!
//! Eight output rows are interleaved so that one 256-bit register holds four
//! columns of each: a product yields eight outputs without a horizontal sum,
//! and the eight scales of a block are one load. Weights keep the few bits of
//! the file where the format allows it, because decoding is bound by the bytes
//! read, not by the unpacking.
//!
//! Tile of 8 rows, block of 32 columns = 8 groups of 4 columns; lane
//! `4 * row + column` of a group:
//!
//! ```text
//! U4  4 x 32 bytes: groups 0..4 in the low nibbles, 4..8 in the high ones
//!     8 scales f16, 8 offsets f16                                 160 bytes
//! U5  the same nibbles; 32 bytes: bit g of a byte is the fifth bit of group g
//!     8 scales f16; codes are unsigned, the zero is 16            176 bytes
//! U6  the same nibbles; 2 x 32 bytes: two bits of groups 0..4, 4..8
//!     8 scales f16; codes are unsigned, the zero is 32            208 bytes
//! I8  8 x 32 bytes, signed; 8 scales f16                          272 bytes
//! ```

use half::f16;

use super::blocks::{Codes, Quant};
use super::share::Share;
use super::{BLOCK, Pool, TILE};

/// How a packed matrix holds its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// 4 bits, a scale and an offset.
    U4,
    /// 5 bits around a fixed zero, a scale.
    U5,
    /// 6 bits around a fixed zero, a scale.
    U6,
    /// 8 bits, a scale.
    I8,
}

impl Format {
    /// Bytes of one block of a tile (8 rows by 32 columns).
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::U4 => 160,
            Self::U5 => 176,
            Self::U6 => 208,
            Self::I8 => 272,
        }
    }

    /// The format that keeps a file's format as it is, or nearly so.
    pub const fn of(quant: Quant) -> Self {
        match quant {
            Quant::Q4_0 | Quant::Q4_1 | Quant::Q4K => Self::U4,
            Quant::Q5_0 => Self::U5,
            _ => Self::I8,
        }
    }

    /// The largest code and the zero when numbers are quantised to this format.
    const fn range(self) -> (f32, i16) {
        match self {
            Self::U4 => (7.0, 8),
            Self::U5 => (15.0, 16),
            Self::U6 => (31.0, 32),
            Self::I8 => (127.0, 0),
        }
    }
}

/// 64 bytes, aligned, so that tiles start on a cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// A matrix `[outputs][columns]` of packed weights.
pub struct Matrix {
    format: Format,
    outputs: usize,
    columns: usize,
    lines: Vec<Line>,
}

impl std::fmt::Debug for Matrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Matrix {:?} [{}][{}]", self.format, self.outputs, self.columns)
    }
}

impl Matrix {
    /// Packs rows as they lie in a weight file, without loss but for rounding
    /// a k-quant's scales to half precision; formats without 32-column scales
    /// are rounded to 8 bits.
    ///
    /// `rows`: which rows of the file's tensor to take, in which order.
    ///
    /// # Panics
    /// When `columns` is not a multiple of 32, `bytes` is no whole number of
    /// rows, or a row lies outside it.
    pub fn pack(pool: &Pool, quant: Quant, bytes: &[u8], columns: usize, rows: &[u32]) -> Self {
        let row_bytes = quant.row_bytes(columns).expect("columns fill the file's blocks");
        assert!(bytes.len().is_multiple_of(row_bytes));
        let format = Format::of(quant);
        Self::fill(pool, format, columns, rows.len(), &|row, codes| {
            let row = &bytes[rows[row] as usize * row_bytes..][..row_bytes];
            if quant.has_codes() && !matches!(quant, Quant::Q5_1 | Quant::Q5K) {
                quant.codes(row, codes);
            } else {
                let mut values = vec![0.0; columns];
                quant.dequantize(row, &mut values);
                quantize(format, &values, codes);
            }
        })
    }

    /// Packs numbers, rounding them to `format`. `row(i, values)` writes row `i`.
    ///
    /// # Panics
    /// When `columns` is not a multiple of 32.
    pub fn quantize(
        pool: &Pool,
        format: Format,
        columns: usize,
        outputs: usize,
        row: &(dyn Fn(usize, &mut [f32]) + Sync),
    ) -> Self {
        Self::fill(pool, format, columns, outputs, &|index, codes| {
            let mut values = vec![0.0; columns];
            row(index, &mut values);
            quantize(format, &values, codes);
        })
    }

    fn fill(
        pool: &Pool,
        format: Format,
        columns: usize,
        outputs: usize,
        row: &(dyn Fn(usize, &mut Codes) + Sync),
    ) -> Self {
        assert!(columns.is_multiple_of(BLOCK) && columns > 0, "{columns} columns");
        let tiles = outputs.div_ceil(TILE);
        let tile_bytes = columns / BLOCK * format.block_bytes();
        // One line more: kernels may read up to 32 bytes past a block's fields.
        let mut lines = vec![Line([0; 64]); (tiles * tile_bytes).div_ceil(64) + 1];
        advise_huge(&lines);
        // SAFETY: `Line` is 64 plain bytes without padding; the borrow is exclusive.
        let all =
            unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast::<u8>(), lines.len() * 64) };
        let shared = Share::new(all);
        pool.run(tiles, &|tile| {
            // SAFETY: each chunk takes its own tile, and a chunk runs once.
            let bytes = unsafe { shared.part(tile * tile_bytes, tile_bytes) };
            let mut codes = Codes::default();
            for lane in 0..TILE.min(outputs - tile * TILE) {
                codes.resize(columns);
                row(tile * TILE + lane, &mut codes);
                write_row(format, bytes, lane, &codes);
            }
        });
        Self { format, outputs, columns, lines }
    }

    /// How the weights are held.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Output rows.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Columns: the length of the vectors it is multiplied with.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Bytes that one pass over it reads.
    pub fn bytes(&self) -> usize {
        self.tiles() * self.tile_bytes()
    }

    pub(crate) fn tiles(&self) -> usize {
        self.outputs.div_ceil(TILE)
    }

    pub(crate) fn tile_bytes(&self) -> usize {
        self.columns / BLOCK * self.format.block_bytes()
    }

    /// The bytes of one tile.
    pub(crate) fn tile(&self, tile: usize) -> &[u8] {
        assert!(tile < self.tiles());
        // SAFETY: `lines` holds at least `tiles * tile_bytes` plain bytes.
        unsafe {
            let start = self.lines.as_ptr().cast::<u8>().add(tile * self.tile_bytes());
            std::slice::from_raw_parts(start, self.tile_bytes())
        }
    }

    /// One row as numbers, as the kernels see it.
    ///
    /// # Panics
    /// When the row does not exist or `out` is not `columns` long.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.outputs && out.len() == self.columns);
        let tile = self.tile(row / TILE);
        let lane = row % TILE;
        for (block, out) in out.chunks_exact_mut(BLOCK).enumerate() {
            let b = &tile[block * self.format.block_bytes()..][..self.format.block_bytes()];
            let (scale, offset) = scale_offset(self.format, b, lane);
            for (column, value) in out.iter_mut().enumerate() {
                *value = scale.mul_add(f32::from(code(self.format, b, lane, column)), offset);
            }
        }
    }
}

/// Asks for large pages: a pass streams through hundreds of megabytes, and with
/// small pages the address translation shows. Only advice, so a refusal is fine.
#[cfg(target_os = "linux")]
fn advise_huge(lines: &[Line]) {
    let page = 2 << 20;
    let start = (lines.as_ptr() as usize).next_multiple_of(page);
    let end = (lines.as_ptr() as usize + lines.len() * 64) / page * page;
    if start < end {
        // SAFETY: the range lies inside the allocation; MADV_HUGEPAGE changes no contents.
        let _advice = unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn advise_huge(_: &[Line]) {}

/// Rounds numbers to codes: the largest of a block gets the largest code.
fn quantize(format: Format, values: &[f32], codes: &mut Codes) {
    let (top, zero) = format.range();
    for (block, values) in values.chunks_exact(BLOCK).enumerate() {
        let most = values.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        let scale = f16::from_f32(most / top).to_f32();
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        codes.scale[block] = scale;
        codes.offset[block] = -scale * f32::from(zero);
        for (code, value) in codes.code[block * BLOCK..].iter_mut().zip(values) {
            *code = (value * inverse).round().clamp(-top, top) as i16 + zero;
        }
    }
}

fn write_row(format: Format, tile: &mut [u8], lane: usize, codes: &Codes) {
    for (block, b) in tile.chunks_exact_mut(format.block_bytes()).enumerate() {
        for column in 0..BLOCK {
            let code = codes.code[block * BLOCK + column];
            let (group, at) = (column / 4, lane * 4 + column % 4);
            if format == Format::I8 {
                // -128 cannot be: |-128| does not fit the sign trick.
                b[group * 32 + at] = code.clamp(-127, 127) as i8 as u8;
                continue;
            }
            b[group % 4 * 32 + at] |= (code as u8 & 15) << (group / 4 * 4);
            match format {
                Format::U5 => b[128 + at] |= (code as u8 >> 4 & 1) << group,
                Format::U6 => b[128 + group / 4 * 32 + at] |= (code as u8 >> 4 & 3) << (group % 4 * 2),
                Format::U4 | Format::I8 => {}
            }
        }
        let scales = scales_at(format);
        let scale = f16::from_f32(codes.scale[block]);
        b[scales + lane * 2..][..2].copy_from_slice(&scale.to_le_bytes());
        if format == Format::U4 {
            let offset = f16::from_f32(codes.offset[block]);
            b[scales + 16 + lane * 2..][..2].copy_from_slice(&offset.to_le_bytes());
        }
    }
}

/// Where a block's scales begin.
pub(crate) const fn scales_at(format: Format) -> usize {
    match format {
        Format::U4 => 128,
        Format::U5 => 160,
        Format::U6 => 192,
        Format::I8 => 256,
    }
}

pub(crate) fn code(format: Format, b: &[u8], lane: usize, column: usize) -> i16 {
    let (group, at) = (column / 4, lane * 4 + column % 4);
    if format == Format::I8 {
        return i16::from(b[group * 32 + at] as i8);
    }
    let low = i16::from(b[group % 4 * 32 + at] >> (group / 4 * 4) & 15);
    match format {
        Format::U5 => low | i16::from(b[128 + at] >> group & 1) << 4,
        Format::U6 => low | i16::from(b[128 + group / 4 * 32 + at] >> (group % 4 * 2) & 3) << 4,
        Format::U4 | Format::I8 => low,
    }
}

pub(crate) fn scale_offset(format: Format, b: &[u8], lane: usize) -> (f32, f32) {
    let at = scales_at(format) + lane * 2;
    let scale = f16::from_le_bytes([b[at], b[at + 1]]).to_f32();
    let offset = match format {
        Format::U4 => f16::from_le_bytes([b[at + 16], b[at + 17]]).to_f32(),
        Format::U5 => -16.0 * scale,
        Format::U6 => -32.0 * scale,
        Format::I8 => 0.0,
    };
    (scale, offset)
}
