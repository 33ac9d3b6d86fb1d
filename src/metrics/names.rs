//! Every metric, once: its name, what it says, and for a distribution the time
//! that is budgeted for it.
//!
//! Buckets follow from the budget: a stage that should take 200 ms needs its
//! steps around 200 ms, not around 10 s.

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution, in the unit that its name ends with.
    Distribution(Budget),
}

/// What a distribution's values should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Milliseconds that the stage may take.
    Millis(u32),
    /// A count, in steps of one up to this.
    Count(u32),
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Name in the exposition format.
    pub name: &'static str,
    /// What it says, one line.
    pub help: &'static str,
    /// What it is.
    pub kind: Kind,
}

impl Budget {
    /// Upper bounds of the buckets, ascending: finest around the budget, from
    /// a tenth of it to ten times.
    pub fn buckets(self) -> Vec<f64> {
        const SHARES: [f64; 14] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0];
        match self {
            Self::Millis(budget) => SHARES.iter().map(|share| share * f64::from(budget) / 1000.0).collect(),
            Self::Count(most) => (1..=most).map(f64::from).collect(),
        }
    }
}

const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help, kind: Kind::Counter }
}

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help, kind: Kind::Gauge }
}

const fn stage(name: &'static str, budget_ms: u32, help: &'static str) -> Metric {
    Metric { name, help, kind: Kind::Distribution(Budget::Millis(budget_ms)) }
}

/// Conversations that are open.
pub const SESSIONS: Metric = gauge("voluble_sessions", "Conversations that are open");
/// Conversations begun.
pub const SESSIONS_TOTAL: Metric = counter("voluble_sessions_total", "Conversations begun");
/// Conversations refused, by `reason`.
pub const SESSIONS_REFUSED: Metric =
    counter("voluble_sessions_refused_total", "Conversations refused, by reason (capacity, draining, key)");
/// Answers ended, by `outcome`.
pub const ANSWERS: Metric = counter(
    "voluble_answers_total",
    "Answers ended, by outcome (completed, interrupted, cancelled, incomplete, failed)",
);
/// Failures, by `kind` of [`crate::error::Kind`].
pub const ERRORS: Metric =
    counter("voluble_errors_total", "Failures, by kind (client, capacity, upstream, timeout, bug)");

/// Length of what a caller said.
pub const SPEECH: Metric =
    stage("voluble_turn_speech_seconds", 4000, "Length of what a caller said in a turn");
/// End of speech to `Likely`.
pub const LIKELY: Metric =
    stage("voluble_turn_likely_seconds", 100, "From the end of speech until the turn's end was likely");
/// End of speech to `Final`.
pub const FINAL: Metric =
    stage("voluble_turn_final_seconds", 250, "From the end of speech until the turn's end was final");
/// End of speech to the last words.
pub const TRANSCRIPT: Metric =
    stage("voluble_turn_transcript_seconds", 500, "From the end of speech until the words were known");
/// End of speech to the prompt in the cache.
pub const PREFILL: Metric =
    stage("voluble_turn_prefill_seconds", 700, "From the end of speech until the model had read the prompt");
/// End of speech to the first block.
pub const FIRST_BLOCK: Metric = stage(
    "voluble_turn_first_block_seconds",
    800,
    "From the end of speech until the first words were written",
);
/// End of speech to the first clause.
pub const FIRST_CLAUSE: Metric = stage(
    "voluble_turn_first_clause_seconds",
    900,
    "From the end of speech until a first clause could be spoken",
);
/// End of speech to the first audio.
pub const FIRST_AUDIO: Metric =
    stage("voluble_turn_first_audio_seconds", 1000, "From the end of speech until the first sound was made");
/// The gap: end of speech to the first audible sample on its way.
pub const GAP: Metric = stage(
    "voluble_turn_gap_seconds",
    1000,
    "The gap: from the end of speech until the first audible sample was sent",
);

/// Prompt tokens.
pub const PROMPT_TOKENS: Metric = counter("voluble_llm_prompt_tokens_total", "Prompt tokens of answers");
/// Of those, found in the cache.
pub const CACHED_TOKENS: Metric =
    counter("voluble_llm_cached_tokens_total", "Prompt tokens that were already in the cache");
/// Tokens written.
pub const TOKENS: Metric = counter("voluble_llm_tokens_total", "Tokens written");
/// Passes over the base model after the prompt.
pub const PASSES: Metric = counter("voluble_llm_passes_total", "Passes over the base model after the prompt");
/// Tokens settled by a pass, mean of an answer.
pub const TOKENS_PER_PASS: Metric = Metric {
    name: "voluble_llm_tokens_per_pass",
    help: "Tokens settled by a pass over the base model, mean of an answer",
    kind: Kind::Distribution(Budget::Count(8)),
};

/// All of them; what is not here is not exported.
pub const ALL: &[Metric] = &[
    SESSIONS,
    SESSIONS_TOTAL,
    SESSIONS_REFUSED,
    ANSWERS,
    ERRORS,
    SPEECH,
    LIKELY,
    FINAL,
    TRANSCRIPT,
    PREFILL,
    FIRST_BLOCK,
    FIRST_CLAUSE,
    FIRST_AUDIO,
    GAP,
    PROMPT_TOKENS,
    CACHED_TOKENS,
    TOKENS,
    PASSES,
    TOKENS_PER_PASS,
];
