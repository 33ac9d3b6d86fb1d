//! The `verified` policy: a drafter proposes, the base checks in one pass, and
//! what is emitted is what the base alone would have emitted.
//!
//! A draft pays when the tokens it brings are worth more than the time of its
//! rows. [`Drafting`] knows the measured cost of rows on this machine
//! ([`Costs`]), how often drafts at each depth have been right in this sequence
//! (for the length of the draft), and how often drafts of each confidence have
//! been right (for how many of them to check). None of this changes a token.

use crate::engine::model::Drafted;

/// Milliseconds that passes take on this machine, measured at load.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// A pass of the base over `i + 1` rows.
    pub base: Vec<f32>,
    /// A draft of `i + 1` rows; empty without a drafter.
    pub draft: Vec<f32>,
}

impl Costs {
    /// Interpolates a pass of `rows` rows.
    fn base(&self, rows: usize) -> f32 {
        self.base[rows.min(self.base.len()) - 1]
    }
}

/// Confidence is sorted into this many bins.
const BINS: usize = 10;
/// How fast running rates follow.
const RATE: f32 = 0.08;
/// Passes without a draft before it is tried again.
const RETRY: u32 = 12;

/// How often drafts of each confidence were right, over all sequences.
#[derive(Clone, Debug)]
pub struct Calibration {
    right: [f32; BINS],
}

impl Default for Calibration {
    fn default() -> Self {
        // Before anything is known: a little less right than it believes.
        Self { right: std::array::from_fn(|bin| (bin as f32 + 0.5) / BINS as f32 * 0.9) }
    }
}

impl Calibration {
    fn bin(confidence: f32) -> usize {
        ((confidence * BINS as f32) as usize).min(BINS - 1)
    }
}

/// Decides the drafts of one engine; sequences keep a [`Depths`] each.
#[derive(Clone, Debug)]
pub struct Drafting {
    costs: Costs,
    calibration: Calibration,
}

/// How one sequence's drafts have fared.
#[derive(Clone, Debug)]
pub struct Depths {
    /// Rate at which a draft `i` tokens deep was right, given that those before were.
    right: Vec<f32>,
    /// Passes since the last draft.
    idle: u32,
}

impl Drafting {
    /// With these costs.
    pub fn new(costs: Costs) -> Self {
        Self { costs, calibration: Calibration::default() }
    }

    /// The costs it reckons with.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// A new sequence's record.
    pub fn depths(&self) -> Depths {
        // Spoken prose as measured: the first draft is right about half the time.
        Depths { right: vec![0.5; self.costs.draft.len()], idle: 0 }
    }

    /// Rows to draft for a sequence, at most `limit`. 0: none pays.
    pub fn rows(&self, depths: &mut Depths, limit: usize) -> usize {
        let limit = limit.min(self.costs.draft.len());
        if limit == 0 {
            return 0;
        }
        let mut best = (1.0 / self.costs.base(1), 0);
        let (mut tokens, mut survival) = (1.0, 1.0);
        for rows in 1..=limit {
            survival *= depths.right[rows - 1];
            tokens += survival;
            let rate = tokens / (self.costs.draft[rows - 1] + self.costs.base(rows + 1));
            if rate > best.0 {
                best = (rate, rows);
            }
        }
        // One row more than pays on average: the confidence decides when it is there.
        let rows = if best.1 == 0 { 0 } else { (best.1 + 1).min(limit) };
        if rows == 0 {
            depths.idle += 1;
            if depths.idle < RETRY {
                return 0;
            }
        }
        depths.idle = 0;
        rows.max(1)
    }

