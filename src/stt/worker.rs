//! The thread that decodes. A panic in the model costs the job, not the thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::SttError;
use super::board::{Board, Job, Outcome};
use super::decode::{Decode, Decoded, Request, Stopped};
use super::guards::{self, Limits};
use super::utterance::{Heard, Why};

/// Encoder context of a second try: about half the window.
const SECOND_POSITIONS: usize = 768;

/// What every job is done by.
pub(super) struct Rules {
    pub limits: Limits,
    pub tokens_per_s: f32,
    /// Languages to choose from; empty is all.
    pub allowed: Vec<&'static str>,
}

/// Makes the decoders of one worker, on its thread: the lasting one and, when
/// partials have a model of their own, theirs.
pub(super) type Maker = Arc<dyn Fn() -> Result<Decoders, SttError> + Send + Sync>;

/// The decoders of one worker.
pub(super) struct Decoders {
    pub full: Box<dyn Decode>,
    pub partial: Option<Box<dyn Decode>>,
}

/// Works until the board is shut. `ready` hears whether the start went well.
pub(super) fn work(board: &Board, maker: &Maker, rules: &Rules, ready: impl FnOnce(Result<(), SttError>)) {
    let mut decoders = match maker() {
        Ok(decoders) => decoders,
        Err(error) => return ready(Err(error)),
    };
    ready(Ok(()));
    while let Some(job) = board.next() {
        let start = Instant::now();
        let done = catch_unwind(AssertUnwindSafe(|| transcribe(&mut decoders, &job, rules)));
        tracing::debug!(
            why = ?job.stretch.why,
            audio_ms = job.audio.len() / (crate::audio::HEARING_RATE as usize / 1000),
            took_ms = start.elapsed().as_millis() as u64,
            "decoded"
        );
        match done {
            Ok(outcome) => board.done(&job, outcome),
            Err(_) => {
                board.done(&job, Outcome::Failed("the speech model panicked".to_owned()));
                // What the panic left behind is not to be trusted.
                match maker() {
                    Ok(fresh) => decoders = fresh,
                    Err(error) => {
                        tracing::error!(%error, "a speech worker cannot start again");
                        return;
                    }
                }
            }
        }
    }
}

fn transcribe(decoders: &mut Decoders, job: &Job, rules: &Rules) -> Outcome {
    let partial = job.stretch.why == Why::Partial;
    let (decoder, own_model) = match &mut decoders.partial {
        Some(decoder) if partial => (decoder, true),
        _ => (&mut decoders.full, false),
    };
    let request = Request {
        audio: &job.audio,
        language: job.language,
        guess: job.guess,
        allowed: &rules.allowed,
        prompt: &job.prompt,
        tokens_per_s: rules.tokens_per_s,
        min_positions: 0,
        cancel: &job.cancel,
    };
    match attempt(decoder.as_mut(), &request, rules, !partial) {
        Ok((decoded, sure)) => {
            let text = guards::believed(&decoded, job.signal, rules.limits);
            let heard = Heard { text, language: Some(decoded.language), no_speech: decoded.no_speech };
            Outcome::Heard { heard, lasting: sure && !own_model }
        }
        Err(Stopped::Cancelled) => Outcome::Cancelled,
        Err(Stopped::Failed(message)) => Outcome::Failed(message),
    }
}

/// Decodes, and once more where the guards ask for it and `again` allows. The
/// flag says whether there is nothing left to try.
fn attempt(
    decoder: &mut dyn Decode,
    request: &Request<'_>,
    rules: &Rules,
    again: bool,
) -> Result<(Decoded, bool), Stopped> {
    let first = decoder.run(request)?;
    let doubtful = guards::doubtful(&first, rules.limits);
    let short = first.cut && !guards::repeats(&first);
    if !doubtful && !short {
        return Ok((first, true));
    }
    if !again {
        return Ok((first, false));
    }
    let second = decoder.run(&Request {
        min_positions: if doubtful { SECOND_POSITIONS } else { 0 },
        // A dense script or a very fast speaker.
        tokens_per_s: if short { rules.tokens_per_s * 3.0 } else { rules.tokens_per_s },
        language: Some(first.language),
        ..*request
    })?;
    let better = (guards::repeats(&second), -second.logprob) <= (guards::repeats(&first), -first.logprob);
    Ok((if better || short { second } else { first }, true))
}

#[cfg(test)]
mod tests;
