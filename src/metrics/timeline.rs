//! Recording turns, answers, sessions and failures.

use metrics::{counter, gauge, histogram};

use super::names;
use crate::error::Kind;
use crate::session::event::{CancelReason, ResponseStatus, Timeline};

/// Records a turn's stages; one that did not happen leaves no value.
pub fn record_turn(timeline: &Timeline) {
    let stages = [
        (names::SPEECH, timeline.speech_ms),
        (names::LIKELY, timeline.likely_ms),
        (names::FINAL, timeline.final_ms),
        (names::TRANSCRIPT, timeline.transcript_ms),
        (names::PREFILL, timeline.prefill_ms),
        (names::FIRST_BLOCK, timeline.first_block_ms),
        (names::FIRST_CLAUSE, timeline.first_clause_ms),
        (names::FIRST_AUDIO, timeline.first_audio_ms),
        (names::GAP, timeline.first_audible_ms),
    ];
    for (metric, ms) in stages {
        if let Some(ms) = ms {
            histogram!(metric.name).record(ms / 1000.0);
        }
    }
    counter!(names::PROMPT_TOKENS.name).increment(timeline.prompt_tokens.into());
    counter!(names::CACHED_TOKENS.name).increment(timeline.cached_tokens.into());
    counter!(names::TOKENS.name).increment(timeline.tokens.into());
    counter!(names::PASSES.name).increment(timeline.passes.into());
    if timeline.passes > 0 {
        histogram!(names::TOKENS_PER_PASS.name)
            .record(f64::from(timeline.tokens) / f64::from(timeline.passes));
    }
}

/// Records how an answer ended; one in progress has not.
pub fn record_answer(status: &ResponseStatus) {
    let outcome = match status {
        ResponseStatus::InProgress => return,
        ResponseStatus::Completed => "completed",
        ResponseStatus::Cancelled(CancelReason::TurnDetected) => "interrupted",
        ResponseStatus::Cancelled(CancelReason::ClientCancelled) => "cancelled",
        ResponseStatus::Incomplete => "incomplete",
        ResponseStatus::Failed { .. } => "failed",
    };
    counter!(names::ANSWERS.name, "outcome" => outcome).increment(1);
}

/// Records a failure.
pub fn record_error(kind: Kind) {
    counter!(names::ERRORS.name, "kind" => kind.row().label).increment(1);
}

/// Records a conversation that was refused; `reason`: `capacity`, `draining` or `key`.
pub fn record_refusal(reason: &'static str) {
    counter!(names::SESSIONS_REFUSED.name, "reason" => reason).increment(1);
}

/// Counts a conversation as open until it is dropped.
#[derive(Debug)]
#[must_use = "the conversation counts as open while this lives"]
pub struct OpenSession(());

/// A conversation begins.
pub fn session_opened() -> OpenSession {
    counter!(names::SESSIONS_TOTAL.name).increment(1);
    gauge!(names::SESSIONS.name).increment(1.0);
    OpenSession(())
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        gauge!(names::SESSIONS.name).decrement(1.0);
    }
}
