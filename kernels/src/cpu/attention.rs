//! Attention of a few rows over paged keys and values.
//!
//! A page holds some tokens of all layers in half precision:
//! `[layer][kv head][key, value][token][head_dim]`. A row attends to the
//! first `len` tokens of its pages. Grouped queries: the heads that share a
//! key-value head are done together, so a key is read once for all of them.
//! The order of summation depends on the row's own length only.

use std::cell::RefCell;

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::share::Share;
use super::{Acts, Isa, Pool, vector};

/// The shape of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Query heads.
    pub heads: usize,
    /// Key-value heads; divides `heads`.
    pub kv_heads: usize,
    /// Numbers of one head; a multiple of 32.
    pub head_dim: usize,
    /// Tokens of one page.
    pub page_tokens: usize,
}

impl Shape {
    /// Numbers of one layer in a page.
    pub fn layer_len(&self) -> usize {
        self.kv_heads * 2 * self.page_tokens * self.head_dim
    }

    /// Where in a page's layer the key (0) or value (1) of a token lies.
    pub fn at(&self, kv_head: usize, which: usize, token: usize) -> usize {
        ((kv_head * 2 + which) * self.page_tokens + token) * self.head_dim
    }
}

/// What one row may see.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    /// The pages, each of the same length.
    pub pages: &'a [&'a [f16]],
    /// Tokens seen, from the first on; at least 1.
    pub len: usize,
}