    /// How many of the drafts to have checked. May be 0: the draft is spent,
    /// and still not worth a row.
    pub fn check(&self, drafts: &[Drafted]) -> usize {
        let spent = drafts
            .len()
            .checked_sub(1)
            .map_or(0.0, |last| self.costs.draft[last.min(self.costs.draft.len() - 1)]);
        let mut best = (1.0 / (spent + self.costs.base(1)), 0);
        let (mut tokens, mut survival) = (1.0, 1.0);
        for (index, draft) in drafts.iter().enumerate() {
            survival *= self.calibration.right[Calibration::bin(draft.confidence)];
            tokens += survival;
            let rate = tokens / (spent + self.costs.base(index + 2));
            if rate > best.0 {
                best = (rate, index + 1);
            }
        }
        best.1
    }

    /// Learns from a checked draft: the first `accepted` of `checked` were right.
    pub fn learn(&mut self, depths: &mut Depths, drafts: &[Drafted], checked: usize, accepted: usize) {
        for (index, draft) in drafts[..checked].iter().enumerate().take(accepted + 1) {
            let outcome = if index < accepted { 1.0 } else { 0.0 };
            let right = &mut self.calibration.right[Calibration::bin(draft.confidence)];
            *right += RATE / 2.0 * (outcome - *right);
            let right = &mut depths.right[index];
            *right += RATE * (outcome - *right);
        }
    }
}

/// What a check settles: `choices(i)` is the base's own token after the anchor
/// and the first `i` drafts. Returns the tokens to emit, at least one: the
/// accepted drafts and the base's next.
pub fn settle(drafts: &[u32], mut choices: impl FnMut(usize) -> u32) -> Vec<u32> {
    let mut settled = Vec::with_capacity(drafts.len() + 1);
    for index in 0..=drafts.len() {
        let token = choices(index);
        settled.push(token);
        if drafts.get(index) != Some(&token) {
            break;
        }
    }
    settled
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drafts(confidence: &[f32]) -> Vec<Drafted> {
        let draft = |confidence: &f32| Drafted { token: 1, confidence: *confidence, score: 0.0, parallel: 1 };
        confidence.iter().map(draft).collect()
    }

    fn drafting() -> Drafting {
        let base = (0..8).map(|i| 20.0 + 2.0 * i as f32).collect();
        Drafting::new(Costs { base, draft: (0..6).map(|i| 5.0 + 0.3 * i as f32).collect() })
    }

    #[test]
    fn the_longest_right_prefix_and_one_more_are_settled() {
        let answer = [10, 11, 12, 13];
        let choose = |index: usize| answer[index];
        assert_eq!(settle(&[10, 11, 99], choose), [10, 11, 12]);
        assert_eq!(settle(&[99, 11, 12], choose), [10]);
        assert_eq!(settle(&[10, 11, 12], choose), [10, 11, 12, 13]);
        assert_eq!(settle(&[], choose), [10]);
    }

    #[test]
    fn confident_drafts_are_checked_and_doubtful_ones_are_not() {
        let drafting = drafting();
        assert_eq!(drafting.check(&drafts(&[0.99; 6])), 6);
        assert_eq!(drafting.check(&drafts(&[0.99, 0.99, 0.05, 0.99])), 2);
        assert_eq!(drafting.check(&drafts(&[0.01])), 0);
        assert_eq!(drafting.check(&[]), 0);
    }

    #[test]
    fn drafting_stops_when_it_never_pays_and_is_tried_again() {
        let mut drafting = drafting();
        let mut depths = drafting.depths();
        assert!(drafting.rows(&mut depths, 6) > 1);
        assert_eq!(drafting.rows(&mut depths, 0), 0);
        for _ in 0..60 {
            drafting.learn(&mut depths, &drafts(&[0.5; 3]), 3, 0);
        }
        let tries: Vec<usize> = (0..40).map(|_| drafting.rows(&mut depths, 6)).collect();
        assert!(tries.iter().filter(|rows| **rows == 0).count() > 30, "{tries:?}");
        assert!(tries.contains(&1), "{tries:?}");
        for _ in 0..60 {
            drafting.learn(&mut depths, &drafts(&[0.5; 6]), 6, 6);
        }
        assert_eq!(drafting.rows(&mut depths, 6), 6);
    }
}
