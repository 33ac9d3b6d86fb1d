//! The slim self-drafter: some of the base's own layers with a low-rank
//! adapter that acts on draft rows only, reading the base's own cache.
//!
//! A draft starts at the anchor, the newest token, which the base has not read
//! yet. Row 0 is the anchor's embedding, the other rows a learned mask vector;
//! to each a projection of the base's hidden states at the token before is
//! added; the rows run through the layers, causally among themselves, and row
//! `j` proposes the token `j + 1` behind the anchor. As the rows do not know
//! each other's choice, a small network then walks over them and chooses again
//! among each row's best candidates, given the token chosen before.
//!
//! The adapter is added to the base's weights at load (`W + B A`), which is
//! the same function and makes a draft layer an ordinary layer: two products
//! fewer in each of its steps, for some 70 MB of memory.

use std::path::Path;

use serde::Deserialize;
use voluble_kernels::cpu::matmul::{Into, matmul, pick};
use voluble_kernels::cpu::{Acts, Format, Matrix, Pool, vector};

use super::{Base, Buffers, Layer, ModelConfig, Span, angles, norm_rows, run_layer};
use crate::engine::EngineError;
use crate::engine::cache::SequenceCache;
use crate::engine::weights::gguf::{Gguf, Tensor};
use crate::engine::weights::safetensors::{Safe, Tensors};

/// The `config` text of a drafter's file.
#[derive(Clone, Debug, Deserialize)]
struct Recipe {
    format: String,
    layers: Vec<usize>,
    rank: usize,
    block_rows: usize,
    taps: Vec<usize>,
    rms_norm_eps: f32,
    stitch_candidates: usize,
    causal: bool,
    shifted: bool,
}

/// The drafter of a base.
pub struct Drafter {
    recipe: Recipe,
    /// For its norms: the base's, with the recipe's epsilon.
    config: ModelConfig,
    layers: Vec<Layer>,
    mask: Vec<f32>,
    norm: Vec<f32>,
    inject: Matrix,
    stitch_in: Matrix,
    stitch_out: Matrix,
    vocabulary: Vec<u32>,
    head: Matrix,
}

/// A draft to make.
pub struct DraftSegment<'a> {
    /// What the base has read: everything before the anchor. Room for the rows
    /// is reserved; the draft leaves meaningless keys behind its end.
    pub cache: &'a mut SequenceCache,
    /// The newest token.
    pub anchor: u32,
    /// The base's hidden states of the token before the anchor, after each of
    /// [`Drafter::taps`], one after the other.
    pub taps: &'a [f32],
    /// Rows to draft, at least 1 and at most [`Drafter::block_rows`].
    pub rows: usize,
}

/// One drafted token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drafted {
    /// The token.
    pub token: u32,
    /// The drafter's own probability of it among the row's candidates.
    pub confidence: f32,
    /// Its score.
    pub score: f32,
    /// The row's best token before the stitch.
    pub parallel: u32,
}

