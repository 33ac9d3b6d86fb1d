//! Each server event: its name, its fields, and the traps that others fell into.

use std::sync::Arc;

use serde_json::{Value, json};
use voluble::error::Private;
use voluble::session::command::CommandKind;
use voluble::session::event::{
    At, CancelReason, EndReason, Event, Rejection, RejectionCode, Response, ResponseStatus, Timeline, Usage,
};
use voluble::session::item::{Item, ItemKind, ItemStatus, Part, Role};
use voluble::session::settings::Modality;

use super::kit::{Codec, settings};

fn private(text: &str) -> Private<String> {
    Private::new(text.to_owned())
}

fn at() -> At {
    At { response: "resp_1".into(), item: "item_2".into(), output_index: 0, content_index: 0 }
}

fn item(id: &str, role: Role, part: Part) -> Item {
    let kind = ItemKind::Message { role, parts: vec![part] };
    Item { id: id.into(), status: ItemStatus::Completed, kind }
}

fn response(status: ResponseStatus) -> Response {
    Response {
        id: "resp_1".into(),
        status,
        output: Vec::new(),
        conversation: Some("conv_1".into()),
        modality: Modality::Audio,
        voice: "joe".to_owned(),
        max_output_tokens: None,
        usage: None,
        metadata: None,
    }
}

fn with_keys(event: &Value, keys: &[&str]) {
    for key in keys {
        assert!(event.get(key).is_some(), "{key} is missing in {event}");
    }
}

