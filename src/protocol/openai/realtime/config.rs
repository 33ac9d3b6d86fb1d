//! The session configuration as clients write it: read, checked, merged.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::fields::{Fault, Fields, invalid, missing, unsupported, wrong_type};
use super::format::Format;
use super::turn_detection;
use crate::session::settings::{
    Modality, SessionKind, Settings, SettingsPatch, Tool, ToolChoice, TranscriptionSettings,
};

/// Largest `max_output_tokens` the API takes.
const MAX_OUTPUT_TOKENS: u32 = 4096;
/// Most tools of one session.
const MAX_TOOLS: usize = 128;

/// What the wire has and the session does not: formats, and values that are
/// shown back as they were set.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// Model name the client asked for.
    pub model: Arc<str>,
    /// Format of the caller's audio.
    pub input: Format,
    /// Format of the answers' audio.
    pub output: Format,
    /// Accepted and shown; noise is handled by the recogniser itself.
    pub noise_reduction: Value,
    /// Accepted and shown.
    pub tracing: Value,
    /// Accepted and shown.
    pub truncation: Value,
    /// Accepted and shown.
    pub prompt: Value,
    /// Accepted and shown.
    pub include: Value,
    /// Accepted and shown.
    pub reasoning: Value,
    /// Accepted and shown.
    pub parallel_tool_calls: bool,
    /// `audio.input.transcription` as the client wrote it.
    pub transcription: Option<Map<String, Value>>,
    /// Whether our own `voluble.*` events are wanted.
    pub extensions: bool,
}

impl Shown {
    /// The values of a new session.
    pub fn new(model: &str) -> Self {
        Self {
            model: model.into(),
            input: Format::default(),
            output: Format::default(),
            noise_reduction: Value::Null,
            tracing: Value::Null,
            truncation: json!("auto"),
            prompt: Value::Null,
            include: Value::Null,
            reasoning: Value::Null,
            parallel_tool_calls: true,
            transcription: None,
            extensions: false,
        }
    }
}

/// Name of a session kind on the wire.
pub fn kind_name(kind: SessionKind) -> &'static str {
    match kind {
        SessionKind::Conversation => "realtime",
        SessionKind::Transcription => "transcription",
    }
}

/// Kinds by name.
pub const KINDS: [(&str, SessionKind); 2] =
    [("realtime", SessionKind::Conversation), ("transcription", SessionKind::Transcription)];

/// Reads a `session` object over the present state; both are left alone when
/// any field is at fault.
///
/// Fields that this version does not know are left out: newer clients send
/// them and older ones still send the beta's.
///
/// # Errors
/// The first fault.
pub fn read(
    session: &Fields<'_>,
    settings: &Settings,
    shown: &Shown,
) -> Result<(SettingsPatch, Shown), Fault> {
    let mut shown = shown.clone();
    let mut patch = SettingsPatch::default();
    if let Some(model) = session.string("model")? {
        shown.model = model.into();
    }
    if session.present("instructions").is_some() {
        patch.instructions = Some(session.string("instructions")?.unwrap_or_default().to_owned());
    }
    patch.modality = modality(session, "output_modalities")?.or(modality(session, "modalities")?);
    patch.tools = tools(session)?;
    patch.tool_choice = tool_choice(session)?;
    patch.max_output_tokens =
        token_limit(session, "max_output_tokens")?.or(token_limit(session, "max_response_output_tokens")?);
    patch.temperature = session.number("temperature", 0.0..=2.0)?.map(|value| value as f32);
    if let Some(parallel) = session.boolean("parallel_tool_calls")? {
        shown.parallel_tool_calls = parallel;
    }
    for (key, slot) in [
        ("tracing", &mut shown.tracing),
        ("truncation", &mut shown.truncation),
        ("prompt", &mut shown.prompt),
        ("include", &mut shown.include),
        ("reasoning", &mut shown.reasoning),
    ] {
        if let Some(value) = session.present(key) {
            *slot = value.clone();
        }
    }
    if let Some(audio) = session.object("audio")? {
        if let Some(input) = audio.object("input")? {
            read_input(&input, &Names::GA, settings, &mut patch, &mut shown)?;
        }
        if let Some(output) = audio.object("output")? {
            read_output(&output, "format", &mut patch, &mut shown)?;
        }
    }
    // The beta wrote the same values flat.
    read_input(session, &Names::BETA, settings, &mut patch, &mut shown)?;
    read_output(session, "output_audio_format", &mut patch, &mut shown)?;
    if let Some(extensions) = session.boolean("voluble")? {
        shown.extensions = extensions;
    }
    Ok((patch, shown))
}

