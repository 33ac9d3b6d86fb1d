//! AVX2 and AVX-512 VNNI.
//!
//! AVX2 multiplies unsigned by signed bytes to pairs summed in 16 bits
//! (`maddubs`). Weights of 4, 5 and 6 bits are unsigned, so 8, 4 or 2 such
//! results still fit 16 bits before they are widened; for 8-bit weights the
//! weight's sign moves to the activation (`|w| * sign(w) * x`).
//! VNNI adds four products straight to 32 bits.

use std::arch::x86_64::*;

use super::super::{BLOCK, Format, TILE};
use super::{ROWS, Rows};

/// Writes one module per instruction set around the same text; the last four
/// names say how weights of each width meet activations.
macro_rules! kernels {
    ($name:ident, $features:literal, $u4:ident, $u5:ident, $u6:ident, $i8:ident) => {
        pub(super) mod $name {
            use super::*;

            /// # Safety
            /// The machine has the instruction set; sizes as `super::super::tile` asserts.
            pub(in super::super) unsafe fn tile(
                format: Format,
                bytes: &[u8],
                rows: Rows<'_>,
                out: &mut [[f32; TILE]],
            ) {
                macro_rules! by_rows {
                    ($kernel:ident) => {
                        // SAFETY: the caller's promise, handed on.
                        unsafe {
                            match out.len() {
                                1 => $kernel::<1>(bytes, rows, out),
                                2 => $kernel::<2>(bytes, rows, out),
                                3 => $kernel::<3>(bytes, rows, out),
                                4 => $kernel::<4>(bytes, rows, out),
                                5 => $kernel::<5>(bytes, rows, out),
                                6 => $kernel::<6>(bytes, rows, out),
                                7 => $kernel::<7>(bytes, rows, out),
                                _ => $kernel::<ROWS>(bytes, rows, out),
                            }
                        }
                    };
                }
                match format {
                    Format::U4 => by_rows!(u4),
                    Format::U5 => by_rows!(u5),
                    Format::U6 => by_rows!(u6),
                    Format::I8 => by_rows!(i8),
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn u4<const R: usize>(bytes: &[u8], rows: Rows<'_>, out: &mut [[f32; TILE]]) {
                let mut acc = [_mm256_setzero_ps(); R];
                for block in 0..rows.blocks {
                    // SAFETY: `bytes` holds `blocks` blocks of 160 bytes, `rows` R rows of `blocks` blocks.
                    unsafe {
                        let b = bytes.as_ptr().add(block * Format::U4.block_bytes());
                        let w = nibbles(b);
                        let scale = halves(b.add(128));
                        let offset = halves(b.add(144));
                        for r in 0..R {
                            let x = Row::at::<R>(rows, r, block);
                            let sum = $u4(&w, x.code);
                            acc[r] = _mm256_fmadd_ps(
                                _mm256_cvtepi32_ps(sum),
                                _mm256_mul_ps(scale, _mm256_set1_ps(x.scale)),
                                acc[r],
                            );
                            acc[r] = _mm256_fmadd_ps(offset, _mm256_set1_ps(x.scale * x.sum as f32), acc[r]);
                        }
                    }
                }
                store::<R>(acc, out);
            }

            #[target_feature(enable = $features)]
            unsafe fn u5<const R: usize>(bytes: &[u8], rows: Rows<'_>, out: &mut [[f32; TILE]]) {
                let mut acc = [_mm256_setzero_ps(); R];
                for block in 0..rows.blocks {
                    // SAFETY: `bytes` holds `blocks` blocks of 176 bytes, `rows` R rows of `blocks` blocks.
                    unsafe {
                        let b = bytes.as_ptr().add(block * Format::U5.block_bytes());
                        let mut w = nibbles(b);
                        fifth(b.add(128), &mut w);
                        let scale = halves(b.add(160));
                        for r in 0..R {
                            let x = Row::at::<R>(rows, r, block);
                            let sum = $u5(&w, x.code);
                            let sum = _mm256_sub_epi32(sum, _mm256_set1_epi32(x.sum << 4));
                            acc[r] = _mm256_fmadd_ps(
                                _mm256_cvtepi32_ps(sum),
                                _mm256_mul_ps(scale, _mm256_set1_ps(x.scale)),
                                acc[r],
                            );
                        }
                    }
                }
                store::<R>(acc, out);
            }

            #[target_feature(enable = $features)]
            unsafe fn u6<const R: usize>(bytes: &[u8], rows: Rows<'_>, out: &mut [[f32; TILE]]) {
                let mut acc = [_mm256_setzero_ps(); R];
                for block in 0..rows.blocks {
                    // SAFETY: `bytes` holds `blocks` blocks of 208 bytes, `rows` R rows of `blocks` blocks.
                    unsafe {
                        let b = bytes.as_ptr().add(block * Format::U6.block_bytes());
                        let mut w = nibbles(b);
                        sixth(b.add(128), &mut w);
                        let scale = halves(b.add(192));
                        for r in 0..R {
                            let x = Row::at::<R>(rows, r, block);
                            let sum = $u6(&w, x.code);
                            let sum = _mm256_sub_epi32(sum, _mm256_set1_epi32(x.sum << 5));
                            acc[r] = _mm256_fmadd_ps(
                                _mm256_cvtepi32_ps(sum),
                                _mm256_mul_ps(scale, _mm256_set1_ps(x.scale)),
                                acc[r],
                            );
                        }
                    }
                }
                store::<R>(acc, out);
            }

            #[target_feature(enable = $features)]
            unsafe fn i8<const R: usize>(bytes: &[u8], rows: Rows<'_>, out: &mut [[f32; TILE]]) {
                let mut acc = [_mm256_setzero_ps(); R];
                for block in 0..rows.blocks {
                    // SAFETY: `bytes` holds `blocks` blocks of 272 bytes, `rows` R rows of `blocks` blocks.
                    unsafe {
                        let b = bytes.as_ptr().add(block * Format::I8.block_bytes());
                        let scale = halves(b.add(256));
                        let mut sums = [_mm256_setzero_si256(); R];
                        for group in 0..8 {
                            let w = load(b.add(group * 32));
                            let size = _mm256_abs_epi8(w);
                            for r in 0..R {
                                let x = _mm256_sign_epi8(four(code_at::<R>(rows, r, block), group), w);
                                sums[r] = $i8(sums[r], size, x);
                            }
                        }
                        for r in 0..R {
                            let x = Row::at::<R>(rows, r, block);
                            acc[r] = _mm256_fmadd_ps(
                                _mm256_cvtepi32_ps(sums[r]),
                                _mm256_mul_ps(scale, _mm256_set1_ps(x.scale)),
                                acc[r],
                            );
                        }
                    }
                }
                store::<R>(acc, out);
            }
        }
    };
}

kernels!(avx2, "avx2,fma,f16c", u4_avx2, u5_avx2, u6_avx2, i8_avx2);
kernels!(vnni, "avx2,fma,f16c,avx512vnni,avx512vl", un_vnni, un_vnni, un_vnni, i8_vnni);

/// One block of one row of activations.
struct Row {
    code: *const u8,
    scale: f32,
    sum: i32,
}

impl Row {
    /// # Safety
    /// `rows` has at least `R` rows, `r < R`, `block < rows.blocks`.
    #[inline(always)]
    unsafe fn at<const R: usize>(rows: Rows<'_>, r: usize, block: usize) -> Self {
        // SAFETY: within the slices by the caller's promise.
        unsafe {
            Self {
                code: code_at::<R>(rows, r, block),
                scale: *rows.scale.as_ptr().add(r * rows.blocks + block),
                sum: *rows.sum.as_ptr().add(r * rows.blocks + block),
            }
        }
    }
}

/// # Safety
/// As [`Row::at`].
#[inline(always)]
unsafe fn code_at<const R: usize>(rows: Rows<'_>, r: usize, block: usize) -> *const u8 {
    debug_assert!(r < R && block < rows.blocks);
    // SAFETY: within the slice by the caller's promise.
    unsafe { rows.code.as_ptr().add((r * rows.blocks + block) * BLOCK).cast() }
}

/// # Safety
/// 32 bytes are readable at `from`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load(from: *const u8) -> __m256i {
    // SAFETY: the caller's promise; the load needs no alignment.
    unsafe { _mm256_loadu_si256(from.cast()) }
}

/// Eight halves as floats.
///
/// # Safety
/// 16 bytes are readable at `from`.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn halves(from: *const u8) -> __m256 {
    // SAFETY: the caller's promise; the load needs no alignment.
    unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
}

