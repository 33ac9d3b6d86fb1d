//! Forward passes against llama.cpp, PyTorch and candle.
//!
//! llama.cpp's values: `tests/engine/reference/llama_cpp.py`. PyTorch's: the
//! golden values beside the drafters, f32 arithmetic on the dequantised
//! weights. Both llama.cpp and this engine round activations to 8 bits, so
//! logits differ by some hundredths; what is asserted is the largest
//! difference of log-probabilities, and equal order where the gap is larger.

use std::collections::HashMap;
use std::fs::File;

use candle_core::quantized::gguf_file::Content;
use candle_core::{D, Device, IndexOp, Tensor};
use serde::Deserialize;
use voluble::engine::cache::SequenceCache;
use voluble::engine::model::{Base, Buffers, Segment};
use voluble_kernels::cpu::Pool;

use super::{QWEN_PARTS, SMOL, base};

/// Logits of the last `count` tokens.
fn logits(pool: &Pool, base: &Base, ids: &[u32], count: usize) -> Vec<Vec<f32>> {
    let pages = base.config().pages(ids.len() + 1);
    let mut cache = SequenceCache::new(&pages);
    cache.reserve(ids.len()).expect("room");
    let mut buffers = Buffers::default();
    base.forward(pool, &mut [Segment { cache: &mut cache, tokens: ids, logits: count }], &[], &mut buffers);
    buffers.logits().chunks_exact(base.config().vocabulary).map(<[f32]>::to_vec).collect()
}

fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - top).exp()).sum();
    logits.iter().map(|logit| (f64::from(logit - top) - sum.ln()) as f32).collect()
}

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    ids: Vec<u32>,
    top: Vec<(u32, f32)>,
}

/// Largest difference of log-probabilities among the likely tokens.
const TOLERANCE: f32 = 0.25;

fn compare(pool: &Pool, base: &Base, golden: &str) {
    let golden: Golden = serde_json::from_str(golden).expect("the golden values are JSON");
    assert!(golden.cases.len() >= 4);
    for (number, case) in golden.cases.iter().enumerate() {
        let got = log_softmax(&logits(pool, base, &case.ids, 1)[0]);
        // Unlikely tokens are noise in both.
        for (id, wanted) in case.top.iter().filter(|(_, wanted)| *wanted > -4.0) {
            let got = got[*id as usize];
            assert!((got - wanted).abs() < TOLERANCE, "case {number} id {id}: {got} instead of {wanted}");
        }
        for pair in case.top.windows(2).filter(|pair| pair[0].1 - pair[1].1 > 2.0 * TOLERANCE) {
            assert!(got[pair[0].0 as usize] > got[pair[1].0 as usize], "case {number}: {pair:?}");
        }
    }
}

#[test]
fn qwen_equals_llama_cpp() {
    let golden = include_str!("../data/engine/qwen2.5-coder-0.5b-instruct.logits.json");
    compare(&QWEN_PARTS.pool, &QWEN_PARTS.base, golden);
}

#[test]
fn smollm_equals_llama_cpp() {
    let pool = Pool::new(2);
    let base = Base::load(&pool, &base(SMOL)).expect("the small model loads");
    compare(&pool, &base, include_str!("../data/engine/smollm2-135m-instruct.logits.json"));
}

#[test]
fn qwen_equals_pytorch() {
    let golden: serde_json::Value =
        serde_json::from_str(include_str!("../../models/qwen2.5-coder-0.5b-selfdraft-v0.golden.json"))
            .expect("the golden values are JSON");
    let ids: Vec<u32> = serde_json::from_value(golden["ids"].clone()).expect("ids");
    let start: usize = serde_json::from_value(golden["answer_start"].clone()).expect("a number");
    let top = &golden["base_top5_after_prompt"];
    let wanted_ids: Vec<u32> = serde_json::from_value(top["ids"].clone()).expect("ids");
    let wanted: Vec<f32> = serde_json::from_value(top["logits"].clone()).expect("logits");
    let got = &logits(&QWEN_PARTS.pool, &QWEN_PARTS.base, &ids[..start], 1)[0];
    for (id, wanted) in wanted_ids.iter().zip(&wanted) {
        let got = got[*id as usize];
        assert!((got - wanted).abs() < 0.4, "id {id}: {got} instead of {wanted}");
    }
}

