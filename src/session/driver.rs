//! Carries out what the machine decides: the task of one conversation.
//!
//! Owns: the one `select!`, the streams of the parts, timers, the queue towards
//! the client. Decides nothing about the conversation.
//!
//! Bounds: while more than [`MOST_QUEUED`] events wait for the client no
//! further command is read (the client is slowed down by its own connection),
//! and above [`MOST_SAID`] nothing of the streams either; a client that takes no
//! event at all for `session.reader_timeout_ms` is given up. Streams hand their
//! events over channels of [`STREAM_EVENTS`]; the parts do not wait for a slow
//! session (see their seams).
//!
//! Audio may come faster than it was spoken. Turns are decided by the samples
//! heard, so all that could differ is how late a completion score is: while one
//! is due, audio is heard no faster than it was spoken.
//!
//! Dropping a stream's handle cancels its work, so the end of this task is the
//! end of everything it started.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::command::{Command, CommandKind, Tag};
use super::event::{EndReason, Event};
use super::ids::ResponseId;
use super::machine::{Effect, Input, Machine, Output, ResponseNumber, StreamId, Timer};
use super::manager::{Drain, Parts};
use super::settings::{SessionKind, Settings};
use crate::audio::{HEARING_RATE, VAD_FRAME};
use crate::config;
use crate::error::{Classify, Kind};
use crate::llm::{Generation, LlmError, Message, Role};
use crate::metrics;
use crate::stt::{RecognitionEvent, RecognitionStream};
use crate::tts::{SynthesisEvent, SynthesisStream};
use crate::turn::vad::level_db;
use crate::turn::{AudioTime, Completion, VoiceActivity};

/// Events that may wait for the client before commands are no longer read.
const MOST_QUEUED: usize = 1024;
/// Events that may wait for the client before the parts are no longer listened to: minutes of speech.
const MOST_SAID: usize = 4096;
/// Events of one stream that may wait for this task.
const STREAM_EVENTS: usize = 256;
/// Frames handled at a time, so that a long piece does not keep anything else waiting.
const PIECE: usize = 8;
/// How far audio may run ahead of a completion score that is due: no less than what clients send at a time.
const AHEAD: Duration = Duration::from_millis(160);

/// Ends of the session's channels.
pub(super) struct Ends {
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) events: mpsc::Sender<Event>,
    /// Whether the server drains.
    pub(super) drain: watch::Receiver<Drain>,
}

/// What comes back from what this task started.
#[allow(
    clippy::large_enum_variant,
    reason = "moved once per input, never stored in bulk: boxing would only add an allocation"
)]
pub(super) enum Told {
    /// For the machine.
    Input(Input),
    /// There will be no answer to this completion question.
    Unscored(AudioTime),
}

/// Audio of one command that was not heard yet.
struct Unheard {
    tag: Tag,
    samples: Vec<f32>,
    from: usize,
}

/// One conversation's task.
pub(super) struct Driver {
    machine: Machine,
    parts: Parts,
    limits: config::session::Session,
    started: Instant,
    voice: Box<dyn VoiceActivity>,
    completion: Arc<dyn Completion>,
    /// Samples that do not fill a frame yet.
    rest: Vec<f32>,
    framed: AudioTime,
    unheard: Option<Unheard>,
    /// Completion questions without an answer, and when they were asked.
    scoring: VecDeque<(AudioTime, Instant)>,
    recognitions: HashMap<StreamId, Box<dyn RecognitionStream>>,
    generations: HashMap<ResponseNumber, Box<dyn Generation>>,
    voices: HashMap<ResponseNumber, Box<dyn SynthesisStream>>,
    timers: HashMap<Timer, Instant>,
    queue: VecDeque<Event>,
    told: mpsc::Sender<Told>,
    tasks: JoinSet<()>,
}

