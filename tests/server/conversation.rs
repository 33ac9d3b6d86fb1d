//! Whole conversations over a socket: real sessions, scripted models.

use std::f32::consts::TAU;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use voluble::config::Config;
use voluble::llm::scripted::{Reply, Scripted as Llm};
use voluble::session::manager::Parts;
use voluble::stt::scripted::{Line, Script as SttScript, Scripted as Stt};
use voluble::tts::scripted::Scripted as Tts;
use voluble::turn::scripted::Scripted as Turn;

use super::kit::{Client, Server};

async fn server(lines: &[&str], replies: Vec<Reply>) -> Server {
    let lines = lines.iter().map(|line| Line::new(*line)).collect();
    let parts = Parts {
        recognizer: Arc::new(Stt::new(SttScript { lines, ..SttScript::default() })),
        generator: Arc::new(Llm::new(replies)),
        synthesizer: Arc::new(Tts::default()),
        turn_models: Arc::new(Turn::default()),
    };
    Server::of_sessions(Config::default(), parts).await
}

/// Everything up to and with the next event of this type.
async fn up_to(client: &mut Client, name: &str) -> Vec<Value> {
    let mut events = Vec::new();
    loop {
        let event = client.event().await;
        assert_ne!(event["type"], "error", "{event}");
        let last = event["type"] == name;
        events.push(event);
        if last {
            return events;
        }
    }
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().expect("a type")).collect()
}

/// These names, in this order, with anything between them.
fn in_order(events: &[Value], wanted: &[&str]) {
    let mut left = wanted.iter();
    let mut next = left.next();
    for name in names(events) {
        if Some(&name) == next {
            next = left.next();
        }
    }
    assert_eq!(next, None, "missing or out of order in {:?}", names(events));
}

async fn configure(client: &mut Client, session: Value) -> Value {
    client.send(json!({"type": "session.update", "session": session})).await;
    up_to(client, "session.updated").await.pop().expect("the last event")
}

