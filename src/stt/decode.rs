//! One piece of audio through Whisper, with the encoder cut to its length.
//!
//! Owns: the whisper.cpp context and state, its parameters, the choice of
//! language. Must not know: streams, queues, what a text is used for.
//!
//! Facts this file is built on (whisper.cpp 1.8.3, measured on two cores):
//! the encoder's time grows with its context, 1500 for 30 s, so it is cut to
//! the audio; below 384 the models start to repeat themselves; clips under a
//! second give nothing unless padded; the abort callback is asked after the
//! encoder and after every token.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use whisper_rs::{
    FullParams, SamplingStrategy, WhisperContext, WhisperContextParameters, WhisperError, WhisperState,
};

use super::SttError;
use crate::audio::HEARING_RATE;

/// Encoder positions per second of audio.
const POSITIONS_PER_S: f32 = 50.0;
/// Positions of silence kept behind the audio, so that the decoder sees an end.
const SPARE_POSITIONS: usize = 64;
/// Smallest encoder context at which neither model loops.
const MIN_POSITIONS: usize = 384;
/// Longest audio of one decoding, in samples: Whisper's window.
const WINDOW: usize = 30 * HEARING_RATE as usize;
/// Shorter audio is padded to this with silence, in samples.
const SHORTEST: usize = HEARING_RATE as usize * 11 / 10;
/// Tokens that are always allowed, whatever the length.
const SPARE_TOKENS: f32 = 8.0;
/// Tokens of context (words the caller may say, what was said before) at most.
const MAX_PROMPT_TOKENS: usize = 64;
/// Tokens of a multilingual model that name no language.
const TOKENS_BESIDES_LANGUAGES: i32 = 51_766;
/// The language tried first when none is known.
const FIRST_GUESS: &str = "en";

/// A loaded model; shared by the workers.
#[derive(Clone)]
pub(super) struct Model {
    context: Arc<WhisperContext>,
    /// How many languages it knows; 0 for a model of English only.
    languages: i32,
}

impl Model {
    /// Loads a ggml file.
    ///
    /// # Errors
    /// [`SttError::Model`] when it is missing or not a Whisper.
    pub(super) fn load(path: &Path) -> Result<Self, SttError> {
        // whisper.cpp prints to stderr otherwise, even on success.
        whisper_rs::install_logging_hooks();
        if !path.is_file() {
            return Err(SttError::Model(format!(
                "{} is missing; `voluble models pull` fetches it",
                path.display()
            )));
        }
        let mut parameters = WhisperContextParameters::new();
        // On a CPU flash attention is the slower of the two, by a quarter.
        parameters.flash_attn(false);
        let context = WhisperContext::new_with_params(path, parameters)
            .map_err(|e| SttError::Model(format!("{} cannot be loaded: {e}", path.display())))?;
        let languages =
            if context.is_multilingual() { context.n_vocab() - TOKENS_BESIDES_LANGUAGES } else { 0 };
        Ok(Self { context: Arc::new(context), languages })
    }

    /// The language as whisper.cpp spells it (`en-US` is `en`), when this model knows it.
    pub(super) fn language(&self, code: &str) -> Option<&'static str> {
        let base = code.split(['-', '_']).next().unwrap_or_default().to_ascii_lowercase();
        let id = (base.len() <= 3 && !base.contains('\0')).then(|| whisper_rs::get_lang_id(&base))??;
        let name = whisper_rs::get_lang_str(id)?;
        (id < self.languages || name == "en").then_some(name)
    }

    /// The only language, when there is no choice.
    pub(super) fn only_language(&self) -> Option<&'static str> {
        (self.languages == 0).then_some("en")
    }
}

/// What the caller of [`Decoder::run`] wants.
pub(super) struct Request<'a> {
    /// Mono at [`HEARING_RATE`], at most [`WINDOW`] samples.
    pub audio: &'a [f32],
    /// Set: no detection.
    pub language: Option<&'static str>,
    /// Likely language when `language` is not set.
    pub guess: Option<&'static str>,
    /// Languages to choose from; empty is all.
    pub allowed: &'a [&'static str],
    /// Text the decoder is to take as having come before.
    pub prompt: &'a str,
    /// Tokens a second of audio may hold.
    pub tokens_per_s: f32,
    /// Smallest encoder context; 0 takes the usual one.
    pub min_positions: usize,
    /// When true the work stops within one step.
    pub cancel: &'a Arc<AtomicBool>,
}

/// What the model said.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Decoded {
    pub text: String,
    pub language: &'static str,
    /// Probability that there is no speech.
    pub no_speech: f32,
    /// Mean log probability of the tokens.
    pub logprob: f32,
    /// The token limit was reached: most likely a loop.
    pub cut: bool,
}

