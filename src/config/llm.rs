//! The language model and its prompt.

use serde::{Deserialize, Serialize};

use super::{Invalid, Section};

/// The language model and its prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Llm {
    /// The model in the store: a folder with `model.gguf`.
    pub model: String,
    /// Most tokens of one answer where the client sets no limit: 256 are more than a minute of speech. 1..=32768.
    pub max_tokens: u32,
    /// Most tokens of a conversation, prompt and answer; the model's own limit holds too. Each costs
    /// memory for as long as the conversation lasts. 256..=1000000.
    pub context_tokens: usize,
    /// Whether the oldest messages are left out when a conversation outgrows its context; otherwise the answer is refused.
    pub truncate: bool,
    /// How often the same sentence may come in a row before the answer is ended. 2..=100.
    pub max_repeats: u32,
}

impl Default for Llm {
    fn default() -> Self {
        Self {
            model: "qwen2.5-coder-0.5b-instruct".to_owned(),
            max_tokens: 256,
            context_tokens: 4_096,
            truncate: true,
            max_repeats: 3,
        }
    }
}

impl Section for Llm {
    fn validate(&self) -> Result<(), Invalid> {
        if self.model.trim().is_empty() {
            return Err(Invalid::new("model", "must name a model"));
        }
        if !(1..=32_768).contains(&self.max_tokens) {
            return Err(Invalid::new("max_tokens", "must be from 1 to 32768"));
        }
        if !(256..=1_000_000).contains(&self.context_tokens) {
            return Err(Invalid::new("context_tokens", "must be from 256 to 1000000"));
        }
        if !(2..=100).contains(&self.max_repeats) {
            return Err(Invalid::new("max_repeats", "must be from 2 to 100"));
        }
        Ok(())
    }
}
