//! The numbered invariants of the engine's documentation, a test each.

use voluble::config::engine::Engine as Settings;
use voluble::engine::{EngineError, Request, StopReason};

use super::{Prompts, QWEN_ENGINE, ask, collect, greedy, refusal, settle, smol};

/// Some ids of the small model.
fn prompt(seed: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| 100 + (i * 7919 + seed * 104_729) % 40_000).collect()
}

fn keyed(mut request: Request, key: u64) -> Request {
    request.cache_key = Some(key);
    request
}

#[test]
fn one_step_at_most_one_pass() {
    let prompts = Prompts::read();
    for draft in [false, true] {
        let before = QWEN_ENGINE.counters();
        let mut request = greedy(&prompts.prompt(3), 20);
        request.params.draft = draft;
        let answer = ask(&QWEN_ENGINE, request);
        // The first block comes with the prompt's last pass, each further one with its own.
        assert_eq!(answer.blocks.len() as u32, answer.stats.passes + 1);
        assert!(answer.blocks.iter().all(|len| *len <= 1 + QWEN_ENGINE.info().block));
        if !draft {
            assert!(answer.blocks.iter().all(|len| *len == 1));
        }
        assert!(QWEN_ENGINE.counters().passes > before.passes + u64::from(answer.stats.passes));
    }
}

#[test]
fn rows_leave_as_soon_as_they_finish_and_share_passes() {
    let engine = smol(&Settings::default());
    let (short, long) = (greedy(&prompt(1, 5), 6), greedy(&prompt(2, 150), 40));
    let alone = |request: &Request| {
        let before = engine.counters().passes;
        let answer = ask(&engine, request.clone());
        (answer.tokens, engine.counters().passes - before)
    };
    let ((short_alone, a), (long_alone, b)) = (alone(&short), alone(&long));
    let before = engine.counters().passes;
    let mut long_stream = engine.submit(long).expect("the request is sound");
    let mut short_stream = engine.submit(short).expect("the request is sound");
    assert_eq!(collect(&mut short_stream).tokens, short_alone);
    let together_until_short = engine.counters().passes - before;
    assert_eq!(collect(&mut long_stream).tokens, long_alone);
    let together = engine.counters().passes - before;
    assert!(together < a + b, "{together} passes together, {a} and {b} alone");
    assert!(together_until_short < together, "the short one left first");
}

#[test]
fn a_block_is_in_the_cache_before_the_next_reads_it() {
    let engine = smol(&Settings::default());
    let first = ask(&engine, keyed(greedy(&prompt(3, 40), 24), 1));
    let next = [prompt(3, 40), first.tokens.clone(), prompt(4, 9)].concat();
    let kept = ask(&engine, keyed(greedy(&next, 24), 1));
    // All but what the last pass settled had been read, and was not read again.
    assert_eq!(kept.stats.cached_tokens as usize, 40 + first.tokens.len() - 1);
    engine.forget(1);
    let fresh = ask(&engine, greedy(&next, 24));
    assert_eq!(fresh.stats.cached_tokens, 0);
    assert_eq!(kept.tokens, fresh.tokens);
}

#[test]
fn cancelling_leaves_the_cache_as_before_the_block() {
    let prompts = Prompts::read();
    let text = prompts.prompt(11);
    let mut request = greedy(&text, 40);
    request.params.draft = true;
    let whole = ask(&QWEN_ENGINE, request.clone());
    for blocks in 1..4 {
        let mut stream = QWEN_ENGINE.submit(keyed(request.clone(), 77)).expect("the request is sound");
        for _ in 0..=blocks {
            stream.events.blocking_recv().expect("the answer is longer");
        }
        drop(stream);
        settle(&QWEN_ENGINE);
        let again = ask(&QWEN_ENGINE, keyed(request.clone(), 77));
        assert_eq!(again.stats.cached_tokens as usize, text.len() - 1);
        assert_eq!(again.tokens, whole.tokens);
        QWEN_ENGINE.forget(77);
    }
}

#[test]
fn a_cancel_takes_effect_within_a_pass() {
    let engine = smol(&Settings::default());
    let mut stream = engine.submit(greedy(&prompt(5, 20), 2_000)).expect("the request is sound");
    stream.events.blocking_recv().expect("it starts");
    drop(stream);
    // Two replies: the pass that ran when the stream went has ended before the second.
    engine.cache_use().expect("the engine runs");
    engine.cache_use().expect("the engine runs");
    let passes = engine.counters().passes;
    settle(&engine);
    assert!(engine.counters().passes <= passes + 1);
}

#[test]
fn tokens_do_not_depend_on_the_neighbours() {
    let engine = smol(&Settings::default());
    let requests: Vec<Request> = (0..6)
        .map(|seed| {
            let mut request = greedy(&prompt(seed, 3 + 17 * seed as usize), 24);
            if seed % 2 == 1 {
                (request.params.temperature, request.params.seed) = (1.0, u64::from(seed));
            }
            request
        })
        .collect();
    let alone: Vec<Vec<u32>> = requests.iter().map(|r| ask(&engine, r.clone()).tokens).collect();
    let streams: Vec<_> =
        requests.iter().map(|r| engine.submit(r.clone()).expect("the request is sound")).collect();
    for (mut stream, alone) in streams.into_iter().zip(alone) {
        assert_eq!(collect(&mut stream).tokens, alone);
    }
}

