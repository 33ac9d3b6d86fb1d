//! Words to words.
//!
//! Owns: the chat template, tokenisation, incremental detokenising, tool-call
//! parsing, the [`Generator`] seam. Must not know: audio, sessions, protocols.

pub mod generator;
pub mod prompt;
pub mod scripted;
pub mod text;
pub mod tokenizer;
pub mod tools;
pub mod vocabulary;
mod writer;

use tokio::sync::mpsc;

use crate::error::{Classify, Kind, Private};

/// Who said a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    System,
    User,
    Assistant,
    /// The answer of a tool.
    Tool,
}

/// One message of the prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub role: Role,
    pub text: Private<String>,
    /// Calls the assistant made in this message.
    pub tool_calls: Vec<ToolCall>,
    /// For [`Role::Tool`]: which call it answers.
    pub tool_call_id: Option<String>,
}

impl Message {
    /// A message that is only text.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, text: Private::new(text.into()), tool_calls: Vec::new(), tool_call_id: None }
    }
}

/// A call of a tool, as the model wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// A JSON object, as text.
    pub arguments: String,
}

/// A tool the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub name: String,
    pub description: Option<String>,
    /// JSON schema of the arguments.
    pub parameters: serde_json::Value,
}

/// Which tools the model may or must call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    #[default]
    Auto,
    None,
    Required,
    Named(String),
}

/// Sampling and length.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// Most tokens to write; `None`: the model's default for speech.
    pub max_tokens: Option<u32>,
    /// 0.0 is greedy.
    pub temperature: f32,
    pub top_p: f32,
    pub seed: u64,
    /// The answer ends before the first of these; empty ones mean nothing.
    pub stop: Vec<String>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self { max_tokens: None, temperature: 0.0, top_p: 1.0, seed: 0, stop: Vec::new() }
    }
}

/// Everything one answer is made from.
#[derive(Clone, Debug)]
pub struct GenerationRequest {
    /// Requests with the same key share a cache between turns (one key a
    /// conversation); `None` keeps nothing.
    pub cache_key: Option<u64>,
    pub messages: Vec<Message>,
    pub tools: Vec<Tool>,
    pub tool_choice: ToolChoice,
    pub params: SamplingParams,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    Stop,
    Length,
    ToolCalls,
    /// The loop guard ended it.
    Loop,
}

/// Counts of one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GenerationUsage {
    pub prompt_tokens: u32,
    /// Prompt tokens that were already in the session's cache.
    pub cached_tokens: u32,
    pub completion_tokens: u32,
    /// Model passes over the base after the prompt (tokens per pass = completion / passes).
    pub passes: u32,
}

/// What comes out of a generation, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum GenerationEvent {
    /// The prompt is in the cache; the first block follows.
    Prefilled,
    /// Newly settled text, never cut inside a character; `tokens` settled in this pass.
    Text { delta: Private<String>, tokens: u32 },
    /// A whole tool call.
    ToolCall(ToolCall),
    /// The end; nothing follows.
    Done { reason: FinishReason, usage: GenerationUsage },
    /// The end by failure; nothing follows.
    Failed { message: String },
}

/// Starts generations; shared by all sessions.
pub trait Generator: Send + Sync + 'static {
    /// Starts an answer. Never blocks on the model.
    ///
    /// # Errors
    /// What cannot be honoured is refused here, never ignored later.
    fn start(
        &self,
        request: GenerationRequest,
        events: mpsc::Sender<GenerationEvent>,
    ) -> Result<Box<dyn Generation>, LlmError>;

    /// Reads the beginning of a conversation (its system message and tools)
    /// ahead, so that its first answer comes sooner. A hint: nothing is
    /// reported, and doing nothing is allowed.
    fn prime(&self, messages: &[Message], tools: &[Tool]) {
        let _ = (messages, tools);
    }

    /// Forgets the cache kept under this key.
    fn forget(&self, cache_key: u64);

    /// Name of the model, as shown to clients.
    fn model(&self) -> &str;
}

/// An answer being written. Dropping it cancels within one model pass.
pub trait Generation: Send {}

/// Why an answer cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LlmError {
    /// Queue full.
    #[error("the language model is busy")]
    Busy,
    /// The prompt does not fit the context.
    #[error("the conversation has {tokens} tokens; the model reads at most {limit}")]
    TooLong { tokens: usize, limit: usize },
    /// Something in the request cannot be done.
    #[error("{0}")]
    Invalid(String),
    /// The model cannot be loaded or failed.
    #[error("language model: {0}")]
    Model(String),
}

impl Classify for LlmError {
    fn kind(&self) -> Kind {
        match self {
            Self::Busy => Kind::Capacity,
            Self::TooLong { .. } | Self::Invalid(_) => Kind::Client,
            Self::Model(_) => Kind::Upstream,
        }
    }
}
