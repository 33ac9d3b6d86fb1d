//! The session object: every effective value, every key, `null` where empty.

use serde_json::{Value, json};

use super::config::{Shown, kind_name};
use super::turn_detection::{self, short};
use crate::session::settings::{Modality, SessionKind, Settings, Tool, ToolChoice};

/// The object of `session.created`, `session.updated` and client secrets.
pub fn session(id: &str, settings: &Settings, shown: &Shown, expires_at: u64) -> Value {
    let input = json!({
        "format": shown.input.object(),
        "transcription": transcription(settings, shown),
        "noise_reduction": shown.noise_reduction,
        "turn_detection": turn_detection::object(&settings.turn_detection),
    });
    let mut object = match settings.kind {
        SessionKind::Transcription => json!({
            "type": kind_name(settings.kind),
            "object": "realtime.transcription_session",
            "id": id,
            "expires_at": expires_at,
            "include": shown.include,
            "audio": {"input": input},
        }),
        SessionKind::Conversation => json!({
            "type": kind_name(settings.kind),
            "object": "realtime.session",
            "id": id,
            "model": &*shown.model,
            "output_modalities": [modality_name(settings.modality)],
            "instructions": settings.instructions,
            "tools": settings.tools.iter().map(tool).collect::<Vec<_>>(),
            "tool_choice": tool_choice(&settings.tool_choice),
            "parallel_tool_calls": shown.parallel_tool_calls,
            "max_output_tokens": token_limit(settings.max_output_tokens),
            "tracing": shown.tracing,
            "truncation": shown.truncation,
            "prompt": shown.prompt,
            "expires_at": expires_at,
            "include": shown.include,
            "reasoning": shown.reasoning,
            "audio": {
                "input": input,
                "output": {
                    "format": shown.output.object(),
                    "voice": settings.voice,
                    "speed": short(settings.speed),
                },
            },
        }),
    };
    if shown.extensions {
        object["voluble"] = json!(true);
    }
    object
}

/// `"audio"` or `"text"`.
pub fn modality_name(modality: Modality) -> &'static str {
    match modality {
        Modality::Audio => "audio",
        Modality::Text => "text",
    }
}

/// A number, or `"inf"`.
pub fn token_limit(limit: Option<u32>) -> Value {
    limit.map_or_else(|| json!("inf"), |limit| json!(limit))
}

fn transcription(settings: &Settings, shown: &Shown) -> Value {
    let Some(effective) = &settings.transcription else { return Value::Null };
    let mut object = json!({
        "model": effective.model,
        "language": effective.language,
        "prompt": effective.prompt,
    });
    for (key, value) in shown.transcription.iter().flatten() {
        object[key] = value.clone();
    }
    object
}

fn tool(tool: &Tool) -> Value {
    json!({
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    })
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Named(name) => json!({"type": "function", "name": name}),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use super::*;

    #[test]
    fn every_key_is_there() {
        let object = session("sess_1", &settings(), &Shown::new("asked"), 1_800_000_000);
        for key in [
            "type",
            "object",
            "id",
            "model",
            "output_modalities",
            "instructions",
            "tools",
            "tool_choice",
            "max_output_tokens",
            "tracing",
            "truncation",
            "prompt",
            "expires_at",
            "include",
            "reasoning",
            "audio",
        ] {
            assert!(object.get(key).is_some(), "{key} is missing: {object}");
        }
        assert_eq!(object["model"], json!("asked"));
        assert_eq!(object["max_output_tokens"], json!("inf"));
        assert_eq!(object["audio"]["input"]["format"], json!({"type": "audio/pcm", "rate": 24000}));
        assert_eq!(object["audio"]["input"]["turn_detection"]["interrupt_response"], json!(true));
        assert_eq!(object["audio"]["input"]["transcription"], Value::Null);
        assert_eq!(object["audio"]["output"]["speed"], json!(1.0));
        assert!(object.get("voluble").is_none());
    }

    #[test]
    fn a_transcription_session_has_its_own_shape() {
        let settings = Settings { kind: SessionKind::Transcription, ..settings() };
        let object = session("sess_1", &settings, &Shown::new("m"), 1);
        assert_eq!(object["object"], json!("realtime.transcription_session"));
        assert_eq!(object["type"], json!("transcription"));
        assert!(object["audio"].get("output").is_none());
    }
}
