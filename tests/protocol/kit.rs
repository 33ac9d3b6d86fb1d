//! A codec at hand, and what is asked of it.

use serde_json::{Value, json};
use voluble::protocol::openai::realtime::config::Shown;
use voluble::protocol::openai::realtime::{Realtime, Start, set_kind, turn_detection};
use voluble::protocol::{Decoded, Dialect as _};
use voluble::session::command::CommandKind;
use voluble::session::event::Event;
use voluble::session::settings::{Modality, SessionKind, Settings, ToolChoice};
use voluble::transport::wire::WireMsg;

/// Settings of a plain session.
pub fn settings() -> Settings {
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

/// A codec whose session has started.
pub struct Codec {
    pub dialect: Realtime,
}

impl Codec {
    pub fn new() -> Self {
        Self::with(settings(), false)
    }

    pub fn transcription() -> Self {
        let mut settings = settings();
        set_kind(&mut settings, SessionKind::Transcription);
        Self::with(settings, false)
    }

    pub fn with(settings: Settings, extensions: bool) -> Self {
        let shown = Shown { extensions, ..Shown::new("gpt-realtime") };
        let dialect = Realtime::new(Start {
            settings: settings.clone(),
            shown,
            tag: "t".to_owned(),
            expires_at: 1_800_000_000,
            max_seconds: 3600,
        });
        let mut codec = Self { dialect };
        codec.says(&Event::Started { session: "sess_1".into(), conversation: "conv_1".into(), settings });
        codec
    }

    pub fn hears(&mut self, event: &Value) -> Decoded {
        self.hears_text(&event.to_string())
    }

    pub fn hears_text(&mut self, text: &str) -> Decoded {
        self.dialect.decode(WireMsg::Text(text.to_owned()))
    }

    /// The commands of an event that must be accepted.
    pub fn accepts(&mut self, event: &Value) -> Vec<CommandKind> {
        let decoded = self.hears(event);
        assert_eq!(decoded.replies, [], "{event}");
        decoded.commands.into_iter().map(|command| command.kind).collect()
    }

    /// The one command of an event that must be accepted.
    pub fn one(&mut self, event: &Value) -> CommandKind {
        let mut commands = self.accepts(event);
        assert_eq!(commands.len(), 1, "{event}: {commands:?}");
        commands.remove(0)
    }

    /// The error of an event that must be refused.
    pub fn refuses(&mut self, event: &Value) -> Value {
        let decoded = self.hears(event);
        assert_eq!(decoded.commands, [], "{event}");
        the_error(&decoded.replies)
    }

    /// The server events of a session event.
    pub fn says(&mut self, event: &Event) -> Vec<Value> {
        self.dialect.encode(event).iter().map(json).collect()
    }
}

/// The `error` of the one reply.
pub fn the_error(replies: &[WireMsg]) -> Value {
    let [reply] = replies else { panic!("one reply, not {replies:?}") };
    let reply = json(reply);
    assert_eq!(reply["type"], json!("error"));
    assert!(reply["event_id"].as_str().is_some_and(|id| id.starts_with("event_")));
    for key in ["type", "code", "message", "param", "event_id"] {
        assert!(reply["error"].get(key).is_some(), "{key} is missing in {reply}");
    }
    reply["error"].clone()
}

/// A text message as JSON; a close as `{"close": code, "reason": ...}`.
pub fn json(message: &WireMsg) -> Value {
    match message {
        WireMsg::Text(text) => serde_json::from_str(text).expect("server events are JSON"),
        WireMsg::Close { code, reason } => json!({"close": code, "reason": reason}),
        WireMsg::Binary(_) => panic!("no server event is binary"),
    }
}
