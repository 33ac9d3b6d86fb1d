//! Admits conversations, keeps count of them, ends them when the server stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::Rng as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, debug, error, info_span, warn};

use super::command::Command;
use super::driver::{Driver, Ends};
use super::event::{EndReason, Event};
use super::machine::Machine;
use super::settings::{Eagerness, Modality, SessionKind, Settings, ToolChoice, TurnDetection};
use crate::config;
use crate::error::{Classify, Kind};
use crate::llm::Generator;
use crate::metrics;
use crate::stt::Recognizer;
use crate::tts::Synthesizer;
use crate::turn::TurnModels;

/// Commands that may wait for a session.
const COMMANDS: usize = 16;
/// Events handed over at a time; the rest waits where it can still be dropped.
const EVENTS: usize = 4;
/// How long sessions that were cut may take for their last words.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How far the server's end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drain {
    /// It serves.
    No,
    /// What is being said may be finished.
    Finish,
    /// The time for that is over.
    Now,
}

/// What every conversation works with; shared by all.
#[derive(Clone)]
pub struct Parts {
    /// Audio to words.
    pub recognizer: Arc<dyn Recognizer>,
    /// Words to words.
    pub generator: Arc<dyn Generator>,
    /// Words to audio.
    pub synthesizer: Arc<dyn Synthesizer>,
    /// Who holds the floor.
    pub turn_models: Arc<dyn TurnModels>,
}

/// Why a conversation is not begun.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// Every place is taken.
    #[error("the server holds {0} conversations at most and has no room now")]
    Full(usize),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Draining,
    /// A part cannot be had.
    #[error("{0}")]
    Part(String),
}

impl Classify for SessionError {
    fn kind(&self) -> Kind {
        match self {
            Self::Full(_) | Self::Draining => Kind::Capacity,
            Self::Part(_) => Kind::Upstream,
        }
    }
}

/// A conversation's two channels. Dropping the sender ends it.
#[derive(Debug)]
pub struct SessionHandle {
    /// To the session. Full: the session is behind; wait.
    pub commands: mpsc::Sender<Command>,
    /// From the session, in order; the last one is [`Event::Ended`].
    pub events: mpsc::Receiver<Event>,
}

/// Admits, counts and ends conversations.
pub struct Manager {
    config: Arc<config::Config>,
    parts: Parts,
    places: Arc<Semaphore>,
    drain: watch::Sender<Drain>,
    tasks: TaskTracker,
    next_key: AtomicU64,
}

impl Manager {
    /// A manager without conversations.
    pub fn new(config: Arc<config::Config>, parts: Parts) -> Self {
        Self {
            places: Arc::new(Semaphore::new(config.session.max_sessions)),
            config,
            parts,
            drain: watch::Sender::new(Drain::No),
            tasks: TaskTracker::new(),
            next_key: AtomicU64::new(1),
        }
    }

    /// The parts.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Settings of a conversation whose client sets nothing.
    pub fn default_settings(&self) -> Settings {
        default_settings(&self.config, &self.parts)
    }

    /// Conversations under way.
    pub fn open_sessions(&self) -> usize {
        self.config.session.max_sessions - self.places.available_permits()
    }

    /// Begins a conversation. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// No room, a server that is shutting down, or a part that cannot be had.
    pub fn open(&self, settings: Settings) -> Result<SessionHandle, SessionError> {
        if *self.drain.borrow() != Drain::No {
            metrics::record_refusal("draining");
            return Err(SessionError::Draining);
        }
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            metrics::record_refusal("capacity");
            return Err(SessionError::Full(self.config.session.max_sessions));
        };
        let voice = self
            .parts
            .turn_models
            .voice_activity()
            .map_err(|error| SessionError::Part(error.public_message()))?;
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let tag = format!("{:012x}", rand::rng().random::<u64>() >> 16);
        let machine = Machine::new(&self.config, settings, &tag, key);
        let (driver, inputs) = Driver::new(machine, self.parts.clone(), self.config.session.clone(), voice);
        let (commands, command_rx) = mpsc::channel(COMMANDS);
        let (event_tx, events) = mpsc::channel(EVENTS);
        let ends = Ends { commands: command_rx, events: event_tx.clone(), drain: self.drain.subscribe() };
        let span = info_span!("session", tag);
        let task = driver.run(inputs, ends).instrument(span.clone());
        self.tasks
            .spawn(watch_over(task, event_tx, place, self.parts.generator.clone(), key).instrument(span));
        Ok(SessionHandle { commands, events })
    }

    /// Stops admitting, lets running answers end within the configured time, ends what is left then, and
    /// returns when every conversation has ended. May be called again.
    pub async fn drain(&self) {
        self.drain.send_if_modified(|drain| {
            *drain == Drain::No && {
                *drain = Drain::Finish;
                true
            }
        });
        self.tasks.close();
        let limit = Duration::from_secs(u64::from(self.config.session.drain_seconds));
        if tokio::time::timeout(limit, self.tasks.wait()).await.is_ok() {
            return;
        }
        self.drain.send_replace(Drain::Now);
        if tokio::time::timeout(LAST_WORDS, self.tasks.wait()).await.is_err() {
            warn!("some conversations have not read their last words");
        }
    }
}

/// Runs a session; a panic in it ends it alone, and its client is told.
async fn watch_over(
    task: impl Future<Output = ()> + Send + 'static,
    events: mpsc::Sender<Event>,
    place: OwnedSemaphorePermit,
    generator: Arc<dyn Generator>,
    cache_key: u64,
) {
    let open = metrics::session_opened();
    if let Err(broken) = tokio::spawn(task).await {
        error!(%broken, "a session broke");
        metrics::record_error(Kind::Bug);
        // A client that does not read holds no place: the channel's end says the same.
        let ended = events.send(Event::Ended { reason: EndReason::Failed });
        if tokio::time::timeout(LAST_WORDS, ended).await.is_err() {
            debug!("the client of a broken session reads nothing");
        }
    }
    generator.forget(cache_key);
    drop(open);
    drop(place);
}

/// Settings of a conversation whose client sets nothing.
pub fn default_settings(config: &config::Config, parts: &Parts) -> Settings {
    Settings {
        kind: SessionKind::Conversation,
        instructions: config.session.instructions.clone(),
        modality: Modality::Audio,
        turn_detection: TurnDetection::Semantic {
            eagerness: Eagerness::Auto,
            create_response: true,
            interrupt_response: true,
        },
        transcription: None,
        voice: parts.synthesizer.voices().into_iter().next().unwrap_or_else(|| "default".to_owned()),
        speed: 1.0,
        tools: Vec::new(),
        tool_choice: ToolChoice::Auto,
        max_output_tokens: None,
        temperature: config.session.temperature,
    }
}