#[test]
fn smollm_equals_pytorch() {
    #[derive(Deserialize)]
    struct Case {
        prompt_ids: Vec<u32>,
        next_top5_ids: Vec<u32>,
        next_top5_logits: Vec<f32>,
    }
    let cases: Vec<Case> =
        serde_json::from_str(include_str!("../../models/smollm2-135m-gated-r64-v0.golden.json"))
            .expect("the golden values are JSON");
    let pool = Pool::new(2);
    let base = Base::load(&pool, &base(SMOL)).expect("the small model loads");
    for case in cases {
        let got = &logits(&pool, &base, &case.prompt_ids, 1)[0];
        for (id, wanted) in case.next_top5_ids.iter().zip(&case.next_top5_logits) {
            let got = got[*id as usize];
            assert!((got - wanted).abs() < 0.6, "id {id}: {got} instead of {wanted}");
        }
    }
}

#[test]
fn any_rows_give_their_logits_whatever_the_pass() {
    let pool = Pool::new(2);
    let base = Base::load(&pool, &base(SMOL)).expect("the small model loads");
    let ids: Vec<u32> = (0..45).map(|i| 300 + i * 331 % 9000).collect();
    let all = logits(&pool, &base, &ids, ids.len());
    // One token a pass, from a cache that was cut back on the way.
    let pages = base.config().pages(64);
    let mut cache = SequenceCache::new(&pages);
    let mut buffers = Buffers::default();
    for (at, id) in ids.iter().enumerate() {
        cache.reserve(3).expect("room");
        let tokens = [*id, 17, 18];
        let segment = Segment { cache: &mut cache, tokens: &tokens, logits: 3 };
        base.forward(&pool, &mut [segment], &[], &mut buffers);
        assert_eq!(buffers.logits()[..base.config().vocabulary], all[at], "row {at}");
        cache.advance(3);
        cache.truncate(at + 1);
    }
}

/// A plain f32 Llama in candle, for a reference that shares no code with ours.
struct Reference {
    tensors: HashMap<String, Tensor>,
    layers: usize,
    heads: usize,
    kv_heads: usize,
    eps: f64,
    rope_base: f32,
}

impl Reference {
    fn load() -> candle_core::Result<Self> {
        let mut file = File::open(base(SMOL))?;
        let content = Content::read(&mut file)?;
        let mut tensors = HashMap::new();
        for name in content.tensor_infos.keys() {
            let tensor = content.tensor(&mut file, name, &Device::Cpu)?.dequantize(&Device::Cpu)?;
            tensors.insert(name.clone(), tensor);
        }
        let number = |key: &str| content.metadata[key].to_u32().map(|n| n as usize);
        Ok(Self {
            layers: number("llama.block_count")?,
            heads: number("llama.attention.head_count")?,
            kv_heads: number("llama.attention.head_count_kv")?,
            eps: f64::from(content.metadata["llama.attention.layer_norm_rms_epsilon"].to_f32()?),
            rope_base: content.metadata["llama.rope.freq_base"].to_f32()?,
            tensors,
        })
    }

    fn norm(&self, x: &Tensor, name: &str) -> candle_core::Result<Tensor> {
        let mean = (x.sqr()?.mean_keepdim(D::Minus1)? + self.eps)?;
        x.broadcast_div(&mean.sqrt()?)?.broadcast_mul(&self.tensors[name])
    }

    fn turn(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        let (heads, rows, dim) = x.dims3()?;
        let angles: Vec<f32> = (0..rows)
            .flat_map(|row| (0..dim / 2).map(move |i| (row, i)))
            .map(|(row, i)| row as f32 / self.rope_base.powf(2.0 * i as f32 / dim as f32))
            .collect();
        let angles = Tensor::from_vec(angles, (1, rows, dim / 2), &Device::Cpu)?;
        let (cos, sin) = (angles.cos()?, angles.sin()?);
        let pairs = x.reshape((heads, rows, dim / 2, 2))?;
        let (a, b) = (pairs.i((.., .., .., 0))?, pairs.i((.., .., .., 1))?);
        let even = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
        let odd = (b.broadcast_mul(&cos)? + a.broadcast_mul(&sin)?)?;
        Tensor::stack(&[even, odd], 3)?.reshape((heads, rows, dim))
    }

