//! What lies between the products: norms, rotation, activation, rounding.
//!
//! Written plainly over lanes of eight so that the compiler vectorises it; each
//! function is compiled a second time with AVX2 and FMA switched on. Both give
//! the same bits.

use super::{BLOCK, Isa};

const LANES: usize = 8;

/// Compiles the body twice and picks at run time.
macro_rules! twice {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$doc])*
        $vis fn $name($($arg: $type),*) $(-> $ret)? {
            #[inline(always)]
            fn plain($($arg: $type),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn wide($($arg: $type),*) $(-> $ret)? {
                plain($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            if Isa::best() >= Isa::Avx2 {
                // SAFETY: the machine has the features.
                return unsafe { wide($($arg),*) };
            }
            plain($($arg),*)
        }
    };
}

#[inline(always)]
fn exp(x: f32) -> f32 {
    // Cephes' expf: 2^n times a polynomial on [-ln2/2, ln2/2].
    let x = if x < -87.0 { -87.0 } else { x };
    let x = if x > 88.0 { 88.0 } else { x };
    let n = (x * std::f32::consts::LOG2_E).round_ties_even();
    let r = n.mul_add(-0.693_359_4, x);
    let r = n.mul_add(2.121_944_4e-4, r);
    let mut p = 1.987_569_1e-4_f32;
    p = p.mul_add(r, 1.398_2e-3);
    p = p.mul_add(r, 8.333_452e-3);
    p = p.mul_add(r, 4.166_579_6e-2);
    p = p.mul_add(r, 1.666_666_5e-1);
    p = p.mul_add(r, 0.5);
    let p = p.mul_add(r * r, r) + 1.0;
    p * f32::from_bits(((n as i32 + 127) << 23) as u32)
}

#[inline(always)]
fn total(lanes: [f32; LANES]) -> f32 {
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

#[inline(always)]
fn sum_squares(x: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = value.mul_add(*value, *lane);
        }
    }
    rest.iter().fold(total(lanes), |sum, value| value.mul_add(*value, sum))
}

twice! {
    /// Root-mean-square norm (Zhang and Sennrich 2019): `out = x / rms(x) * weight`.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        assert!(x.len() == weight.len() && x.len() == out.len());
        let scale = 1.0 / (sum_squares(x) / x.len() as f32 + eps).sqrt();
        for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
            *out = x * scale * weight;
        }
    }
}

twice! {
    /// The norm without weights.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn rms_unit(x: &[f32], eps: f32, out: &mut [f32]) {
        assert!(x.len() == out.len());
        let scale = 1.0 / (sum_squares(x) / x.len() as f32 + eps).sqrt();
        for (out, x) in out.iter_mut().zip(x) {
            *out = x * scale;
        }
    }
}

twice! {
    /// SwiGLU's product: `out = silu(gate) * up`.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn silu_mul(gate: &[f32], up: &[f32], out: &mut [f32]) {
        assert!(gate.len() == up.len() && gate.len() == out.len());
        for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
            *out = gate / (1.0 + exp(-gate)) * up;
        }
    }
}

twice! {
    /// `x = silu(x)`.
    pub fn silu(x: &mut [f32]) {
        for x in x {
            *x /= 1.0 + exp(-*x);
        }
    }
}

#[inline(always)]
fn most(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = if *value > *lane { *value } else { *lane };
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |most, value| if *value > most { *value } else { most })
}

twice! {
    /// Softmax in place.
    pub fn softmax(x: &mut [f32]) {
        let top = most(x);
        let mut lanes = [0.0_f32; LANES];
        let mut chunks = x.chunks_exact_mut(LANES);
        for chunk in &mut chunks {
            for (lane, value) in lanes.iter_mut().zip(chunk) {
                *value = exp(*value - top);
                *lane += *value;
            }
        }
        let mut sum = total(lanes);
        for value in chunks.into_remainder() {
            *value = exp(*value - top);
            sum += *value;
        }
        let scale = 1.0 / sum;
        for value in x {
            *value *= scale;
        }
    }
}

twice! {
    /// Weights of a softmax at a temperature: `out = exp((x - largest) / temperature)`;
    /// returns their sum.
    pub fn weights(x: &[f32], temperature: f32, out: &mut Vec<f32>) -> f64 {
        let (top, factor) = (most(x), 1.0 / temperature);
        out.resize(x.len(), 0.0);
        let mut sum = 0.0_f64;
        for (x, out) in x.chunks(256).zip(out.chunks_mut(256)) {
            for (out, x) in out.iter_mut().zip(x) {
                // The floor of `exp` is not quite nothing; here it must be.
                let scaled = (*x - top) * factor;
                *out = if scaled < -80.0 { 0.0 } else { exp(scaled) };
            }
            sum += out.iter().map(|w| f64::from(*w)).sum::<f64>();
        }
        sum
    }
}

