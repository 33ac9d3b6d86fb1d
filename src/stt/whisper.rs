//! Whisper on threads of its own, shared by all streams.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc as channel};
use std::thread::{self, JoinHandle};

use tokio::sync::mpsc;

use super::board::{Board, Opening};
use super::decode::{Decoder, Model};
use super::guards::Limits;
use super::utterance::{Pace, frames};
use super::worker::{self, Decoders, Maker, Rules};
use super::{RecognitionEvent, RecognitionOptions, RecognitionStream, Recognizer, SttError};
use crate::audio::HEARING_RATE;
use crate::config::stt::Stt;
use crate::models::Store;

/// The language setting that asks for detection.
const AUTO: &str = "auto";

/// A recogniser over whisper.cpp. Dropping it stops its threads and every stream.
pub struct Whisper {
    board: Arc<Board>,
    model: Model,
    settings: Stt,
    /// Language of callers who name none; `None` detects it.
    language: Option<&'static str>,
    partials_last: bool,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Whisper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Whisper").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Whisper {
    /// Loads the models and starts the workers; takes a few hundred ms, blocking.
    ///
    /// # Errors
    /// [`SttError::Model`] when a model is missing or broken,
    /// [`SttError::Language`] when the settings name a language it does not know.
    pub fn load(settings: &Stt, store: &Store) -> Result<Self, SttError> {
        let model = Model::load(&model_file(&settings.model, store)?)?;
        let partial = match settings.partial_model.as_str() {
            "" => None,
            name if name == settings.model => None,
            name => Some(Model::load(&model_file(name, store)?)?),
        };
        let known = |code: &str| model.language(code).ok_or_else(|| SttError::Language(code.to_owned()));
        let language = match settings.language.as_str() {
            AUTO => model.only_language(),
            code => Some(known(code)?),
        };
        let allowed = settings.languages.iter().map(|code| known(code)).collect::<Result<_, _>>()?;
        let limits = Limits { no_speech: settings.no_speech, min_logprob: settings.min_logprob };
        let rules = Rules { limits, tokens_per_s: settings.tokens_per_s, allowed };
        let partials_last = partial.is_none();
        let (full, threads) = (model.clone(), settings.threads);
        let maker: Maker = Arc::new(move || {
            let partial = partial.as_ref().map(|m| Decoder::new(m, threads)).transpose()?;
            Ok(Decoders {
                full: Box::new(Decoder::new(&full, threads)?),
                partial: partial.map(|d| Box::new(d) as _),
            })
        });
        let board = Arc::new(Board::new(settings.max_streams));
        let threads = start(&board, &maker, &Arc::new(rules), settings.workers)?;
        Ok(Self { board, model, settings: settings.clone(), language, partials_last, threads })
    }
}

/// Starts workers and waits until each has its memory.
pub(super) fn start(
    board: &Arc<Board>,
    maker: &Maker,
    rules: &Arc<Rules>,
    workers: usize,
) -> Result<Vec<JoinHandle<()>>, SttError> {
    let (ready, started) = channel::channel();
    let mut threads = Vec::with_capacity(workers);
    for i in 0..workers {
        let (board, maker, rules) = (Arc::clone(board), Arc::clone(maker), Arc::clone(rules));
        let ready = ready.clone();
        let report = move |result| {
            // Nobody listens any more when another worker failed: then this one is shut anyway.
            ready.send(result).ok();
        };
        let body = move || worker::work(&board, &maker, &rules, report);
        let thread = thread::Builder::new().name(format!("stt-{i}")).spawn(body);
        threads.push(thread.map_err(|e| SttError::Model(format!("no thread for the speech model: {e}")))?);
    }
    drop(ready);
    // Ends when every worker has reported or is gone.
    let reports = started.iter().collect::<Result<Vec<()>, _>>();
    let result = reports.and_then(|reports| match reports.len() {
        n if n == workers => Ok(threads),
        _ => Err(SttError::Model("a worker of the speech model died at its start".to_owned())),
    });
    if result.is_err() {
        board.shut();
    }
    result
}

impl Recognizer for Whisper {
    fn open(
        &self,
        options: &RecognitionOptions,
        events: mpsc::Sender<RecognitionEvent>,
    ) -> Result<Box<dyn RecognitionStream>, SttError> {
        let language = match options.language.as_deref() {
            None => self.language,
            Some(AUTO) => self.model.only_language(),
            Some(code) => Some(self.model.language(code).ok_or_else(|| SttError::Language(code.to_owned()))?),
        };
        let interval = frames(self.settings.partial_interval_ms as f32 / 1000.0).max(1);
        let pace = Pace {
            segment: frames(self.settings.segment_s),
            partial: options.partials.then_some(interval),
            eager: self.settings.eager,
            partials_last: self.partials_last,
        };
        let stream = self.board.open(Opening {
            pace,
            language,
            prompt: options.prompt.clone().unwrap_or_default(),
            max_samples: u64::from(self.settings.max_utterance_s) * u64::from(HEARING_RATE),
            events,
        })?;
        Ok(Box::new(Stream { board: Arc::clone(&self.board), stream }))
    }
}

impl Drop for Whisper {
    fn drop(&mut self) {
        self.board.shut();
        for thread in self.threads.drain(..) {
            // A worker catches the panics of its jobs; one of its own is already in the log.
            thread.join().ok();
        }
    }
}

/// A stream's end of the board.
pub(super) struct Stream {
    pub(super) board: Arc<Board>,
    pub(super) stream: u64,
}

impl RecognitionStream for Stream {
    fn push(&mut self, samples: &[f32]) {
        self.board.push(self.stream, samples);
    }

    fn flush(&mut self, marker: u64) {
        self.board.flush(self.stream, marker);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.board.close(self.stream);
    }
}

/// The ggml file of a model: a path, or the one in the model's folder of the store.
fn model_file(name: &str, store: &Store) -> Result<PathBuf, SttError> {
    if name.contains(['/', '\\']) || Path::new(name).extension().is_some_and(|e| e == "bin") {
        return Ok(PathBuf::from(name));
    }
    let folder = store.root().join(name);
    let is_ggml = |path: &PathBuf| {
        let file = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        file.starts_with("ggml-") && file.ends_with(".bin")
    };
    let found = std::fs::read_dir(&folder)
        .ok()
        .and_then(|dir| dir.filter_map(|entry| entry.ok().map(|e| e.path())).find(is_ggml));
    found.ok_or_else(|| {
        let folder = folder.display();
        SttError::Model(format!("'{name}' is not in {folder}; fetch it with `voluble models pull {name}`"))
    })
}