/// Writes one row's keys and values of one layer into its page.
///
/// `layer`: that layer's part of the page; `token`: place in the page; `k`,
/// `v`: `[kv_heads][head_dim]`.
///
/// # Panics
/// When the sizes do not fit the shape.
pub fn write(shape: Shape, layer: &mut [f16], token: usize, k: &[f32], v: &[f32]) {
    assert!(layer.len() == shape.layer_len() && token < shape.page_tokens);
    let dim = shape.head_dim;
    assert!(k.len() == shape.kv_heads * dim && v.len() == k.len());
    for head in 0..shape.kv_heads {
        layer[shape.at(head, 0, token)..][..dim].convert_from_f32_slice(&k[head * dim..][..dim]);
        layer[shape.at(head, 1, token)..][..dim].convert_from_f32_slice(&v[head * dim..][..dim]);
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

#[derive(Default)]
struct Scratch {
    /// `[heads of the group][len]`
    scores: Vec<f32>,
    /// One page's keys or values of one head.
    page: Vec<f32>,
    /// `[heads of the group][head_dim]`
    out: Vec<f32>,
}

/// Attends for every row: `q` is `[rows][heads][head_dim]` after rotation;
/// the result goes to `out`, `[rows][heads * head_dim]`.
///
/// `layer_at`: where the layer begins in each page.
///
/// # Panics
/// When the sizes do not fit the shape, or a row sees no token or more than
/// its pages hold.
pub fn attend(pool: &Pool, shape: Shape, layer_at: usize, q: &[f32], rows: &[Sight<'_>], out: &mut Acts) {
    let width = shape.heads * shape.head_dim;
    assert!(q.len() == rows.len() * width && shape.heads.is_multiple_of(shape.kv_heads));
    assert!(shape.head_dim.is_multiple_of(super::BLOCK));
    for row in rows {
        assert!(row.len > 0 && row.len <= row.pages.len() * shape.page_tokens, "{} tokens", row.len);
        assert!(row.pages.iter().all(|page| page.len() >= layer_at + shape.layer_len()));
    }
    out.resize(rows.len(), width);
    let group = shape.heads / shape.kv_heads;
    let span = group * shape.head_dim;
    let blocks = span / super::BLOCK;
    let code = Share::new(&mut out.code);
    let scale = Share::new(&mut out.scale);
    let sum = Share::new(&mut out.sum);
    pool.run(rows.len() * shape.kv_heads, &|task| {
        let (row, kv_head) = (task / shape.kv_heads, task % shape.kv_heads);
        SCRATCH.with_borrow_mut(|scratch| {
            let q = &q[row * width + kv_head * span..][..span];
            one(shape, layer_at, q, rows[row], kv_head, scratch);
            let at = row * width + kv_head * span;
            // SAFETY: no other task has this key-value head of this row.
            let (code, scale, sum) = unsafe {
                (
                    code.part(at, span),
                    scale.part(at / super::BLOCK, blocks),
                    sum.part(at / super::BLOCK, blocks),
                )
            };
            vector::quantize(&scratch.out[..span], code, scale, sum);
        });
    });
}

/// One row's heads that share a key-value head.
fn one(shape: Shape, layer_at: usize, q: &[f32], sight: Sight<'_>, kv_head: usize, scratch: &mut Scratch) {
    let (dim, len) = (shape.head_dim, sight.len);
    let group = q.len() / dim;
    scratch.scores.resize(group * len, 0.0);
    scratch.page.resize(shape.page_tokens * dim, 0.0);
    scratch.out.clear();
    scratch.out.resize(group * dim, 0.0);
    let factor = 1.0 / (dim as f32).sqrt();
    let part = |which: usize, page: usize| {
        let tokens = shape.page_tokens.min(len - page * shape.page_tokens);
        let at = layer_at + shape.at(kv_head, which, 0);
        &sight.pages[page][at..][..tokens * dim]
    };
    let pages = len.div_ceil(shape.page_tokens);
    for page in 0..pages {
        let keys = widen(part(0, page), &mut scratch.page);
        for (head, q) in q.chunks_exact(dim).enumerate() {
            let scores = &mut scratch.scores[head * len + page * shape.page_tokens..];
            score(q, keys, factor, &mut scores[..keys.len() / dim]);
        }
    }
    for scores in scratch.scores.chunks_exact_mut(len) {
        vector::softmax(scores);
    }
    for page in 0..pages {
        let values = widen(part(1, page), &mut scratch.page);
        for (head, out) in scratch.out.chunks_exact_mut(dim).enumerate() {
            let scores = &scratch.scores[head * len + page * shape.page_tokens..];
            gather(&scores[..values.len() / dim], values, out);
        }
    }
}

/// Half to single precision; returns the part that was filled.
fn widen<'a>(from: &[f16], to: &'a mut [f32]) -> &'a [f32] {
    let to = &mut to[..from.len()];
    from.convert_to_f32_slice(to);
    to
}

/// `scores[t] = q . keys[t] * factor`
fn score(q: &[f32], keys: &[f32], factor: f32, scores: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if Isa::best() >= Isa::Avx2 {
        // SAFETY: the machine has the features; the kernels below check the lengths.
        return unsafe {
            match q.len() {
                64 => wide::score::<8>(q, keys, factor, scores),
                96 => wide::score::<12>(q, keys, factor, scores),
                128 => wide::score::<16>(q, keys, factor, scores),
                _ => plain_score(q, keys, factor, scores),
            }
        };
    }
    plain_score(q, keys, factor, scores);
}

fn plain_score(q: &[f32], keys: &[f32], factor: f32, scores: &mut [f32]) {
    for (score, key) in scores.iter_mut().zip(keys.chunks_exact(q.len())) {
        *score = vector::dot(q, key) * factor;
    }
}

/// `out += sum of scores[t] * values[t]`
fn gather(scores: &[f32], values: &[f32], out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if Isa::best() >= Isa::Avx2 {
        // SAFETY: as in `score`.
        return unsafe {
            match out.len() {
                64 => wide::gather::<8>(scores, values, out),
                96 => wide::gather::<12>(scores, values, out),
                128 => wide::gather::<16>(scores, values, out),
                _ => plain_gather(scores, values, out),
            }
        };
    }
    plain_gather(scores, values, out);
}

fn plain_gather(scores: &[f32], values: &[f32], out: &mut [f32]) {
    for (score, value) in scores.iter().zip(values.chunks_exact(out.len())) {
        vector::axpy(*score, value, out);
    }
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;

    /// Four tokens at a time, so that four horizontal sums become one transpose.
    #[target_feature(enable = "avx2,fma")]
    pub(super) fn score<const N: usize>(q: &[f32], keys: &[f32], factor: f32, scores: &mut [f32]) {
        assert!(q.len() == N * 8 && keys.len() == scores.len() * q.len());
        // SAFETY: the loads stay within `q` and `keys` by the assertion above.
        let sums = |token: usize| unsafe {
            let key = keys.as_ptr().add(token * N * 8);
            let mut a = _mm256_mul_ps(_mm256_loadu_ps(q.as_ptr()), _mm256_loadu_ps(key));
            let mut b = _mm256_setzero_ps();
            for i in 1..N {
                let (x, y) = (_mm256_loadu_ps(q.as_ptr().add(i * 8)), _mm256_loadu_ps(key.add(i * 8)));
                if i % 2 == 0 {
                    a = _mm256_fmadd_ps(x, y, a);
                } else {
                    b = _mm256_fmadd_ps(x, y, b);
                }
            }
            _mm256_add_ps(a, b)
        };
        let factors = _mm_set1_ps(factor);
        let mut token = 0;
        // The same tree of additions for a token whether it is among four or alone.
        while token < scores.len() {
            let last = scores.len() - 1;
            let [a, b, c, d] = [0, 1, 2, 3].map(|i| sums((token + i).min(last)));
            let (ab, cd) = (_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
            let all = _mm256_hadd_ps(ab, cd);
            let four = _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps::<1>(all));
            let mut out = [0.0; 4];
            // SAFETY: `out` is four floats; the store needs no alignment.
            unsafe { _mm_storeu_ps(out.as_mut_ptr(), _mm_mul_ps(four, factors)) };
            let count = 4.min(scores.len() - token);
            scores[token..token + count].copy_from_slice(&out[..count]);
            token += 4;
        }
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn gather<const N: usize>(scores: &[f32], values: &[f32], out: &mut [f32]) {
        assert!(out.len() == N * 8 && values.len() == scores.len() * out.len());
        // SAFETY: loads and stores stay within `values` and `out` by the assertion above.
        unsafe {
            let mut acc = [_mm256_setzero_ps(); N];
            for (i, acc) in acc.iter_mut().enumerate() {
                *acc = _mm256_loadu_ps(out.as_ptr().add(i * 8));
            }
            for (token, score) in scores.iter().enumerate() {
                let value = values.as_ptr().add(token * N * 8);
                let score = _mm256_set1_ps(*score);
                for (i, acc) in acc.iter_mut().enumerate() {
                    *acc = _mm256_fmadd_ps(score, _mm256_loadu_ps(value.add(i * 8)), *acc);
                }
            }
            for (i, acc) in acc.iter().enumerate() {
                _mm256_storeu_ps(out.as_mut_ptr().add(i * 8), *acc);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(seed: usize, len: usize) -> Vec<f32> {
        (0..len).map(|i| (((i + seed) * 7919 % 1013) as f32 - 506.0) / 300.0).collect()
    }

    #[test]
    fn equals_the_definition() {
        for (heads, kv_heads, head_dim) in [(14, 2, 64), (9, 3, 64), (4, 4, 32), (8, 2, 128), (2, 1, 96)] {
            let shape = Shape { heads, kv_heads, head_dim, page_tokens: 8 };
            for len in [1, 3, 8, 9, 37] {
                let pool = Pool::new(2);
                let layers = 2;
                let pages = len_pages(len, shape);
                let mut store = vec![vec![f16::ZERO; shape.layer_len() * layers]; pages];
                let (k, v) = (values(1, len * kv_heads * head_dim), values(2, len * kv_heads * head_dim));
                let width = kv_heads * head_dim;
                for token in 0..len {
                    let layer = &mut store[token / 8][shape.layer_len()..];
                    write(
                        shape,
                        layer,
                        token % 8,
                        &k[token * width..][..width],
                        &v[token * width..][..width],
                    );
                }
                let views: Vec<&[f16]> = store.iter().map(Vec::as_slice).collect();
                // Rows of different length in one call; each must equal its own definition.
                let lens: Vec<usize> = (1..=len).rev().step_by(2).collect();
                let q = values(3, lens.len() * heads * head_dim);
                let rows: Vec<Sight<'_>> =
                    lens.iter().map(|len| Sight { pages: &views, len: *len }).collect();
                let mut out = Acts::default();
                attend(&pool, shape, shape.layer_len(), &q, &rows, &mut out);
                for (row, len) in lens.iter().enumerate() {
                    for head in 0..heads {
                        let q = &q[(row * heads + head) * head_dim..][..head_dim];
                        let kv = head / (heads / kv_heads);
                        let wanted = definition(q, &k, &v, *len, kv, kv_heads);
                        for (i, wanted) in wanted.iter().enumerate() {
                            let at = (row * heads + head) * head_dim + i;
                            let got = f32::from(out.code[at]) * out.scale[at / 32];
                            assert!((got - wanted).abs() < out.scale[at / 32] + 2e-3, "{got} {wanted}");
                        }
                    }
                    let mut alone = Acts::default();
                    let width = heads * head_dim;
                    attend(
                        &pool,
                        shape,
                        shape.layer_len(),
                        &q[row * width..][..width],
                        &rows[row..=row],
                        &mut alone,
                    );
                    assert_eq!(alone.code, out.code[row * width..][..width]);
                    assert_eq!(alone.scale, out.scale[row * width / 32..][..width / 32]);
                }
            }
        }
    }

    fn len_pages(len: usize, shape: Shape) -> usize {
        len.div_ceil(shape.page_tokens)
    }

    fn definition(q: &[f32], k: &[f32], v: &[f32], len: usize, kv: usize, kv_heads: usize) -> Vec<f32> {
        let dim = q.len();
        let at = |token: usize| (token * kv_heads + kv) * dim;
        let scores: Vec<f64> = (0..len)
            .map(|t| {
                let dot: f64 = q.iter().zip(&k[at(t)..]).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                (dot / (dim as f64).sqrt()).exp()
            })
            .collect();
        let sum: f64 = scores.iter().sum();
        (0..dim)
            .map(|i| (0..len).map(|t| scores[t] / sum * f64::from(v[at(t) + i])).sum::<f64>() as f32)
            .collect()
    }
}