struct Names {
    format: &'static str,
    noise_reduction: &'static str,
    transcription: &'static str,
    turn_detection: &'static str,
}

impl Names {
    const GA: Self = Self {
        format: "format",
        noise_reduction: "noise_reduction",
        transcription: "transcription",
        turn_detection: "turn_detection",
    };
    const BETA: Self = Self {
        format: "input_audio_format",
        noise_reduction: "input_audio_noise_reduction",
        transcription: "input_audio_transcription",
        turn_detection: "turn_detection",
    };
}

fn read_input(
    fields: &Fields<'_>,
    names: &Names,
    settings: &Settings,
    patch: &mut SettingsPatch,
    shown: &mut Shown,
) -> Result<(), Fault> {
    if let Some(format) = fields.value(names.format) {
        shown.input = Format::read(format, &fields.path(names.format))?;
    }
    if let Some(reduction) = fields.present(names.noise_reduction) {
        if !reduction.is_null() {
            let inner = Fields::new(reduction, fields.path(names.noise_reduction))?;
            inner.choice("type", &[("near_field", ()), ("far_field", ())])?;
        }
        shown.noise_reduction = reduction.clone();
    }
    if let Some(value) = fields.present(names.transcription) {
        let path = fields.path(names.transcription);
        (patch.transcription, shown.transcription) = match value {
            Value::Null => (Some(None), None),
            value => {
                let (settings, wire) = transcription(value, &path, shown.transcription.as_ref())?;
                (Some(Some(settings)), Some(wire))
            }
        };
    }
    if let Some(value) = fields.present(names.turn_detection) {
        let path = fields.path(names.turn_detection);
        patch.turn_detection = Some(turn_detection::read(value, &path, &settings.turn_detection)?);
    }
    Ok(())
}

fn read_output(
    fields: &Fields<'_>,
    format: &str,
    patch: &mut SettingsPatch,
    shown: &mut Shown,
) -> Result<(), Fault> {
    if let Some(value) = fields.value(format) {
        shown.output = Format::read(value, &fields.path(format))?;
    }
    if let Some(name) = voice(fields)? {
        patch.voice = Some(name);
    }
    if let Some(speed) = fields.number("speed", 0.25..=1.5)? {
        patch.speed = Some(speed as f32);
    }
    Ok(())
}

/// Reads `voice`: a name, or `{"id": ...}`.
pub fn voice(fields: &Fields<'_>) -> Result<Option<String>, Fault> {
    Ok(match fields.value("voice") {
        None => None,
        Some(Value::String(name)) => Some(name.clone()),
        Some(Value::Object(_)) => {
            fields.need_object("voice")?.need_string("id").map(|id| Some(id.to_owned()))?
        }
        Some(other) => return Err(wrong_type(&fields.path("voice"), "a string", other)),
    })
}

fn transcription(
    value: &Value,
    path: &str,
    before: Option<&Map<String, Value>>,
) -> Result<(TranscriptionSettings, Map<String, Value>), Fault> {
    let mut wire = before.cloned().unwrap_or_default();
    let Value::Object(given) = value else { return Err(wrong_type(path, "an object", value)) };
    wire.extend(given.clone());
    let merged = Value::Object(wire.clone());
    let fields = Fields::new(&merged, path)?;
    let words = |key: &str| -> Result<Vec<String>, Fault> {
        let path = fields.path(key);
        let items = fields.array(key)?.unwrap_or_default();
        let word = |item: &Value| match item {
            Value::String(word) => Ok(word.clone()),
            other => Err(wrong_type(&path, "an array of strings", other)),
        };
        items.iter().map(word).collect()
    };
    let languages = words("languages")?;
    let language = fields.string("language")?.or(match languages.as_slice() {
        // Several are a hint that the recogniser has to choose: detection does that.
        [one] => Some(one),
        _ => None,
    });
    let mut prompt = fields.string("prompt")?.unwrap_or_default().to_owned();
    let keywords = words("keywords")?.join(", ");
    if !keywords.is_empty() {
        if !prompt.is_empty() {
            prompt.push(' ');
        }
        prompt.push_str(&keywords);
    }
    let settings = TranscriptionSettings {
        model: fields.string("model")?.map(str::to_owned),
        language: language.filter(|tag| !tag.is_empty()).map(primary_language),
        prompt: Some(prompt).filter(|prompt| !prompt.is_empty()),
    };
    Ok((settings, wire))
}

