//! Session events to server events.

use serde_json::{Value, json};

use super::Realtime;
use super::format::OutputStream;
use super::item::{self, Sound};
use super::rejection::{self, Verb};
use super::response::{self, Envelope};
use crate::error::Kind;
use crate::protocol::openai::error::ApiError;
use crate::session::event::{At, EndReason, Event, Response};
use crate::session::ids::{CallId, ItemId};
use crate::session::item::Item;
use crate::session::settings::{Modality, SessionKind, Settings};
use crate::transport::wire::WireMsg;

impl Realtime {
    /// Words one event.
    pub(super) fn write(&mut self, event: &Event) -> Vec<WireMsg> {
        match event {
            Event::Started { session, conversation, settings } => {
                self.id = session.as_str().to_owned();
                self.settings = settings.clone();
                let mut out = vec![self.session_event("session.created")];
                if settings.kind == SessionKind::Conversation {
                    let object = json!({"id": conversation, "object": "realtime.conversation"});
                    out.push(self.event("conversation.created", json!({"conversation": object})));
                }
                out
            }
            Event::Configured { settings } => self.configured(settings),
            Event::Rejected(rejected) => {
                let (error, verb, tag) = rejection::error(rejected);
                if verb == Some(Verb::Update) {
                    self.take_back();
                }
                vec![self.error(&error, tag)]
            }
            Event::Ended { reason } => self.ended(*reason),
            Event::SpeechStarted { .. }
            | Event::SpeechStopped { .. }
            | Event::IdleTimeout { .. }
            | Event::AudioCommitted { .. }
            | Event::AudioCleared
            | Event::TranscriptPartial { .. }
            | Event::TranscriptDone { .. }
            | Event::TranscriptFailed { .. } => self.heard(event),
            Event::ItemAdded { .. }
            | Event::ItemDone { .. }
            | Event::ItemRetrieved { .. }
            | Event::ItemDeleted { .. }
            | Event::ItemTruncated { .. } => self.conversation(event),
            _ => self.answered(event),
        }
    }

    fn configured(&mut self, settings: &Settings) -> Vec<WireMsg> {
        self.before.pop_front();
        if self.before.is_empty() {
            self.settings = settings.clone();
            return vec![self.session_event("session.updated")];
        }
        // Later updates are on their way: this answer shows the session before them.
        let later = std::mem::replace(&mut self.settings, settings.clone());
        let updated = self.session_event("session.updated");
        self.settings = later;
        vec![updated]
    }

    fn session_event(&mut self, name: &str) -> WireMsg {
        let session = self.session_object();
        self.event(name, json!({"session": session}))
    }

    fn ended(&mut self, reason: EndReason) -> Vec<WireMsg> {
        let minutes = self.max_session_minutes();
        let (error, code, why) = match reason {
            EndReason::Closed => return vec![close(1000, "closed")],
            EndReason::Expired => {
                let why = format!("Your session hit the maximum duration of {minutes} minutes.");
                (ApiError::client("session_expired", why.clone()), 1001, why)
            }
            EndReason::Draining => return vec![close(1001, "the server is shutting down")],
            EndReason::Failed => {
                let why = "The session ended because of an internal error.".to_owned();
                let error = ApiError {
                    kind: Kind::Bug,
                    code: Some("server_error"),
                    message: why.clone(),
                    param: None,
                };
                (error, 1011, why)
            }
        };
        vec![self.error(&error, None), close(code, &why)]
    }