#[test]
fn no_page_leaks_after_any_cancel() {
    let settings = Settings { cache_tokens: 1024, context_tokens: 512, pass_rows: 16, ..Settings::default() };
    let engine = smol(&settings);
    for round in 0..30_u32 {
        let streams: Vec<_> = (0..4)
            .map(|i| {
                let request = greedy(&prompt(i, 10 + 13 * i as usize), 20);
                engine.submit(keyed(request, u64::from(i))).expect("the request is sound")
            })
            .collect();
        for (i, mut stream) in streams.into_iter().enumerate() {
            for _ in 0..(round as usize * 7 + i * 3) % 12 {
                if stream.events.blocking_recv().is_none() {
                    break;
                }
            }
        }
        let now = engine.cache_use().expect("the engine runs");
        assert!(now.used + now.free <= now.limit, "{now:?}");
    }
    settle(&engine);
    let kept = engine.cache_use().expect("the engine runs");
    assert!(kept.kept <= 4 && kept.used > 0, "{kept:?}");
    (0..4).for_each(|key| engine.forget(key));
    let after = engine.cache_use().expect("the engine runs");
    assert_eq!((after.used, after.kept), (0, 0));
    assert!(after.free <= after.limit);
}

#[test]
fn what_cannot_be_honoured_is_refused() {
    let settings = Settings { max_sequences: 1, queue: 1, context_tokens: 128, ..Settings::default() };
    let engine = smol(&settings);
    let refused = |change: &dyn Fn(&mut Request)| {
        let mut request = greedy(&[1, 2, 3], 4);
        change(&mut request);
        refusal(engine.submit(request))
    };
    assert_eq!(refused(&|r| r.prompt.clear()), "the prompt is empty");
    assert!(refused(&|r| r.prompt.push(49_152)).contains("49152"));
    assert!(refused(&|r| r.params.max_tokens = 0).contains("max_tokens"));
    assert!(refused(&|r| r.params.temperature = f32::NAN).contains("temperature"));
    assert!(refused(&|r| r.params.temperature = -0.1).contains("temperature"));
    assert!(refused(&|r| r.params.top_p = 0.0).contains("top_p"));
    assert!(refused(&|r| r.params.top_p = f32::NAN).contains("top_p"));
    assert!(refused(&|r| r.prompt = vec![1; 128]).contains("at most 127"));
    let first = engine.submit(greedy(&prompt(1, 100), 20)).expect("one runs");
    let second = engine.submit(greedy(&prompt(2, 100), 20)).expect("one waits");
    let third = engine.submit(greedy(&prompt(3, 100), 20));
    assert!(matches!(third, Err(EngineError::Busy(1))), "{third:?}");
    drop((first, second));
    settle(&engine);
    // As much as fits, and it says so.
    let cut = ask(&engine, greedy(&prompt(4, 120), 1_000));
    assert!(cut.reason == StopReason::Length && cut.tokens.len() == 8 || cut.tokens.len() < 8);
}

#[test]
fn a_beginning_that_was_primed_is_shared() {
    let engine = smol(&Settings::default());
    let system = prompt(9, 70);
    engine.prime(system.clone()).expect("the beginning is sound");
    settle(&engine);
    for seed in 1..3 {
        let text = [system.clone(), prompt(seed, 12)].concat();
        let shared = ask(&engine, greedy(&text, 12));
        assert_eq!(shared.stats.cached_tokens, 70);
        let fresh = smol(&Settings::default());
        assert_eq!(shared.tokens, ask(&fresh, greedy(&text, 12)).tokens);
    }
}

#[test]
fn an_answer_that_repeats_itself_is_ended() {
    let settings = Settings { loop_tokens: 24, ..Settings::default() };
    let engine = smol(&settings);
    // A prompt that is one phrase over and over makes the small model go on with it.
    let phrase = [2683, 359, 253, 5356].repeat(20);
    let mut request = greedy(&phrase, 400);
    request.params.stop.clear();
    let answer = ask(&engine, request.clone());
    assert_eq!(answer.reason, StopReason::Loop);
    assert!(answer.tokens.len() < 400);
    let off = smol(&Settings { loop_tokens: 0, ..settings });
    request.params.max_tokens = answer.tokens.len() as u32 + 10;
    assert_eq!(ask(&off, request).reason, StopReason::Length);
}

#[test]
fn the_cache_makes_room_by_forgetting_the_least_recently_used() {
    let settings = Settings { cache_tokens: 512, context_tokens: 256, ..Settings::default() };
    let engine = smol(&settings);
    for key in 0..12 {
        let answer = ask(&engine, keyed(greedy(&prompt(key as u32, 100), 8), key));
        assert_eq!(answer.stats.cached_tokens, 0);
        let now = engine.cache_use().expect("the engine runs");
        assert!(now.used <= now.limit, "{now:?}");
    }
    let last = ask(&engine, keyed(greedy(&prompt(11, 100), 8), 11));
    assert_eq!(last.stats.cached_tokens, 99);
    let first = ask(&engine, keyed(greedy(&prompt(0, 100), 8), 0));
    assert_eq!(first.stats.cached_tokens, 0);
}
