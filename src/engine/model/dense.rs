//! The base: a dense decoder (Qwen2, Llama).

use std::path::Path;

use voluble_kernels::cpu::matmul::{Into, matmul};
use voluble_kernels::cpu::{Matrix, Pool};

use super::{Buffers, Layer, ModelConfig, Span, angles, norm_rows, run_layer};
use crate::engine::EngineError;
use crate::engine::cache::SequenceCache;
use crate::engine::weights::gguf::{Gguf, Tensor};

/// The base model.
pub struct Base {
    config: ModelConfig,
    file: Gguf,
    pub(super) layers: Vec<Layer>,
    output_norm: Vec<f32>,
    head: Matrix,
}

/// Rows of one sequence in a pass.
pub struct Segment<'a> {
    /// What it has read; room for the tokens is reserved. The pass writes
    /// behind the end and does not move it.
    pub cache: &'a mut SequenceCache,
    /// What it reads now.
    pub tokens: &'a [u32],
    /// Of how many last rows the logits are wanted.
    pub logits: usize,
}

impl Base {
    /// Reads and packs a model.
    ///
    /// # Errors
    /// [`EngineError::Weights`], naming file and key.
    pub fn load(pool: &Pool, path: &Path) -> Result<Self, EngineError> {
        let file = Gguf::open(path)?;
        let config = ModelConfig::read(&file)?;
        let (hidden, vocabulary) = (config.hidden, config.vocabulary);
        let layers =
            (0..config.layers).map(|i| read_layer(pool, &file, &config, i)).collect::<Result<_, _>>()?;
        let output_norm = file.vector("output_norm.weight", hidden)?;
        file.tensor("token_embd.weight", vocabulary, hidden)?;
        let head = pack(pool, file.tensor(head_name(&file), vocabulary, hidden)?);
        Ok(Self { config, file, layers, output_norm, head })
    }

    /// What it is.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Bytes of weights that a pass reads.
    pub fn bytes(&self) -> usize {
        self.layers.iter().map(Layer::bytes).sum::<usize>() + self.head.bytes()
    }

    /// Writes a token's embedding.
    ///
    /// # Panics
    /// When the token is not in the vocabulary or `out` is not H long.
    pub fn embed(&self, token: u32, out: &mut [f32]) {
        self.embeddings().row(token as usize, out);
    }

    fn embeddings(&self) -> Tensor<'_> {
        self.file
            .tensor("token_embd.weight", self.config.vocabulary, self.config.hidden)
            .expect("it was there at load and the map has not changed")
    }

    pub(super) fn file(&self) -> &Gguf {
        &self.file
    }

    /// The output rows of the file.
    pub(super) fn head_tensor(&self) -> Result<Tensor<'_>, EngineError> {
        self.file.tensor(head_name(&self.file), self.config.vocabulary, self.config.hidden)
    }

    /// One pass over the tokens of all segments. Logits and taps are in
    /// `buffers` afterwards; the caches' lengths are for the caller to move.
    ///
    /// `taps`: after which layers (0-based) the hidden states are kept.
    ///
    /// # Panics
    /// When a cache has no room, a token is not in the vocabulary, or a
    /// segment is empty or wants more logits than it has rows.
    pub fn forward(&self, pool: &Pool, segments: &mut [Segment<'_>], taps: &[usize], buffers: &mut Buffers) {
        let hidden = self.config.hidden;
        let rows: usize = segments.iter().map(|segment| segment.tokens.len()).sum();
        buffers.x.resize(rows * hidden, 0.0);
        buffers.taps.resize_with(taps.len(), Vec::new);
        let mut wanted = Vec::new();
        let mut first = 0;
        let embeddings = self.embeddings();
        let mut spans = Vec::new();
        for segment in segments.iter_mut() {
            let count = segment.tokens.len();
            assert!(count > 0 && segment.logits <= count, "a segment of {count} rows");
            for (row, token) in segment.tokens.iter().enumerate() {
                embeddings.row(*token as usize, &mut buffers.x[(first + row) * hidden..][..hidden]);
            }
            wanted.extend(first + count - segment.logits..first + count);
            let position = segment.cache.len();
            spans.push(Span { cache: &mut *segment.cache, rows: first..first + count, position });
            first += count;
        }
        angles(&self.config, &spans, buffers);
        for (index, layer) in self.layers.iter().enumerate() {
            run_layer(&self.config, pool, layer, index, &mut spans, buffers);
            for (tap, kept) in taps.iter().zip(&mut buffers.taps) {
                if *tap == index {
                    kept.clear();
                    kept.extend_from_slice(&buffers.x);
                }
            }
        }
        let mut last = Vec::with_capacity(wanted.len() * hidden);
        for row in wanted {
            last.extend_from_slice(&buffers.x[row * hidden..][..hidden]);
        }
        buffers.logits_len = last.len() / hidden * self.config.vocabulary;
        if buffers.logits.len() < buffers.logits_len {
            buffers.logits.resize(buffers.logits_len, 0.0);
        }
        if !last.is_empty() {
            norm_rows(&last, &self.output_norm, self.config.eps, &mut buffers.norm, &mut buffers.acts);
            matmul(
                pool,
                &[&self.head],
                &buffers.acts,
                Into::Set(None),
                &mut buffers.logits[..buffers.logits_len],
            );
        }
    }
}

/// Models without an output matrix of their own use the embeddings.
fn head_name(file: &Gguf) -> &'static str {
    if file.has_tensor("output.weight") { "output.weight" } else { "token_embd.weight" }
}

fn pack(pool: &Pool, tensor: Tensor<'_>) -> Matrix {
    let rows: Vec<u32> = (0..tensor.rows as u32).collect();
    Matrix::pack(pool, tensor.quant, tensor.bytes, tensor.columns, &rows)
}

fn read_layer(pool: &Pool, file: &Gguf, config: &ModelConfig, index: usize) -> Result<Layer, EngineError> {
    let (hidden, feed) = (config.hidden, config.feed_forward);
    let (queries, kv) = (config.query_width(), config.kv_width());
    let matrix = |name: &str, rows: usize, columns: usize| {
        Ok(pack(pool, file.tensor(&format!("blk.{index}.{name}.weight"), rows, columns)?))
    };
    let vector = |name: &str, len: usize| file.vector(&format!("blk.{index}.{name}"), len);
    let qkv = [("attn_q", queries), ("attn_k", kv), ("attn_v", kv)];
    let biased = qkv.map(|(name, _)| file.has_tensor(&format!("blk.{index}.{name}.bias")));
    let bias = if biased.contains(&true) || config.architecture == "qwen2" {
        let mut all = Vec::new();
        for (name, rows) in qkv {
            all.extend(vector(&format!("{name}.bias"), rows)?);
        }
        Some(all)
    } else {
        None
    };
    Ok(Layer {
        attention_norm: vector("attn_norm.weight", hidden)?,
        qkv: qkv.iter().map(|(name, rows)| matrix(name, *rows, hidden)).collect::<Result<_, _>>()?,
        bias,
        out: matrix("attn_output", hidden, queries)?,
        feed_norm: vector("ffn_norm.weight", hidden)?,
        gate: matrix("ffn_gate", feed, hidden)?,
        up: matrix("ffn_up", feed, hidden)?,
        down: matrix("ffn_down", hidden, feed)?,
    })
}
