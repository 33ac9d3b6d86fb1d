//! What comes out, and when.

use std::sync::LazyLock;

use voluble::config::engine::Engine as Settings;
use voluble::engine::{
    DecodeParams, DecodeStats, Engine, Request, StopReason, TokenEvent, TokenStream, Weights,
};
use voluble::models::Store;

static QWEN: LazyLock<Engine> = LazyLock::new(|| {
    let store = Store::default();
    let weights = Weights {
        base: store.path("qwen2.5-coder-0.5b-instruct", "model.gguf"),
        drafter: Some(store.path("qwen2.5-coder-0.5b-selfdraft", "drafter.safetensors")),
    };
    Engine::load(&weights, &Settings::default()).expect("run `voluble models pull` first")
});

fn request(prompt: &[u32], max_tokens: u32, draft: bool) -> Request {
    let params = DecodeParams {
        max_tokens,
        temperature: 0.0,
        top_p: 1.0,
        seed: 0,
        stop: vec![151_645, 151_643],
        draft,
    };
    Request { prompt: prompt.to_vec(), params, cache_key: None }
}

fn collect(stream: &mut TokenStream) -> (Vec<u32>, StopReason, DecodeStats) {
    let mut tokens = Vec::new();
    while let Some(event) = stream.events.blocking_recv() {
        match event {
            TokenEvent::Prefilled => {}
            TokenEvent::Block(block) => tokens.extend(block),
            TokenEvent::Done { reason, stats } => return (tokens, reason, stats),
            TokenEvent::Failed { message } => panic!("{message}"),
        }
    }
    panic!("the stream ended without an end");
}

#[test]
fn the_golden_answer() {
    let golden: serde_json::Value =
        serde_json::from_str(include_str!("../../models/qwen2.5-coder-0.5b-selfdraft-v0.golden.json"))
            .expect("json");
    let ids: Vec<u32> =
        golden["ids"].as_array().expect("ids").iter().map(|v| v.as_u64().expect("id") as u32).collect();
    let start = golden["answer_start"].as_u64().expect("start") as usize;
    println!("{:?}", QWEN.info());
    for draft in [false, true] {
        let mut stream = QWEN.submit(request(&ids[..start], 40, draft)).expect("submitted");
        let (tokens, reason, stats) = collect(&mut stream);
        println!("{tokens:?} {reason:?} {stats:?}");
        assert_eq!(tokens, ids[start..ids.len() - 1]);
        assert_eq!(reason, StopReason::Stop);
    }
}
