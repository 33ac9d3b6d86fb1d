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

/// Why a change of settings is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSetting {
    /// Path of the field in OpenAI's session object.
    pub param: &'static str,
    /// What is wrong.
    pub message: String,
}

/// Limits that settings are held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingsLimits {
    /// Characters of instructions.
    pub instructions: usize,
    /// Tools.
    pub tools: usize,
}

impl Settings {
    /// These settings with a change applied; nothing of it when a part is out of range.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn patched(&self, patch: &SettingsPatch, limits: SettingsLimits) -> Result<Self, BadSetting> {
        let mut new = self.clone();
        fn set<T: Clone>(slot: &mut T, value: &Option<T>) {
            if let Some(value) = value {
                slot.clone_from(value);
            }
        }
        set(&mut new.kind, &patch.kind);
        set(&mut new.instructions, &patch.instructions);
        set(&mut new.modality, &patch.modality);
        set(&mut new.turn_detection, &patch.turn_detection);
        set(&mut new.transcription, &patch.transcription);
        set(&mut new.voice, &patch.voice);
        set(&mut new.speed, &patch.speed);
        set(&mut new.tools, &patch.tools);
        set(&mut new.tool_choice, &patch.tool_choice);
        set(&mut new.max_output_tokens, &patch.max_output_tokens);
        set(&mut new.temperature, &patch.temperature);
        new.check(limits)?;
        Ok(new)
    }

    fn check(&self, limits: SettingsLimits) -> Result<(), BadSetting> {
        let bad = |param, message: String| Err(BadSetting { param, message });
        if self.instructions.chars().count() > limits.instructions {
            return bad("session.instructions", format!("at most {} characters", limits.instructions));
        }
        if self.tools.len() > limits.tools {
            return bad("session.tools", format!("at most {} tools", limits.tools));
        }
        if let Some(tool) = self.tools.iter().find(|tool| tool.name.is_empty()) {
            return bad(
                "session.tools",
                format!("a tool needs a name (description: {:?})", tool.description),
            );
        }
        if let ToolChoice::Named(name) = &self.tool_choice
            && !self.tools.iter().any(|tool| tool.name == *name)
        {
            return bad("session.tool_choice", format!("there is no tool named '{name}'"));
        }
        if !(0.25..=1.5).contains(&self.speed) {
            return bad("session.audio.output.speed", format!("must be 0.25..=1.5, not {}", self.speed));
        }
        if !(0.0..=2.0).contains(&self.temperature) {
            return bad("session.temperature", format!("must be 0..=2, not {}", self.temperature));
        }
        if self.max_output_tokens == Some(0) {
            return bad("session.max_output_tokens", "must be at least 1".to_owned());
        }
        if let TurnDetection::Silence {
            threshold,
            prefix_padding_ms,
            silence_duration_ms,
            idle_timeout_ms,
            ..
        } = &self.turn_detection
        {
            const AT: &str = "session.audio.input.turn_detection";
            if !(0.0..=1.0).contains(threshold) {
                return bad(AT, format!("threshold must be 0..=1, not {threshold}"));
            }
            if *prefix_padding_ms > 5_000 {
                return bad(AT, format!("prefix_padding_ms must be 0..=5000, not {prefix_padding_ms}"));
            }
            if !(32..=10_000).contains(silence_duration_ms) {
                return bad(AT, format!("silence_duration_ms must be 32..=10000, not {silence_duration_ms}"));
            }
            if idle_timeout_ms.is_some_and(|ms| !(1_000..=60_000).contains(&ms)) {
                return bad(AT, "idle_timeout_ms must be 1000..=60000".to_owned());
            }
        }
        Ok(())
    }

    /// Whether a turn found by itself is answered by itself.
    pub fn creates_responses(&self) -> bool {
        self.kind == SessionKind::Conversation
            && match self.turn_detection {
                TurnDetection::Manual => false,
                TurnDetection::Silence { create_response, .. }
                | TurnDetection::Semantic { create_response, .. } => create_response,
            }
    }

    /// Whether the caller's voice stops the agent.
    pub fn interrupts_responses(&self) -> bool {
        match self.turn_detection {
            TurnDetection::Manual => false,
            TurnDetection::Silence { interrupt_response, .. }
            | TurnDetection::Semantic { interrupt_response, .. } => interrupt_response,
        }
    }
}