impl Drafter {
    /// Reads a drafter and adds it to the base's weights.
    ///
    /// # Errors
    /// [`EngineError::Weights`]: naming file and key, also when the drafter
    /// was made for a base of another shape.
    pub fn load(pool: &Pool, path: &Path, base: &Base) -> Result<Self, EngineError> {
        let file = Safe::open(path)?;
        let recipe: Recipe = serde_json::from_str(&file.metadata("config")?)
            .map_err(|error| file.fault(format!("metadata key 'config': {error}")))?;
        let config = ModelConfig { eps: recipe.rms_norm_eps, ..base.config().clone() };
        check(&file, &recipe, &config)?;
        let tensors = file.tensors()?;
        let hidden = config.hidden;
        let layers = recipe
            .layers
            .iter()
            .map(|index| read_layer(pool, &tensors, base, &config, recipe.rank, *index))
            .collect::<Result<_, _>>()?;
        let vocabulary = tensors.ids("draft_vocab")?;
        if vocabulary.is_empty() || vocabulary.iter().any(|id| *id as usize >= config.vocabulary) {
            return Err(
                file.fault("tensor 'draft_vocab' is empty or holds ids outside the base's vocabulary")
            );
        }
        let output = base.head_tensor()?;
        let head = Matrix::pack(pool, output.quant, output.bytes, hidden, &vocabulary);
        let round = |tensor: Tensor<'_>| {
            Matrix::quantize(pool, Format::I8, tensor.columns, tensor.rows, &|row, out| tensor.row(row, out))
        };
        let stitch = tensors.rows("stitch.in")?;
        Ok(Self {
            layers,
            mask: tensors.vector("mask", hidden)?,
            norm: tensors.vector("norm", hidden)?,
            inject: round(tensors.matrix("inject", hidden, recipe.taps.len() * hidden)?),
            stitch_in: round(tensors.matrix("stitch.in", stitch, 2 * hidden)?),
            stitch_out: round(tensors.matrix("stitch.out", hidden, stitch)?),
            vocabulary,
            head,
            config,
            recipe,
        })
    }

    /// Most rows of a draft.
    pub fn block_rows(&self) -> usize {
        self.recipe.block_rows
    }

    /// After which layers of the base (0-based) it wants the hidden states.
    pub fn taps(&self) -> &[usize] {
        &self.recipe.taps
    }

    /// The tokens it can draft, ascending; a row's scores after a draft are theirs.
    pub fn vocabulary(&self) -> &[u32] {
        &self.vocabulary
    }

    /// Bytes of weights that a draft reads.
    pub fn bytes(&self) -> usize {
        let matrices = [&self.inject, &self.stitch_in, &self.stitch_out, &self.head];
        self.layers.iter().map(Layer::bytes).sum::<usize>()
            + matrices.iter().map(|m| m.bytes()).sum::<usize>()
    }

    /// Drafts for all segments in one pass: for each its tokens, in order.
    ///
    /// # Panics
    /// When a cache has no room, or a segment has no row, too many, or taps of
    /// another length.
    pub fn draft(
        &self,
        pool: &Pool,
        base: &Base,
        segments: &mut [DraftSegment<'_>],
        buffers: &mut Buffers,
    ) -> Vec<Vec<Drafted>> {
        let hidden = self.config.hidden;
        let rows: usize = segments.iter().map(|segment| segment.rows).sum();
        buffers.x.resize(rows * hidden, 0.0);
        let injected = self.injected(pool, segments, buffers);
        let mut spans = Vec::new();
        let mut first = 0;
        let mut anchors = Vec::new();
        for (segment, injected) in segments.iter_mut().zip(injected.chunks_exact(hidden)) {
            assert!((1..=self.recipe.block_rows).contains(&segment.rows), "{} rows", segment.rows);
            for row in 0..segment.rows {
                let x = &mut buffers.x[(first + row) * hidden..][..hidden];
                if row == 0 {
                    base.embed(segment.anchor, x);
                } else {
                    x.copy_from_slice(&self.mask);
                }
                vector::axpy(1.0, injected, x);
            }
            let position = segment.cache.len();
            anchors.push(segment.anchor);
            spans.push(Span { cache: &mut *segment.cache, rows: first..first + segment.rows, position });
            first += segment.rows;
        }
        angles(&self.config, &spans, buffers);
        for (layer, index) in self.layers.iter().zip(&self.recipe.layers) {
            run_layer(&self.config, pool, layer, *index, &mut spans, buffers);
        }
        norm_rows(&buffers.x, &self.norm, self.config.eps, &mut buffers.norm, &mut buffers.acts);
        let width = self.vocabulary.len();
        buffers.scores.resize(rows * width, 0.0);
        matmul(pool, &[&self.head], &buffers.acts, Into::Set(None), &mut buffers.scores);
        spans.iter().map(|span| self.stitch(pool, base, span.rows.clone(), buffers)).collect()
    }

    /// What is added to every row of a segment, `[segments][H]`.
    fn injected(&self, pool: &Pool, segments: &[DraftSegment<'_>], buffers: &mut Buffers) -> Vec<f32> {
        let hidden = self.config.hidden;
        let width = self.recipe.taps.len() * hidden;
        let mut out = vec![0.0; segments.len() * hidden];
        if width == 0 {
            return out;
        }
        let mut unit = vec![0.0; width];
        buffers.acts.resize(segments.len(), width);
        for (row, segment) in segments.iter().enumerate() {
            assert_eq!(segment.taps.len(), width, "taps of the token before the anchor");
            for (tap, unit) in segment.taps.chunks_exact(hidden).zip(unit.chunks_exact_mut(hidden)) {
                vector::rms_unit(tap, self.config.eps, unit);
            }
            buffers.acts.set_row(row, &unit);
        }
        matmul(pool, &[&self.inject], &buffers.acts, Into::Set(None), &mut out);
        out
    }

    /// Walks over one segment's rows and chooses.
    fn stitch(
        &self,
        pool: &Pool,
        base: &Base,
        rows: std::ops::Range<usize>,
        buffers: &mut Buffers,
    ) -> Vec<Drafted> {
        let (hidden, width) = (self.config.hidden, self.vocabulary.len());
        let mut both = vec![0.0; 2 * hidden];
        let mut inner = vec![0.0; self.stitch_in.outputs()];
        let (mut acts, mut y) = (Acts::default(), vec![0.0; hidden]);
        let mut chosen: Vec<Drafted> = Vec::with_capacity(rows.len());
        for row in rows {
            let logits = &buffers.scores[row * width..][..width];
            let mut best = vector::top(logits, self.recipe.stitch_candidates);
            let parallel = self.vocabulary[best[0].0 as usize];
            if let Some(before) = chosen.last() {
                let x = &buffers.x[row * hidden..][..hidden];
                base.embed(before.token, &mut y);
                let (left, right) = both.split_at_mut(hidden);
                vector::rms_unit(&y, self.config.eps, left);
                vector::rms_unit(x, self.config.eps, right);
                acts.set(2 * hidden, &both);
                matmul(pool, &[&self.stitch_in], &acts, Into::Set(None), &mut inner);
                vector::silu(&mut inner);
                acts.set(inner.len(), &inner);
                y.copy_from_slice(x);
                matmul(pool, &[&self.stitch_out], &acts, Into::Add, &mut y);
                norm_rows(&y, &self.norm, self.config.eps, &mut buffers.norm, &mut acts);
                pick(&self.head, &acts, &mut best);
            }
            let (at, score) = best
                .iter()
                .copied()
                .reduce(|a, b| if b.1 > a.1 { b } else { a })
                .expect("at least one candidate");
            let sum: f32 = best.iter().map(|(_, other)| (other - score).exp()).sum();
            let token = self.vocabulary[at as usize];
            chosen.push(Drafted { token, confidence: 1.0 / sum, score, parallel });
        }
        chosen
    }
}

fn check(file: &Safe, recipe: &Recipe, config: &ModelConfig) -> Result<(), EngineError> {
    let bad = |what: String| Err(file.fault(format!("metadata key 'config': {what}")));
    if !recipe.format.starts_with("voluble-selfdraft-1") {
        return bad(format!("unknown format '{}'", recipe.format));
    }
    if !(recipe.causal && recipe.shifted) {
        return bad("only causal, shifted drafters are supported".to_owned());
    }
    if recipe.layers.is_empty() || !recipe.layers.is_sorted_by(|a, b| a < b) {
        return bad(format!("layers {:?} are not ascending", recipe.layers));
    }
    if recipe.layers.iter().chain(&recipe.taps).any(|layer| *layer >= config.layers) {
        return bad(format!("layers {:?}, taps {:?} of {}", recipe.layers, recipe.taps, config.layers));
    }
    if !(1..=64).contains(&recipe.block_rows) || recipe.stitch_candidates == 0 || recipe.rank == 0 {
        return bad("block_rows must be from 1 to 64, stitch_candidates and rank at least 1".to_owned());
    }
    Ok(())
}

/// The base's layer with the adapter added.
fn read_layer(
    pool: &Pool,
    tensors: &Tensors<'_>,
    base: &Base,
    config: &ModelConfig,
    rank: usize,
    index: usize,
) -> Result<Layer, EngineError> {
    let (hidden, feed) = (config.hidden, config.feed_forward);
    let (queries, kv) = (config.query_width(), config.kv_width());
    let file = base.file();
    let merged = |names: &[(&str, usize)], adapter: &str, from: usize, columns: usize| {
        merge(pool, file, tensors, Part { index, names, adapter, from, columns, rank })
    };
    let total = |names: &[(&str, usize)]| names.iter().map(|(_, rows)| rows).sum::<usize>();
    let qkv = [("attn_q", queries), ("attn_k", kv), ("attn_v", kv)];
    for (adapter, outputs) in [("qkv", total(&qkv)), ("o", hidden), ("gu", 2 * feed), ("d", hidden)] {
        tensors.matrix(&format!("{index}.{adapter}.B"), outputs, rank)?;
    }
    Ok(Layer {
        attention_norm: tensors.vector(&format!("{index}.an"), hidden)?,
        qkv: vec![merged(&qkv, "qkv", 0, hidden)?],
        bias: base.layers[index].bias.clone(),
        out: merged(&[("attn_output", hidden)], "o", 0, queries)?,
        feed_norm: tensors.vector(&format!("{index}.fn"), hidden)?,
        gate: merged(&[("ffn_gate", feed)], "gu", 0, hidden)?,
        up: merged(&[("ffn_up", feed)], "gu", feed, hidden)?,
        down: merged(&[("ffn_down", hidden)], "d", 0, feed)?,
    })
}

/// Which weights to merge.
struct Part<'a> {
    index: usize,
    /// Tensors of the base and their rows, stacked.
    names: &'a [(&'a str, usize)],
    adapter: &'a str,
    /// First of the adapter's output rows that belongs to them.
    from: usize,
    columns: usize,
    rank: usize,
}

