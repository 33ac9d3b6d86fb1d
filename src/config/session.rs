//! One conversation: limits and starting settings.

use serde::{Deserialize, Serialize};

use super::{Invalid, Section};

/// One conversation: limits and starting settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Session {
    /// Conversations at once; one more is refused. 1..=1024.
    pub max_sessions: usize,
    /// Longest conversation, minutes. 1..=1440.
    pub max_minutes: u32,
    /// Seconds that running answers may take to end when the server shuts down. 0..=600.
    pub drain_seconds: u32,
    /// Instructions of a conversation whose client gives none.
    pub instructions: String,
    /// Temperature of a conversation; 0 is greedy. 0..=2.
    pub temperature: f32,
    /// Seconds of audio that one turn may hold, by hand or by voice. 5..=3600.
    pub max_turn_seconds: u32,
    /// Items that a conversation keeps; the oldest go first. 10..=100000.
    pub max_items: usize,
    /// Seconds of the caller's audio that are kept for retrieval; the oldest goes first. 0..=86400.
    pub max_audio_seconds: u32,
    /// Characters of instructions. 100..=1000000.
    pub max_instructions_chars: usize,
    /// Characters of one item's text. 100..=1000000.
    pub max_item_chars: usize,
    /// Characters of history in a prompt; the oldest turns are left out above it. 500..=1000000.
    pub max_prompt_chars: usize,
    /// Tools. 0..=1024.
    pub max_tools: usize,
    /// Responses outside the conversation at once. 0..=64.
    pub max_out_of_band: usize,
    /// Milliseconds that a transcript may take before the turn is given up. 1000..=600000.
    pub transcript_timeout_ms: u32,
    /// Milliseconds that a client may leave events unread before the session ends. 1000..=600000.
    pub reader_timeout_ms: u32,
}

impl Default for Session {
    fn default() -> Self {
        Self {
            max_sessions: 8,
            max_minutes: 60,
            drain_seconds: 10,
            instructions:
                "You are a friendly voice assistant on a call. Answer in one or two short spoken sentences, \
                           without lists, markdown or emoji."
                    .to_owned(),
            temperature: 0.0,
            max_turn_seconds: 300,
            max_items: 1000,
            max_audio_seconds: 600,
            max_instructions_chars: 20_000,
            max_item_chars: 50_000,
            max_prompt_chars: 24_000,
            max_tools: 128,
            max_out_of_band: 4,
            transcript_timeout_ms: 30_000,
            reader_timeout_ms: 10_000,
        }
    }
}

impl Section for Session {
    fn validate(&self) -> Result<(), Invalid> {
        let ranges = [
            ("max_sessions", self.max_sessions as f64, 1.0, 1024.0),
            ("max_minutes", f64::from(self.max_minutes), 1.0, 1440.0),
            ("drain_seconds", f64::from(self.drain_seconds), 0.0, 600.0),
            ("temperature", f64::from(self.temperature), 0.0, 2.0),
            ("max_turn_seconds", f64::from(self.max_turn_seconds), 5.0, 3600.0),
            ("max_items", self.max_items as f64, 10.0, 100_000.0),
            ("max_audio_seconds", f64::from(self.max_audio_seconds), 0.0, 86_400.0),
            ("max_instructions_chars", self.max_instructions_chars as f64, 100.0, 1_000_000.0),
            ("max_item_chars", self.max_item_chars as f64, 100.0, 1_000_000.0),
            ("max_prompt_chars", self.max_prompt_chars as f64, 500.0, 1_000_000.0),
            ("max_tools", self.max_tools as f64, 0.0, 1024.0),
            ("max_out_of_band", self.max_out_of_band as f64, 0.0, 64.0),
            ("transcript_timeout_ms", f64::from(self.transcript_timeout_ms), 1000.0, 600_000.0),
            ("reader_timeout_ms", f64::from(self.reader_timeout_ms), 1000.0, 600_000.0),
        ];
        for (key, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                return Err(Invalid::new(key, format!("must be {low}..={high}, not {value}")));
            }
        }
        if self.instructions.chars().count() > self.max_instructions_chars {
            return Err(Invalid::new("instructions", "must not be longer than max_instructions_chars"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_a_bad_value_is_named() {
        assert_eq!(Session::default().validate(), Ok(()));
        let fault =
            Session { max_sessions: 0, ..Session::default() }.validate().expect_err("none is no server");
        assert_eq!(fault.key, "max_sessions");
    }
}