/// `en` of `en-US`.
fn primary_language(tag: &str) -> String {
    tag.split(['-', '_']).next().unwrap_or(tag).to_lowercase()
}

/// Reads `["audio"]` or `["text"]`. The beta's `["text", "audio"]` is audio.
pub fn modality(fields: &Fields<'_>, key: &str) -> Result<Option<Modality>, Fault> {
    let Some(items) = fields.array(key)? else { return Ok(None) };
    let path = fields.path(key);
    let mut modality = None;
    for item in items {
        modality = match item.as_str() {
            Some("audio") => Some(Modality::Audio),
            Some("text") => modality.or(Some(Modality::Text)),
            _ => {
                let got = item.as_str().map_or_else(|| item.to_string(), str::to_owned);
                return Err(unsupported(&path, &got, ["text", "audio"].into_iter()));
            }
        };
    }
    let both = items.len() > 1 && key == "output_modalities";
    match modality {
        _ if both => Err(invalid(&path, "Either [\"audio\"] or [\"text\"], not both.")),
        None => Err(invalid(&path, "Expected [\"audio\"] or [\"text\"].")),
        some => Ok(some),
    }
}

/// Reads `max_output_tokens`: a number or `"inf"`; `null` is `"inf"`.
pub fn token_limit(fields: &Fields<'_>, key: &str) -> Result<Option<Option<u32>>, Fault> {
    Ok(match fields.present(key) {
        None => None,
        Some(Value::Null) => Some(None),
        Some(Value::String(inf)) if inf == "inf" => Some(None),
        Some(_) => Some(fields.integer(key, 1..=MAX_OUTPUT_TOKENS)?),
    })
}

/// Reads `tools`.
pub fn tools(fields: &Fields<'_>) -> Result<Option<Vec<Tool>>, Fault> {
    let path = fields.path("tools");
    let Some(items) = fields.array("tools")? else {
        return Ok(fields.present("tools").map(|_| Vec::new()));
    };
    if items.len() > MAX_TOOLS {
        return Err(invalid(&path, "At most 128 tools are taken."));
    }
    let mut tools: Vec<Tool> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let tool = read_tool(item, format!("{path}[{index}]"))?;
        if tools.iter().any(|other| other.name == tool.name) {
            return Err(invalid(&format!("{path}[{index}].name"), "Two tools have this name."));
        }
        tools.push(tool);
    }
    Ok(Some(tools))
}

fn read_tool(value: &Value, path: String) -> Result<Tool, Fault> {
    let fields = Fields::new(value, path)?;
    fields.choice("type", &[("function", ())])?.ok_or_else(|| missing(&fields.path("type")))?;
    // Chat completions nest the same fields under `function`.
    let fields = fields.object("function")?.unwrap_or(fields);
    let name = fields.need_string("name")?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
        return Err(invalid(
            &fields.path("name"),
            "Expected 1 to 64 letters, digits, underscores, dashes or dots.",
        ));
    }
    let parameters = match fields.value("parameters") {
        None => json!({"type": "object", "properties": {}}),
        Some(schema @ Value::Object(_)) => schema.clone(),
        Some(other) => return Err(wrong_type(&fields.path("parameters"), "an object", other)),
    };
    Ok(Tool {
        name: name.to_owned(),
        description: fields.string("description")?.map(str::to_owned),
        parameters,
    })
}