#[test]
fn every_event_has_its_name_an_id_of_its_own_and_its_fields() {
    let user = item("item_1", Role::User, Part::InputAudio { transcript: None, audio: Arc::default() });
    let agent = item("item_2", Role::Assistant, Part::OutputAudio { transcript: private("Paris.") });
    let audio = Modality::Audio;
    let text = Modality::Text;
    let cases: Vec<(Event, &str, &[&str])> = vec![
        (Event::Configured { settings: settings() }, "session.updated", &["session"]),
        (
            Event::SpeechStarted { item: "item_1".into(), at_ms: 100 },
            "input_audio_buffer.speech_started",
            &["audio_start_ms", "item_id"],
        ),
        (
            Event::SpeechStopped { item: "item_1".into(), at_ms: 900 },
            "input_audio_buffer.speech_stopped",
            &["audio_end_ms", "item_id"],
        ),
        (
            Event::IdleTimeout { item: "item_1".into(), start_ms: 1, end_ms: 2 },
            "input_audio_buffer.timeout_triggered",
            &["audio_start_ms", "audio_end_ms", "item_id"],
        ),
        (
            Event::AudioCommitted { item: "item_1".into(), previous: None },
            "input_audio_buffer.committed",
            &["item_id", "previous_item_id"],
        ),
        (Event::AudioCleared, "input_audio_buffer.cleared", &[]),
        (
            Event::ItemAdded { item: user.clone(), previous: None },
            "conversation.item.added",
            &["item", "previous_item_id"],
        ),
        (
            Event::ItemDone { item: user.clone(), previous: None },
            "conversation.item.done",
            &["item", "previous_item_id"],
        ),
        (Event::ItemRetrieved { item: user }, "conversation.item.retrieved", &["item"]),
        (Event::ItemDeleted { item: "item_1".into() }, "conversation.item.deleted", &["item_id"]),
        (
            Event::ItemTruncated { item: "item_2".into(), content_index: 0, audio_end_ms: 5 },
            "conversation.item.truncated",
            &["item_id", "content_index", "audio_end_ms"],
        ),
        (
            Event::TranscriptFailed { item: "item_1".into(), message: "no".to_owned() },
            "conversation.item.input_audio_transcription.failed",
            &["item_id", "content_index", "error"],
        ),
        (Event::ResponseCreated(response(ResponseStatus::InProgress)), "response.created", &["response"]),
        (
            Event::OutputItemAdded { response: "resp_1".into(), output_index: 0, item: agent.clone() },
            "response.output_item.added",
            &["response_id", "output_index", "item"],
        ),
        (
            Event::PartAdded { at: at(), modality: audio },
            "response.content_part.added",
            &["response_id", "item_id", "output_index", "content_index", "part"],
        ),
        (
            Event::TextDelta { at: at(), modality: audio, delta: private("Pa"), tokens: 2 },
            "response.output_audio_transcript.delta",
            &["response_id", "item_id", "output_index", "content_index", "delta"],
        ),
        (
            Event::TextDelta { at: at(), modality: text, delta: private("Pa"), tokens: 2 },
            "response.output_text.delta",
            &["response_id", "item_id", "output_index", "content_index", "delta"],
        ),
        (
            Event::AudioDelta { at: at(), samples: vec![0.0; 480] },
            "response.output_audio.delta",
            &["response_id", "item_id", "output_index", "content_index", "delta"],
        ),
        (
            Event::AudioDone { at: at() },
            "response.output_audio.done",
            &["response_id", "item_id", "output_index", "content_index"],
        ),
        (
            Event::TextDone { at: at(), modality: audio, text: private("Paris.") },
            "response.output_audio_transcript.done",
            &["response_id", "item_id", "output_index", "content_index", "transcript"],
        ),
        (
            Event::TextDone { at: at(), modality: text, text: private("Paris.") },
            "response.output_text.done",
            &["response_id", "item_id", "output_index", "content_index", "text"],
        ),
        (
            Event::PartDone { at: at(), modality: audio, text: private("Paris.") },
            "response.content_part.done",
            &["response_id", "item_id", "output_index", "content_index", "part"],
        ),
        (
            Event::ArgumentsDelta { at: at(), call: "call_1".into(), delta: "{".to_owned() },
            "response.function_call_arguments.delta",
            &["response_id", "item_id", "output_index", "call_id", "delta"],
        ),
        (
            Event::ArgumentsDone {
                at: at(),
                call: "call_1".into(),
                name: "f".to_owned(),
                arguments: "{}".to_owned(),
            },
            "response.function_call_arguments.done",
            &["response_id", "item_id", "output_index", "call_id", "name", "arguments"],
        ),
        (
            Event::OutputItemDone { response: "resp_1".into(), output_index: 0, item: agent },
            "response.output_item.done",
            &["response_id", "output_index", "item"],
        ),
        (Event::ResponseDone(response(ResponseStatus::Completed)), "response.done", &["response"]),
    ];
    let mut codec = Codec::new();
    let mut ids = Vec::new();
    for (event, name, keys) in cases {
        let said = codec.says(&event);
        let [said] = said.as_slice() else { panic!("{name}: {said:?}") };
        assert_eq!(said["type"], json!(name));
        with_keys(said, keys);
        ids.push(said["event_id"].as_str().expect("an id").to_owned());
    }
    let all = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), all, "an id was used twice");
}

#[test]
fn the_session_begins_with_its_object() {
    let mut codec = Codec::new();
    let started =
        Event::Started { session: "sess_9".into(), conversation: "conv_9".into(), settings: settings() };
    let said = codec.says(&started);
    assert_eq!(said[0]["type"], json!("session.created"));
    assert_eq!(said[0]["session"]["id"], json!("sess_9"));
    assert_eq!(said[0]["session"]["type"], json!("realtime"));
    assert_eq!(said[0]["session"]["expires_at"], json!(1_800_000_000));
    assert_eq!(said[1]["type"], json!("conversation.created"));
    assert_eq!(said[1]["conversation"], json!({"id": "conv_9", "object": "realtime.conversation"}));
}

