//! Piper's network in ONNX Runtime.

use std::path::Path;
use std::sync::Arc;

use ort::environment::Environment;
use ort::session::builder::GraphOptimizationLevel;
use ort::session::{RunOptions, Session, SessionInputValue};
use ort::value::Tensor;

use super::graph::expose_lengths;
use super::voice::Inference;
use crate::tts::TtsError;

/// Samples of one frame of the network: VITS's hop length for 22,050 Hz.
const HOP: usize = 256;

/// A network ready to run.
pub struct Model {
    session: Session,
    options: Arc<RunOptions>,
    /// The output that holds the lengths, when the network has one.
    lengths: Option<String>,
    speakers: bool,
}

/// What one run gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sound {
    /// Samples at the voice's rate.
    pub samples: Vec<f32>,
    /// For each id, how many of the samples are its own, in order; they add
    /// up to all. `None` when the network does not tell.
    pub lengths: Option<Vec<usize>>,
}

/// Stops the run that is going on, from any thread.
#[derive(Clone)]
pub struct Stop(Arc<RunOptions>);

impl Stop {
    /// Ends the run within one node of the graph.
    pub fn stop(&self) {
        if let Err(error) = self.0.terminate() {
            tracing::warn!(%error, "a synthesis run cannot be stopped");
        }
    }
}

impl Model {
    /// Loads a network.
    ///
    /// # Errors
    /// When the file cannot be read or is no network.
    pub fn load(path: &Path, environment: &Environment, threads: usize) -> Result<Self, TtsError> {
        let mut bytes = std::fs::read(path).map_err(|error| {
            TtsError::Model(format!("{}: {error}; run `voluble models pull`", path.display()))
        })?;
        let lengths = expose_lengths(&mut bytes);
        if lengths.is_none() {
            tracing::warn!(path = %path.display(), "this voice tells no phoneme lengths: word times are estimates");
        }
        Self::build(&bytes, environment, threads, lengths)
            .map_err(|error| TtsError::Model(format!("{}: {error}", path.display())))
    }

    fn build(
        bytes: &[u8],
        environment: &Environment,
        threads: usize,
        lengths: Option<String>,
    ) -> ort::Result<Self> {
        let session = Session::builder(environment)?
            .with_intra_threads(threads)?
            .with_optimization_level(GraphOptimizationLevel::All)?
            // Idle threads that spin would take the processor from everything else on the machine.
            .with_intra_op_spinning(false)?
            .commit_from_memory(bytes)?;
        let speakers = session.inputs().iter().any(|input| input.name() == "sid");
        Ok(Self { session, options: Arc::new(RunOptions::new()?), lengths, speakers })
    }

    /// Whether runs give the length of each phoneme.
    pub fn tells_lengths(&self) -> bool {
        self.lengths.is_some()
    }

    /// What stops a run from another thread.
    pub fn stop(&self) -> Stop {
        Stop(Arc::clone(&self.options))
    }

    /// Forgets a stop that was asked for.
    pub fn ready(&mut self) {
        if let Err(error) = self.options.unterminate() {
            tracing::warn!(%error, "a synthesis run cannot be made ready");
        }
    }

    /// Speaks one sequence of ids.
    ///
    /// # Errors
    /// When the network fails or the run was stopped.
    pub fn run(&mut self, ids: &[i64], scales: Inference, speaker: i64) -> Result<Sound, TtsError> {
        self.infer(ids, scales, speaker).map_err(|error| TtsError::Model(error.to_string()))
    }

    fn infer(&mut self, ids: &[i64], scales: Inference, speaker: i64) -> ort::Result<Sound> {
        let count = ids.len();
        let mut inputs: Vec<(&str, SessionInputValue<'_>)> = vec![
            ("input", Tensor::from_array(([1, count], ids.to_vec()))?.into()),
            ("input_lengths", Tensor::from_array(([1], vec![count as i64]))?.into()),
            (
                "scales",
                Tensor::from_array(([3], vec![scales.noise_scale, scales.length_scale, scales.noise_w]))?
                    .into(),
            ),
        ];
        if self.speakers {
            inputs.push(("sid", Tensor::from_array(([1], vec![speaker]))?.into()));
        }
        let outputs = self.session.run_with_options(inputs, &*self.options)?;
        let samples = outputs["output"].try_extract_tensor::<f32>()?.1.to_vec();
        let lengths = match &self.lengths {
            None => None,
            Some(name) => {
                let frames = outputs[name.as_str()].try_extract_tensor::<f32>()?.1;
                let lengths: Vec<usize> = frames.iter().map(|frames| *frames as usize * HOP).collect();
                // A graph whose rounding node means something else must not give false times.
                (lengths.len() == count && lengths.iter().sum::<usize>() == samples.len()).then_some(lengths)
            }
        };
        Ok(Sound { samples, lengths })
    }
}