twice! {
    /// Place of the largest number, the first of equals; 0 when none compares.
    pub fn argmax(x: &[f32]) -> usize {
        let top = most(x);
        x.iter().position(|value| *value == top).unwrap_or(0)
    }
}

twice! {
    /// The `count` largest numbers and their places, largest first; of equals
    /// the one that comes first. Fewer when there are fewer.
    pub fn top(x: &[f32], count: usize) -> Vec<(u32, f32)> {
        let mut best: Vec<(u32, f32)> = Vec::with_capacity(count + 1);
        if count == 0 {
            return best;
        }
        let mut least = f32::NEG_INFINITY;
        for (chunk, values) in x.chunks(64).enumerate() {
            if best.len() == count && most(values) <= least {
                continue;
            }
            for (at, value) in values.iter().enumerate() {
                if best.len() < count || *value > least {
                    let place = best.partition_point(|(_, other)| *other >= *value);
                    best.insert(place, ((chunk * 64 + at) as u32, *value));
                    best.truncate(count);
                    if best.len() == count {
                        least = best[count - 1].1;
                    }
                }
            }
        }
        best
    }
}

twice! {
    /// The sum of products.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn dot(a: &[f32], b: &[f32]) -> f32 {
        assert!(a.len() == b.len());
        let mut lanes = [0.0_f32; LANES];
        let (x, y) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
        let rest = x.remainder().iter().zip(y.remainder());
        for (x, y) in x.zip(y) {
            for ((lane, x), y) in lanes.iter_mut().zip(x).zip(y) {
                *lane = x.mul_add(*y, *lane);
            }
        }
        rest.fold(total(lanes), |sum, (x, y)| x.mul_add(*y, sum))
    }
}

twice! {
    /// `y += a * x`.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
        assert!(x.len() == y.len());
        for (y, x) in y.iter_mut().zip(x) {
            *y = a.mul_add(*x, *y);
        }
    }
}

twice! {
    /// Rounds to 8-bit codes in blocks of 32, the largest of a block to 127.
    ///
    /// # Panics
    /// When the lengths do not fit each other.
    pub(crate) fn quantize(values: &[f32], code: &mut [i8], scale: &mut [f32], sum: &mut [i32]) {
        assert!(values.len() == code.len() && values.len() == scale.len() * BLOCK && scale.len() == sum.len());
        let blocks = values.chunks_exact(BLOCK).zip(code.chunks_exact_mut(BLOCK));
        for ((values, code), (scale, sum)) in blocks.zip(scale.iter_mut().zip(sum.iter_mut())) {
            let mut lanes = [0.0_f32; LANES];
            for chunk in values.chunks_exact(LANES) {
                for (lane, value) in lanes.iter_mut().zip(chunk) {
                    let size = value.abs();
                    *lane = if size > *lane { size } else { *lane };
                }
            }
            let most = lanes.iter().fold(0.0_f32, |most, size| if *size > most { *size } else { most });
            *scale = most / 127.0;
            let inverse = if most > 0.0 { 127.0 / most } else { 0.0 };
            let mut total = 0_i32;
            for (code, value) in code.iter_mut().zip(values) {
                let rounded = (value * inverse).round_ties_even() as i32;
                *code = rounded as i8;
                total += i32::from(*code);
            }
            *sum = total;
        }
    }
}

/// Which columns of a head turn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// Column `i` with column `i + half` (NeoX, Qwen2).
    Halves,
    /// Column `2i` with column `2i + 1` (Llama as GGUF stores it).
    Pairs,
}