/// stdapi.ai 152: a missing key of the response object killed older Pipecat.
#[test]
fn a_response_has_every_key_in_every_state() {
    for (status, name, details) in [
        (ResponseStatus::InProgress, "in_progress", json!(null)),
        (ResponseStatus::Completed, "completed", json!(null)),
        (
            ResponseStatus::Cancelled(CancelReason::TurnDetected),
            "cancelled",
            json!({"type": "cancelled", "reason": "turn_detected"}),
        ),
        (
            ResponseStatus::Cancelled(CancelReason::ClientCancelled),
            "cancelled",
            json!({"type": "cancelled", "reason": "client_cancelled"}),
        ),
        (
            ResponseStatus::Incomplete,
            "incomplete",
            json!({"type": "incomplete", "reason": "max_output_tokens"}),
        ),
        (
            ResponseStatus::Failed { code: "server_error", message: "it broke".to_owned() },
            "failed",
            json!({"type": "failed", "error": {"type": "server_error", "code": "server_error", "message": "it broke"}}),
        ),
    ] {
        let said = Codec::new().says(&Event::ResponseDone(response(status))).remove(0);
        let object = &said["response"];
        with_keys(
            object,
            &[
                "id",
                "object",
                "status",
                "status_details",
                "output",
                "conversation_id",
                "output_modalities",
                "max_output_tokens",
                "audio",
                "usage",
                "metadata",
            ],
        );
        assert_eq!(object["status"], json!(name));
        assert_eq!(object["status_details"], details);
        assert_eq!(object["max_output_tokens"], json!("inf"));
    }
}

#[test]
fn usage_adds_up() {
    let usage = Usage { input_tokens: 30, cached_tokens: 20, output_tokens: 12 };
    let done = Response { usage: Some(usage), ..response(ResponseStatus::Completed) };
    let said = Codec::new().says(&Event::ResponseDone(done)).remove(0);
    let usage = &said["response"]["usage"];
    assert_eq!(usage["total_tokens"], json!(42));
    assert_eq!(usage["input_token_details"]["cached_tokens"], json!(20));
    assert_eq!(usage["output_token_details"]["text_tokens"], json!(12));
}

/// livekit matches its responses by `metadata.client_event_id`.
#[test]
fn metadata_comes_back_and_the_format_asked_for_is_kept() {
    let mut codec = Codec::new();
    let create = json!({"type": "response.create", "response": {"metadata": {"client_event_id": "c1"},
        "audio": {"output": {"format": {"type": "audio/pcmu"}}}}});
    let CommandKind::CreateResponse(params) = codec.one(&create) else { panic!("a CreateResponse") };
    let created = Response { metadata: params.metadata, ..response(ResponseStatus::InProgress) };
    let said = codec.says(&Event::ResponseCreated(created)).remove(0);
    assert_eq!(said["response"]["metadata"], json!({"client_event_id": "c1"}));
    assert_eq!(said["response"]["audio"]["output"]["format"], json!({"type": "audio/pcmu"}));
    let mut bytes = 0;
    for event in [Event::AudioDelta { at: at(), samples: vec![0.0; 24_000] }, Event::AudioDone { at: at() }] {
        for said in codec.says(&event) {
            if let Some(delta) = said["delta"].as_str() {
                bytes += delta.len() / 4 * 3 - delta.chars().filter(|c| *c == '=').count();
            }
        }
    }
    assert_eq!(bytes, 8_000, "one second of G.711");
}

#[test]
fn audio_is_whole_at_the_clients_rate() {
    let mut codec = Codec::new();
    codec.says(&Event::ResponseCreated(response(ResponseStatus::InProgress)));
    let said = codec.says(&Event::AudioDelta { at: at(), samples: vec![0.5; 2] }).remove(0);
    assert_eq!(said["delta"], json!("AEAAQA=="));
}

#[test]
fn a_part_shows_only_what_it_has() {
    let mut codec = Codec::new();
    let said = codec.says(&Event::PartAdded { at: at(), modality: Modality::Audio }).remove(0);
    assert_eq!(said["part"], json!({"type": "audio", "transcript": ""}));
    let said =
        codec.says(&Event::PartDone { at: at(), modality: Modality::Text, text: private("x") }).remove(0);
    assert_eq!(said["part"], json!({"type": "text", "text": "x"}));
}

