//! Each of the 11 client events, as the SDKs write them.

use serde_json::json;
use voluble::session::command::{CommandKind, ResponseScope};
use voluble::session::event::{Event, Rejection, RejectionCode};
use voluble::session::item::{ItemKind, Part, Place};
use voluble::session::settings::{Modality, TurnDetection};

use super::kit::{Codec, settings};

#[test]
fn session_update_is_a_merge() {
    let mut codec = Codec::new();
    let update = json!({"type": "session.update", "session": {"type": "realtime", "output_modalities": ["text"],
        "audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}});
    let CommandKind::Configure(patch) = codec.one(&update) else { panic!("a Configure") };
    assert_eq!(patch.modality, Some(Modality::Text));
    assert_eq!(patch.instructions, None);
    // The second update is merged into the first although the session has not answered yet.
    let update = json!({"type": "session.update", "session": {"type": "realtime",
        "audio": {"input": {"turn_detection": {"type": "server_vad", "create_response": false}}}}});
    let CommandKind::Configure(patch) = codec.one(&update) else { panic!("a Configure") };
    let Some(TurnDetection::Silence { silence_duration_ms, create_response, .. }) = patch.turn_detection
    else {
        panic!("server_vad")
    };
    assert_eq!((silence_duration_ms, create_response), (200, false));
}

#[test]
fn session_updated_echoes_what_is_in_force() {
    let mut codec = Codec::new();
    codec.one(&json!({"type": "session.update", "session": {"type": "realtime", "tracing": "auto",
        "audio": {"input": {"noise_reduction": {"type": "near_field"},
                            "transcription": {"model": "gpt-4o-mini-transcribe"}},
                  "output": {"format": {"type": "audio/pcmu"}}}}}));
    let mut effective = settings();
    effective.transcription = Some(Default::default());
    effective.turn_detection = TurnDetection::Manual;
    let updated = codec.says(&Event::Configured { settings: effective }).remove(0);
    assert_eq!(updated["type"], json!("session.updated"));
    let session = &updated["session"];
    assert_eq!(session["tracing"], json!("auto"));
    assert_eq!(session["audio"]["input"]["noise_reduction"], json!({"type": "near_field"}));
    assert_eq!(session["audio"]["input"]["transcription"]["model"], json!("gpt-4o-mini-transcribe"));
    assert_eq!(session["audio"]["input"]["turn_detection"], json!(null));
    assert_eq!(session["audio"]["output"]["format"], json!({"type": "audio/pcmu"}));
}

#[test]
fn the_type_of_a_session_is_required_and_fixed() {
    let mut codec = Codec::new();
    let error =
        codec.refuses(&json!({"type": "session.update", "event_id": "e1", "session": {"voice": "x"}}));
    assert_eq!(error["code"], json!("missing_required_parameter"));
    assert_eq!(error["param"], json!("session.type"));
    assert_eq!(error["event_id"], json!("e1"));
    let error = codec.refuses(&json!({"type": "session.update", "session": {"type": "transcription"}}));
    assert_eq!(error["param"], json!("session.type"));
    let mut codec = Codec::transcription();
    codec.one(&json!({"type": "session.update", "session": {"type": "transcription"}}));
    codec.one(&json!({"type": "transcription_session.update", "session": {"input_audio_format": "pcm16"}}));
    codec.refuses(&json!({"type": "session.update", "session": {"type": "realtime"}}));
}

#[test]
fn a_faulty_update_changes_nothing() {
    let mut codec = Codec::new();
    codec.refuses(&json!({"type": "session.update", "session": {"type": "realtime", "tracing": "auto",
        "audio": {"output": {"speed": 9}}}}));
    let updated = codec.says(&Event::Configured { settings: settings() }).remove(0);
    assert_eq!(updated["session"]["tracing"], json!(null));
}

#[test]
fn append_gives_samples_at_the_hearing_rate() {
    let mut codec = Codec::new();
    // 0.5 s of silence at 24 kHz.
    let audio = "A".repeat(24_000 * 4 / 3);
    let append = json!({"type": "input_audio_buffer.append", "audio": audio});
    let CommandKind::AppendAudio(samples) = codec.one(&append) else { panic!("an AppendAudio") };
    let commands = codec.accepts(&json!({"type": "input_audio_buffer.commit"}));
    let [CommandKind::AppendAudio(rest), CommandKind::CommitAudio] = commands.as_slice() else {
        panic!("the rest, then the commit: {commands:?}")
    };
    assert_eq!(samples.len() + rest.len(), 8_000);
}

#[test]
fn an_empty_append_is_nothing() {
    assert_eq!(Codec::new().accepts(&json!({"type": "input_audio_buffer.append", "audio": ""})), []);
}

#[test]
fn mu_law_is_heard_in_its_own_rate() {
    let mut codec = Codec::new();
    codec.one(&json!({"type": "session.update", "session": {"type": "realtime",
        "audio": {"input": {"format": {"type": "audio/pcmu"}}}}}));
    // 0.1 s of silence: 0xff is +0.
    let audio = "/".repeat(800 / 3 * 4 + 4);
    let CommandKind::AppendAudio(mut samples) =
        codec.one(&json!({"type": "input_audio_buffer.append", "audio": audio}))
    else {
        panic!("an AppendAudio")
    };
    if let CommandKind::AppendAudio(rest) =
        codec.accepts(&json!({"type": "input_audio_buffer.commit"})).remove(0)
    {
        samples.extend(rest);
    }
    assert!((1600..=1606).contains(&samples.len()), "{}", samples.len());
    assert!(samples.iter().all(|sample| sample.abs() < 1e-3));
}

#[test]
fn clear_drops_what_the_filter_holds() {
    let mut codec = Codec::new();
    codec.accepts(&json!({"type": "input_audio_buffer.append", "audio": "AAAAAAAA"}));
    assert_eq!(codec.one(&json!({"type": "input_audio_buffer.clear"})), CommandKind::ClearAudio);
    assert_eq!(codec.accepts(&json!({"type": "input_audio_buffer.commit"})), [CommandKind::CommitAudio]);
}

#[test]
fn items_are_created_where_asked() {
    let mut codec = Codec::new();
    for (previous, wanted) in [
        (json!(null), Place::End),
        (json!("root"), Place::Root),
        (json!("item_7"), Place::After("item_7".into())),
    ] {
        let create = json!({"type": "conversation.item.create", "previous_item_id": previous,
            "item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}});
        let CommandKind::CreateItem { item, place } = codec.one(&create) else { panic!("a CreateItem") };
        assert_eq!(place, wanted);
        let ItemKind::Message { parts, .. } = item.kind else { panic!("a message") };
        assert!(matches!(&parts[0], Part::InputText(text) if text.expose() == "hi"));
    }
}

#[test]
fn items_are_retrieved_deleted_and_truncated_by_id() {
    let mut codec = Codec::new();
    assert_eq!(
        codec.one(&json!({"type": "conversation.item.retrieve", "item_id": "a"})),
        CommandKind::RetrieveItem("a".into())
    );
    assert_eq!(
        codec.one(&json!({"type": "conversation.item.delete", "item_id": "a"})),
        CommandKind::DeleteItem("a".into())
    );
    // Clients compute the end from a clock: it may have a fraction (agents-js 552).
    assert_eq!(
        codec.one(&json!({"type": "conversation.item.truncate", "item_id": "a", "content_index": 0, "audio_end_ms": 1500.25})),
        CommandKind::TruncateItem { item: "a".into(), content_index: 0, audio_end_ms: 1500 }
    );
    for event in ["retrieve", "delete", "truncate"] {
        let error = codec.refuses(&json!({"type": format!("conversation.item.{event}")}));
        assert_eq!(error["code"], json!("missing_required_parameter"));
        assert_eq!(error["param"], json!("item_id"));
    }
    let error =
        codec.refuses(&json!({"type": "conversation.item.truncate", "item_id": "a", "content_index": 0}));
    assert_eq!(error["param"], json!("audio_end_ms"));
}

#[test]
fn responses_are_created_and_cancelled() {
    let mut codec = Codec::new();
    let CommandKind::CreateResponse(params) = codec.one(&json!({"type": "response.create"})) else {
        panic!("a CreateResponse")
    };
    assert_eq!(params.scope, ResponseScope::Conversation);
    let create =
        json!({"type": "response.create", "response": {"conversation": "none", "metadata": {"a": "b"}}});
    let CommandKind::CreateResponse(params) = codec.one(&create) else { panic!("a CreateResponse") };
    assert_eq!(params.scope, ResponseScope::OutOfBand);
    assert_eq!(codec.one(&json!({"type": "response.cancel"})), CommandKind::CancelResponse(None));
    assert_eq!(
        codec.one(&json!({"type": "response.cancel", "response_id": "resp_1"})),
        CommandKind::CancelResponse(Some("resp_1".into()))
    );
    assert_eq!(codec.one(&json!({"type": "output_audio_buffer.clear"})), CommandKind::ClearOutput);
}

#[test]
fn a_transcription_session_makes_no_response() {
    let error = Codec::transcription().refuses(&json!({"type": "response.create"}));
    assert_eq!(error["type"], json!("invalid_request_error"));
}

#[test]
fn unknown_fields_are_left_out() {
    let mut codec = Codec::new();
    codec.one(&json!({"type": "session.update", "session": {"type": "realtime", "of_next_year": {"x": 1}}}));
    codec.one(&json!({"type": "response.create", "response": {"of_next_year": 1}, "more": true}));
}

#[test]
fn an_update_that_the_session_refuses_never_was() {
    let mut codec = Codec::new();
    let update = json!({"type": "session.update", "session": {"type": "realtime", "tracing": "auto",
        "audio": {"input": {"turn_detection": {"type": "server_vad", "threshold": 0.9}}}}});
    let tag = codec.hears(&update).commands[0].tag.clone();
    let rejection =
        Rejection { tag, code: RejectionCode::InvalidValue, message: "no".to_owned(), param: None };
    codec.says(&Event::Rejected(rejection));
    let update = json!({"type": "session.update", "session": {"type": "realtime",
        "audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 700}}}}});
    let CommandKind::Configure(patch) = codec.one(&update) else { panic!("a Configure") };
    let Some(TurnDetection::Silence { threshold, .. }) = patch.turn_detection else { panic!("server_vad") };
    assert_eq!(threshold, 0.5);
    let updated = codec.says(&Event::Configured { settings: settings() }).remove(0);
    assert_eq!(updated["session"]["tracing"], json!(null));
}