    /// Events of the caller's audio.
    fn heard(&mut self, event: &Event) -> Vec<WireMsg> {
        const DELTA: &str = "conversation.item.input_audio_transcription.delta";
        let (name, fields) = match event {
            Event::SpeechStarted { item, at_ms } => {
                ("input_audio_buffer.speech_started", json!({"audio_start_ms": at_ms, "item_id": item}))
            }
            Event::SpeechStopped { item, at_ms } => {
                ("input_audio_buffer.speech_stopped", json!({"audio_end_ms": at_ms, "item_id": item}))
            }
            Event::IdleTimeout { item, start_ms, end_ms } => (
                "input_audio_buffer.timeout_triggered",
                json!({"audio_start_ms": start_ms, "audio_end_ms": end_ms, "item_id": item}),
            ),
            Event::AudioCommitted { item, previous } => {
                ("input_audio_buffer.committed", json!({"previous_item_id": previous, "item_id": item}))
            }
            Event::AudioCleared => ("input_audio_buffer.cleared", json!({})),
            Event::TranscriptPartial { item, text } => match self.transcripts.partial(item, text.expose()) {
                Some(delta) => (DELTA, json!({"item_id": item, "content_index": 0, "delta": delta})),
                None => return Vec::new(),
            },
            Event::TranscriptDone { item, text, seconds } => {
                let mut out = Vec::new();
                if let Some(delta) = self.transcripts.done(item, text.expose()) {
                    out.push(self.event(DELTA, json!({"item_id": item, "content_index": 0, "delta": delta})));
                }
                out.push(self.event(
                    "conversation.item.input_audio_transcription.completed",
                    json!({
                        "item_id": item,
                        "content_index": 0,
                        "transcript": text.expose(),
                        "usage": {"type": "duration", "seconds": seconds},
                        "logprobs": null,
                    }),
                ));
                return out;
            }
            Event::TranscriptFailed { item, message } => {
                self.transcripts.forget(item);
                (
                    "conversation.item.input_audio_transcription.failed",
                    json!({
                        "item_id": item,
                        "content_index": 0,
                        // No nulls here: the Agents SDK takes only texts.
                        "error": {"type": "transcription_error", "code": "transcription_failed", "message": message},
                    }),
                )
            }
            _ => return Vec::new(),
        };
        vec![self.event(name, fields)]
    }

    /// Events of the conversation's items.
    fn conversation(&mut self, event: &Event) -> Vec<WireMsg> {
        let placed = |item: &Item, previous: &Option<ItemId>| json!({"previous_item_id": previous, "item": item::object(item, Sound::Without)});
        let (name, fields) = match event {
            Event::ItemAdded { item, previous } => ("conversation.item.added", placed(item, previous)),
            Event::ItemDone { item, previous } => ("conversation.item.done", placed(item, previous)),
            Event::ItemRetrieved { item } => (
                "conversation.item.retrieved",
                json!({"item": item::object(item, Sound::In(self.shown.input))}),
            ),
            Event::ItemDeleted { item } => ("conversation.item.deleted", json!({"item_id": item})),
            Event::ItemTruncated { item, content_index, audio_end_ms } => (
                "conversation.item.truncated",
                json!({"item_id": item, "content_index": content_index, "audio_end_ms": audio_end_ms}),
            ),
            _ => return Vec::new(),
        };
        vec![self.event(name, fields)]
    }

    /// Events of responses.
    fn answered(&mut self, event: &Event) -> Vec<WireMsg> {
        let item_fields = |response, output_index, item| json!({"response_id": response, "output_index": output_index, "item": item::object(item, Sound::Without)});
        let (name, fields) = match event {
            Event::ResponseCreated(response) => {
                return vec![self.response_event("response.created", response)];
            }
            Event::ResponseDone(response) => {
                let event = self.response_event("response.done", response);
                self.formats.remove(&response.id);
                self.outputs.retain(|(id, _), _| *id != response.id);
                return vec![event];
            }
            Event::OutputItemAdded { response, output_index, item } => {
                ("response.output_item.added", item_fields(response, output_index, item))
            }
            Event::OutputItemDone { response, output_index, item } => {
                ("response.output_item.done", item_fields(response, output_index, item))
            }
            Event::PartAdded { at, modality } => {
                ("response.content_part.added", located(at, &json!({"part": part(*modality, "")})))
            }
            Event::PartDone { at, modality, text } => {
                ("response.content_part.done", located(at, &json!({"part": part(*modality, text.expose())})))
            }
            Event::TextDelta { at, modality, delta, tokens } => {
                return self.text_delta(at, *modality, delta.expose(), *tokens);
            }
            Event::TextDone { at, modality: Modality::Audio, text } => {
                ("response.output_audio_transcript.done", located(at, &json!({"transcript": text.expose()})))
            }
            Event::TextDone { at, modality: Modality::Text, text } => {
                ("response.output_text.done", located(at, &json!({"text": text.expose()})))
            }
            Event::AudioDelta { at, samples } => {
                let Some(delta) = self.output(at).push(samples) else { return Vec::new() };
                ("response.output_audio.delta", located(at, &json!({"delta": delta})))
            }
            Event::AudioDone { at } => return self.audio_done(at),
            Event::ArgumentsDelta { at, call, delta } => {
                ("response.function_call_arguments.delta", called(at, call, &json!({"delta": delta})))
            }
            Event::ArgumentsDone { at, call, name, arguments } => (
                "response.function_call_arguments.done",
                called(at, call, &json!({"name": name, "arguments": arguments})),
            ),
            Event::TurnMeasured { response, timeline } if self.shown.extensions => {
                ("voluble.turn.measured", json!({"response_id": response, "timeline": timeline}))
            }
            // Over WebSocket the client owns the playout buffer: `output_audio_buffer.*` is not for it.
            _ => return Vec::new(),
        };
        vec![self.event(name, fields)]
    }

