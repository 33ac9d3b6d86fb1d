//! Choosing a token from a row of logits.
//!
//! The choice at a position depends on the logits, the settings, the seed and
//! the position, and on nothing else: each position has a random number of its
//! own, drawn from the seed. A drafted token is accepted when it *is* that
//! choice. This is rejection sampling against a draft without a distribution
//! of its own: a drafted `x` is accepted with the base's probability `p(x)`,
//! and otherwise the token comes from `p` without `x`. Drawn this way, the
//! tokens of a seed are the same with a drafter, without one, and with any
//! draft length.

use voluble_kernels::cpu::vector;

use super::DecodeParams;

/// The token that follows, the `position`-th of its sequence.
pub fn choose(logits: &[f32], params: &DecodeParams, position: usize) -> u32 {
    if params.temperature <= 0.0 {
        return vector::argmax(logits) as u32;
    }
    let draw = uniform(params.seed, position as u64);
    let mut weights = Vec::new();
    let sum = vector::weights(logits, params.temperature, &mut weights);
    if params.top_p >= 1.0 {
        // Nothing is cut, so nothing need be sorted.
        return pick(weights.iter().enumerate().map(|(token, w)| (token as u32, f64::from(*w))), draw * sum);
    }
    pick(cut(&weights, sum, params.top_p).into_iter(), draw)
}

/// The first token at which the running sum passes `draw`; the last of
/// non-zero weight should rounding leave a crumb.
fn pick(tokens: impl Iterator<Item = (u32, f64)>, draw: f64) -> u32 {
    let (mut rest, mut last) = (draw, 0);
    for (token, weight) in tokens.filter(|(_, weight)| *weight > 0.0) {
        last = token;
        rest -= weight;
        if rest < 0.0 {
            break;
        }
    }
    last
}

/// The likeliest tokens that together have `top_p`, likeliest first, and their
/// probabilities, which sum to 1.
pub fn nucleus(logits: &[f32], temperature: f32, top_p: f32) -> Vec<(u32, f64)> {
    let mut weights = Vec::new();
    let sum = vector::weights(logits, temperature, &mut weights);
    cut(&weights, sum, top_p)
}

fn cut(weights: &[f32], sum: f64, top_p: f32) -> Vec<(u32, f64)> {
    let wanted = f64::from(top_p) * sum;
    // A large vocabulary is not sorted whole: most of it is almost nothing.
    let mut kept: Vec<(u32, f64)> = Vec::new();
    for floor in [1e-3, 1e-5, 0.0] {
        kept = (0..).zip(weights).filter(|(_, w)| **w > floor).map(|(t, w)| (t, f64::from(*w))).collect();
        if kept.iter().map(|(_, weight)| weight).sum::<f64>() >= wanted {
            break;
        }
    }
    // Equal ones in the order of their ids, so that the order is one.
    kept.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut mass = 0.0;
    let within = kept.iter().take_while(|(_, weight)| {
        let before = mass;
        mass += weight;
        before < wanted
    });
    let count = within.count().max(1).min(kept.len());
    kept.truncate(count);
    let sum: f64 = kept.iter().map(|(_, weight)| weight).sum();
    kept.iter_mut().for_each(|(_, weight)| *weight /= sum);
    kept
}

/// A number from 0 (inclusive) to 1 for a position (SplitMix64, Steele et al. 2014).
fn uniform(seed: u64, position: u64) -> f64 {
    let mix = |mut z: u64| {
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    };
    let step = 0x9E37_79B9_7F4A_7C15_u64;
    let z = mix(mix(seed.wrapping_add(step)).wrapping_add(position.wrapping_mul(step)).wrapping_add(step));
    (z >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(temperature: f32, top_p: f32, seed: u64) -> DecodeParams {
        DecodeParams { max_tokens: 1, temperature, top_p, seed, stop: Vec::new(), draft: true }
    }

    #[test]
    fn greedy_takes_the_best_and_the_first_of_equals() {
        assert_eq!(choose(&[0.0, 2.0, 1.0, 2.0], &params(0.0, 1.0, 9), 4), 1);
    }

    #[test]
    fn draws_follow_the_distribution() {
        let logits = [1.0, 0.0, 2.0, -1.0, 1.5];
        let wanted = nucleus(&logits, 0.8, 1.0);
        let mut counts = [0_u32; 5];
        let draws = 40_000;
        for position in 0..draws {
            counts[choose(&logits, &params(0.8, 1.0, 7), position) as usize] += 1;
        }
        // Chi-square with 4 degrees of freedom: 23.5 is exceeded once in 10,000.
        let chi: f64 = wanted
            .iter()
            .map(|(token, p)| {
                let expected = p * draws as f64;
                (f64::from(counts[*token as usize]) - expected).powi(2) / expected
            })
            .sum();
        assert!(chi < 23.5, "{chi} {counts:?}");
    }

    #[test]
    fn a_draft_is_accepted_with_its_probability_and_replaced_from_the_rest() {
        let logits = [1.0, 0.0, 2.0, -1.0, 1.5];
        let p: Vec<f64> = {
            let mut p = vec![0.0; 5];
            nucleus(&logits, 1.0, 1.0).into_iter().for_each(|(token, mass)| p[token as usize] = mass);
            p
        };
        let (draft, draws) = (4_usize, 40_000);
        let mut replaced = [0_u32; 5];
        for position in 0..draws {
            replaced[choose(&logits, &params(1.0, 1.0, 11), position) as usize] += 1;
        }
        let accepted = f64::from(replaced[draft]) / draws as f64;
        assert!((accepted - p[draft]).abs() < 0.01, "{accepted} {}", p[draft]);
        for token in (0..5).filter(|token| *token != draft) {
            let got = f64::from(replaced[token]) / (draws as f64 * (1.0 - accepted));
            assert!((got - p[token] / (1.0 - p[draft])).abs() < 0.015, "{token} {got}");
        }
    }

    #[test]
    fn top_p_cuts_the_tail() {
        let logits = [3.0, 2.0, 1.0, 0.0];
        assert_eq!(nucleus(&logits, 1.0, 0.6).len(), 1);
        assert_eq!(nucleus(&logits, 1.0, 0.7).len(), 2);
        assert_eq!(nucleus(&logits, 1.0, 1.0).len(), 4);
        assert_eq!(nucleus(&logits, 1.0, 1e-9).len(), 1);
        let sum: f64 = nucleus(&logits, 0.5, 0.9).iter().map(|(_, p)| p).sum();
        assert!((sum - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_seed_gives_the_same_draws() {
        let logits: Vec<f32> = (0..100).map(|i| (i * 37 % 11) as f32 / 5.0).collect();
        let draw = |seed| (0..50).map(|at| choose(&logits, &params(1.0, 0.95, seed), at)).collect::<Vec<_>>();
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
    }
}
