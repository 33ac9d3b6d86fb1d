//! Settings of a conversation. A response keeps the settings it started with.

pub use crate::llm::{Tool, ToolChoice};
pub use crate::turn::Eagerness;

/// What kind of session it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionKind {
    /// Hears, thinks, speaks.
    #[default]
    Conversation,
    /// Only hears: every turn gives a transcript, no response is ever made.
    Transcription,
}

/// Whether answers are spoken or written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Modality {
    #[default]
    Audio,
    Text,
}

/// Who decides that a turn has ended.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnDetection {
    /// The client commits by itself.
    Manual,
    /// Silence alone.
    Silence {
        /// Voice probability above which a frame is speech, 0..=1.
        threshold: f32,
        prefix_padding_ms: u32,
        silence_duration_ms: u32,
        /// `None`: never speak up by itself.
        idle_timeout_ms: Option<u32>,
        create_response: bool,
        interrupt_response: bool,
    },
    /// Silence and how finished the utterance sounds (Smart Turn).
    Semantic { eagerness: Eagerness, create_response: bool, interrupt_response: bool },
}

/// Whether and how the caller's words are reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TranscriptionSettings {
    /// Model name as the client asked; shown back, not looked up.
    pub model: Option<String>,
    pub language: Option<String>,
    pub prompt: Option<String>,
}

/// Everything that shapes a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub kind: SessionKind,
    pub instructions: String,
    pub modality: Modality,
    pub turn_detection: TurnDetection,
    /// `None`: transcripts are made (the model needs them) but not reported.
    pub transcription: Option<TranscriptionSettings>,
    pub voice: String,
    /// 0.25..=1.5
    pub speed: f32,
    pub tools: Vec<Tool>,
    pub tool_choice: ToolChoice,
    /// `None`: no limit but the model's.
    pub max_output_tokens: Option<u32>,
    pub temperature: f32,
}

/// A change of settings: present fields replace, absent ones stay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SettingsPatch {
    pub kind: Option<SessionKind>,
    pub instructions: Option<String>,
    pub modality: Option<Modality>,
    pub turn_detection: Option<TurnDetection>,
    pub transcription: Option<Option<TranscriptionSettings>>,
    pub voice: Option<String>,
    pub speed: Option<f32>,
    pub tools: Option<Vec<Tool>>,
    pub tool_choice: Option<ToolChoice>,
    pub max_output_tokens: Option<Option<u32>>,
    pub temperature: Option<f32>,
}

impl Settings {
    /// Takes over what the patch has.
    pub fn apply(&mut self, patch: SettingsPatch) {
        let SettingsPatch {
            kind,
            instructions,
            modality,
            turn_detection,
            transcription,
            voice,
            speed,
            tools,
            tool_choice,
            max_output_tokens,
            temperature,
        } = patch;
        let now = self.clone();
        *self = Self {
            kind: kind.unwrap_or(now.kind),
            instructions: instructions.unwrap_or(now.instructions),
            modality: modality.unwrap_or(now.modality),
            turn_detection: turn_detection.unwrap_or(now.turn_detection),
            transcription: transcription.unwrap_or(now.transcription),
            voice: voice.unwrap_or(now.voice),
            speed: speed.unwrap_or(now.speed),
            tools: tools.unwrap_or(now.tools),
            tool_choice: tool_choice.unwrap_or(now.tool_choice),
            max_output_tokens: max_output_tokens.unwrap_or(now.max_output_tokens),
            temperature: temperature.unwrap_or(now.temperature),
        };
    }
}
