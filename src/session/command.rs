//! What a dialect may ask of a session.

use super::ids::{ItemId, ResponseId};
use super::item::{Item, Place};
use super::settings::SettingsPatch;

/// A client's own name for a command; errors echo it.
pub type Tag = Option<String>;

/// A command with the client's tag.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    pub tag: Tag,
    pub kind: CommandKind,
}

/// Where a response writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResponseScope {
    /// The conversation: one at a time.
    #[default]
    Conversation,
    /// Nowhere: several may run beside each other; nothing enters history.
    OutOfBand,
}

/// What a response is made from, where it differs from the session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResponseParams {
    pub scope: ResponseScope,
    /// Replaces the history as the prompt.
    pub input: Option<Vec<InputItem>>,
    /// Settings for this response alone.
    pub overrides: SettingsPatch,
    /// Opaque to the session, echoed in every [`super::event::Response`].
    pub metadata: Option<serde_json::Value>,
}

/// An item of [`ResponseParams::input`].
#[derive(Clone, Debug, PartialEq)]
pub enum InputItem {
    Item(Item),
    Reference(ItemId),
}

/// How far the far end has played what it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlayedTo {
    /// Milliseconds of this response's audio that were heard.
    pub ms: u64,
}

/// The commands.
#[derive(Clone, Debug, PartialEq)]
pub enum CommandKind {
    Configure(SettingsPatch),
    /// Mono samples at [`crate::audio::HEARING_RATE`].
    AppendAudio(Vec<f32>),
    /// Ends the turn by hand.
    CommitAudio,
    ClearAudio,
    /// An empty [`ItemId`] is filled in by the session.
    CreateItem {
        item: Item,
        place: Place,
    },
    RetrieveItem(ItemId),
    DeleteItem(ItemId),
    TruncateItem {
        item: ItemId,
        content_index: u32,
        audio_end_ms: u64,
    },
    CreateResponse(ResponseParams),
    /// `None`: the conversation's active response.
    CancelResponse(Option<ResponseId>),
    /// Drop what is queued for playback at the far end (transports that own the playout buffer).
    ClearOutput,
    /// Playback position reported by the far end.
    Played(ResponseId, PlayedTo),
}