/// Why a decoding gave nothing.
#[derive(Debug)]
pub(super) enum Stopped {
    /// The cancel flag was set.
    Cancelled,
    /// The model failed.
    Failed(String),
}

impl From<WhisperError> for Stopped {
    fn from(error: WhisperError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Something that turns audio into text; lives on one worker thread.
pub(super) trait Decode {
    /// Transcribes one piece of audio.
    fn run(&mut self, request: &Request<'_>) -> Result<Decoded, Stopped>;
}

type Abort = Box<dyn FnMut() -> bool>;

/// A model with the memory of one decoding. Lives on one worker thread.
pub(super) struct Decoder {
    model: Model,
    state: WhisperState,
    threads: usize,
    /// Parameters per language: whisper-rs leaks a string each time a language is set.
    params: HashMap<&'static str, FullParams<'static, 'static>>,
    /// What the abort callback of `params` looks at.
    cancel: Rc<RefCell<Option<Arc<AtomicBool>>>>,
}

impl Decoder {
    /// Takes memory for one decoding at a time.
    pub(super) fn new(model: &Model, threads: usize) -> Result<Self, SttError> {
        let state = model.context.create_state().map_err(|e| SttError::Model(e.to_string()))?;
        Ok(Self {
            model: model.clone(),
            state,
            threads,
            params: HashMap::new(),
            cancel: Rc::new(RefCell::new(None)),
        })
    }

    fn run_languages(&mut self, request: &Request<'_>) -> Result<Decoded, Stopped> {
        // Detection needs the encoder's output, which is nearly all of the
        // work: transcribe in the likely language and look at the language
        // tokens afterwards. One step when the guess was right, and it mostly is.
        let guess = request.language.or(self.model.only_language()).or(request.guess).unwrap_or(FIRST_GUESS);
        let mut first = self.transcribe(request, guess)?;
        let start = self.start_logits()?;
        first.no_speech = probability(&start, self.model.context.token_nosp());
        if request.language.is_some() || self.model.languages == 0 {
            return Ok(first);
        }
        let detected = choose_language(&self.languages(&start, request.allowed), guess, request.audio.len());
        if detected == guess {
            return Ok(first);
        }
        // Accents and noise are taken for far languages: believe what reads better.
        let mut second = self.transcribe(request, detected)?;
        second.no_speech = first.no_speech;
        let guess_allowed = request.allowed.is_empty() || request.allowed.contains(&guess);
        Ok(if guess_allowed && first.logprob >= second.logprob { first } else { second })
    }

    fn transcribe(&mut self, request: &Request<'_>, language: &'static str) -> Result<Decoded, Stopped> {
        debug_assert!(request.audio.len() <= WINDOW, "an utterance is cut before the window is full");
        let seconds = request.audio.len() as f32 / HEARING_RATE as f32;
        let positions = ((seconds * POSITIONS_PER_S).ceil() as usize + SPARE_POSITIONS)
            .max(MIN_POSITIONS)
            .max(request.min_positions)
            .min(self.model.context.n_audio_ctx() as usize);
        let max_tokens = (seconds * request.tokens_per_s + SPARE_TOKENS).ceil() as usize;
        let prompt = self.prompt_tokens(request.prompt);
        let mut params: FullParams<'_, '_> = self.params(language);
        params.set_audio_ctx(positions as i32);
        params.set_max_tokens(max_tokens as i32);
        params.set_tokens(&prompt);
        let padded;
        let audio = if request.audio.len() < SHORTEST {
            padded = [request.audio, &vec![0.0; SHORTEST - request.audio.len()]].concat();
            &padded
        } else {
            request.audio
        };
        self.state.full(params, audio)?;
        Ok(self.read(language, max_tokens))
    }

    fn read(&self, language: &'static str, max_tokens: usize) -> Decoded {
        let mut bytes = Vec::new();
        let (mut sum, mut count) = (0.0, 0_usize);
        for segment in self.state.as_iter() {
            bytes.extend_from_slice(segment.to_bytes().unwrap_or_default());
            for token in (0..segment.n_tokens()).filter_map(|i| segment.get_token(i)) {
                sum += token.token_data().plog;
                count += 1;
            }
        }
        // The token limit may cut a letter in two.
        let text = String::from_utf8_lossy(&bytes).trim_matches(['\u{fffd}', ' ', '\n']).to_owned();
        let logprob = if count == 0 { 0.0 } else { sum / count as f32 };
        Decoded { text, language, no_speech: 0.0, logprob, cut: count >= max_tokens }
    }

    fn params(&mut self, language: &'static str) -> FullParams<'static, 'static> {
        let (threads, cancel) = (self.threads, &self.cancel);
        self.params
            .entry(language)
            .or_insert_with(|| {
                let mut p = FullParams::new(SamplingStrategy::Greedy { best_of: 1 });
                p.set_n_threads(threads as i32);
                p.set_language(Some(language));
                p.set_no_context(true);
                p.set_no_timestamps(true);
                p.set_single_segment(true);
                p.set_suppress_blank(true);
                p.set_suppress_nst(true);
                p.set_temperature(0.0);
                p.set_temperature_inc(0.0);
                p.set_print_special(false);
                p.set_print_progress(false);
                p.set_print_realtime(false);
                p.set_print_timestamps(false);
                // The guards decide; whisper.cpp's own threshold would hide what it dropped.
                p.set_no_speech_thold(1.1);
                let cancel = Rc::clone(cancel);
                // Boxed, and typed as the box: whisper-rs 0.16 hands its callback
                // a pointer to a box, and takes it for a pointer to this type.
                let abort: Abort =
                    Box::new(move || cancel.borrow().as_ref().is_some_and(|c| c.load(Ordering::Relaxed)));
                p.set_abort_callback_safe::<_, Abort>(abort);
                p
            })
            .clone()
    }

    fn prompt_tokens(&self, prompt: &str) -> Vec<i32> {
        if prompt.is_empty() {
            return Vec::new();
        }
        let clean = prompt.replace('\0', " ");
        // Room for a token a byte: whisper-rs must not be told of fewer than needed.
        let mut tokens = self.model.context.tokenize(&clean, clean.len() + 1).unwrap_or_default();
        tokens.drain(..tokens.len().saturating_sub(MAX_PROMPT_TOKENS));
        tokens
    }

    /// Logits of the first step over the audio last transcribed: what language,
    /// and whether it is speech at all. (whisper.cpp's own no-speech figure is
    /// read from a row of logits that a prompt of several tokens leaves stale.)
    fn start_logits(&mut self) -> Result<Vec<f32>, WhisperError> {
        let sot = self.model.context.token_sot();
        self.state.decode(&[sot], 0, self.threads)?;
        Ok(self.state.get_logits()?.to_vec())
    }

    fn languages(&self, logits: &[f32], allowed: &[&'static str]) -> Vec<(&'static str, f32)> {
        (0..self.model.languages)
            .filter_map(|id| Some((whisper_rs::get_lang_str(id)?, self.model.context.token_lang(id))))
            .filter(|(name, _)| allowed.is_empty() || allowed.contains(name))
            .filter_map(|(name, token)| Some((name, *logits.get(usize::try_from(token).ok()?)?)))
            .collect()
    }
}

impl Decode for Decoder {
    fn run(&mut self, request: &Request<'_>) -> Result<Decoded, Stopped> {
        *self.cancel.borrow_mut() = Some(Arc::clone(request.cancel));
        let result = self.run_languages(request);
        *self.cancel.borrow_mut() = None;
        // An aborted call fails too, and so may one that was done before it noticed.
        if request.cancel.load(Ordering::Relaxed) { Err(Stopped::Cancelled) } else { result }
    }
}

/// Softmax of one token.
fn probability(logits: &[f32], token: i32) -> f32 {
    let Some(&own) = usize::try_from(token).ok().and_then(|i| logits.get(i)) else { return 0.0 };
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    (own - top).exp() / logits.iter().map(|l| (l - top).exp()).sum::<f32>()
}

/// The most probable language, when it is clearly so: a short clip says little
/// about its language, so the guess keeps the benefit of the doubt.
fn choose_language(candidates: &[(&'static str, f32)], guess: &'static str, samples: usize) -> &'static str {
    let Some(&(best, top)) = candidates.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else { return guess };
    let total: f32 = candidates.iter().map(|(_, logit)| (logit - top).exp()).sum();
    let needed = if samples < 2 * HEARING_RATE as usize { 0.8 } else { 0.5 };
    let guess_allowed = candidates.iter().any(|(name, _)| *name == guess);
    if !guess_allowed || 1.0 / total >= needed { best } else { guess }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_clip_keeps_the_guess() {
        let doubtful = [("en", 1.0), ("cy", 2.0), ("de", 0.0)];
        assert_eq!(choose_language(&doubtful, "en", 16_000), "en");
        assert_eq!(choose_language(&doubtful, "en", 80_000), "cy");
        let clear = [("en", 1.0), ("de", 9.0)];
        assert_eq!(choose_language(&clear, "en", 16_000), "de");
        assert_eq!(choose_language(&[("de", 0.0), ("fr", 0.1)], "en", 16_000), "fr", "only allowed ones");
        assert_eq!(choose_language(&[], "en", 16_000), "en");
    }
}
