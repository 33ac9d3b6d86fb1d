//! The language model's speed, beside llama.cpp's in the same run.
//!
//! `cargo bench --bench llm [-- base|smol] [--python PYTHON]`: plain and
//! verified tokens a second, tokens a pass by kind of prompt, what rows cost,
//! share of the memory bandwidth. With a Python that has `xllamacpp`, its
//! figures on the same file and threads come before and after ours, so that a
//! busy machine shows. CPU seconds are given beside wall time for the same reason.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde::Deserialize;
use voluble::config::engine::Engine as Settings;
use voluble::engine::cache::SequenceCache;
use voluble::engine::model::{Base, Buffers, DraftSegment, Drafter, Segment};
use voluble::engine::{DecodeParams, DecodeStats, Engine, Request, TokenEvent, Weights};
use voluble::models::Store;
use voluble_kernels::cpu::Pool;

#[derive(Deserialize)]
struct Prompts {
    kinds: BTreeMap<String, Vec<Vec<u32>>>,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let after = |flag: &str| args.iter().position(|arg| arg == flag).and_then(|at| args.get(at + 1));
    let python = after("--python").map_or("python3", String::as_str);
    let threads: usize = after("--threads").map_or(2, |n| n.parse().expect("--threads takes a number"));
    let smol = args.iter().any(|arg| arg == "smol");
    let store = Store::default();
    let name = if smol { "smollm2-135m-instruct" } else { "qwen2.5-coder-0.5b-instruct" };
    let base = store.path(name, "model.gguf");
    let drafter = (!smol).then(|| store.path("qwen2.5-coder-0.5b-selfdraft", "drafter.safetensors"));

    let bandwidth = bandwidth(threads);
    println!("memory read by {threads} threads: {bandwidth:.1} GB/s");
    let before = llama(python, &base, threads);
    rows(&base, drafter.as_deref(), threads, bandwidth);
    if let Some(drafter) = drafter {
        kinds(&base, &drafter, threads);
    }
    let after = llama(python, &base, threads);
    println!("llama.cpp before: {before}\nllama.cpp after:  {after}");
}

/// CPU seconds that this process has used.
fn cpu() -> f64 {
    let all = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten().map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0)
    });
    all.sum::<f64>() / 1e9
}

/// What plain reading gives: the floor of a pass is its bytes by this.
fn bandwidth(threads: usize) -> f64 {
    let data = vec![1_u64; 64 << 20];
    let mut best = 0.0_f64;
    for _ in 0..4 {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for part in data.chunks(data.len() / threads) {
                scope
                    .spawn(move || black_box(part.iter().fold(0_u64, |sum, value| sum.wrapping_add(*value))));
            }
        });
        best = best.max((data.len() * 8) as f64 / start.elapsed().as_secs_f64() / 1e9);
    }
    best
}

fn llama(python: &str, base: &Path, threads: usize) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/engine/reference/llama_cpp.py");
    let output = Command::new(python).arg(script).arg("speed").arg(base).arg(threads.to_string()).output();
    match output {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            text.lines().last().unwrap_or_default().to_owned()
        }
        _ => "not measured (needs a Python with xllamacpp, see --python)".to_owned(),
    }
}

/// What a pass of so many rows costs.
fn rows(path: &Path, drafter: Option<&Path>, threads: usize, bandwidth: f64) {
    let start = Instant::now();
    let pool = Pool::new(threads);
    let base = Base::load(&pool, path).expect("run `voluble models pull` first");
    println!(
        "base loaded in {:.2} s, {:.1} MB a pass",
        start.elapsed().as_secs_f64(),
        base.bytes() as f64 / 1e6
    );
    let start = Instant::now();
    let drafter = drafter.map(|path| Drafter::load(&pool, path, &base).expect("the drafter loads"));
    if let Some(drafter) = &drafter {
        let mb = drafter.bytes() as f64 / 1e6;
        println!("drafter loaded in {:.2} s, {mb:.1} MB a draft", start.elapsed().as_secs_f64());
    }
    let mut buffers = Buffers::default();
    let pages = base.config().pages(512);
    let mut cache = SequenceCache::new(&pages);
    let tokens: Vec<u32> = (100..356).collect();
    let taps = drafter.as_ref().map_or(&[][..], |drafter| drafter.taps());
    cache.reserve(256).expect("room");
    let mut one = 0.0;
    println!("rows   ms (best)   CPU ms   x one row   share of bandwidth");
    base.forward(
        &pool,
        &mut [Segment { cache: &mut cache, tokens: &tokens[..64], logits: 1 }],
        taps,
        &mut buffers,
    );
    cache.advance(64);
    for count in [1, 2, 4, 6, 8, 16, 32, 64] {
        let mut best = (f64::INFINITY, f64::INFINITY);
        for _ in 0..if count > 8 { 4 } else { 12 } {
            let (start, spent) = (Instant::now(), cpu());
            let logits = count.min(8);
            let segment = Segment { cache: &mut cache, tokens: &tokens[..count], logits };
            base.forward(&pool, &mut [segment], taps, &mut buffers);
            best = (best.0.min(start.elapsed().as_secs_f64() * 1e3), best.1.min((cpu() - spent) * 1e3));
        }
        if count == 1 {
            one = best.0;
        }
        let share = base.bytes() as f64 / (best.0 / 1e3) / 1e9 / bandwidth;
        println!("{count:4}   {:9.2}   {:6.1}   {:9.2}   {share:.2}", best.0, best.1, best.0 / one);
    }
    println!("plain decode at context 64: {:.1} tokens/s", 1e3 / one);
    let Some(drafter) = drafter else { return };
    let tapped = buffers.taps(0, base.config().hidden);
    for count in [1, drafter.block_rows()] {
        let mut best = (f64::INFINITY, f64::INFINITY);
        for _ in 0..12 {
            let (start, spent) = (Instant::now(), cpu());
            let segment = DraftSegment { cache: &mut cache, anchor: 100, taps: &tapped, rows: count };
            drafter.draft(&pool, &base, &mut [segment], &mut buffers);
            best = (best.0.min(start.elapsed().as_secs_f64() * 1e3), best.1.min((cpu() - spent) * 1e3));
        }
        println!("draft of {count}: {:.2} ms, CPU {:.1} ms, {:.2} x one row", best.0, best.1, best.0 / one);
    }
}

