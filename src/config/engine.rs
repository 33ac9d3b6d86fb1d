//! The diffusion engine.

use serde::{Deserialize, Serialize};

use super::{Invalid, Section};

/// The diffusion engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Engine {
    /// Threads that compute; 0: as many as there are cores, at most 8. 0..=256.
    pub threads: usize,
    /// Sequences that are continued at the same time; further ones wait. 1..=256.
    pub max_sequences: usize,
    /// Sequences that may wait; one more is refused. 0..=10000.
    pub queue: usize,
    /// Tokens that a prompt and its answer may have together; the model's own limit counts too. 64..=1000000.
    pub context_tokens: usize,
    /// Tokens whose keys and values are held, of running sequences and between turns together. 64..=100000000.
    pub cache_tokens: usize,
    /// Rows of one pass; bounds how long a prompt holds up the others and a cancel. 8..=4096.
    pub pass_rows: usize,
    /// Whether the drafter is used when there is one.
    pub draft: bool,
    /// Tokens that are drafted right after a prompt, so that the first clause leaves early. 0..=64.
    pub first_block: usize,
    /// Tokens that are drafted later; the drafter's own limit counts too. 0..=64.
    pub block: usize,
    /// An answer ends when its last tokens, so many of them, are one phrase over and over; 0: never. 0..=10000.
    pub loop_tokens: usize,
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            threads: 0,
            max_sequences: 8,
            queue: 64,
            context_tokens: 8192,
            cache_tokens: 32_768,
            pass_rows: 64,
            draft: true,
            first_block: 3,
            block: 64,
            loop_tokens: 64,
        }
    }
}

impl Section for Engine {
    fn validate(&self) -> Result<(), Invalid> {
        let within = |key: &str, value: usize, range: std::ops::RangeInclusive<usize>| {
            range.contains(&value).then_some(()).ok_or_else(|| {
                Invalid::new(key, format!("must be from {} to {}", range.start(), range.end()))
            })
        };
        within("threads", self.threads, 0..=256)?;
        within("max_sequences", self.max_sequences, 1..=256)?;
        within("queue", self.queue, 0..=10_000)?;
        within("context_tokens", self.context_tokens, 64..=1_000_000)?;
        within("cache_tokens", self.cache_tokens, 64..=100_000_000)?;
        within("pass_rows", self.pass_rows, 8..=4096)?;
        within("first_block", self.first_block, 0..=64)?;
        within("block", self.block, 0..=64)?;
        within("loop_tokens", self.loop_tokens, 0..=10_000)
    }
}