#[test]
fn transcripts_are_deltas_and_then_whole_with_a_duration() {
    let mut codec = Codec::new();
    let item = || "item_1".into();
    let mut deltas = String::new();
    for partial in ["What is", "What is the capital", "What is the capital"] {
        for said in codec.says(&Event::TranscriptPartial { item: item(), text: private(partial) }) {
            deltas.push_str(said["delta"].as_str().expect("a delta"));
        }
    }
    let text = "What is the capital of France?";
    let done = codec.says(&Event::TranscriptDone { item: item(), text: private(text), seconds: 2.5 });
    for said in &done[..done.len() - 1] {
        deltas.push_str(said["delta"].as_str().expect("a delta"));
    }
    let completed = done.last().expect("the last event");
    assert_eq!(deltas, text);
    assert_eq!(completed["transcript"], json!(text));
    // The Agents SDK drops a frame whose usage it does not know.
    assert_eq!(completed["usage"], json!({"type": "duration", "seconds": 2.5}));
}

#[test]
fn rejections_have_the_codes_that_clients_switch_on() {
    let mut codec = Codec::new();
    for (event, code, wanted) in [
        ("response.cancel", RejectionCode::ResponseCancelNotActive, "response_cancel_not_active"),
        ("response.create", RejectionCode::ActiveResponse, "conversation_already_has_active_response"),
        ("input_audio_buffer.commit", RejectionCode::CommitEmpty, "input_audio_buffer_commit_empty"),
    ] {
        let decoded = codec.hears(&json!({"type": event, "event_id": "mine"}));
        let tag = decoded.commands[0].tag.clone();
        let rejection = Rejection { tag, code, message: "no".to_owned(), param: None };
        let said = codec.says(&Event::Rejected(rejection)).remove(0);
        assert_eq!(said["error"]["code"], json!(wanted));
        // livekit 6817: without it the client cannot tell whose request failed.
        assert_eq!(said["error"]["event_id"], json!("mine"));
        assert_eq!(said["error"]["type"], json!("invalid_request_error"));
    }
}

#[test]
fn an_expired_session_says_so_and_closes() {
    let said = Codec::new().says(&Event::Ended { reason: EndReason::Expired });
    assert_eq!(said[0]["error"]["code"], json!("session_expired"));
    let reason = "Your session hit the maximum duration of 60 minutes.";
    assert_eq!(said[1], json!({"close": 1001, "reason": reason}));
    let said = Codec::new().says(&Event::Ended { reason: EndReason::Draining });
    assert_eq!(said[0]["close"], json!(1001));
    let said = Codec::new().says(&Event::Ended { reason: EndReason::Failed });
    assert_eq!(said[1]["close"], json!(1011));
}

#[test]
fn our_own_events_go_only_to_those_who_asked() {
    let measured = Event::TurnMeasured { response: "resp_1".into(), timeline: Timeline::default() };
    let delta = Event::TextDelta { at: at(), modality: Modality::Text, delta: private("Paris"), tokens: 3 };
    assert_eq!(Codec::new().says(&measured), [] as [Value; 0]);
    assert_eq!(Codec::new().says(&delta).len(), 1);

    let mut codec = Codec::with(settings(), true);
    let said = codec.says(&measured).remove(0);
    assert_eq!(said["type"], json!("voluble.turn.measured"));
    assert!(said["timeline"].get("final_ms").is_some());
    let said = codec.says(&delta);
    assert_eq!(said[1]["type"], json!("voluble.block"));
    assert_eq!((&said[1]["text"], &said[1]["tokens"]), (&json!("Paris"), &json!(3)));

    let mut codec = Codec::new();
    codec.one(&json!({"type": "session.update", "session": {"type": "realtime", "voluble": true}}));
    assert_eq!(codec.says(&measured).len(), 1);
}

#[test]
fn what_websocket_has_no_word_for_is_left_out() {
    assert_eq!(Codec::new().says(&Event::OutputCleared { response: "resp_1".into() }), [] as [Value; 0]);
}
