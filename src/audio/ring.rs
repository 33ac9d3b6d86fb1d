//! The last seconds of what was heard, addressed by absolute position.
//!
//! Invariants: never holds more than its capacity; a sample keeps its absolute
//! index for ever; a range that is partly gone is cut to what is still there
//! and the cut is visible in the returned start.

use std::collections::VecDeque;
use std::ops::Range;

/// A bounded buffer of the newest samples, indexed from the stream's start.
#[derive(Clone, Debug)]
pub struct Ring {
    kept: VecDeque<f32>,
    capacity: usize,
    /// Absolute index one past the newest sample.
    end: u64,
}

/// A stretch of samples and where it begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stretch {
    /// Absolute index of the first sample.
    pub start: u64,
    /// The samples.
    pub samples: Vec<f32>,
}

impl Ring {
    /// Keeps the last `capacity` samples. With 0 it only counts.
    pub fn new(capacity: usize) -> Self {
        Self { kept: VecDeque::new(), capacity, end: 0 }
    }

    /// Appends samples; the oldest leave when it is full.
    pub fn push(&mut self, samples: &[f32]) {
        self.end += samples.len() as u64;
        let samples = &samples[samples.len().saturating_sub(self.capacity)..];
        let over = (self.kept.len() + samples.len()).saturating_sub(self.capacity);
        self.kept.drain(..over);
        self.kept.extend(samples);
    }

    /// Absolute index of the oldest sample still here.
    pub fn start(&self) -> u64 {
        self.end - self.kept.len() as u64
    }

    /// Absolute index one past the newest sample.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// How many samples are here.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether none is here.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The part of `range` that is still here.
    pub fn range(&self, range: Range<u64>) -> Stretch {
        let start = range.start.clamp(self.start(), self.end);
        let end = range.end.clamp(start, self.end);
        let from = (start - self.start()) as usize;
        let to = (end - self.start()) as usize;
        Stretch { start, samples: self.kept.range(from..to).copied().collect() }
    }

    /// The newest `count` samples, or all when fewer are here.
    pub fn last(&self, count: usize) -> Stretch {
        self.range(self.end.saturating_sub(count as u64)..self.end)
    }

    /// Forgets the samples; positions go on counting.
    pub fn clear(&mut self) {
        self.kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_range_that_left_is_cut() {
        let mut ring = Ring::new(4);
        ring.push(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(ring.range(0..4), Stretch { start: 2, samples: vec![2.0, 3.0] });
        assert_eq!(ring.range(0..1), Stretch { start: 2, samples: vec![] });
        assert_eq!(ring.range(9..12), Stretch { start: 6, samples: vec![] });
        assert_eq!(ring.last(2), Stretch { start: 4, samples: vec![4.0, 5.0] });
        ring.clear();
        assert_eq!((ring.start(), ring.end(), ring.is_empty()), (6, 6, true));
    }

    proptest! {
        #[test]
        fn every_sample_keeps_its_index(capacity in 0usize..50, chunks in prop::collection::vec(0usize..70, 0..12)) {
            let mut ring = Ring::new(capacity);
            let mut next = 0u64;
            for chunk in chunks {
                let samples: Vec<f32> = (0..chunk).map(|i| (next + i as u64) as f32).collect();
                next += chunk as u64;
                ring.push(&samples);
                prop_assert!(ring.len() <= capacity);
                prop_assert_eq!(ring.end(), next);
                let all = ring.last(usize::MAX);
                prop_assert_eq!(all.samples.len(), capacity.min(next as usize));
                for (offset, sample) in all.samples.iter().enumerate() {
                    prop_assert_eq!(*sample as u64, all.start + offset as u64);
                }
            }
        }
    }
}
