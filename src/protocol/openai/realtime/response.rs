//! Responses: the parameters of `response.create` and the response object.

use serde_json::{Value, json};

use super::config::{Shown, modality, token_limit, tool_choice, tools, voice};
use super::fields::{Fault, Fields, invalid, wrong_type};
use super::format::Format;
use super::item::{self, Sound};
use super::object;
use crate::session::command::{ResponseParams, ResponseScope};
use crate::session::event::{CancelReason, Response, ResponseStatus, Usage};
use crate::session::settings::SettingsPatch;

/// Limits of `metadata`, as documented.
const MAX_PAIRS: usize = 16;
const MAX_KEY: usize = 64;
const MAX_VALUE: usize = 512;

/// Where a response keeps what only the wire needs while the session carries
/// it through: the client's own metadata and the format asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Envelope {
    /// The client's `metadata`, or `null`.
    pub metadata: Value,
    /// The format this response alone is to have.
    pub format: Option<Format>,
}

impl Envelope {
    fn seal(self) -> Option<Value> {
        if self == Self::default() {
            return None;
        }
        Some(json!({"metadata": self.metadata, "format": self.format.map(Format::object)}))
    }

    /// What the session gave back.
    pub fn open(sealed: Option<&Value>) -> Self {
        let Some(sealed) = sealed else { return Self::default() };
        let format = sealed.get("format").filter(|format| !format.is_null());
        Self {
            metadata: sealed.get("metadata").cloned().unwrap_or_default(),
            format: format.and_then(|format| Format::read(format, "").ok()),
        }
    }
}

/// Reads the `response` of `response.create`.
///
/// # Errors
/// The first fault.
pub fn read(fields: &Fields<'_>, shown: &Shown) -> Result<ResponseParams, Fault> {
    let mut overrides = SettingsPatch {
        instructions: fields.string("instructions")?.map(str::to_owned),
        modality: modality(fields, "output_modalities")?.or(modality(fields, "modalities")?),
        tools: tools(fields)?,
        tool_choice: tool_choice(fields)?,
        max_output_tokens: token_limit(fields, "max_output_tokens")?
            .or(token_limit(fields, "max_response_output_tokens")?),
        temperature: fields.number("temperature", 0.0..=2.0)?.map(|value| value as f32),
        voice: voice(fields)?,
        ..SettingsPatch::default()
    };
    fields.boolean("parallel_tool_calls")?;
    let mut format = match fields.value("output_audio_format") {
        Some(value) => Some(Format::read(value, &fields.path("output_audio_format"))?),
        None => None,
    };
    if let Some(audio) = fields.object("audio")?
        && let Some(output) = audio.object("output")?
    {
        if let Some(value) = output.value("format") {
            format = Some(Format::read(value, &output.path("format"))?);
        }
        overrides.voice = voice(&output)?.or(overrides.voice);
    }
    let scopes = [("auto", ResponseScope::Conversation), ("none", ResponseScope::OutOfBand)];
    let scope = fields.choice("conversation", &scopes)?.unwrap_or_default();
    let path = fields.path("input");
    let read_item =
        |(index, value)| item::read_input(&Fields::new(value, format!("{path}[{index}]"))?, shown.input);
    let input = match fields.array("input")? {
        Some(items) => Some(items.iter().enumerate().map(read_item).collect::<Result<_, _>>()?),
        None => None,
    };
    let metadata = Envelope { metadata: metadata(fields)?, format }.seal();
    Ok(ResponseParams { scope, input, overrides, metadata })
}

fn metadata(fields: &Fields<'_>) -> Result<Value, Fault> {
    let Some(pairs) = fields.object("metadata")? else { return Ok(Value::Null) };
    let path = fields.path("metadata");
    let Some(Value::Object(map)) = fields.value("metadata") else { return Ok(Value::Null) };
    if map.len() > MAX_PAIRS {
        return Err(invalid(&path, "At most 16 pairs are taken."));
    }
    for (key, value) in map {
        if key.chars().count() > MAX_KEY {
            return Err(invalid(&path, "A key has at most 64 characters."));
        }
        match value {
            Value::String(text) if text.chars().count() > MAX_VALUE => {
                return Err(invalid(&pairs.path(key), "A value has at most 512 characters."));
            }
            Value::String(_) => {}
            other => return Err(wrong_type(&pairs.path(key), "a string", other)),
        }
    }
    Ok(Value::Object(map.clone()))
}

