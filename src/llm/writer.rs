//! One answer: the engine's blocks in, text and tool calls out.
//!
//! Pure: no channel, no clock. [`super::generator`] moves the events.

use std::sync::Arc;

use super::text::{Detokenizer, RepeatGuard, StopStrings};
use super::tokenizer::Tokenizer;
use super::tools::{Detector, Found};
use super::{FinishReason, GenerationEvent, GenerationUsage};
use crate::engine::{StopReason, TokenEvent};
use crate::error::Private;

/// Reads the events of one sequence.
pub(super) struct Writer {
    tokenizer: Arc<Tokenizer>,
    detokenizer: Detokenizer,
    stops: StopStrings,
    repeats: RepeatGuard,
    detector: Detector,
    /// The answer is one call and ends with it.
    one_call: bool,
    called: bool,
    /// Tokens whose text was not given out yet.
    pending: u32,
    usage: GenerationUsage,
    ended: bool,
}

/// What shapes an answer beside its tokens.
pub(super) struct Form {
    pub stops: Vec<String>,
    pub max_repeats: u32,
    pub detector: Detector,
    /// Written into the prompt on the model's behalf: the beginning of a forced call.
    pub prefill: String,
    pub prompt_tokens: u32,
}

impl Writer {
    pub(super) fn new(tokenizer: Arc<Tokenizer>, form: Form) -> Self {
        let mut detector = form.detector;
        let early = detector.push(&form.prefill);
        debug_assert!(early.is_empty(), "a beginning of a call is held back");
        Self {
            tokenizer,
            detokenizer: Detokenizer::default(),
            stops: StopStrings::new(form.stops),
            repeats: RepeatGuard::new(form.max_repeats),
            detector,
            one_call: !form.prefill.is_empty(),
            called: false,
            pending: 0,
            usage: GenerationUsage { prompt_tokens: form.prompt_tokens, ..GenerationUsage::default() },
            ended: false,
        }
    }

    /// Whether the last event was given out.
    pub(super) const fn ended(&self) -> bool {
        self.ended
    }

    /// What follows from an event of the engine.
    pub(super) fn on(&mut self, event: TokenEvent) -> Vec<GenerationEvent> {
        let mut out = Vec::new();
        if self.ended {
            return out;
        }
        match event {
            TokenEvent::Prefilled => out.push(GenerationEvent::Prefilled),
            TokenEvent::Block(ids) => self.block(&ids, &mut out),
            TokenEvent::Done { reason, stats } => {
                self.usage = GenerationUsage {
                    prompt_tokens: stats.prompt_tokens,
                    cached_tokens: stats.cached_tokens,
                    completion_tokens: stats.tokens,
                    passes: stats.passes,
                };
                let reason = match reason {
                    StopReason::Stop => FinishReason::Stop,
                    StopReason::Length => FinishReason::Length,
                    StopReason::Loop => FinishReason::Loop,
                };
                self.finish(reason, &mut out);
            }
            TokenEvent::Failed { message } => self.fail(message, &mut out),
        }
        out
    }

    /// The engine's channel closed without an end.
    pub(super) fn lost(&mut self) -> Vec<GenerationEvent> {
        let mut out = Vec::new();
        if !self.ended {
            self.fail("the language model's engine stopped".to_owned(), &mut out);
        }
        out
    }

    fn block(&mut self, ids: &[u32], out: &mut Vec<GenerationEvent>) {
        let count = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        self.pending += count;
        self.usage.completion_tokens += count;
        self.usage.passes += 1;
        let text: String = ids.iter().map(|id| self.detokenizer.push(self.tokenizer.bytes(*id))).collect();
        let text = self.stops.push(&text);
        let repeats = self.repeats.push(&text);
        let found = self.detector.push(&text);
        self.give(found, out);
        if self.ended {
            return;
        }
        if self.called && self.one_call {
            self.finish(FinishReason::ToolCalls, out);
        } else if self.stops.stopped() {
            self.finish(FinishReason::Stop, out);
        } else if repeats {
            self.finish(FinishReason::Loop, out);
        }
    }

    fn give(&mut self, found: Vec<Found>, out: &mut Vec<GenerationEvent>) {
        for one in found {
            match one {
                _ if self.ended => return,
                // A forced call is the whole answer: what a model adds is not asked for.
                _ if self.one_call && self.called => return,
                Found::Text(text) => out.push(GenerationEvent::Text {
                    delta: Private::new(text),
                    tokens: std::mem::take(&mut self.pending),
                }),
                Found::Call(call) => {
                    self.called = true;
                    self.pending = 0;
                    out.push(GenerationEvent::ToolCall(call));
                }
                Found::Malformed(reason) => self.fail(reason, out),
            }
        }
    }

    fn finish(&mut self, reason: FinishReason, out: &mut Vec<GenerationEvent>) {
        let mut text = self.detokenizer.finish();
        text = self.stops.push(&text);
        text.push_str(&self.stops.finish());
        let mut found = self.detector.push(&text);
        found.extend(self.detector.finish());
        if reason == FinishReason::Length {
            for one in &mut found {
                if let Found::Malformed(reason) = one {
                    "the token limit cut a tool call short".clone_into(reason);
                }
            }
        }
        self.give(found, out);
        if self.ended {
            return;
        }
        self.ended = true;
        let reason =
            if self.called && reason == FinishReason::Stop { FinishReason::ToolCalls } else { reason };
        out.push(GenerationEvent::Done { reason, usage: self.usage });
    }

    fn fail(&mut self, message: String, out: &mut Vec<GenerationEvent>) {
        self.ended = true;
        out.push(GenerationEvent::Failed { message });
    }
}
