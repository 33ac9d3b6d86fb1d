//! Building the parts of a conversation from settings and the store: the place
//! where each seam gets its implementation.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use super::failure::Failure;
use crate::config::Config;
use crate::engine::{Engine, Weights};
use crate::llm::Generator;
use crate::llm::generator::TextGenerator;
use crate::llm::vocabulary::Vocabulary;
use crate::models::{Store, language_model};
use crate::session::manager::Parts;
use crate::stt::{Recognizer, Whisper};
use crate::tts::Synthesizer;
use crate::tts::piper::Piper;
use crate::turn::TurnModels;
use crate::turn::local::LocalTurnModels;

/// Hears words.
///
/// # Errors
/// When the model is missing or broken; says how to get it.
pub fn recognizer(config: &Config, store: &Store) -> Result<Arc<dyn Recognizer>, Failure> {
    Ok(Arc::new(Whisper::load(&config.stt, store)?))
}

/// Writes answers.
///
/// # Errors
/// As [`recognizer`].
pub fn generator(config: &Config, store: &Store) -> Result<Arc<dyn Generator>, Failure> {
    let files = language_model(store, &config.llm.model)?;
    let vocabulary = Vocabulary::read(&files.base)?;
    let weights = Weights { base: files.base, drafter: files.drafter };
    let engine = Engine::load(&weights, &config.engine)?;
    Ok(Arc::new(TextGenerator::new(&vocabulary, engine, config.llm.clone())?))
}

/// Speaks.
///
/// # Errors
/// As [`recognizer`]; also when espeak-ng is missing.
pub fn synthesizer(config: &Config, store: &Store) -> Result<Arc<dyn Synthesizer>, Failure> {
    Ok(Arc::new(Piper::start(&config.tts, store)?))
}

/// Hears who has the floor.
///
/// # Errors
/// As [`recognizer`].
pub fn turn_models(config: &Config, store: &Store) -> Result<Arc<dyn TurnModels>, Failure> {
    Ok(Arc::new(LocalTurnModels::load(store, &config.turn)?))
}

/// All of them, loaded at the same time. `say` is told when each is ready.
///
/// # Errors
/// The first part that cannot be had.
pub fn all(config: &Config, store: &Store, say: &(dyn Fn(&str) + Sync)) -> Result<Parts, Failure> {
    thread::scope(|scope| {
        let turn_models = scope.spawn(|| timed("turn taking", say, || turn_models(config, store)));
        let recognizer = scope.spawn(|| timed("speech recognition", say, || recognizer(config, store)));
        let synthesizer = scope.spawn(|| timed("speech synthesis", say, || synthesizer(config, store)));
        let generator = timed("language model", say, || generator(config, store));
        Ok(Parts {
            turn_models: joined(turn_models)?,
            recognizer: joined(recognizer)?,
            synthesizer: joined(synthesizer)?,
            generator: generator?,
        })
    })
}

fn timed<T>(what: &str, say: &dyn Fn(&str), load: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let begun = Instant::now();
    let loaded = load()?;
    say(&format!("{what} is ready ({:.1} s)", begun.elapsed().as_secs_f64()));
    Ok(loaded)
}

fn joined<T>(loading: thread::ScopedJoinHandle<'_, Result<T, Failure>>) -> Result<T, Failure> {
    // A panic of a loading thread is ours: it goes on here and ends the start.
    loading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
