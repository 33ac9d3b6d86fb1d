//! Tokens to tokens: block decoding of a diffusion-drafted language model.
//!
//! Owns: sequences, blocks, drafts, cache, the device thread. Must not know:
//! text, roles, chat, audio.
//!
//! # How it runs
//!
//! [`Engine`] is a handle. Behind it one thread owns the model and all
//! sequences; the kernels' threads help it within a pass. Requests come by a
//! channel, tokens leave by one channel a sequence that holds its whole
//! answer, so the thread waits for nobody.
//!
//! A step: drop cancelled sequences, admit waiting ones (room in the cache for
//! all they may grow to is counted first), draft for every sequence whose
//! draft pays, run **one pass** of the base over the rows of all sequences
//! (newest tokens with their drafts, and a piece of a prompt that is being
//! read), settle and emit. A sequence that ends leaves what it has read under
//! its key for the next turn.
//!
//! # Invariants
//!
//! Each is a test of the same name in `tests/engine`.
//!
//! 1. One step, at most one model pass.
//! 2. Rows leave as soon as they finish; rows of different context length
//!    share a pass.
//! 3. A block is emitted only when settled; its keys and values are in the
//!    cache before the next block reads them.
//! 4. Cancelling mid-block leaves the cache as before the block.
//! 5. A request's tokens depend on its prompt and seed, not on its neighbours:
//!    a row's numbers are the same bit for bit whatever shares the pass, and
//!    each position has its own random number.
//! 6. Free and used pages add up; none is leaked after any cancel.
//! 7. At most one small read from the device per pass (on the CPU there is none).
//! 8. What cannot be honoured is refused at submit, never ignored.
//! 9. `verified` equals autoregressive: greedy token for token, sampled seed
//!    for seed.
//!
//! A panic inside a pass fails the sequence that caused it; the thread and the
//! other sequences go on.

pub mod cache;
pub mod model;
pub mod policy;
pub mod sampler;
pub mod weights;

mod guard;
mod handle;
mod sequence;
mod warmup;
mod worker;

pub use handle::{CacheUse, Counters, Engine, Info, Weights};

use tokio::sync::mpsc;

use crate::error::{Classify, Kind};

/// How tokens are chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodeParams {
    /// Most tokens to emit.
    pub max_tokens: u32,
    /// 0.0 is greedy. 0.0..=100.0.
    pub temperature: f32,
    /// The likeliest tokens that together have this probability are drawn from. Above 0.0, at most 1.0.
    pub top_p: f32,
    /// What the draws follow from; the same seed gives the same answer.
    pub seed: u64,
    /// Ids that end the sequence; the id itself is not emitted.
    pub stop: Vec<u32>,
    /// `false` decodes one token a pass without the drafter (for comparison).
    pub draft: bool,
}

/// One sequence to continue.
#[derive(Clone, Debug)]
pub struct Request {
    /// Token ids, at least one.
    pub prompt: Vec<u32>,
    /// How to continue.
    pub params: DecodeParams,
    /// What was read stays cached under this key for the next request of the
    /// same key; `None` keeps nothing.
    pub cache_key: Option<u64>,
}

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// A stop id came.
    Stop,
    /// As many tokens as were asked for, or as fit.
    Length,
    /// The loop guard saw an n-gram flood.
    Loop,
}

/// Counts of one sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeStats {
    /// Of the prompt.
    pub prompt_tokens: u32,
    /// Of the prompt, those that were cached.
    pub cached_tokens: u32,
    /// Emitted.
    pub tokens: u32,
    /// Base passes after the prompt.
    pub passes: u32,
    /// Drafted tokens that were checked.
    pub drafted: u32,
    /// Of these, those that the base agreed with.
    pub accepted: u32,
}

/// What a sequence emits, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenEvent {
    /// The prompt is read; the first block follows.
    Prefilled,
    /// Tokens settled by one pass, at least one.
    Block(Vec<u32>),
    /// The end; nothing follows.
    Done {
        /// Why.
        reason: StopReason,
        /// What it took.
        stats: DecodeStats,
    },
    /// The end by failure; nothing follows.
    Failed {
        /// What went wrong, for logs and clients.
        message: String,
    },
}

/// The caller's end of one sequence. Dropping it cancels within one pass.
#[derive(Debug)]
pub struct TokenStream {
    /// Events in order; ends after `Done` or `Failed`. Its capacity covers the
    /// whole answer, so the engine never waits for the reader.
    pub events: mpsc::Receiver<TokenEvent>,
}

/// Why the engine refuses or cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// As many are waiting as may.
    #[error("the engine's queue is full ({0} sequences)")]
    Busy(usize),
    /// The prompt leaves no room for an answer.
    #[error("the prompt has {tokens} tokens; the model reads at most {limit}")]
    TooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Most that it may have.
        limit: usize,
    },
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The engine's thread is gone.
    #[error("the engine has stopped")]
    Stopped,
    /// A weight file that cannot be used: names file and key.
    #[error("{0}")]
    Weights(String),
}

impl Classify for EngineError {
    fn kind(&self) -> Kind {
        match self {
            Self::Busy(_) => Kind::Capacity,
            Self::TooLong { .. } | Self::Invalid(_) => Kind::Client,
            Self::Weights(_) => Kind::Upstream,
            Self::Stopped => Kind::Bug,
        }
    }
}
