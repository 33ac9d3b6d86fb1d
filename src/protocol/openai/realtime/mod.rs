//! OpenAI Realtime, GA, over WebSocket.
//!
//! Owns: reading the client's events ([`decode`]), wording the server's
//! ([`encode`]), the session object ([`object`], [`config`]), items
//! ([`item`]), responses ([`response`]), audio formats ([`mod@format`]). Keeps only
//! what the wire needs: formats and their filters, values that are shown back,
//! the number of the next event. Where the configuration is concerned it holds
//! the settings last seen, because an update is merged into them.
//!
//! Lenient where clients differ: unknown fields are left out, the beta's names
//! are read, fractions of milliseconds are cut. Strict where silence would
//! hide a fault: types, ranges, what this server cannot do.
//!
//! Own extension, sent only when asked for (`?voluble=1` or `session.voluble`):
//! `voluble.block` (text that settled in one model pass, with its token
//! count) and `voluble.turn.measured` (the turn's timeline).

pub mod config;
mod decode;
mod encode;
pub mod fields;
pub mod format;
pub mod item;
pub mod object;
pub mod rejection;
pub mod response;
pub mod secret;
mod transcript;
pub mod turn_detection;

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use config::Shown;
use fields::{Fault, Fields};
use format::{Format, InputStream, OutputStream};
use transcript::Transcripts;

use super::super::{Decoded, Dialect};
use super::error::ApiError;
use crate::error::Kind;
use crate::session::event::Event;
use crate::session::ids::{ItemId, ResponseId};
use crate::session::settings::{SessionKind, Settings};
use crate::transport::wire::{self, WireMsg};

/// What a connection begins with.
#[derive(Clone, Debug)]
pub struct Start {
    /// The session's settings at its start.
    pub settings: Settings,
    /// The wire's values at its start.
    pub shown: Shown,
    /// Random part of this connection's event ids.
    pub tag: String,
    /// When the session will be ended, Unix seconds.
    pub expires_at: u64,
    /// The session's time limit, for the text of its error.
    pub max_seconds: u64,
}

/// The codec of one connection.
#[derive(Debug)]
pub struct Realtime {
    settings: Settings,
    shown: Shown,
    id: String,
    tag: String,
    expires_at: u64,
    max_seconds: u64,
    events: u64,
    input: InputStream,
    /// What each update that the session has not answered yet was made over.
    before: VecDeque<(Settings, Shown)>,
    transcripts: Transcripts,
    formats: HashMap<ResponseId, Format>,
    outputs: HashMap<(ResponseId, ItemId), OutputStream>,
}

impl Realtime {
    /// A codec at the start of a connection.
    pub fn new(start: Start) -> Self {
        Self {
            input: InputStream::new(start.shown.input),
            settings: start.settings,
            shown: start.shown,
            id: String::new(),
            tag: start.tag,
            expires_at: start.expires_at,
            max_seconds: start.max_seconds,
            events: 0,
            before: VecDeque::new(),
            transcripts: Transcripts::default(),
            formats: HashMap::new(),
            outputs: HashMap::new(),
        }
    }

    /// What a client whose session was refused is told: an error event, then a close.
    pub fn refuse(&mut self, error: &ApiError) -> Vec<WireMsg> {
        vec![self.error(error, None), encode::close(error.kind.row().close_code, &error.message)]
    }

    /// The session object as it stands.
    pub fn session_object(&self) -> Value {
        object::session(&self.id, &self.settings, &self.shown, self.expires_at)
    }

    fn next_event_id(&mut self) -> String {
        self.events += 1;
        format!("event_{}{:06}", self.tag, self.events)
    }

    fn max_session_minutes(&self) -> u64 {
        self.max_seconds.div_ceil(60)
    }
}

impl Dialect for Realtime {
    fn decode(&mut self, message: WireMsg) -> Decoded {
        self.read(message)
    }

    fn encode(&mut self, event: &Event) -> Vec<WireMsg> {
        self.write(event)
    }

    fn fault(&mut self, fault: wire::Fault) -> Vec<WireMsg> {
        let (code, error) = match fault {
            wire::Fault::TooLarge { size, max } => (
                1009,
                ApiError::client(
                    "message_too_large",
                    format!("A message of {size} bytes was sent; at most {max} bytes are taken."),
                ),
            ),
            wire::Fault::Idle { seconds } => (
                1001,
                ApiError {
                    kind: Kind::Timeout,
                    code: Some("connection_idle"),
                    message: format!("Nothing was received for {seconds} s."),
                    param: None,
                },
            ),
        };
        vec![self.error(&error, None), encode::close(code, &error.message)]
    }
}

/// Reads a whole session configuration (of a client secret, of the legacy
/// endpoints) over the server's defaults.
///
/// # Errors
/// The first fault, with paths under `session`.
pub fn configure(session: &Value, mut settings: Settings, shown: Shown) -> Result<(Settings, Shown), Fault> {
    let fields = Fields::new(session, "session")?;
    if let Some(kind) = fields.choice("type", &config::KINDS)? {
        set_kind(&mut settings, kind);
    }
    let (patch, shown) = config::read(&fields, &settings, &shown)?;
    settings.apply(patch);
    Ok((settings, shown))
}

/// Makes these the settings of a session of this kind: a transcription session
/// always reports its transcripts.
pub fn set_kind(settings: &mut Settings, kind: SessionKind) {
    settings.kind = kind;
    if kind == SessionKind::Transcription && settings.transcription.is_none() {
        settings.transcription = Some(Default::default());
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::session::settings::{Modality, ToolChoice};

    /// Settings of a plain session.
    pub(crate) fn settings() -> Settings {
        Settings {
            kind: SessionKind::Conversation,
            instructions: "Be kind.".to_owned(),
            modality: Modality::Audio,
            turn_detection: turn_detection::SERVER_VAD,
            transcription: None,
            voice: "joe".to_owned(),
            speed: 1.0,
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            max_output_tokens: None,
            temperature: 0.0,
        }
    }
}