/// A response as its first and last event show it: every key, `null` where empty.
pub fn response(response: &Response, metadata: &Value, format: Format) -> Value {
    json!({
        "object": "realtime.response",
        "id": response.id,
        "status": status_name(&response.status),
        "status_details": status_details(&response.status),
        "output": response.output.iter().map(|item| item::object(item, Sound::Without)).collect::<Vec<_>>(),
        "conversation_id": response.conversation,
        "output_modalities": [object::modality_name(response.modality)],
        "max_output_tokens": object::token_limit(response.max_output_tokens),
        "audio": {"output": {"format": format.object(), "voice": response.voice}},
        "usage": response.usage.as_ref().map(usage),
        "metadata": metadata,
    })
}

fn status_name(status: &ResponseStatus) -> &'static str {
    match status {
        ResponseStatus::InProgress => "in_progress",
        ResponseStatus::Completed => "completed",
        ResponseStatus::Cancelled(_) => "cancelled",
        ResponseStatus::Incomplete => "incomplete",
        ResponseStatus::Failed { .. } => "failed",
    }
}

fn status_details(status: &ResponseStatus) -> Value {
    match status {
        ResponseStatus::InProgress | ResponseStatus::Completed => Value::Null,
        ResponseStatus::Cancelled(CancelReason::TurnDetected) => {
            json!({"type": "cancelled", "reason": "turn_detected"})
        }
        ResponseStatus::Cancelled(CancelReason::ClientCancelled) => {
            json!({"type": "cancelled", "reason": "client_cancelled"})
        }
        ResponseStatus::Incomplete => json!({"type": "incomplete", "reason": "max_output_tokens"}),
        ResponseStatus::Failed { code, message } => json!({
            "type": "failed",
            "error": {"type": "server_error", "code": code, "message": message},
        }),
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "input_token_details": {
            "text_tokens": usage.input_tokens,
            "audio_tokens": 0,
            "image_tokens": 0,
            "cached_tokens": usage.cached_tokens,
            "cached_tokens_details": {
                "text_tokens": usage.cached_tokens,
                "audio_tokens": 0,
                "image_tokens": 0,
            },
        },
        "output_token_details": {"text_tokens": usage.output_tokens, "audio_tokens": 0},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::command::InputItem;
    use crate::session::settings::Modality;

    fn parse(value: Value) -> Result<ResponseParams, Fault> {
        read(&Fields::new(&value, "response").expect("an object"), &Shown::new("m"))
    }

    #[test]
    fn every_parameter_is_read() {
        let params = parse(json!({
            "conversation": "none", "instructions": "Say hi.", "output_modalities": ["text"],
            "input": [{"type": "item_reference", "id": "item_1"},
                      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}],
            "metadata": {"topic": "a"}, "max_output_tokens": 20, "tool_choice": "none", "tools": [],
            "audio": {"output": {"format": {"type": "audio/pcma"}, "voice": "joe"}}
        }))
        .expect("valid");
        assert_eq!(params.scope, ResponseScope::OutOfBand);
        assert_eq!(params.overrides.modality, Some(Modality::Text));
        assert_eq!(params.overrides.voice.as_deref(), Some("joe"));
        assert_eq!(params.overrides.max_output_tokens, Some(Some(20)));
        let input = params.input.expect("given");
        assert!(matches!(&input[0], InputItem::Reference(id) if id.as_str() == "item_1"));
        let envelope = Envelope::open(params.metadata.as_ref());
        assert_eq!(envelope.metadata, json!({"topic": "a"}));
        assert_eq!(envelope.format.map(Format::rate), Some(8_000));
    }

    #[test]
    fn nothing_given_changes_nothing() {
        assert_eq!(parse(json!({})), Ok(ResponseParams::default()));
        assert_eq!(Envelope::open(None), Envelope::default());
    }

    #[test]
    fn metadata_has_limits() {
        let many: serde_json::Map<_, _> = (0..17).map(|n| (n.to_string(), json!("v"))).collect();
        for metadata in [
            Value::Object(many),
            json!({"k": 1}),
            json!({"k": "v".repeat(513)}),
            json!({"k".repeat(65): "v"}),
            json!("k"),
        ] {
            assert!(parse(json!({"metadata": metadata})).is_err(), "{metadata}");
        }
        let most: serde_json::Map<_, _> = (0..16).map(|n| (n.to_string(), json!("v"))).collect();
        assert!(parse(json!({"metadata": most})).is_ok());
    }
}
