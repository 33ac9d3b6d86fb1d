//! Invariant 9: `verified` equals autoregressive.

use voluble::engine::{Request, StopReason};

use super::{Prompts, QWEN_ENGINE, ask, collect, greedy};

fn drafted(mut request: Request) -> Request {
    request.params.draft = true;
    request
}

/// Eight at a time: that rows share passes changes nothing (invariant 5), and
/// saves most of the time.
#[test]
fn verified_equals_autoregressive_on_200_prompts() {
    let prompts = Prompts::read();
    assert_eq!(prompts.questions.len(), 200);
    let (mut drafts, mut accepted, mut passes, mut tokens) = (0, 0, 0, 0);
    for first in (0..200).step_by(8) {
        let questions: Vec<Vec<u32>> = (first..first + 8).map(|index| prompts.prompt(index)).collect();
        let run = |draft: bool| {
            let streams: Vec<_> = questions
                .iter()
                .map(|prompt| {
                    let mut request = greedy(prompt, 16);
                    request.params.draft = draft;
                    QWEN_ENGINE.submit(request).expect("the request is sound")
                })
                .collect();
            streams.into_iter().map(|mut stream| collect(&mut stream)).collect::<Vec<_>>()
        };
        let (plain, verified) = (run(false), run(true));
        for (index, (plain, verified)) in plain.iter().zip(&verified).enumerate() {
            assert_eq!(plain.tokens, verified.tokens, "prompt {}", first + index);
            assert_eq!(plain.reason, verified.reason);
            assert_eq!(plain.stats.drafted, 0);
            drafts += verified.stats.drafted;
            accepted += verified.stats.accepted;
            passes += verified.stats.passes;
            tokens += verified.stats.tokens;
        }
    }
    // The test means nothing if nothing was drafted, accepted or rejected.
    assert!(drafts > 200 && accepted > 50 && accepted < drafts, "{accepted} of {drafts}");
    assert!(passes < tokens, "{passes} passes for {tokens} tokens");
}

#[test]
fn verified_equals_autoregressive_seed_for_seed() {
    let prompts = Prompts::read();
    let mut different = 0;
    for seed in 0..6 {
        let mut request = greedy(&prompts.prompt(seed as usize * 7), 24);
        let greedy = ask(&QWEN_ENGINE, drafted(request.clone())).tokens;
        (request.params.temperature, request.params.top_p, request.params.seed) = (0.9, 0.95, seed);
        let plain = ask(&QWEN_ENGINE, request.clone());
        let verified = ask(&QWEN_ENGINE, drafted(request));
        assert_eq!(plain.tokens, verified.tokens, "seed {seed}");
        assert_eq!(plain.reason, verified.reason);
        different += usize::from(plain.tokens != greedy);
    }
    assert!(different > 0, "sampling changes something");
}

#[test]
fn the_golden_answer_ends_at_its_stop_id() {
    let golden: serde_json::Value =
        serde_json::from_str(include_str!("../../models/qwen2.5-coder-0.5b-selfdraft-v0.golden.json"))
            .expect("the golden values are JSON");
    let ids: Vec<u32> = serde_json::from_value(golden["ids"].clone()).expect("ids");
    let start: usize = serde_json::from_value(golden["answer_start"].clone()).expect("a number");
    let answer = ask(&QWEN_ENGINE, drafted(greedy(&ids[..start], 40)));
    assert_eq!(answer.tokens, ids[start..ids.len() - 1]);
    assert_eq!(answer.reason, StopReason::Stop);
}