/// Turns the heads of one row (rotary position embedding, Su et al. 2021).
///
/// `x`: heads in a row; `cos`, `sin`: one value per pair of columns.
///
/// # Panics
/// When the lengths do not fit each other.
pub fn rotate(rotation: Rotation, x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let half = cos.len();
    assert!(sin.len() == half && x.len().is_multiple_of(2 * half));
    for head in x.chunks_exact_mut(2 * half) {
        match rotation {
            Rotation::Halves => {
                let (low, high) = head.split_at_mut(half);
                for ((a, b), (cos, sin)) in low.iter_mut().zip(high).zip(cos.iter().zip(sin)) {
                    (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                }
            }
            Rotation::Pairs => {
                for (pair, (cos, sin)) in head.chunks_exact_mut(2).zip(cos.iter().zip(sin)) {
                    let (a, b) = (pair[0], pair[1]);
                    (pair[0], pair[1]) = (a * cos - b * sin, b * cos + a * sin);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(len: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 37 % 101) as f32 - 50.0) / 9.0).collect()
    }

    fn near(a: f32, b: f32, tolerance: f32) {
        assert!((a - b).abs() <= tolerance * b.abs().max(1.0), "{a} {b}");
    }

    #[test]
    fn exp_is_exact_to_float_rounding() {
        for i in -8_700..8_800 {
            let x = i as f32 / 100.0;
            let wanted = f64::from(x).exp();
            assert!((f64::from(exp(x)) / wanted - 1.0).abs() < 3e-7, "exp({x})");
        }
        assert!(exp(-1000.0) < 1e-37);
        assert!(exp(1000.0).is_finite());
    }

    #[test]
    fn norms_match_their_definition() {
        for len in [8, 9, 576, 896] {
            let x = ramp(len);
            let weight: Vec<f32> = (0..len).map(|i| 1.0 + i as f32 / 1000.0).collect();
            let mut out = vec![0.0; len];
            rms_norm(&x, &weight, 1e-6, &mut out);
            let mean = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / len as f64;
            for i in 0..len {
                let wanted = f64::from(x[i]) / (mean + 1e-6).sqrt() * f64::from(weight[i]);
                near(out[i], wanted as f32, 1e-5);
            }
        }
    }

    #[test]
    fn softmax_sums_to_one_and_keeps_ratios() {
        for len in [1, 7, 8, 33, 500] {
            let x = ramp(len);
            let mut p = x.clone();
            softmax(&mut p);
            near(p.iter().sum(), 1.0, 1e-5);
            let sum: f64 = x.iter().map(|v| f64::from(*v).exp()).sum();
            for (p, x) in p.iter().zip(&x) {
                near(*p, (f64::from(*x).exp() / sum) as f32, 1e-5);
            }
        }
    }

    #[test]
    fn weights_are_a_softmax_without_the_division() {
        let x = ramp(700);
        let mut w = Vec::new();
        let sum = weights(&x, 0.5, &mut w);
        let top = x.iter().copied().fold(f32::MIN, f32::max);
        for (w, x) in w.iter().zip(&x) {
            near(*w, ((x - top) / 0.5).exp(), 1e-6);
        }
        assert!((sum - w.iter().map(|w| f64::from(*w)).sum::<f64>()).abs() < 1e-6);
        weights(&[0.0, -200.0], 1.0, &mut w);
        assert_eq!(w, [1.0, 0.0]);
    }

    #[test]
    fn silu_and_argmax_and_dot() {
        let (gate, up) = (ramp(77), ramp(77));
        let mut out = vec![0.0; 77];
        silu_mul(&gate, &up, &mut out);
        for i in 0..77 {
            near(out[i], gate[i] / (1.0 + (-gate[i]).exp()) * up[i], 1e-5);
        }
        let mut x = gate.clone();
        silu(&mut x);
        near(x[5], gate[5] / (1.0 + (-gate[5]).exp()), 1e-5);
        let mut sorted: Vec<(u32, f32)> = gate.iter().enumerate().map(|(i, v)| (i as u32, *v)).collect();
        sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
        for count in [0, 1, 5, 77, 90] {
            assert_eq!(top(&gate, count), sorted[..count.min(77)]);
        }
        assert_eq!(argmax(&[1.0, 3.0, 3.0, 2.0]), 1);
        assert_eq!(argmax(&[f32::NAN, f32::NAN]), 0);
        let exact: f32 = gate.iter().zip(&up).map(|(a, b)| a * b).sum();
        near(dot(&gate, &up), exact, 1e-5);
        let mut y = up.clone();
        axpy(2.0, &gate, &mut y);
        near(y[3], up[3] + 2.0 * gate[3], 1e-6);
    }

    #[test]
    fn codes_round_to_nearest() {
        let x = ramp(96);
        let (mut code, mut scale, mut sum) = (vec![0; 96], vec![0.0; 3], vec![0; 3]);
        quantize(&x, &mut code, &mut scale, &mut sum);
        for i in 0..96 {
            assert!((f32::from(code[i]) * scale[i / 32] - x[i]).abs() <= scale[i / 32] * 0.501);
        }
        for block in 0..3 {
            assert_eq!(sum[block], code[block * 32..][..32].iter().map(|c| i32::from(*c)).sum::<i32>());
        }
        quantize(&[0.0; 32], &mut code[..32], &mut scale[..1], &mut sum[..1]);
        assert!(code[..32].iter().all(|c| *c == 0) && scale[0] == 0.0 && sum[0] == 0);
    }

    #[test]
    fn rotations_turn_by_the_angle() {
        let (cos, sin): (Vec<f32>, Vec<f32>) = [0.3_f32, 1.2].iter().map(|a| (a.cos(), a.sin())).unzip();
        let mut halves = vec![1.0, 2.0, 3.0, 4.0];
        rotate(Rotation::Halves, &mut halves, &cos, &sin);
        near(halves[0], 1.0 * cos[0] - 3.0 * sin[0], 1e-6);
        near(halves[2], 3.0 * cos[0] + 1.0 * sin[0], 1e-6);
        let mut pairs = vec![1.0, 3.0, 2.0, 4.0];
        rotate(Rotation::Pairs, &mut pairs, &cos, &sin);
        near(pairs[0], halves[0], 1e-6);
        near(pairs[1], halves[2], 1e-6);
        near(pairs[3], halves[3], 1e-6);
    }
}