async fn user_says(client: &mut Client, text: &str) {
    let content = json!([{"type": "input_text", "text": text}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    client.send(json!({"type": "conversation.item.create", "item": item})).await;
}

/// A loud tone, which the scripted scorer takes for a voice, then silence.
async fn speak(client: &mut Client, voice_ms: u32, silence_ms: u32) {
    let samples =
        |ms: u32, level: f32| (0..ms * 24).map(move |n| (n as f32 * TAU * 300.0 / 24_000.0).sin() * level);
    let audio: Vec<u8> = samples(voice_ms, 0.3)
        .chain(samples(silence_ms, 0.0))
        .flat_map(|sample| ((sample * 32767.0) as i16).to_le_bytes())
        .collect();
    for piece in audio.chunks(960) {
        client.send(json!({"type": "input_audio_buffer.append", "audio": STANDARD.encode(piece)})).await;
    }
}

#[tokio::test]
async fn a_text_turn_has_the_whole_lifecycle() {
    let server = server(&[], vec![Reply::text("Paris is the capital of France.")]).await;
    let mut client = server.client().await;
    configure(&mut client, json!({"type": "realtime", "output_modalities": ["text"]})).await;
    user_says(&mut client, "What is the capital of France?").await;
    client.send(json!({"type": "response.create", "response": {"metadata": {"k": "v"}}})).await;
    let events = up_to(&mut client, "response.done").await;
    in_order(
        &events,
        &[
            "conversation.item.added",
            "conversation.item.done",
            "response.created",
            "response.output_item.added",
            "conversation.item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "conversation.item.done",
            "response.output_item.done",
            "response.done",
        ],
    );
    let response = &events.last().expect("the last event")["response"];
    assert_eq!(response["status"], "completed");
    assert_eq!(response["metadata"], json!({"k": "v"}));
    assert_eq!(response["output"][0]["content"][0]["text"], "Paris is the capital of France.");
    assert_eq!(response["output"][0]["status"], "completed");
    server.stop().await;
}

#[tokio::test]
async fn a_voice_turn_is_answered_once_and_aloud() {
    let server = server(&["how old is it"], vec![Reply::text("It is very old.")]).await;
    let mut client = server.client().await;
    let vad = json!({"type": "server_vad", "silence_duration_ms": 300});
    let input = json!({"transcription": {"model": "whisper-1"}, "turn_detection": vad});
    configure(&mut client, json!({"type": "realtime", "audio": {"input": input}})).await;
    speak(&mut client, 900, 1_500).await;
    let events = up_to(&mut client, "response.done").await;
    in_order(
        &events,
        &[
            "input_audio_buffer.speech_started",
            "input_audio_buffer.speech_stopped",
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done",
            "response.created",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_audio.delta",
            "response.output_audio.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.done",
        ],
    );
    for once in ["input_audio_buffer.speech_stopped", "input_audio_buffer.committed", "response.created"] {
        assert_eq!(names(&events).iter().filter(|name| **name == once).count(), 1, "{once}");
    }
    let said = events
        .iter()
        .find(|event| event["type"] == "conversation.item.input_audio_transcription.completed")
        .expect("a transcript");
    assert_eq!(said["transcript"], "how old is it");
    // The item that was announced is the one that was committed.
    let of = |name: &str| events.iter().find(|event| event["type"] == name).expect("seen above");
    let item = &of("input_audio_buffer.speech_started")["item_id"];
    assert_eq!(&of("input_audio_buffer.committed")["item_id"], item);
    assert_eq!(&said["item_id"], item);
    // Four words at 7200 samples each, at 24 kHz.
    let deltas = events.iter().filter(|event| event["type"] == "response.output_audio.delta");
    let bytes: usize = deltas
        .map(|event| STANDARD.decode(event["delta"].as_str().expect("text")).expect("base64").len())
        .sum();
    assert_eq!(bytes, 4 * 7_200 * 2);
    server.stop().await;
}

#[tokio::test]
async fn a_tool_is_called_and_its_answer_used() {
    let replies =
        vec![Reply::call("get_weather", r#"{"city":"Paris"}"#), Reply::text("It is sunny in Paris.")];
    let server = server(&[], replies).await;
    let mut client = server.client().await;
    let tool = json!({"type": "function", "name": "get_weather", "description": "d",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}});
    let updated =
        configure(&mut client, json!({"type": "realtime", "output_modalities": ["text"], "tools": [tool]}))
            .await;
    assert_eq!(updated["session"]["tools"][0]["name"], "get_weather");
    user_says(&mut client, "What is the weather in Paris?").await;
    client.send(json!({"type": "response.create"})).await;
    let events = up_to(&mut client, "response.done").await;
    in_order(
        &events,
        &[
            "response.output_item.added",
            "conversation.item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.done",
        ],
    );
    let done = events
        .iter()
        .find(|event| event["type"] == "response.function_call_arguments.done")
        .expect("seen above");
    assert_eq!(done["name"], "get_weather");
    assert_eq!(done["arguments"], r#"{"city":"Paris"}"#);
    let item = &events.last().expect("the last event")["response"]["output"][0];
    assert_eq!((&item["type"], &item["status"]), (&json!("function_call"), &json!("completed")));
    assert_eq!(item["call_id"], done["call_id"]);
    let output = json!({"type": "function_call_output", "call_id": done["call_id"], "output": "sunny"});
    client.send(json!({"type": "conversation.item.create", "item": output})).await;
    client.send(json!({"type": "response.create"})).await;
    let events = up_to(&mut client, "response.done").await;
    let response = &events.last().expect("the last event")["response"];
    assert_eq!(response["output"][0]["content"][0]["text"], "It is sunny in Paris.");
    server.stop().await;
}

#[tokio::test]
async fn what_was_not_heard_is_cut_and_shown_when_retrieved() {
    let answer = "One two three four five six seven eight nine ten.";
    let server = server(&[], vec![Reply::text(answer)]).await;
    let mut client = server.client().await;
    configure(&mut client, json!({"type": "realtime"})).await;
    user_says(&mut client, "Count.").await;
    client.send(json!({"type": "response.create"})).await;
    let events = up_to(&mut client, "response.done").await;
    let item = events.last().expect("the last event")["response"]["output"][0]["id"].clone();
    // The answer is finished and still playing at the client: this must succeed. Three words are 900 ms.
    client
        .send(json!({"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": 920.5}))
        .await;
    let events = up_to(&mut client, "conversation.item.truncated").await;
    assert_eq!(events.last().expect("the last event")["audio_end_ms"], 920);
    client.send(json!({"type": "conversation.item.retrieve", "item_id": item})).await;
    let events = up_to(&mut client, "conversation.item.retrieved").await;
    let content = &events.last().expect("the last event")["item"]["content"][0];
    assert_eq!(content["type"], "output_audio");
    assert_eq!(content["transcript"], "One two three");
    client.send(json!({"type": "conversation.item.delete", "item_id": item})).await;
    up_to(&mut client, "conversation.item.deleted").await;
    client.send(json!({"type": "conversation.item.retrieve", "item_id": item, "event_id": "r"})).await;
    let error = client.wait_for("error").await;
    assert_eq!(error["error"]["code"], "item_retrieve_invalid_item_id");
    assert_eq!(error["error"]["event_id"], "r");
    server.stop().await;
}

#[tokio::test]
async fn out_of_band_responses_leave_no_trace() {
    let server = server(&[], vec![Reply::text("yes"), Reply::text("no")]).await;
    let mut client = server.client().await;
    configure(&mut client, json!({"type": "realtime", "output_modalities": ["text"]})).await;
    let input =
        json!([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "?"}]}]);
    let response = json!({"conversation": "none", "metadata": {"n": "1"}, "input": input});
    client.send(json!({"type": "response.create", "response": response})).await;
    let events = up_to(&mut client, "response.done").await;
    let response = &events.last().expect("the last event")["response"];
    assert_eq!(response["conversation_id"], Value::Null);
    assert_eq!(response["metadata"], json!({"n": "1"}));
    assert!(!names(&events).contains(&"conversation.item.added"));
    server.stop().await;
}

#[tokio::test]
async fn a_transcription_session_hears_and_says_nothing() {
    let server = server(&["go somewhere"], vec![Reply::text("never")]).await;
    let mut client =
        Client::connect(server.address, "/v1/realtime?intent=transcription", &[]).await.expect("let in");
    let input = json!({"turn_detection": {"type": "server_vad", "silence_duration_ms": 300}});
    let session = json!({"type": "transcription", "audio": {"input": input}});
    assert_eq!(configure(&mut client, session).await["session"]["type"], "transcription");
    speak(&mut client, 900, 1_000).await;
    let events = up_to(&mut client, "conversation.item.input_audio_transcription.completed").await;
    assert_eq!(events.last().expect("the last event")["transcript"], "go somewhere");
    client.send(json!({"type": "input_audio_buffer.clear"})).await;
    let events = up_to(&mut client, "input_audio_buffer.cleared").await;
    assert!(!names(&events).contains(&"response.created"));
    server.stop().await;
}

#[tokio::test]
async fn the_demo_sees_blocks_and_times_and_others_do_not() {
    for (path, extensions) in [("/v1/realtime?voluble=1", true), ("/v1/realtime", false)] {
        let server = server(&[], vec![Reply::text("It is very old.")]).await;
        let mut client = Client::connect(server.address, path, &[]).await.expect("let in");
        configure(&mut client, json!({"type": "realtime"})).await;
        user_says(&mut client, "How old?").await;
        client.send(json!({"type": "response.create"})).await;
        let mut events = up_to(&mut client, "response.done").await;
        if extensions && !names(&events).contains(&"voluble.turn.measured") {
            events.extend(up_to(&mut client, "voluble.turn.measured").await);
        }
        let seen = names(&events);
        assert_eq!(seen.contains(&"voluble.block"), extensions, "{seen:?}");
        assert_eq!(seen.contains(&"voluble.turn.measured"), extensions, "{seen:?}");
        server.stop().await;
    }
}

#[tokio::test]
async fn refusals_carry_the_codes_and_the_clients_ids() {
    let server = server(&[], vec![]).await;
    let mut client = server.client().await;
    for (event, code) in [
        (json!({"type": "response.cancel"}), "response_cancel_not_active"),
        (json!({"type": "input_audio_buffer.commit"}), "input_audio_buffer_commit_empty"),
        (json!({"type": "conversation.item.delete", "item_id": "none"}), "item_delete_invalid_item_id"),
        (
            json!({"type": "conversation.item.truncate", "item_id": "none", "content_index": 0, "audio_end_ms": 5}),
            "item_truncate_invalid_item_id",
        ),
        (
            json!({"type": "session.update", "session": {"type": "realtime",
                "tool_choice": {"type": "function", "name": "none"}}}),
            "invalid_value",
        ),
    ] {
        let mut event = event;
        event["event_id"] = json!("mine");
        client.send(event).await;
        let error = client.wait_for("error").await;
        assert_eq!((&error["error"]["code"], &error["error"]["event_id"]), (&json!(code), &json!("mine")));
    }
    server.stop().await;
}
