//! The self-drafter against its golden values (PyTorch, f32).
//!
//! The engine rounds activations and the merged weights to 8 bits, so scores
//! (about 10 to 25) may differ by [`TOLERANCE`]; ids must be equal wherever
//! the golden gap to the second is larger than what that can turn.

use serde::Deserialize;
use voluble::engine::cache::SequenceCache;
use voluble::engine::model::{Buffers, DraftSegment, Segment};

use super::QWEN_PARTS;

const TOLERANCE: f32 = 0.6;

#[derive(Deserialize)]
struct Golden {
    ids: Vec<u32>,
    answer_start: usize,
    tap_rms_at_last_prompt_token: Vec<f32>,
    blocks: Vec<Block>,
}

#[derive(Deserialize)]
struct Block {
    anchor_position: usize,
    anchor_id: u32,
    parallel_ids: Vec<u32>,
    stitched_ids: Vec<u32>,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    proposes_position: usize,
    top3_ids: Vec<u32>,
    top3_scores: Vec<f32>,
}

#[test]
fn drafts_equal_their_golden_values() {
    let parts = &*QWEN_PARTS;
    let golden: Golden =
        serde_json::from_str(include_str!("../../models/qwen2.5-coder-0.5b-selfdraft-v0.golden.json"))
            .expect("the golden values are JSON");
    let hidden = parts.base.config().hidden;
    let pages = parts.base.config().pages(256);
    let mut clear = 0;
    for block in &golden.blocks {
        assert_eq!(golden.ids[block.anchor_position], block.anchor_id);
        let read = &golden.ids[..block.anchor_position];
        let mut cache = SequenceCache::new(&pages);
        let mut buffers = Buffers::default();
        cache.reserve(read.len()).expect("room");
        let segment = Segment { cache: &mut cache, tokens: read, logits: 1 };
        parts.base.forward(&parts.pool, &mut [segment], parts.drafter.taps(), &mut buffers);
        cache.advance(read.len());
        let taps = buffers.taps(read.len() - 1, hidden);
        if block.anchor_position == golden.answer_start {
            for (tap, wanted) in taps.chunks_exact(hidden).zip(&golden.tap_rms_at_last_prompt_token) {
                let rms = (tap.iter().map(|v| v * v).sum::<f32>() / hidden as f32).sqrt();
                assert!((rms / wanted - 1.0).abs() < 0.02, "tap {rms} instead of {wanted}");
            }
        }
        let rows = parts.drafter.block_rows();
        assert_eq!(rows, block.rows.len());
        cache.reserve(rows).expect("room");
        let (before, used) = (cache.len(), pages.used());
        let anchor = block.anchor_id;
        let segment = DraftSegment { cache: &mut cache, anchor, taps: &taps, rows };
        let drafts = parts.drafter.draft(&parts.pool, &parts.base, &mut [segment], &mut buffers);
        assert_eq!((cache.len(), pages.used()), (before, used), "a draft leaves the cache as it is");
        let width = parts.drafter.vocabulary().len();
        let place = |id: u32| {
            parts.drafter.vocabulary().binary_search(&id).expect("golden ids are in the draft vocabulary")
        };
        let mut same_path = true;
        for (row, (wanted, draft)) in block.rows.iter().zip(&drafts[0]).enumerate() {
            assert_eq!(wanted.proposes_position, block.anchor_position + 1 + row);
            let scores = &buffers.scores()[row * width..][..width];
            for (id, score) in wanted.top3_ids.iter().zip(&wanted.top3_scores) {
                let got = scores[place(*id)];
                assert!((got - score).abs() < TOLERANCE, "row {row} id {id}: {got} instead of {score}");
            }
            if wanted.top3_scores[0] - wanted.top3_scores[1] > TOLERANCE {
                assert_eq!(draft.parallel, block.parallel_ids[row], "row {row}");
                clear += 1;
            } else {
                assert!(wanted.top3_ids.contains(&draft.parallel), "row {row}");
            }
            // The stitch sees the token before: compared as long as that is the golden one.
            if same_path && draft.token != block.stitched_ids[row] {
                assert!(wanted.top3_ids.contains(&draft.token), "row {row}: {}", draft.token);
                same_path = false;
                assert!(row >= 3, "the stitched path leaves the golden one at row {row}");
            }
        }
        // Fewer rows give the same drafts: rows see only what is before them.
        let segment = DraftSegment { cache: &mut cache, anchor, taps: &taps, rows: 3 };
        let fewer = parts.drafter.draft(&parts.pool, &parts.base, &mut [segment], &mut buffers);
        assert_eq!(fewer[0], drafts[0][..3]);
    }
    assert!(clear >= 6, "only {clear} rows had a clear best token");
}