/// Four codes of an activation row, repeated for the eight rows of a tile.
///
/// # Safety
/// 32 bytes are readable at `code`; `group < 8`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn four(code: *const u8, group: usize) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_set1_epi32(code.add(group * 4).cast::<i32>().read_unaligned()) }
}

/// The eight groups of low nibbles.
///
/// # Safety
/// 128 bytes are readable at `b`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn nibbles(b: *const u8) -> [__m256i; 8] {
    let mask = _mm256_set1_epi8(15);
    let mut w = [_mm256_setzero_si256(); 8];
    for i in 0..4 {
        // SAFETY: the caller's promise.
        let pair = unsafe { load(b.add(i * 32)) };
        w[i] = _mm256_and_si256(pair, mask);
        w[i + 4] = _mm256_and_si256(_mm256_srli_epi16::<4>(pair), mask);
    }
    w
}

/// Adds the fifth bits.
///
/// # Safety
/// 32 bytes are readable at `b`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn fifth(b: *const u8, w: &mut [__m256i; 8]) {
    let bit = _mm256_set1_epi8(16);
    // SAFETY: the caller's promise.
    let h = unsafe { load(b) };
    let shifted = [
        _mm256_slli_epi16::<4>(h),
        _mm256_slli_epi16::<3>(h),
        _mm256_slli_epi16::<2>(h),
        _mm256_slli_epi16::<1>(h),
        h,
        _mm256_srli_epi16::<1>(h),
        _mm256_srli_epi16::<2>(h),
        _mm256_srli_epi16::<3>(h),
    ];
    for (w, h) in w.iter_mut().zip(shifted) {
        *w = _mm256_or_si256(*w, _mm256_and_si256(h, bit));
    }
}

