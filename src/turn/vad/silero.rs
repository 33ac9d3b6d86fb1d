//! Silero VAD (v5 form) over ONNX Runtime.
//!
//! Input `[1, 576]`: 64 samples of context, then 512 new ones at 16 kHz; state
//! `[2, 1, 128]`; `sr` a scalar. About 0.2 ms a frame on one core.
//!
//! The recurrent state drifts: after music or long silence the model
//! under-reports the voice that follows. As pipecat does, the state is forgotten
//! every two seconds, but only after a run of clearly silent frames, because a
//! reset inside a word costs confidence.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ort::environment::Environment;
use ort::session::Session;
use ort::value::TensorRef;

use crate::audio::{HEARING_RATE, VAD_FRAME};
use crate::turn::{TurnError, VoiceActivity};

const NAME: &str = "silero-vad";
const CONTEXT: usize = 64;
const STATE: usize = 2 * 128;
/// Frames between two resets: 2 s.
const RESET_EVERY: usize = 62;
/// Frames in a row that must be clearly silent before a reset: 160 ms.
const RESET_AFTER_QUIET: usize = 5;
/// Scores below this are clearly silent.
const CLEARLY_QUIET: f32 = 0.1;

/// Idle sessions that are kept for the next callers.
const IDLE: usize = 64;

/// Makes scorers. Loading the model takes tens of milliseconds, so the sessions of callers who left are
/// used again.
pub struct SileroPool {
    environment: &'static Environment,
    model: Vec<u8>,
    idle: Mutex<Vec<Session>>,
}

impl SileroPool {
    /// A pool with one session ready, from the bytes of `silero_vad.onnx`.
    ///
    /// # Errors
    /// When the bytes are no such model.
    pub fn new(environment: &'static Environment, model: Vec<u8>) -> Result<Arc<Self>, TurnError> {
        let first = load(environment, &model)?;
        Ok(Arc::new(Self { environment, model, idle: Mutex::new(vec![first]) }))
    }

    /// A scorer with a fresh state.
    ///
    /// # Errors
    /// When none is idle and the model cannot be loaded again.
    pub fn take(self: &Arc<Self>) -> Result<Silero, TurnError> {
        let idle = self.idle().pop();
        let session = idle.map_or_else(|| load(self.environment, &self.model), Ok)?;
        Ok(Silero {
            session: Some(session),
            home: self.clone(),
            input: vec![0.0; CONTEXT + VAD_FRAME],
            state: vec![0.0; STATE],
            since_reset: 0,
            quiet: 0,
        })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Session>> {
        // A push or a pop is never left half done.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn load(environment: &Environment, model: &[u8]) -> Result<Session, TurnError> {
    Session::builder(environment)
        .map_err(fault)?
        .with_intra_threads(1)
        .map_err(fault)?
        .with_inter_threads(1)
        .map_err(fault)?
        .commit_from_memory(model)
        .map_err(fault)
}

/// One caller's scorer; its session goes back to the pool when it is dropped.
pub struct Silero {
    /// `None` only while being dropped.
    session: Option<Session>,
    home: Arc<SileroPool>,
    /// Context and frame as the model takes them.
    input: Vec<f32>,
    state: Vec<f32>,
    since_reset: usize,
    quiet: usize,
}

impl Silero {
    fn forget_state(&mut self) {
        self.state.fill(0.0);
        self.since_reset = 0;
    }
}

impl VoiceActivity for Silero {
    fn score(&mut self, frame: &[f32]) -> Result<f32, TurnError> {
        if frame.len() != VAD_FRAME {
            return Err(TurnError::Model {
                model: NAME,
                reason: format!("a frame has {VAD_FRAME} samples, not {}", frame.len()),
            });
        }
        self.input[CONTEXT..].copy_from_slice(frame);
        let rate = [i64::from(HEARING_RATE)];
        let session = self.session.as_mut().expect("a session is there until the scorer is dropped");
        let outputs = session
            .run(ort::inputs! {
                "input" => TensorRef::from_array_view(([1, CONTEXT + VAD_FRAME], &*self.input)).map_err(fault)?,
                "state" => TensorRef::from_array_view(([2usize, 1, 128], &*self.state)).map_err(fault)?,
                "sr" => TensorRef::from_array_view(([0usize; 0], &rate[..])).map_err(fault)?,
            })
            .map_err(fault)?;
        let (_, voice) = outputs["output"].try_extract_tensor::<f32>().map_err(fault)?;
        let voice = voice
            .first()
            .copied()
            .filter(|voice| voice.is_finite())
            .ok_or_else(|| TurnError::Model { model: NAME, reason: "it gave no probability".to_owned() })?;
        let (_, state) = outputs["stateN"].try_extract_tensor::<f32>().map_err(fault)?;
        if state.len() != STATE {
            return Err(TurnError::Model {
                model: NAME,
                reason: format!("its state has {} values", state.len()),
            });
        }
        self.state.copy_from_slice(state);
        drop(outputs);
        self.input.copy_within(VAD_FRAME.., 0);
        self.since_reset += 1;
        self.quiet = if voice < CLEARLY_QUIET { self.quiet + 1 } else { 0 };
        if self.since_reset >= RESET_EVERY && self.quiet >= RESET_AFTER_QUIET {
            self.forget_state();
        }
        Ok(voice)
    }

    fn reset(&mut self) {
        self.input.fill(0.0);
        self.quiet = 0;
        self.forget_state();
    }
}

impl Drop for Silero {
    fn drop(&mut self) {
        let mut idle = self.home.idle();
        if idle.len() < IDLE {
            idle.extend(self.session.take());
        }
    }
}

fn fault<T>(error: ort::Error<T>) -> TurnError {
    TurnError::Model { model: NAME, reason: error.to_string() }
}