/// Reads `tool_choice`.
pub fn tool_choice(fields: &Fields<'_>) -> Result<Option<ToolChoice>, Fault> {
    Ok(match fields.value("tool_choice") {
        Some(Value::Object(_)) => {
            let choice = fields.need_object("tool_choice")?;
            choice.choice("type", &[("function", ())])?.ok_or_else(|| missing(&choice.path("type")))?;
            let inner = choice.object("function")?.unwrap_or(choice);
            Some(ToolChoice::Named(inner.need_string("name")?.to_owned()))
        }
        _ => fields.choice(
            "tool_choice",
            &[("auto", ToolChoice::Auto), ("none", ToolChoice::None), ("required", ToolChoice::Required)],
        )?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use super::*;
    use crate::session::settings::TurnDetection;

    fn parse(session: Value) -> Result<(SettingsPatch, Shown), Fault> {
        read(&Fields::new(&session, "session").expect("an object"), &settings(), &Shown::new("m"))
    }

    #[test]
    fn the_agents_sdk_configuration_is_understood() {
        let (patch, shown) = parse(json!({
            "type": "realtime", "instructions": "Be brief.", "model": "gpt-realtime",
            "output_modalities": ["audio"],
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": 24000},
                    "transcription": {"model": "gpt-4o-mini-transcribe", "language": "en-US"},
                    "turn_detection": {"type": "semantic_vad"}
                },
                "output": {"format": {"type": "audio/pcmu"}, "voice": "ash", "speed": 1}
            },
            "tool_choice": "auto",
            "tools": [{"type": "function", "name": "weather", "description": "d",
                       "parameters": {"type": "object", "properties": {}}}]
        }))
        .expect("a valid configuration");
        assert_eq!(patch.instructions.as_deref(), Some("Be brief."));
        assert_eq!(patch.voice.as_deref(), Some("ash"));
        assert!(matches!(patch.turn_detection, Some(TurnDetection::Semantic { .. })));
        let transcription = patch.transcription.flatten().expect("given");
        assert_eq!(transcription.language.as_deref(), Some("en"));
        assert_eq!(patch.tools.map(|tools| tools.len()), Some(1));
        assert_eq!(shown.output, Format::G711(crate::audio::codec::g711::Law::Mu));
    }

    #[test]
    fn absent_fields_stay_and_null_clears() {
        let (patch, _) = parse(json!({"type": "realtime"})).expect("empty");
        assert_eq!(patch, SettingsPatch::default());
        let (patch, _) = parse(json!({
            "tools": [], "instructions": "", "max_output_tokens": "inf",
            "audio": {"input": {"transcription": null, "turn_detection": null}}
        }))
        .expect("clears");
        assert_eq!(patch.tools, Some(vec![]));
        assert_eq!(patch.instructions.as_deref(), Some(""));
        assert_eq!(patch.max_output_tokens, Some(None));
        assert_eq!(patch.transcription, Some(None));
        assert_eq!(patch.turn_detection, Some(TurnDetection::Manual));
    }

    #[test]
    fn the_beta_names_are_understood() {
        let (patch, shown) = parse(json!({
            "modalities": ["text", "audio"], "voice": "alloy", "input_audio_format": "g711_ulaw",
            "output_audio_format": "pcm16", "input_audio_transcription": {"model": "whisper-1"},
            "turn_detection": {"type": "server_vad"}, "temperature": 0.8, "max_response_output_tokens": 100
        }))
        .expect("the beta's configuration");
        assert_eq!(patch.modality, Some(Modality::Audio));
        assert_eq!(patch.max_output_tokens, Some(Some(100)));
        assert_eq!(shown.input.rate(), 8_000);
    }

    #[test]
    fn faults_name_their_path() {
        for (session, param, code) in [
            (json!({"instructions": 5}), "session.instructions", "invalid_type"),
            (json!({"output_modalities": ["video"]}), "session.output_modalities", "invalid_value"),
            (json!({"output_modalities": ["audio", "text"]}), "session.output_modalities", "invalid_value"),
            (json!({"output_modalities": []}), "session.output_modalities", "invalid_value"),
            (json!({"max_output_tokens": 0}), "session.max_output_tokens", "integer_below_min_value"),
            (json!({"max_output_tokens": 5000}), "session.max_output_tokens", "integer_above_max_value"),
            (json!({"tools": [{"type": "mcp"}]}), "session.tools[0].type", "invalid_value"),
            (json!({"tools": [{"type": "function"}]}), "session.tools[0].name", "missing_required_parameter"),
            (json!({"tool_choice": "maybe"}), "session.tool_choice", "invalid_value"),
            (
                json!({"audio": {"output": {"speed": 3}}}),
                "session.audio.output.speed",
                "decimal_above_max_value",
            ),
            (json!({"audio": {"output": {"voice": 3}}}), "session.audio.output.voice", "invalid_type"),
            (
                json!({"audio": {"input": {"format": {"type": "audio/ogg"}}}}),
                "session.audio.input.format.type",
                "invalid_value",
            ),
            (
                json!({"audio": {"input": {"turn_detection": {"type": "magic"}}}}),
                "session.audio.input.turn_detection.type",
                "invalid_value",
            ),
            (json!({"audio": 4}), "session.audio", "invalid_type"),
        ] {
            let fault = parse(session.clone()).expect_err(&session.to_string());
            assert_eq!((fault.param.as_deref(), fault.code), (Some(param), Some(code)), "{session}");
        }
    }
}
