//! What is not an event: an error each, and the session lives.

use proptest::prelude::*;
use serde_json::{Value, json};
use voluble::protocol::Dialect as _;
use voluble::session::command::CommandKind;
use voluble::transport::wire::{Fault, WireMsg};

use super::kit::{Codec, json as parsed, the_error};

#[test]
fn what_cannot_be_read_is_answered_with_its_reason() {
    let mut codec = Codec::new();
    for (text, code) in [
        ("{", "invalid_event"),
        ("", "invalid_event"),
        ("hello", "invalid_event"),
        ("[]", "invalid_type"),
        ("7", "invalid_type"),
        ("null", "invalid_type"),
        ("{}", "invalid_event"),
        (r#"{"type": null}"#, "invalid_event"),
        (r#"{"type": 5}"#, "invalid_type"),
        (r#"{"type": "session.destroy"}"#, "invalid_value"),
        (r#"{"type": "response.create", "event_id": 5}"#, "invalid_type"),
        (r#"{"type": "response.create", "response": "now"}"#, "invalid_type"),
        (r#"{"type": "session.update"}"#, "missing_required_parameter"),
        (r#"{"type": "input_audio_buffer.append"}"#, "missing_required_parameter"),
        (r#"{"type": "input_audio_buffer.append", "audio": 5}"#, "invalid_type"),
        (r#"{"type": "input_audio_buffer.append", "audio": "no base64!"}"#, "invalid_value"),
        (r#"{"type": "conversation.item.create"}"#, "missing_required_parameter"),
    ] {
        let decoded = codec.hears_text(text);
        assert_eq!(decoded.commands, [], "{text}");
        let error = the_error(&decoded.replies);
        assert_eq!(error["code"], json!(code), "{text}: {error}");
        assert_eq!(error["type"], json!("invalid_request_error"), "{text}");
    }
    assert_eq!(codec.one(&json!({"type": "input_audio_buffer.commit"})), CommandKind::CommitAudio);
}

#[test]
fn a_binary_frame_is_refused_in_words() {
    let mut codec = Codec::new();
    let decoded = codec.dialect.decode(WireMsg::Binary(vec![0; 64].into()));
    let error = the_error(&decoded.replies);
    assert!(error["message"].as_str().is_some_and(|text| text.contains("base64")), "{error}");
}

#[test]
fn a_deep_or_long_message_is_no_danger() {
    let mut codec = Codec::new();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(the_error(&codec.hears_text(&deep).replies)["code"], json!("invalid_event"));
    let name = "x".repeat(1 << 20);
    let error = codec.refuses(&json!({"type": name}));
    assert!(error.to_string().len() < 2_000, "the answer repeats the whole name");
    let error = codec.refuses(&json!({"type": "response.create", "event_id": "e".repeat(600)}));
    assert_eq!(error["param"], json!("event_id"));
}

#[test]
fn the_event_id_is_echoed() {
    let error = Codec::new().refuses(&json!({"type": "nothing", "event_id": "mine"}));
    assert_eq!(error["event_id"], json!("mine"));
}

#[test]
fn what_the_transport_cannot_take_ends_in_words_and_a_code() {
    let mut codec = Codec::new();
    let said: Vec<Value> =
        codec.dialect.fault(Fault::TooLarge { size: 20 << 20, max: 16 << 20 }).iter().map(parsed).collect();
    assert_eq!(said[0]["error"]["code"], json!("message_too_large"));
    assert_eq!(said[1]["close"], json!(1009));
    let said: Vec<Value> = codec.dialect.fault(Fault::Idle { seconds: 60 }).iter().map(parsed).collect();
    assert_eq!(said[1]["close"], json!(1001));
}

fn any_json() -> impl Strategy<Value = Value> {
    let names = prop::sample::select(vec![
        "type",
        "event_id",
        "session",
        "audio",
        "input",
        "output",
        "format",
        "item",
        "content",
        "role",
        "response",
        "tools",
        "metadata",
        "turn_detection",
        "transcription",
        "item_id",
        "audio_end_ms",
        "rate",
        "name",
    ]);
    let words = prop::sample::select(vec![
        "session.update",
        "input_audio_buffer.append",
        "conversation.item.create",
        "conversation.item.truncate",
        "response.create",
        "realtime",
        "message",
        "user",
        "function",
        "server_vad",
        "audio/pcm",
        "AAAA",
        "",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        words.prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((names.clone(), inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Any JSON at all: commands or one error, never both, never a panic.
    #[test]
    fn any_json_is_survived(value in any_json()) {
        let decoded = Codec::new().hears(&value);
        prop_assert!(decoded.commands.is_empty() || decoded.replies.is_empty());
        prop_assert!(decoded.replies.len() <= 1);
    }

    /// Known events with any fields.
    #[test]
    fn known_events_with_any_fields_are_survived(
        name in prop::sample::select(vec![
            "session.update", "input_audio_buffer.append", "conversation.item.create", "conversation.item.truncate",
            "conversation.item.retrieve", "response.create", "response.cancel",
        ]),
        fields in any_json(),
    ) {
        let mut event = json!({"type": name});
        for key in ["session", "item", "response", "audio", "item_id", "audio_end_ms"] {
            event[key] = fields.clone();
        }
        let decoded = Codec::new().hears(&event);
        prop_assert!(decoded.replies.len() <= 1);
    }
}