    fn forward(&self, ids: &[u32]) -> candle_core::Result<Vec<Vec<f32>>> {
        let rows = ids.len();
        let embeddings = &self.tensors["token_embd.weight"];
        let mut x = embeddings.index_select(&Tensor::new(ids, &Device::Cpu)?, 0)?;
        let mask: Vec<f32> =
            (0..rows * rows).map(|i| if i % rows > i / rows { f32::NEG_INFINITY } else { 0.0 }).collect();
        let mask = Tensor::from_vec(mask, (1, rows, rows), &Device::Cpu)?;
        for layer in 0..self.layers {
            let weight = |name: &str| self.tensors[&format!("blk.{layer}.{name}.weight")].t();
            let h = self.norm(&x, &format!("blk.{layer}.attn_norm.weight"))?;
            let heads = |name: &str, count: usize| {
                let all = h.matmul(&weight(name)?)?;
                all.reshape((rows, count, all.dim(1)? / count))?.transpose(0, 1)?.contiguous()
            };
            let q = self.turn(&heads("attn_q", self.heads)?)?;
            let group = self.heads / self.kv_heads;
            let spread = |t: Tensor| {
                let (count, rows, dim) = t.dims3()?;
                t.unsqueeze(1)?.expand((count, group, rows, dim))?.reshape((count * group, rows, dim))
            };
            let k = spread(self.turn(&heads("attn_k", self.kv_heads)?)?)?;
            let v = spread(heads("attn_v", self.kv_heads)?)?;
            let scores = (q.matmul(&k.transpose(1, 2)?.contiguous()?)? / (q.dim(2)? as f64).sqrt())?;
            let scores = scores.broadcast_add(&mask)?.exp()?;
            let weights = scores.broadcast_div(&scores.sum_keepdim(D::Minus1)?)?;
            let attended = weights.matmul(&v.contiguous()?)?.transpose(0, 1)?.flatten_from(1)?;
            x = (x + attended.matmul(&weight("attn_output")?)?)?;
            let h = self.norm(&x, &format!("blk.{layer}.ffn_norm.weight"))?;
            let gate = h.matmul(&weight("ffn_gate")?)?;
            let gate = (&gate / (gate.neg()?.exp()? + 1.0)?)?;
            let inner = (gate * h.matmul(&weight("ffn_up")?)?)?;
            x = (x + inner.matmul(&weight("ffn_down")?)?)?;
        }
        self.norm(&x, "output_norm.weight")?.matmul(&embeddings.t()?)?.to_vec2()
    }
}

#[test]
fn smollm_equals_candle_on_every_row() {
    let pool = Pool::new(2);
    let base = Base::load(&pool, &base(SMOL)).expect("the small model loads");
    let ids = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198];
    let wanted = Reference::load().and_then(|reference| reference.forward(&ids)).expect("candle runs");
    let got = logits(&pool, &base, &ids, ids.len());
    let mut agree = 0;
    let mut errors = Vec::new();
    for (row, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
        let mean: f32 = wanted.iter().sum::<f32>() / wanted.len() as f32;
        let size = wanted.iter().map(|w| (w - mean).powi(2)).sum::<f32>().sqrt();
        let error = got.iter().zip(wanted).map(|(g, w)| (g - w).powi(2)).sum::<f32>().sqrt();
        // The reference keeps activations in f32, the engine in 8 bits per block of 32: the first rows, whose
        // activations have a few huge values, lose most by it.
        assert!(error < 0.25 * size, "row {row}: error {} of the logits' size", error / size);
        errors.push(error / size);
        let best = |x: &[f32]| x.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(at, _)| at);
        agree += usize::from(best(got) == best(wanted));
    }
    errors.sort_by(f32::total_cmp);
    assert!(errors[errors.len() / 2] < 0.08, "errors {errors:?}");
    assert!(agree + 2 >= ids.len(), "{agree} of {} rows have the same best token", ids.len());
}