/// Adds the fifth and sixth bits.
///
/// # Safety
/// 64 bytes are readable at `b`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn sixth(b: *const u8, w: &mut [__m256i; 8]) {
    let bits = _mm256_set1_epi8(48);
    for i in 0..2 {
        // SAFETY: the caller's promise.
        let h = unsafe { load(b.add(i * 32)) };
        let shifted = [_mm256_slli_epi16::<4>(h), _mm256_slli_epi16::<2>(h), h, _mm256_srli_epi16::<2>(h)];
        for (j, h) in shifted.into_iter().enumerate() {
            w[i * 4 + j] = _mm256_or_si256(w[i * 4 + j], _mm256_and_si256(h, bits));
        }
    }
}

/// Sums of eight groups, 4-bit weights: 8 x 2 x 15 x 127 = 30,480 fits 16 bits.
///
/// # Safety
/// 32 bytes are readable at `code`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn u4_avx2(w: &[__m256i; 8], code: *const u8) -> __m256i {
    let mut pairs = [_mm256_setzero_si256(); 8];
    for (group, pair) in pairs.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *pair = _mm256_maddubs_epi16(w[group], unsafe { four(code, group) });
    }
    let [a, b, c, d, e, f, g, h] = pairs;
    let low = _mm256_add_epi16(_mm256_add_epi16(a, b), _mm256_add_epi16(c, d));
    let high = _mm256_add_epi16(_mm256_add_epi16(e, f), _mm256_add_epi16(g, h));
    _mm256_madd_epi16(_mm256_add_epi16(low, high), _mm256_set1_epi16(1))
}

/// 5-bit weights: 4 x 2 x 31 x 127 = 31,496 fits 16 bits.
///
/// # Safety
/// 32 bytes are readable at `code`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn u5_avx2(w: &[__m256i; 8], code: *const u8) -> __m256i {
    let mut pairs = [_mm256_setzero_si256(); 8];
    for (group, pair) in pairs.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *pair = _mm256_maddubs_epi16(w[group], unsafe { four(code, group) });
    }
    let [a, b, c, d, e, f, g, h] = pairs;
    let low = _mm256_add_epi16(_mm256_add_epi16(a, b), _mm256_add_epi16(c, d));
    let high = _mm256_add_epi16(_mm256_add_epi16(e, f), _mm256_add_epi16(g, h));
    let one = _mm256_set1_epi16(1);
    _mm256_add_epi32(_mm256_madd_epi16(low, one), _mm256_madd_epi16(high, one))
}

/// 6-bit weights: 2 x 2 x 63 x 127 = 32,004 fits 16 bits.
///
/// # Safety
/// 32 bytes are readable at `code`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn u6_avx2(w: &[__m256i; 8], code: *const u8) -> __m256i {
    let one = _mm256_set1_epi16(1);
    let mut sum = _mm256_setzero_si256();
    for group in [0, 2, 4, 6] {
        // SAFETY: the caller's promise.
        let (a, b) = unsafe { (four(code, group), four(code, group + 1)) };
        let pair = _mm256_add_epi16(_mm256_maddubs_epi16(w[group], a), _mm256_maddubs_epi16(w[group + 1], b));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pair, one));
    }
    sum
}

/// One group of 8-bit weights: 2 x 127 x 127 = 32,258 fits 16 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn i8_avx2(sum: __m256i, size: __m256i, x: __m256i) -> __m256i {
    _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(size, x), _mm256_set1_epi16(1)))
}

/// Sums of eight groups of unsigned weights.
///
/// # Safety
/// 32 bytes are readable at `code`.
#[inline]
#[target_feature(enable = "avx2,avx512vnni,avx512vl")]
unsafe fn un_vnni(w: &[__m256i; 8], code: *const u8) -> __m256i {
    // Two chains: the product's latency is several cycles.
    let mut sums = [_mm256_setzero_si256(); 2];
    for group in 0..8 {
        // SAFETY: the caller's promise.
        sums[group % 2] = _mm256_dpbusd_epi32(sums[group % 2], w[group], unsafe { four(code, group) });
    }
    _mm256_add_epi32(sums[0], sums[1])
}

#[inline]
#[target_feature(enable = "avx2,avx512vnni,avx512vl")]
fn i8_vnni(sum: __m256i, size: __m256i, x: __m256i) -> __m256i {
    _mm256_dpbusd_epi32(sum, size, x)
}

#[inline]
#[target_feature(enable = "avx2")]
fn store<const R: usize>(acc: [__m256; R], out: &mut [[f32; TILE]]) {
    for (acc, out) in acc.into_iter().zip(out) {
        // SAFETY: `out` is eight floats; the store needs no alignment.
        unsafe { _mm256_storeu_ps(out.as_mut_ptr(), acc) };
    }
}
