//! The engine: its invariants, its numbers against other implementations.
//!
//! SmolLM2 where the model does not matter (it loads in a moment), Qwen with
//! its drafter where it does. Each is loaded once for the whole binary.

mod drafter;
mod faults;
mod identity;
mod invariants;
mod numbers;

use std::path::PathBuf;
use std::sync::LazyLock;

use serde::Deserialize;
use voluble::config::engine::Engine as Settings;
use voluble::engine::model::{Base, Drafter};
use voluble::engine::{
    DecodeParams, DecodeStats, Engine, EngineError, Request, StopReason, TokenEvent, TokenStream, Weights,
};
use voluble::models::Store;
use voluble_kernels::cpu::Pool;

const QWEN: &str = "qwen2.5-coder-0.5b-instruct";
const SMOL: &str = "smollm2-135m-instruct";

fn file(model: &str, file: &str) -> PathBuf {
    let path = Store::default().path(model, file);
    assert!(path.is_file(), "{} is missing; run `voluble models pull all` first", path.display());
    path
}

fn base(model: &str) -> PathBuf {
    file(model, "model.gguf")
}

fn drafter() -> PathBuf {
    file("qwen2.5-coder-0.5b-selfdraft", "drafter.safetensors")
}

/// The default model behind its handle.
static QWEN_ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let weights = Weights { base: base(QWEN), drafter: Some(drafter()) };
    Engine::load(&weights, &Settings::default()).expect("the default model loads")
});

/// The small model behind its handle, with settings of its own.
fn smol(settings: &Settings) -> Engine {
    let weights = Weights { base: base(SMOL), drafter: None };
    Engine::load(&weights, settings).expect("the small model loads")
}

/// The default model's parts, for looking inside.
struct Parts {
    pool: Pool,
    base: Base,
    drafter: Drafter,
}

static QWEN_PARTS: LazyLock<Parts> = LazyLock::new(|| {
    let pool = Pool::new(2);
    let base = Base::load(&pool, &base(QWEN)).expect("the default model loads");
    let drafter = Drafter::load(&pool, &drafter(), &base).expect("its drafter loads");
    Parts { pool, base, drafter }
});

/// Prompts of `tests/data/engine/prompts.json`, as ids of the default model.
#[derive(Deserialize)]
struct Prompts {
    system: Vec<u32>,
    questions: Vec<Vec<u32>>,
}

impl Prompts {
    fn read() -> Self {
        serde_json::from_str(include_str!("../data/engine/prompts.json")).expect("the prompts are JSON")
    }

    fn prompt(&self, index: usize) -> Vec<u32> {
        [&self.system[..], &self.questions[index]].concat()
    }
}

fn greedy(prompt: &[u32], max_tokens: u32) -> Request {
    let stop = vec![151_645, 151_643];
    let params = DecodeParams { max_tokens, temperature: 0.0, top_p: 1.0, seed: 0, stop, draft: false };
    Request { prompt: prompt.to_vec(), params, cache_key: None }
}

/// A whole answer.
struct Answer {
    tokens: Vec<u32>,
    blocks: Vec<usize>,
    reason: StopReason,
    stats: DecodeStats,
}

fn collect(stream: &mut TokenStream) -> Answer {
    let (mut tokens, mut blocks, mut prefilled) = (Vec::new(), Vec::new(), false);
    while let Some(event) = stream.events.blocking_recv() {
        match event {
            TokenEvent::Prefilled => {
                assert!(!prefilled && tokens.is_empty(), "once, before the first block");
                prefilled = true;
            }
            TokenEvent::Block(block) => {
                assert!(prefilled && !block.is_empty());
                blocks.push(block.len());
                tokens.extend(block);
            }
            TokenEvent::Done { reason, stats } => {
                assert!(stream.events.blocking_recv().is_none(), "nothing follows the end");
                return Answer { tokens, blocks, reason, stats };
            }
            TokenEvent::Failed { message } => panic!("{message}"),
        }
    }
    panic!("the stream ended without an end");
}

fn ask(engine: &Engine, request: Request) -> Answer {
    collect(&mut engine.submit(request).expect("the request is sound"))
}

/// Waits until everything submitted before has ended.
fn settle(engine: &Engine) {
    while engine.inside() > 0 {
        // Waits for the pass that is running.
        engine.cache_use().expect("the engine runs");
    }
}

fn refusal(outcome: Result<TokenStream, EngineError>) -> String {
    match outcome {
        Ok(_) => panic!("it is refused"),
        Err(error) => error.to_string(),
    }
}