impl Driver {
    /// A driver and the channel of what its streams say.
    pub(super) fn new(
        machine: Machine,
        parts: Parts,
        limits: config::session::Session,
        voice: Box<dyn VoiceActivity>,
    ) -> (Self, mpsc::Receiver<Told>) {
        let (told, received) = mpsc::channel(STREAM_EVENTS);
        let driver = Self {
            machine,
            completion: parts.turn_models.completion(),
            parts,
            limits,
            started: Instant::now(),
            voice,
            rest: Vec::with_capacity(VAD_FRAME),
            framed: 0,
            unheard: None,
            scoring: VecDeque::new(),
            recognitions: HashMap::new(),
            generations: HashMap::new(),
            voices: HashMap::new(),
            timers: HashMap::new(),
            queue: VecDeque::new(),
            told,
            tasks: JoinSet::new(),
        };
        (driver, received)
    }

    /// Runs until the client has gone, the time is over or the server drains; then joins what it started.
    pub(super) async fn run(mut self, mut told: mpsc::Receiver<Told>, ends: Ends) {
        let Ends { mut commands, events, mut drain } = ends;
        let expiry = self.started + Duration::from_secs(u64::from(self.limits.max_minutes) * 60);
        let patience = Duration::from_millis(u64::from(self.limits.reader_timeout_ms));
        let mut stuck_since = Instant::now();
        let mut drained = Drain::No;
        self.carry_out();
        loop {
            if self.machine.has_ended() && self.queue.is_empty() {
                break;
            }
            let due = self.timers.iter().min_by_key(|(_, at)| **at).map(|(timer, at)| (*timer, *at));
            let alive = !self.machine.has_ended();
            let hold = self.hold();
            tokio::select! {
                biased;
                permit = events.reserve(), if !self.queue.is_empty() => {
                    let (Ok(permit), Some(event)) = (permit, self.queue.pop_front()) else { break };
                    permit.send(event);
                    stuck_since = Instant::now();
                }
                () = tokio::time::sleep_until(stuck_since + patience), if !self.queue.is_empty() => {
                    info!(limit_ms = patience.as_millis() as u64, "the client reads nothing: its session ends");
                    metrics::record_error(Kind::Timeout);
                    self.end(EndReason::Failed);
                    break;
                }
                () = events.closed() => break,
                Some(told) = told.recv(), if alive && self.queue.len() < MOST_SAID => self.told(told),
                () = tokio::time::sleep_until(due.map_or(expiry, |(_, at)| at)), if alive && due.is_some() => {
                    if let Some((timer, _)) = due {
                        self.timers.remove(&timer);
                        self.step(Input::Timer(timer));
                    }
                }
                () = tokio::time::sleep_until(expiry), if alive => self.end(EndReason::Expired),
                asked = changed(&mut drain, drained), if alive && drained != Drain::Now => {
                    drained = asked;
                    match asked {
                        Drain::No => {}
                        Drain::Finish => self.step(Input::Drain),
                        Drain::Now => self.end(EndReason::Draining),
                    }
                }
                () = until(hold), if alive && self.unheard.is_some() => self.hear(),
                command = commands.recv(),
                    if alive && self.unheard.is_none() && self.queue.len() < MOST_QUEUED => match command {
                    Some(Command { tag, kind: CommandKind::AppendAudio(samples) }) => {
                        self.unheard = Some(Unheard { tag, samples, from: 0 });
                    }
                    Some(command) => self.step(Input::Command(command)),
                    None => self.end(EndReason::Closed),
                },
            }
            if self.queue.is_empty() {
                stuck_since = Instant::now();
            }
        }
        // Handles first: dropping them cancels the work, so that the forwarders end.
        self.recognitions.clear();
        self.generations.clear();
        self.voices.clear();
        drop(told);
        self.tasks.shutdown().await;
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn end(&mut self, reason: EndReason) {
        let now = self.now();
        self.machine.end(now, reason);
        self.carry_out();
    }

    fn step(&mut self, input: Input) {
        let now = self.now();
        self.machine.handle(now, input);
        self.carry_out();
    }

    fn told(&mut self, told: Told) {
        match told {
            Told::Input(input) => {
                if let Input::Completion { asked, .. } = &input {
                    self.answered(*asked);
                }
                self.step(input);
            }
            Told::Unscored(asked) => self.answered(asked),
        }
    }

    fn answered(&mut self, asked: AudioTime) {
        self.scoring.retain(|(other, _)| *other != asked);
    }

    /// When the next audio may be heard; `None`: now.
    fn hold(&self) -> Option<Instant> {
        let (asked, at) = self.scoring.front()?;
        let ahead = u128::from(self.framed.saturating_sub(*asked)) * 1_000_000_000 / u128::from(HEARING_RATE);
        let ahead = Duration::from_nanos(u64::try_from(ahead).unwrap_or(u64::MAX));
        ahead.checked_sub(AHEAD).map(|wait| *at + wait)
    }

    /// Hears a few frames of what the client sent.
    fn hear(&mut self) {
        for _ in 0..PIECE {
            let Some(Unheard { tag, samples, from }) = &mut self.unheard else { return };
            let count = (VAD_FRAME - self.rest.len()).min(samples.len() - *from);
            let piece = samples[*from..*from + count].to_vec();
            let tag = tag.clone();
            *from += count;
            if *from == samples.len() {
                self.unheard = None;
            }
            self.rest.extend_from_slice(&piece);
            self.step(Input::Command(Command { tag, kind: CommandKind::AppendAudio(piece) }));
            self.score_frame();
            if self.machine.has_ended() || self.hold().is_some_and(|at| at > Instant::now()) {
                return;
            }
        }
    }

    /// Scores the frame, once it is whole.
    fn score_frame(&mut self) {
        if self.rest.len() < VAD_FRAME {
            return;
        }
        self.framed += VAD_FRAME as AudioTime;
        let voice = match self.voice.score(&self.rest) {
            Ok(voice) => voice,
            Err(error) => {
                warn!(%error, "a frame was not scored");
                metrics::record_error(error.kind());
                0.0
            }
        };
        let level_db = level_db(&self.rest);
        self.rest.clear();
        self.step(Input::Frame { end: self.framed, voice, level_db });
    }

    fn prime(&self, settings: &Settings) {
        if settings.kind == SessionKind::Conversation && !settings.instructions.is_empty() {
            let system = Message::text(Role::System, settings.instructions.clone());
            self.parts.generator.prime(&[system], &settings.tools);
        }
    }

    /// Does everything that the machine asks, and what follows from doing it.
    fn carry_out(&mut self) {
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Event(event) => {
                    match &event {
                        Event::ResponseDone(response) => metrics::record_answer(&response.status),
                        // Read ahead what every prompt begins with, while the caller has not spoken yet.
                        Event::Started { settings, .. } | Event::Configured { settings } => {
                            self.prime(settings)
                        }
                        _ => {}
                    }
                    self.queue.push_back(event);
                }
                Output::Effect(effect) => {
                    if let Some(input) = self.effect(effect) {
                        let now = self.now();
                        self.machine.handle(now, input);
                    }
                }
            }
        }
    }

    /// Does one thing; a refusal comes back as an input.
    fn effect(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::ScoreCompletion { asked, audio } => self.score(asked, audio),
            Effect::ResetHearing => {
                self.voice.reset();
                self.framed += self.rest.len() as AudioTime;
                self.rest.clear();
            }
            Effect::OpenRecognition(stream, options) => {
                let (sender, receiver) = mpsc::channel(STREAM_EVENTS);
                match self.parts.recognizer.open(&options, sender) {
                    Ok(handle) => {
                        self.recognitions.insert(stream, handle);
                        self.forward(receiver, move |event| Input::Recognition(stream, event));
                    }
                    Err(error) => {
                        metrics::record_error(error.kind());
                        let message = error.public_message();
                        return Some(Input::Recognition(
                            stream,
                            RecognitionEvent::Failed { marker: None, message },
                        ));
                    }
                }
            }
            Effect::Recognize(stream, samples) => {
                if let Some(handle) = self.recognitions.get_mut(&stream) {
                    handle.push(&samples);
                }
            }
            Effect::Flush(stream, marker) => {
                if let Some(handle) = self.recognitions.get_mut(&stream) {
                    handle.flush(marker);
                }
            }
            Effect::CloseRecognition(stream) => drop(self.recognitions.remove(&stream)),
            Effect::Generate(number, request) => {
                let (sender, receiver) = mpsc::channel(STREAM_EVENTS);
                match self.parts.generator.start(*request, sender) {
                    Ok(handle) => {
                        self.generations.insert(number, handle);
                        self.forward(receiver, move |event| Input::Generation(number, event));
                    }
                    Err(error) => {
                        metrics::record_error(error.kind());
                        let too_long = matches!(error, LlmError::TooLong { .. });
                        let message = error.public_message();
                        return Some(Input::GenerationRefused { response: number, message, too_long });
                    }
                }
            }
            Effect::OpenSynthesis(number, voice) => {
                let (sender, receiver) = mpsc::channel(STREAM_EVENTS);
                match self.parts.synthesizer.open(&voice, sender) {
                    Ok(handle) => {
                        self.voices.insert(number, handle);
                        self.forward(receiver, move |event| Input::Synthesis(number, event));
                    }
                    Err(error) => {
                        metrics::record_error(error.kind());
                        let message = error.public_message();
                        return Some(Input::Synthesis(number, SynthesisEvent::Failed { message }));
                    }
                }
            }
            Effect::Speak(number, text) => {
                if let Some(handle) = self.voices.get_mut(&number) {
                    handle.feed(&text);
                }
            }
            Effect::FinishSpeech(number) => {
                if let Some(handle) = self.voices.get_mut(&number) {
                    handle.finish();
                }
            }
            Effect::Stop(number, response) => {
                self.close(number);
                self.drop_audio(&response);
            }
            Effect::Close(number) => self.close(number),
            Effect::SetTimer(timer, at) => {
                self.timers.insert(timer, self.started + at);
            }
            Effect::ClearTimer(timer) => {
                self.timers.remove(&timer);
            }
            Effect::Record(timeline) => {
                metrics::record_turn(&timeline);
                debug!(?timeline, "a turn was measured");
            }
        }
        None
    }

    fn close(&mut self, number: ResponseNumber) {
        self.generations.remove(&number);
        self.voices.remove(&number);
    }

    /// What was not handed over yet of a stopped answer must not sound any more.
    fn drop_audio(&mut self, response: &ResponseId) {
        self.queue.retain(|event| !matches!(event, Event::AudioDelta { at, .. } if at.response == *response));
    }

    fn score(&mut self, asked: AudioTime, audio: Vec<f32>) {
        self.scoring.push_back((asked, Instant::now()));
        let (completion, told) = (self.completion.clone(), self.told.clone());
        self.tasks.spawn(async move {
            let answer = match tokio::task::spawn_blocking(move || completion.score(&audio)).await {
                Ok(Ok(probability)) => Told::Input(Input::Completion { asked, probability }),
                Ok(Err(error)) => {
                    warn!(%error, "completion was not scored: silence decides");
                    metrics::record_error(error.kind());
                    Told::Unscored(asked)
                }
                Err(error) => {
                    warn!(%error, "the completion scorer broke: silence decides");
                    metrics::record_error(Kind::Bug);
                    Told::Unscored(asked)
                }
            };
            // The session may have ended meanwhile: then nobody asks any more.
            drop(told.send(answer).await);
        });
    }

    /// Brings a stream's events to this task, each with the name of its stream.
    fn forward<T: Send + 'static>(
        &mut self,
        mut receiver: mpsc::Receiver<T>,
        name: impl Fn(T) -> Input + Send + 'static,
    ) {
        // Forwarders that have ended are collected as new ones come.
        while self.tasks.try_join_next().is_some() {}
        let told = self.told.clone();
        self.tasks.spawn(async move {
            while let Some(event) = receiver.recv().await {
                if told.send(Told::Input(name(event))).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// Waits until then; without a time only lets others work. Cancel safe.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => tokio::task::yield_now().await,
    }
}

/// The next stage of draining. Cancel safe.
async fn changed(drain: &mut watch::Receiver<Drain>, from: Drain) -> Drain {
    // The guard must not live across the other await: it cannot cross threads.
    let next = drain.wait_for(|drain| *drain != from).await.map(|drain| *drain);
    match next {
        Ok(drain) => drain,
        // The manager has gone, and nobody is left who could ask.
        Err(_) => std::future::pending().await,
    }
}
