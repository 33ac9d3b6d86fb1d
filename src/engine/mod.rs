//! Tokens to tokens: block decoding of a diffusion-drafted language model.
//!
//! Owns: sequences, blocks, schedule, cache, the device thread. Must not know:
//! text, roles, chat, audio.

use tokio::sync::mpsc;

use crate::error::{Classify, Kind};

/// How tokens are chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodeParams {
    /// Most tokens to emit.
    pub max_tokens: u32,
    /// 0.0 is greedy.
    pub temperature: f32,
    pub top_p: f32,
    pub seed: u64,
    /// Ids that end the sequence; the id itself is not emitted.
    pub stop: Vec<u32>,
    /// `false` decodes one token a pass without the drafter (for comparison).
    pub draft: bool,
}

/// One sequence to continue.
#[derive(Clone, Debug)]
pub struct Request {
    pub prompt: Vec<u32>,
    pub params: DecodeParams,
    /// Requests with the same key reuse each other's cached prefix.
    pub cache_key: Option<u64>,
}

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    Stop,
    Length,
    /// The loop guard saw an n-gram flood.
    Loop,
}

/// Counts of one sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeStats {
    pub prompt_tokens: u32,
    pub cached_tokens: u32,
    pub tokens: u32,
    /// Base passes after the prompt.
    pub passes: u32,
    pub drafted: u32,
    pub accepted: u32,
}

/// What a sequence emits, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenEvent {
    Prefilled,
    /// Tokens settled by one pass, at least one.
    Block(Vec<u32>),
    Done {
        reason: StopReason,
        stats: DecodeStats,
    },
    Failed {
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
    #[error("the engine's queue is full ({0} sequences)")]
    Busy(usize),
    #[error("the prompt has {tokens} tokens; the model reads at most {limit}")]
    TooLong { tokens: usize, limit: usize },
    #[error("{0}")]
    Invalid(String),
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
        }
    }
}
