//! Smart Turn v3 over ONNX Runtime (pipecat, BSD-2).
//!
//! A Whisper-tiny encoder with a small head, quantised to int8: input
//! `input_features` `[1, 80, 800]`, output `logits`, which already is the
//! probability that the turn is complete. About 60 ms on one core, features
//! included; language-independent in intent, trained on 23 languages.

use std::sync::{Mutex, PoisonError};

use ort::environment::Environment;
use ort::session::Session;
use ort::value::TensorRef;

use super::features::{BANDS, FRAMES, Features};
use crate::turn::{Completion, TurnError};

const NAME: &str = "smart-turn";

/// The scorer, shared by all callers; they take turns.
pub struct SmartTurn {
    features: Features,
    session: Mutex<Session>,
}

impl SmartTurn {
    /// A scorer from the bytes of `smart-turn-v3.2-cpu.onnx`, with this many threads for one score.
    ///
    /// # Errors
    /// When the bytes are no such model.
    pub fn new(environment: &Environment, model: &[u8], threads: usize) -> Result<Self, TurnError> {
        let session = Session::builder(environment)
            .map_err(fault)?
            .with_intra_threads(threads)
            .map_err(fault)?
            .with_inter_threads(1)
            .map_err(fault)?
            // Threads that spin between two scores would take the cores from recognition.
            .with_intra_op_spinning(false)
            .map_err(fault)?
            .commit_from_memory(model)
            .map_err(fault)?;
        Ok(Self { features: Features::new(), session: Mutex::new(session) })
    }
}

impl Completion for SmartTurn {
    fn score(&self, utterance: &[f32]) -> Result<f32, TurnError> {
        let features = self.features.extract(utterance);
        let input = TensorRef::from_array_view(([1, BANDS, FRAMES], &*features)).map_err(fault)?;
        // A panic during a run leaves the session as it was: it keeps no state between runs.
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let outputs = session.run(ort::inputs! { "input_features" => input }).map_err(fault)?;
        let (_, values) = outputs["logits"].try_extract_tensor::<f32>().map_err(fault)?;
        values
            .first()
            .copied()
            .filter(|value| value.is_finite())
            .ok_or_else(|| TurnError::Model { model: NAME, reason: "it gave no probability".to_owned() })
    }
}

fn fault<T>(error: ort::Error<T>) -> TurnError {
    TurnError::Model { model: NAME, reason: error.to_string() }
}
