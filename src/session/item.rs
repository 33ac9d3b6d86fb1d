//! Conversation items: what is in the history, dialect-neutral.

use super::ids::{CallId, ItemId};
use crate::error::Private;
pub use crate::llm::Role;

/// Whether an item is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemStatus {
    InProgress,
    Completed,
    /// Cut short: by barge-in, cancel or the token limit.
    Incomplete,
}

/// One part of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Text typed by the user or given by the system.
    InputText(Private<String>),
    /// What the user said. `transcript` is `None` until it is recognised. `audio`
    /// is kept so that it can be retrieved (mono, [`crate::audio::HEARING_RATE`]).
    InputAudio { transcript: Option<Private<String>>, audio: std::sync::Arc<Vec<f32>> },
    /// Text of the agent.
    OutputText(Private<String>),
    /// Speech of the agent: what was said so far, or, after a truncation, the words heard.
    OutputAudio { transcript: Private<String> },
}

/// What an item is.
#[derive(Clone, Debug, PartialEq)]
pub enum ItemKind {
    Message { role: Role, parts: Vec<Part> },
    FunctionCall { name: String, call_id: CallId, arguments: String },
    FunctionCallOutput { call_id: CallId, output: Private<String> },
}

/// An item of the conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    pub id: ItemId,
    pub status: ItemStatus,
    pub kind: ItemKind,
}

/// Where a new item goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// After the last item.
    #[default]
    End,
    /// Before the first.
    Root,
    After(ItemId),
}
