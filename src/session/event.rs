//! What a session tells its dialect. In order; a dialect may drop what its
//! protocol has no word for.

use super::command::Tag;
use super::ids::{CallId, ConversationId, ItemId, ResponseId, SessionId};
use super::item::Item;
use super::settings::{Modality, Settings};
use crate::error::Private;

/// How a response stands.
#[derive(Clone, Debug, PartialEq)]
pub enum ResponseStatus {
    InProgress,
    Completed,
    Cancelled(CancelReason),
    /// The token limit cut it.
    Incomplete,
    Failed {
        code: &'static str,
        message: String,
    },
}

/// Who cancelled a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// The caller spoke.
    TurnDetected,
    ClientCancelled,
}

/// Token counts of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub input_tokens: u32,
    pub cached_tokens: u32,
    pub output_tokens: u32,
}

/// A response as a whole, for its first and last event.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    pub id: ResponseId,
    pub status: ResponseStatus,
    /// Items without audio; filled as they are done.
    pub output: Vec<Item>,
    /// `None` out of band.
    pub conversation: Option<ConversationId>,
    pub modality: Modality,
    pub voice: String,
    pub max_output_tokens: Option<u32>,
    pub usage: Option<Usage>,
    pub metadata: Option<serde_json::Value>,
}

/// Where a content event belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    pub response: ResponseId,
    pub item: ItemId,
    pub output_index: u32,
    pub content_index: u32,
}

/// Why a command was not carried out. The session lives on.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection {
    /// Of the command that caused it.
    pub tag: Tag,
    pub code: RejectionCode,
    pub message: String,
    /// Path of the offending field.
    pub param: Option<String>,
}

/// The reasons clients switch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionCode {
    /// Nothing to cancel.
    ResponseCancelNotActive,
    /// The conversation has an active response.
    ActiveResponse,
    /// Commit of an empty buffer.
    CommitEmpty,
    DuplicateItem,
    ItemNotFound,
    InvalidValue,
    /// A part behind the session failed.
    Upstream,
    /// No room now.
    Capacity,
}

/// One turn's times, milliseconds from `speech_end` unless said otherwise;
/// `None` where the stage did not happen. The record behind the demo's waterfall.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Timeline {
    /// Length of what the caller said.
    pub speech_ms: Option<f64>,
    pub likely_ms: Option<f64>,
    pub final_ms: Option<f64>,
    pub transcript_ms: Option<f64>,
    pub prefill_ms: Option<f64>,
    pub first_block_ms: Option<f64>,
    pub first_clause_ms: Option<f64>,
    pub first_audio_ms: Option<f64>,
    /// First audible sample handed to the transport.
    pub first_audible_ms: Option<f64>,
    pub prompt_tokens: u32,
    pub cached_tokens: u32,
    pub tokens: u32,
    pub passes: u32,
}

/// The events.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Started {
        session: SessionId,
        conversation: ConversationId,
        settings: Settings,
    },
    Configured {
        settings: Settings,
    },
    Rejected(Rejection),
    /// A turn began. `at_ms`: offset in all audio received, padding included.
    SpeechStarted {
        item: ItemId,
        at_ms: u64,
    },
    SpeechStopped {
        item: ItemId,
        at_ms: u64,
    },
    /// Nobody spoke for the idle timeout.
    IdleTimeout {
        item: ItemId,
        start_ms: u64,
        end_ms: u64,
    },
    AudioCommitted {
        item: ItemId,
        previous: Option<ItemId>,
    },
    AudioCleared,
    ItemAdded {
        item: Item,
        previous: Option<ItemId>,
    },
    ItemDone {
        item: Item,
        previous: Option<ItemId>,
    },
    ItemRetrieved {
        item: Item,
    },
    ItemDeleted {
        item: ItemId,
    },
    ItemTruncated {
        item: ItemId,
        content_index: u32,
        audio_end_ms: u64,
    },
    /// The caller's words so far; the whole text, replacing the one before.
    TranscriptPartial {
        item: ItemId,
        text: Private<String>,
    },
    TranscriptDone {
        item: ItemId,
        text: Private<String>,
        seconds: f64,
    },
    TranscriptFailed {
        item: ItemId,
        message: String,
    },
    ResponseCreated(Response),
    OutputItemAdded {
        response: ResponseId,
        output_index: u32,
        item: Item,
    },
    OutputItemDone {
        response: ResponseId,
        output_index: u32,
        item: Item,
    },
    /// `modality` says whether the part is audio or text.
    PartAdded {
        at: At,
        modality: Modality,
    },
    PartDone {
        at: At,
        modality: Modality,
        text: Private<String>,
    },
    /// Text of a text part, or transcript of an audio part. `tokens` settled together (0: unknown).
    TextDelta {
        at: At,
        modality: Modality,
        delta: Private<String>,
        tokens: u32,
    },
    TextDone {
        at: At,
        modality: Modality,
        text: Private<String>,
    },
    /// Mono samples at [`crate::audio::SPEAKING_RATE`].
    AudioDelta {
        at: At,
        samples: Vec<f32>,
    },
    AudioDone {
        at: At,
    },
    ArgumentsDelta {
        at: At,
        call: CallId,
        delta: String,
    },
    ArgumentsDone {
        at: At,
        call: CallId,
        name: String,
        arguments: String,
    },
    ResponseDone(Response),
    /// Whatever is queued for playback must be dropped now.
    OutputCleared {
        response: ResponseId,
    },
    /// After the turn's answer: how long each stage took.
    TurnMeasured {
        response: ResponseId,
        timeline: Timeline,
    },
    /// The session ends; the transport closes after it.
    Ended {
        reason: EndReason,
    },
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The client left.
    Closed,
    /// The session's time limit.
    Expired,
    /// The server is shutting down.
    Draining,
    /// A part broke; the server lives on.
    Failed,
}