    fn text_delta(&mut self, at: &At, modality: Modality, delta: &str, tokens: u32) -> Vec<WireMsg> {
        let name = match modality {
            Modality::Audio => "response.output_audio_transcript.delta",
            Modality::Text => "response.output_text.delta",
        };
        let mut out = vec![self.event(name, located(at, &json!({"delta": delta})))];
        if self.shown.extensions && tokens > 0 {
            let block =
                json!({"response_id": at.response, "item_id": at.item, "text": delta, "tokens": tokens});
            out.push(self.event("voluble.block", block));
        }
        out
    }

    fn audio_done(&mut self, at: &At) -> Vec<WireMsg> {
        let rest = self.output(at).finish();
        self.outputs.remove(&(at.response.clone(), at.item.clone()));
        let mut out = Vec::new();
        if let Some(delta) = rest {
            out.push(self.event("response.output_audio.delta", located(at, &json!({"delta": delta}))));
        }
        out.push(self.event("response.output_audio.done", located(at, &json!({}))));
        out
    }

    fn output(&mut self, at: &At) -> &mut OutputStream {
        let format = self.formats.get(&at.response).copied().unwrap_or(self.shown.output);
        self.outputs
            .entry((at.response.clone(), at.item.clone()))
            .or_insert_with(|| OutputStream::new(format))
    }

    fn response_event(&mut self, name: &str, response: &Response) -> WireMsg {
        let envelope = Envelope::open(response.metadata.as_ref());
        // A response keeps the format it began with.
        let format =
            *self.formats.entry(response.id.clone()).or_insert(envelope.format.unwrap_or(self.shown.output));
        self.event(name, json!({"response": response::response(response, &envelope.metadata, format)}))
    }

    /// An event with the next id.
    pub(super) fn event(&mut self, name: &str, fields: Value) -> WireMsg {
        let mut event = json!({"type": name, "event_id": self.next_event_id()});
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        WireMsg::Text(event.to_string())
    }

    /// An `error` event; `tag` is the `event_id` of the client event at fault.
    pub(super) fn error(&mut self, error: &ApiError, tag: Option<&str>) -> WireMsg {
        let mut object = error.object();
        object["event_id"] = json!(tag);
        self.event("error", json!({"error": object}))
    }
}

/// A close message.
pub(super) fn close(code: u16, reason: &str) -> WireMsg {
    WireMsg::Close { code, reason: reason.to_owned() }
}

fn part(modality: Modality, text: &str) -> Value {
    match modality {
        Modality::Audio => json!({"type": "audio", "transcript": text}),
        Modality::Text => json!({"type": "text", "text": text}),
    }
}

fn located(at: &At, fields: &Value) -> Value {
    let mut object = json!({
        "response_id": at.response,
        "item_id": at.item,
        "output_index": at.output_index,
        "content_index": at.content_index,
    });
    for (key, value) in fields.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}

fn called(at: &At, call: &CallId, fields: &Value) -> Value {
    let mut object = json!({
        "response_id": at.response,
        "item_id": at.item,
        "output_index": at.output_index,
        "call_id": call,
    });
    for (key, value) in fields.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}
