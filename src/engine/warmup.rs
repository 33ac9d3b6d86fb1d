//! The first passes, at load: they touch all weights, and measure what rows
//! cost on this machine.

use std::time::Instant;

use voluble_kernels::cpu::Pool;

use super::cache::{Pages, SequenceCache};
use super::model::{Base, Buffers, DraftSegment, Drafter, Segment};
use super::policy::Costs;

/// Tokens that a measured row has before it.
const CONTEXT: usize = 32;
/// The quickest of so many counts: other programs only ever make it slower.
const TRIES: usize = 2;

fn quickest(mut run: impl FnMut()) -> f32 {
    let mut best = f32::INFINITY;
    for _ in 0..TRIES {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed().as_secs_f32() * 1e3);
    }
    best
}

/// Fills what lies between measured counts.
fn interpolate(measured: &[(usize, f32)], count: usize) -> Vec<f32> {
    let mut filled = Vec::with_capacity(count);
    for rows in 1..=count {
        let after = measured.iter().find(|(at, _)| *at >= rows).or(measured.last());
        let before = measured.iter().rev().find(|(at, _)| *at <= rows).or(measured.first());
        let value = match (before, after) {
            (Some(before), Some(after)) if after.0 > before.0 => {
                let part = (rows - before.0) as f32 / (after.0 - before.0) as f32;
                before.1 + (after.1 - before.1) * part
            }
            (Some(before), _) => before.1,
            (None, _) => 0.0,
        };
        // More rows never cost less; a smaller figure is noise.
        filled.push(filled.last().map_or(value, |last: &f32| last.max(value)));
    }
    filled
}

/// Runs some passes.
pub(super) fn costs(pool: &Pool, base: &Base, drafter: Option<&Drafter>, buffers: &mut Buffers) -> Costs {
    let block = drafter.map_or(1, |drafter| drafter.block_rows());
    let pages: Pages = base.config().pages(CONTEXT + block + 64);
    let mut cache = SequenceCache::new(&pages);
    let room = "the pages are made for this";
    let taps = drafter.map_or(&[][..], Drafter::taps);
    let tokens: Vec<u32> =
        (0..(CONTEXT.max(block + 1)) as u32).map(|i| i % base.config().vocabulary as u32).collect();
    cache.reserve(CONTEXT).expect(room);
    base.forward(
        pool,
        &mut [Segment { cache: &mut cache, tokens: &tokens[..CONTEXT], logits: 1 }],
        taps,
        buffers,
    );
    cache.advance(CONTEXT);
    cache.reserve(block + 1).expect(room);

    let mut counts = vec![1, 2, 4, block + 1];
    counts.retain(|rows| *rows <= block + 1);
    counts.sort_unstable();
    counts.dedup();
    let measured: Vec<(usize, f32)> = counts
        .iter()
        .map(|rows| {
            let time = quickest(|| {
                let tokens = &tokens[..*rows];
                let segment = Segment { cache: &mut cache, tokens, logits: *rows };
                base.forward(pool, &mut [segment], taps, buffers);
            });
            (*rows, time)
        })
        .collect();
    let base_costs = interpolate(&measured, block + 1);
    let Some(drafter) = drafter else { return Costs { base: base_costs, draft: Vec::new() } };
    let taps = buffers.taps(0, base.config().hidden);
    let mut ends = vec![1, block];
    ends.dedup();
    let measured: Vec<(usize, f32)> = ends
        .iter()
        .map(|rows| {
            let time = quickest(|| {
                let segment = DraftSegment { cache: &mut cache, anchor: tokens[0], taps: &taps, rows: *rows };
                drafter.draft(pool, base, &mut [segment], buffers);
            });
            (*rows, time)
        })
        .collect();
    Costs { base: base_costs, draft: interpolate(&measured, block) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_between_measured_counts_are_interpolated() {
        assert_eq!(interpolate(&[(1, 10.0), (3, 14.0)], 3), [10.0, 12.0, 14.0]);
        assert_eq!(interpolate(&[(1, 10.0), (3, 8.0)], 4), [10.0; 4]);
        assert_eq!(interpolate(&[(1, 5.0)], 2), [5.0, 5.0]);
    }
}