/// Whole answers by kind of prompt, plain and verified.
fn kinds(base: &Path, drafter: &Path, threads: usize) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/engine/prompts.json");
    let text = std::fs::read_to_string(path).expect("the prompts are in the repository");
    let prompts: Prompts = serde_json::from_str(&text).expect("the prompts are JSON");
    let weights = Weights { base: base.to_owned(), drafter: Some(drafter.to_owned()) };
    let settings = Settings { threads, ..Settings::default() };
    let engine = Engine::load(&weights, &settings).expect("the model loads");
    println!("costs measured at load: {:?}", engine.info().costs);
    println!(
        "kind     tokens   plain tok/s   verified tok/s   gain   CPU gain   tokens/pass   accepted/drafted"
    );
    let mut all = [DecodeStats::default(); 2];
    let mut time = [0.0; 2];
    for (kind, prompts) in &prompts.kinds {
        let mut stats = [DecodeStats::default(); 2];
        let (mut wall, mut spent) = ([0.0; 2], [0.0; 2]);
        for prompt in prompts {
            for (which, draft) in [false, true].into_iter().enumerate() {
                let (answer, seconds, cpu) = answer(&engine, prompt, draft);
                wall[which] += seconds;
                spent[which] += cpu;
                for sum in [&mut stats[which], &mut all[which]] {
                    sum.tokens += answer.tokens;
                    sum.passes += answer.passes;
                    sum.drafted += answer.drafted;
                    sum.accepted += answer.accepted;
                }
                time[which] += seconds;
            }
        }
        line(kind, &stats, wall, spent[0] / spent[1]);
    }
    line("all", &all, time, f64::NAN);
}

fn line(kind: &str, stats: &[DecodeStats; 2], wall: [f64; 2], cpu_gain: f64) {
    let rate = |which: usize| f64::from(stats[which].passes.max(1)) / wall[which];
    let (plain, verified) = (rate(0), f64::from(stats[1].tokens) / wall[1]);
    println!(
        "{kind:8} {:6}   {plain:11.1}   {verified:14.1}   {:4.2}   {cpu_gain:8.2}   {:11.2}   {}/{}",
        stats[1].tokens,
        wall[0] / wall[1],
        f64::from(stats[1].tokens) / f64::from(stats[1].passes.max(1)),
        stats[1].accepted,
        stats[1].drafted
    );
}

/// Seconds from the prompt's end to the answer's.
fn answer(engine: &Engine, prompt: &[u32], draft: bool) -> (DecodeStats, f64, f64) {
    let stop = vec![151_645, 151_643];
    let params = DecodeParams { max_tokens: 96, temperature: 0.0, top_p: 1.0, seed: 0, stop, draft };
    let request = Request { prompt: prompt.to_vec(), params, cache_key: None };
    let mut stream = engine.submit(request).expect("the request is sound");
    let mut start = (Instant::now(), cpu());
    loop {
        match stream.events.blocking_recv().expect("an answer has an end") {
            TokenEvent::Prefilled => start = (Instant::now(), cpu()),
            TokenEvent::Block(_) => {}
            TokenEvent::Done { stats, .. } => {
                return (stats, start.0.elapsed().as_secs_f64(), cpu() - start.1);
            }
            TokenEvent::Failed { message } => panic!("{message}"),
        }
    }
}
