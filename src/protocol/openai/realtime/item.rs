//! Conversation items both ways.

use std::sync::Arc;

use serde_json::{Value, json};

use super::fields::{Fault, Fields, invalid, missing, unsupported};
use super::format::{Format, from_base64, heard_to_base64, whole};
use crate::error::Private;
use crate::session::command::InputItem;
use crate::session::ids::ItemId;
use crate::session::item::{Item, ItemKind, ItemStatus, Part, Role};

/// Longest id a client may choose.
const MAX_ID: usize = 128;
/// Longest text of one part, in bytes.
const MAX_TEXT: usize = 1 << 20;

/// Reads an item to be created. Its id is empty where the client chose none.
///
/// # Errors
/// The first fault; audio of the agent cannot be created.
pub fn read(fields: &Fields<'_>, format: Format) -> Result<Item, Fault> {
    let id = item_id(fields, "id")?.unwrap_or_else(|| ItemId(String::new()));
    let kind = match fields.need_string("type")? {
        "message" => message(fields, format)?,
        "function_call" => ItemKind::FunctionCall {
            name: fields.need_string("name")?.to_owned(),
            call_id: fields.need_string("call_id")?.into(),
            arguments: fields.need_string("arguments")?.to_owned(),
        },
        "function_call_output" => ItemKind::FunctionCallOutput {
            call_id: fields.need_string("call_id")?.into(),
            output: Private::new(limited(fields.need_string("output")?, &fields.path("output"))?),
        },
        other => {
            let known = ["message", "function_call", "function_call_output"];
            return Err(unsupported(&fields.path("type"), other, known.into_iter()));
        }
    };
    Ok(Item { id, status: ItemStatus::Completed, kind })
}

/// Reads an item of `response.input`: a whole item, or a reference to one.
///
/// # Errors
/// The first fault.
pub fn read_input(fields: &Fields<'_>, format: Format) -> Result<InputItem, Fault> {
    if fields.string("type")? == Some("item_reference") {
        let id = item_id(fields, "id")?.ok_or_else(|| missing(&fields.path("id")))?;
        return Ok(InputItem::Reference(id));
    }
    read(fields, format).map(InputItem::Item)
}

/// Reads an id, where given.
///
/// # Errors
/// When it is no text, empty or too long.
pub fn item_id(fields: &Fields<'_>, key: &str) -> Result<Option<ItemId>, Fault> {
    match fields.string(key)? {
        None => Ok(None),
        Some(id) if id.is_empty() || id.len() > MAX_ID => {
            Err(invalid(&fields.path(key), "Expected an id of 1 to 128 characters."))
        }
        Some(id) => Ok(Some(id.into())),
    }
}

fn message(fields: &Fields<'_>, format: Format) -> Result<ItemKind, Fault> {
    let roles = [("system", Role::System), ("user", Role::User), ("assistant", Role::Assistant)];
    let role = fields.choice("role", &roles)?.ok_or_else(|| missing(&fields.path("role")))?;
    let path = fields.path("content");
    let content = fields.array("content")?.ok_or_else(|| missing(&path))?;
    if content.is_empty() {
        return Err(invalid(&path, "Expected at least one part."));
    }
    let part = |(index, value)| part(value, format!("{path}[{index}]"), role, format);
    Ok(ItemKind::Message { role, parts: content.iter().enumerate().map(part).collect::<Result<_, _>>()? })
}

fn part(value: &Value, path: String, role: Role, format: Format) -> Result<Part, Fault> {
    let fields = Fields::new(value, path)?;
    let text = || -> Result<Private<String>, Fault> {
        Ok(Private::new(limited(fields.need_string("text")?, &fields.path("text"))?))
    };
    let kind = fields.need_string("type")?;
    match (role, kind) {
        // `text` is the beta's name of either.
        (Role::Assistant, "output_text" | "text") => Ok(Part::OutputText(text()?)),
        (Role::User | Role::System, "input_text" | "text") => Ok(Part::InputText(text()?)),
        (Role::User, "input_audio") => {
            let path = fields.path("audio");
            let bytes = from_base64(fields.need_string("audio")?, &path)?;
            if bytes.is_empty() {
                return Err(invalid(&path, "Expected some audio."));
            }
            let transcript = fields.string("transcript")?.map(|text| Private::new(text.to_owned()));
            Ok(Part::InputAudio { transcript, audio: Arc::new(whole(format, &bytes)) })
        }
        (Role::Assistant, "output_audio" | "audio") => {
            Err(invalid(&fields.path("type"), "Audio of the assistant cannot be created; use output_text."))
        }
        (Role::User, "input_image") => Err(invalid(&fields.path("type"), "This model does not see images.")),
        (role, other) => {
            let known: &[&str] = match role {
                Role::Assistant => &["output_text"],
                Role::System => &["input_text"],
                _ => &["input_text", "input_audio"],
            };
            Err(unsupported(&fields.path("type"), other, known.iter().copied()))
        }
    }
}

fn limited(text: &str, path: &str) -> Result<String, Fault> {
    if text.len() > MAX_TEXT {
        return Err(Fault::client(
            "string_above_max_length",
            format!("Invalid '{path}': longer than 1 MiB."),
        )
        .at(path));
    }
    Ok(text.to_owned())
}

