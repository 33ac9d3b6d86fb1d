//! The real scorers from the models of the store.

use std::path::PathBuf;
use std::sync::Arc;

use super::semantic::smart_turn::SmartTurn;
use super::vad::silero::SileroPool;
use super::{Completion, TurnError, TurnModels, VoiceActivity};
use crate::audio::VAD_FRAME;
use crate::config;
use crate::models::{Store, runtime::ensure_onnxruntime};

/// Silero VAD and Smart Turn, loaded once and shared by all sessions.
pub struct LocalTurnModels {
    silero: Arc<SileroPool>,
    smart_turn: Arc<SmartTurn>,
}

impl LocalTurnModels {
    /// Loads both models and tries them once, so that the first caller does not pay for it.
    ///
    /// # Errors
    /// When ONNX Runtime or a model is missing or does not work; says how to get it.
    pub fn load(store: &Store, settings: &config::turn::Turn) -> Result<Self, TurnError> {
        let environment = ensure_onnxruntime(store)
            .map_err(|error| TurnError::Model { model: "onnxruntime", reason: error.to_string() })?;
        let silero = read("silero-vad", store.path("silero-vad", "silero_vad.onnx"))?;
        let smart_turn = read("smart-turn", store.path("smart-turn-v3.2", "smart-turn-v3.2-cpu.onnx"))?;
        let models = Self {
            silero: SileroPool::new(environment, silero)?,
            smart_turn: Arc::new(SmartTurn::new(environment, &smart_turn, settings.completion_threads)?),
        };
        models.voice_activity()?.score(&[0.0; VAD_FRAME])?;
        models.smart_turn.score(&[])?;
        Ok(models)
    }
}

impl TurnModels for LocalTurnModels {
    fn voice_activity(&self) -> Result<Box<dyn VoiceActivity>, TurnError> {
        Ok(Box::new(self.silero.take()?))
    }

    fn completion(&self) -> Arc<dyn Completion> {
        self.smart_turn.clone()
    }
}

fn read(model: &'static str, path: PathBuf) -> Result<Vec<u8>, TurnError> {
    std::fs::read(&path).map_err(|error| TurnError::Model {
        model,
        reason: format!("{}: {error}; run `voluble models pull`", path.display()),
    })
}
