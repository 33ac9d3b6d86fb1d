//! Forward passes.
//!
//! Shape legend: `R` rows of a pass (tokens of all sequences in it, one after
//! the other), `H` hidden width, `F` feed-forward width, `V` vocabulary.
//!
//! A pass works on plain `f32` buffers and the packed matrices of the kernels
//! crate, not on tensors of a framework: the work between two products is a few
//! microseconds, where a framework's allocation, shape bookkeeping and lack of
//! fused steps would cost as much as the products themselves, and its products
//! do not get cheaper with more rows on this kind of CPU. candle parses the
//! files and is the reference in the tests.

mod dense;
mod drafter;

pub use dense::{Base, Segment};
pub use drafter::{DraftSegment, Drafted, Drafter};

use std::ops::Range;

use voluble_kernels::cpu::attention::{self, Shape, Sight};
use voluble_kernels::cpu::matmul::{Into, gate_up, matmul};
use voluble_kernels::cpu::vector::{self, Rotation};
use voluble_kernels::cpu::{Acts, Matrix, Pool};

use super::cache::{PAGE_TOKENS, SequenceCache};
use super::weights::gguf::Gguf;
use super::{EngineError, cache::Pages};

/// What a base is, read from its file.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// `general.architecture`.
    pub architecture: String,
    /// Decoder layers.
    pub layers: usize,
    /// H.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads.
    pub kv_heads: usize,
    /// Numbers of one head.
    pub head_dim: usize,
    /// F.
    pub feed_forward: usize,
    /// V.
    pub vocabulary: usize,
    /// Epsilon of the norms.
    pub eps: f32,
    /// Base of the rotary frequencies.
    pub rope_base: f32,
    /// Which columns turn together.
    pub rotation: Rotation,
    /// Most tokens it was made to read.
    pub context: usize,
}

impl ModelConfig {
    /// Reads the metadata.
    ///
    /// # Errors
    /// A missing key, an unknown architecture, numbers that do not fit.
    pub fn read(file: &Gguf) -> Result<Self, EngineError> {
        let architecture = file.text("general.architecture")?.to_owned();
        let rotation = match architecture.as_str() {
            "qwen2" => Rotation::Halves,
            "llama" => Rotation::Pairs,
            other => {
                let known = "'qwen2' and 'llama' are supported";
                return Err(file.fault(format!("unknown 'general.architecture' '{other}' ({known})")));
            }
        };
        let key = |name: &str| format!("{architecture}.{name}");
        let scaling = key("rope.scaling.type");
        if file.has(&scaling) && file.text(&scaling)? != "none" {
            return Err(file.fault(format!("'{scaling}' = '{}' is not supported", file.text(&scaling)?)));
        }
        let hidden = file.number(&key("embedding_length"))?;
        let heads = file.number(&key("attention.head_count"))?;
        let optional = |name: &str, default: usize| {
            if file.has(&key(name)) { file.number(&key(name)) } else { Ok(default) }
        };
        let kv_heads = optional("attention.head_count_kv", heads)?;
        if heads == 0 || kv_heads == 0 || heads % kv_heads != 0 {
            return Err(file.fault(format!("{heads} heads with {kv_heads} key-value heads")));
        }
        let head_dim = optional("attention.key_length", hidden / heads)?;
        let config = Self {
            layers: file.number(&key("block_count"))?,
            hidden,
            heads,
            kv_heads,
            head_dim,
            feed_forward: file.number(&key("feed_forward_length"))?,
            vocabulary: file.array_len("tokenizer.ggml.tokens")?,
            eps: file.real(&key("attention.layer_norm_rms_epsilon"))?,
            rope_base: if file.has(&key("rope.freq_base")) {
                file.real(&key("rope.freq_base"))?
            } else {
                1e4
            },
            rotation,
            context: file.number(&key("context_length"))?,
            architecture,
        };
        for (what, number) in
            [("embedding", config.hidden), ("feed-forward", config.feed_forward), ("head", config.head_dim)]
        {
            if number == 0 || number % 32 != 0 {
                return Err(file.fault(format!("{what} width {number} is no multiple of 32")));
            }
        }
        if config.layers == 0 || config.vocabulary == 0 || config.context == 0 {
            return Err(file.fault("no layers, no vocabulary or no context"));
        }
        Ok(config)
    }

    /// Shape of its attention.
    pub fn shape(&self) -> Shape {
        Shape {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            page_tokens: PAGE_TOKENS,
        }
    }

    /// Pages for its keys and values.
    pub fn pages(&self, tokens: usize) -> Pages {
        Pages::new(self.shape(), self.layers, tokens.div_ceil(PAGE_TOKENS))
    }

    fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

/// One decoder layer.
struct Layer {
    attention_norm: Vec<f32>,
    /// Query, key, value, stacked.
    qkv: Vec<Matrix>,
    bias: Option<Vec<f32>>,
    out: Matrix,
    feed_norm: Vec<f32>,
    gate: Matrix,
    up: Matrix,
    down: Matrix,
}

impl Layer {
    fn bytes(&self) -> usize {
        let qkv: usize = self.qkv.iter().map(Matrix::bytes).sum();
        qkv + [&self.out, &self.gate, &self.up, &self.down].iter().map(|m| m.bytes()).sum::<usize>()
    }
}

/// Rows of one sequence in a pass.
struct Span<'a> {
    cache: &'a mut SequenceCache,
    /// Which rows of the pass.
    rows: Range<usize>,
    /// Position of the first.
    position: usize,
}