/// Whether an item is shown with the caller's audio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sound {
    /// Left out, as in every event but one.
    Without,
    /// In this format, for `conversation.item.retrieved`.
    In(Format),
}

/// An item as events show it.
pub fn object(item: &Item, sound: Sound) -> Value {
    let status = match item.status {
        ItemStatus::InProgress => "in_progress",
        ItemStatus::Completed => "completed",
        ItemStatus::Incomplete => "incomplete",
    };
    let head = json!({"id": item.id, "object": "realtime.item"});
    let rest = match &item.kind {
        ItemKind::Message { role, parts } => json!({
            "type": "message",
            "status": status,
            "role": role_name(*role),
            "content": parts.iter().map(|part| content(part, sound)).collect::<Vec<_>>(),
        }),
        ItemKind::FunctionCall { name, call_id, arguments } => json!({
            "type": "function_call",
            "status": status,
            "name": name,
            "call_id": call_id,
            "arguments": arguments,
        }),
        ItemKind::FunctionCallOutput { call_id, output } => json!({
            "type": "function_call_output",
            "status": status,
            "call_id": call_id,
            "output": output.expose(),
        }),
    };
    let (Value::Object(mut object), Value::Object(rest)) = (head, rest) else { return Value::Null };
    object.extend(rest);
    Value::Object(object)
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        // A tool's answer is an item of its own, never a message.
        Role::Assistant | Role::Tool => "assistant",
    }
}

fn content(part: &Part, sound: Sound) -> Value {
    match part {
        Part::InputText(text) => json!({"type": "input_text", "text": text.expose()}),
        Part::OutputText(text) => json!({"type": "output_text", "text": text.expose()}),
        Part::OutputAudio { transcript } => {
            json!({"type": "output_audio", "transcript": transcript.expose()})
        }
        Part::InputAudio { transcript, audio } => {
            let mut object = json!({
                "type": "input_audio",
                "transcript": transcript.as_ref().map(Private::expose),
            });
            if let Sound::In(format) = sound {
                object["audio"] = json!(heard_to_base64(format, audio));
            }
            object
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: Value) -> Result<Item, Fault> {
        read(&Fields::new(&value, "item").expect("an object"), Format::default())
    }

    #[test]
    fn every_kind_comes_back_as_it_was_sent() {
        for value in [
            json!({"id": "a", "object": "realtime.item", "type": "message", "status": "completed", "role": "user",
                   "content": [{"type": "input_text", "text": "hello"}]}),
            json!({"id": "b", "object": "realtime.item", "type": "message", "status": "completed", "role": "system",
                   "content": [{"type": "input_text", "text": "be brief"}]}),
            json!({"id": "c", "object": "realtime.item", "type": "message", "status": "completed", "role": "assistant",
                   "content": [{"type": "output_text", "text": "hi"}]}),
            json!({"id": "d", "object": "realtime.item", "type": "function_call", "status": "completed",
                   "name": "f", "call_id": "call_1", "arguments": "{}"}),
            json!({"id": "e", "object": "realtime.item", "type": "function_call_output", "status": "completed",
                   "call_id": "call_1", "output": "42"}),
        ] {
            let item = parse(value.clone()).expect("a valid item");
            assert_eq!(object(&item, Sound::Without), value);
        }
    }

    #[test]
    fn audio_is_shown_only_when_retrieved() {
        let item = parse(json!({"type": "message", "role": "user",
            "content": [{"type": "input_audio", "audio": "AAAAAAAAAAAAAAAA", "transcript": "so"}]}))
        .expect("a valid item");
        assert_eq!(item.id.as_str(), "");
        let shown = object(&item, Sound::Without);
        assert_eq!(shown["content"][0], json!({"type": "input_audio", "transcript": "so"}));
        let shown = object(&item, Sound::In(Format::default()));
        assert_eq!(shown["content"][0]["audio"], json!("AAAAAAAAAAAAAAAA"));
    }

    #[test]
    fn faults_name_their_path() {
        for (value, param) in [
            (json!({"role": "user"}), "item.type"),
            (json!({"type": "story"}), "item.type"),
            (json!({"type": "message", "content": []}), "item.role"),
            (json!({"type": "message", "role": "user"}), "item.content"),
            (json!({"type": "message", "role": "user", "content": []}), "item.content"),
            (json!({"type": "message", "role": "user", "content": "hi"}), "item.content"),
            (json!({"type": "message", "role": "king", "content": []}), "item.role"),
            (
                json!({"type": "message", "role": "user", "content": [{"type": "input_text"}]}),
                "item.content[0].text",
            ),
            (
                json!({"type": "message", "role": "user", "content": [{"type": "input_image"}]}),
                "item.content[0].type",
            ),
            (
                json!({"type": "message", "role": "assistant", "content": [{"type": "output_audio", "audio": ""}]}),
                "item.content[0].type",
            ),
            (
                json!({"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": "?"}]}),
                "item.content[0].audio",
            ),
            (json!({"type": "function_call", "name": "f", "arguments": "{}"}), "item.call_id"),
            (json!({"type": "function_call_output", "call_id": "c", "output": {"a": 1}}), "item.output"),
            (json!({"type": "message", "id": "", "role": "user", "content": []}), "item.id"),
        ] {
            let fault = parse(value.clone()).expect_err(&value.to_string());
            assert_eq!(fault.param.as_deref(), Some(param), "{value}");
        }
    }
}