/// `W + B A`, rounded to 8 bits.
fn merge(pool: &Pool, file: &Gguf, tensors: &Tensors<'_>, part: Part<'_>) -> Result<Matrix, EngineError> {
    let Part { index, names, adapter, from, columns, rank } = part;
    let mut sources = Vec::new();
    for (name, rows) in names {
        let tensor = file.tensor(&format!("blk.{index}.{name}.weight"), *rows, columns)?;
        sources.extend((0..*rows).map(|row| (tensor, row)));
    }
    let a = tensors.matrix(&format!("{index}.{adapter}.A"), rank, columns)?;
    let b_rows = tensors.rows(&format!("{index}.{adapter}.B"))?;
    let b = tensors.matrix(&format!("{index}.{adapter}.B"), b_rows, rank)?;
    let mut a_rows = vec![0.0; rank * columns];
    a_rows.chunks_exact_mut(columns).enumerate().for_each(|(row, out)| a.row(row, out));
    Ok(Matrix::quantize(pool, Format::I8, columns, sources.len(), &|output, out| {
        let (tensor, row) = sources[output];
        tensor.row(row, out);
        let mut weights = vec![0.0; rank];
        b.row(from + output, &mut weights);
        for (weight, a) in weights.iter().zip(a_rows.chunks_exact(columns)) {
            vector::axpy(*weight, a, out);
        }
    }))
}
