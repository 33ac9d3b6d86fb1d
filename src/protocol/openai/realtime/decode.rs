//! Client events to commands.

use serde_json::Value;

use super::Realtime;
use super::config::{self, KINDS, Shown, kind_name};
use super::fields::{Fault, Fields, invalid, missing, unsupported};
use super::format::{InputStream, from_base64};
use super::item;
use super::rejection::Verb;
use super::response;
use crate::protocol::Decoded;
use crate::session::command::{Command, CommandKind, ResponseParams};
use crate::session::ids::{ItemId, ResponseId};
use crate::session::item::Place;
use crate::session::settings::SessionKind;
use crate::transport::wire::WireMsg;

/// Longest `event_id` that is echoed.
const MAX_EVENT_ID: usize = 512;

/// Client events by name.
const EVENTS: [(&str, Verb); 12] = [
    ("session.update", Verb::Update),
    ("input_audio_buffer.append", Verb::Append),
    ("input_audio_buffer.commit", Verb::Commit),
    ("input_audio_buffer.clear", Verb::Clear),
    ("conversation.item.create", Verb::Create),
    ("conversation.item.retrieve", Verb::Retrieve),
    ("conversation.item.truncate", Verb::Truncate),
    ("conversation.item.delete", Verb::Delete),
    ("response.create", Verb::Respond),
    ("response.cancel", Verb::Cancel),
    ("output_audio_buffer.clear", Verb::ClearOutput),
    // The beta's name of `session.update` in transcription sessions.
    ("transcription_session.update", Verb::Update),
];

impl Realtime {
    /// Reads one message; what cannot be read becomes an error reply.
    pub(super) fn read(&mut self, message: WireMsg) -> Decoded {
        let text = match message {
            WireMsg::Text(text) => text,
            WireMsg::Binary(_) => {
                let why =
                    "Events are JSON in text frames; audio goes as base64 in input_audio_buffer.append.";
                return self.refused(&Fault::client("invalid_event", why), None);
            }
            WireMsg::Close { .. } => return Decoded::default(),
        };
        let value: Value = match serde_json::from_str(&text) {
            Ok(value) => value,
            Err(error) => {
                let why = format!("The message is not valid JSON: {error}.");
                return self.refused(&Fault::client("invalid_event", why), None);
            }
        };
        let tag = value.get("event_id").and_then(Value::as_str).map(str::to_owned);
        match self.client_event(&value) {
            Ok((verb, kinds)) => {
                let tag = verb.tag(tag.as_deref());
                let command = |kind| Command { tag: Some(tag.clone()), kind };
                Decoded { commands: kinds.into_iter().map(command).collect(), replies: Vec::new() }
            }
            Err(fault) => self.refused(&fault, tag.as_deref()),
        }
    }

    fn refused(&mut self, fault: &Fault, tag: Option<&str>) -> Decoded {
        Decoded { commands: Vec::new(), replies: vec![self.error(fault, tag)] }
    }

    fn client_event(&mut self, value: &Value) -> Result<(Verb, Vec<CommandKind>), Fault> {
        let fields = Fields::new(value, "")?;
        let id = fields.string("event_id")?.unwrap_or_default();
        if id.len() > MAX_EVENT_ID {
            return Err(invalid("event_id", "Expected at most 512 characters."));
        }
        let Some(name) = fields.string("type")? else {
            return Err(Fault::client("invalid_event", "The 'type' field is missing.").at("type"));
        };
        let Some((_, verb)) = EVENTS.iter().find(|(known, _)| *known == name) else {
            let known = EVENTS.iter().map(|(known, _)| *known).take(11);
            return Err(unsupported("type", name, known));
        };
        Ok((*verb, self.commands(*verb, name, &fields)?))
    }

    fn commands(&mut self, verb: Verb, name: &str, fields: &Fields<'_>) -> Result<Vec<CommandKind>, Fault> {
        let kind = match verb {
            Verb::Update => self.update(name, fields)?,
            Verb::Append => {
                let bytes = from_base64(fields.need_string("audio")?, "audio")?;
                let samples = self.input.push(&bytes);
                if samples.is_empty() {
                    return Ok(Vec::new());
                }
                CommandKind::AppendAudio(samples)
            }
            Verb::Commit => {
                // What the filter still holds belongs to this turn.
                let rest = self.input.flush();
                let append = (!rest.is_empty()).then_some(CommandKind::AppendAudio(rest));
                return Ok(append.into_iter().chain([CommandKind::CommitAudio]).collect());
            }
            Verb::Clear => {
                self.input.flush();
                CommandKind::ClearAudio
            }
            Verb::Create => CommandKind::CreateItem {
                item: item::read(&fields.need_object("item")?, self.shown.input)?,
                place: match item::item_id(fields, "previous_item_id")? {
                    None => Place::End,
                    Some(id) if id.as_str() == "root" => Place::Root,
                    Some(id) => Place::After(id),
                },
            },
            Verb::Retrieve => CommandKind::RetrieveItem(need_id(fields)?),
            Verb::Delete => CommandKind::DeleteItem(need_id(fields)?),
            Verb::Truncate => CommandKind::TruncateItem {
                item: need_id(fields)?,
                content_index: fields.integer("content_index", 0..=u32::MAX)?.unwrap_or_default(),
                audio_end_ms: fields.millis("audio_end_ms")?.ok_or_else(|| missing("audio_end_ms"))?,
            },
            Verb::Respond if self.settings.kind == SessionKind::Transcription => {
                return Err(Fault::client(
                    "invalid_event",
                    "A transcription session makes no responses; open a session of type 'realtime' for them.",
                )
                .at("type"));
            }
            Verb::Respond => CommandKind::CreateResponse(match fields.object("response")? {
                Some(response) => response::read(&response, &self.shown)?,
                None => ResponseParams::default(),
            }),
            Verb::Cancel => CommandKind::CancelResponse(fields.string("response_id")?.map(ResponseId::from)),
            Verb::ClearOutput => CommandKind::ClearOutput,
        };
        Ok(vec![kind])
    }

    fn update(&mut self, name: &str, fields: &Fields<'_>) -> Result<CommandKind, Fault> {
        let session = fields.need_object("session")?;
        let beta = name == "transcription_session.update";
        match session.choice("type", &KINDS)? {
            None if beta && self.settings.kind == SessionKind::Transcription => {}
            None => return Err(missing("session.type")),
            Some(kind) if kind == self.settings.kind => {}
            Some(kind) => {
                let why = format!(
                    "This is a {} session; its type cannot be changed to {}.",
                    kind_name(self.settings.kind),
                    kind_name(kind)
                );
                return Err(invalid("session.type", &why));
            }
        }
        let (patch, shown) = config::read(&session, &self.settings, &self.shown)?;
        self.before.push_back((self.settings.clone(), self.shown.clone()));
        self.show(shown);
        self.settings.apply(patch.clone());
        Ok(CommandKind::Configure(patch))
    }

    fn show(&mut self, shown: Shown) {
        if shown.input != self.input.format() {
            self.input = InputStream::new(shown.input);
        }
        self.shown = shown;
    }

    /// The session refused the oldest update that was open: it never was.
    pub(super) fn take_back(&mut self) {
        if let Some((settings, shown)) = self.before.pop_front() {
            self.settings = settings;
            self.show(shown);
        }
    }
}

fn need_id(fields: &Fields<'_>) -> Result<ItemId, Fault> {
    item::item_id(fields, "item_id")?.ok_or_else(|| missing("item_id"))
}