/// Buffers of a pass, reused from pass to pass.
#[derive(Default)]
pub struct Buffers {
    /// Residual stream, `[R][H]`.
    x: Vec<f32>,
    norm: Vec<f32>,
    acts: Acts,
    attended: Acts,
    gated: Acts,
    qkv: Vec<f32>,
    q: Vec<f32>,
    cos: Vec<f32>,
    sin: Vec<f32>,
    /// `[rows asked for][V]`; only ever grows, as filling it anew would cost.
    logits: Vec<f32>,
    logits_len: usize,
    /// Of a draft, `[R][draft vocabulary]`.
    scores: Vec<f32>,
    /// `[taps][R][H]`
    taps: Vec<Vec<f32>>,
}

impl Buffers {
    /// Logits of the rows asked for, one after the other in the order of the
    /// segments, as the last pass left them.
    pub fn logits(&self) -> &[f32] {
        &self.logits[..self.logits_len]
    }

    /// Scores of all rows of the last draft over the drafter's vocabulary,
    /// before the stitch.
    pub fn scores(&self) -> &[f32] {
        &self.scores
    }

    /// Hidden states of one row of the last pass after each tapped layer.
    pub fn taps(&self, row: usize, hidden: usize) -> Vec<f32> {
        self.taps.iter().flat_map(|tap| &tap[row * hidden..][..hidden]).copied().collect()
    }
}

/// Cosines and sines of the rows' positions.
fn angles(config: &ModelConfig, spans: &[Span<'_>], buffers: &mut Buffers) {
    let half = config.head_dim / 2;
    buffers.cos.clear();
    buffers.sin.clear();
    for span in spans {
        for position in span.position..span.position + span.rows.len() {
            for pair in 0..half {
                let exponent = -(2.0 * pair as f32) / config.head_dim as f32;
                let (sin, cos) = (position as f32 * config.rope_base.powf(exponent)).sin_cos();
                buffers.cos.push(cos);
                buffers.sin.push(sin);
            }
        }
    }
}

/// Norms and rounds the rows of the residual stream.
fn norm_rows(x: &[f32], weight: &[f32], eps: f32, norm: &mut Vec<f32>, acts: &mut Acts) {
    let width = weight.len();
    norm.resize(width, 0.0);
    acts.resize(x.len() / width, width);
    for (row, x) in x.chunks_exact(width).enumerate() {
        vector::rms_norm(x, weight, eps, norm);
        acts.set_row(row, norm);
    }
}

/// One layer over all rows: the residual stream in `buffers.x` moves on, keys
/// and values go to place `index` of the caches.
fn run_layer(
    config: &ModelConfig,
    pool: &Pool,
    layer: &Layer,
    index: usize,
    spans: &mut [Span<'_>],
    buffers: &mut Buffers,
) {
    let (hidden, queries, kv) = (config.hidden, config.query_width(), config.kv_width());
    let rows = buffers.x.len() / hidden;
    let shape = config.shape();
    let layer_at = index * shape.layer_len();

    norm_rows(&buffers.x, &layer.attention_norm, config.eps, &mut buffers.norm, &mut buffers.acts);
    let width = queries + 2 * kv;
    buffers.qkv.resize(rows * width, 0.0);
    let stacked: Vec<&Matrix> = layer.qkv.iter().collect();
    matmul(pool, &stacked, &buffers.acts, Into::Set(layer.bias.as_deref()), &mut buffers.qkv);

    buffers.q.resize(rows * queries, 0.0);
    let half = config.head_dim / 2;
    for span in spans.iter_mut() {
        for (at, row) in span.rows.clone().enumerate() {
            let (cos, sin) = (&buffers.cos[row * half..][..half], &buffers.sin[row * half..][..half]);
            let (q, rest) = buffers.qkv[row * width..][..width].split_at_mut(queries);
            let (k, v) = rest.split_at_mut(kv);
            vector::rotate(config.rotation, q, cos, sin);
            vector::rotate(config.rotation, k, cos, sin);
            buffers.q[row * queries..][..queries].copy_from_slice(q);
            let (page, token) = span.cache.page_mut(span.position + at);
            attention::write(shape, &mut page[layer_at..][..shape.layer_len()], token, k, v);
        }
    }
    {
        let views: Vec<_> = spans.iter().map(|span| span.cache.views()).collect();
        let sights: Vec<Sight<'_>> = spans
            .iter()
            .zip(&views)
            .flat_map(|(span, pages)| {
                (0..span.rows.len()).map(move |at| Sight { pages, len: span.position + at + 1 })
            })
            .collect();
        attention::attend(pool, shape, layer_at, &buffers.q, &sights, &mut buffers.attended);
    }
    matmul(pool, &[&layer.out], &buffers.attended, Into::Add, &mut buffers.x);

    norm_rows(&buffers.x, &layer.feed_norm, config.eps, &mut buffers.norm, &mut buffers.acts);
    gate_up(pool, &layer.gate, &layer.up, &buffers.acts, &mut buffers.gated);
    matmul(pool, &[&layer.down], &buffers.gated, Into::Add, &mut buffers.x);
}
