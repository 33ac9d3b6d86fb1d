//! What a conversation does next: the pure state machine.
//!
//! One [`Input`] in, then [`Machine::poll`] until it is empty: events for the
//! dialect and effects for the driver. It reads no clock (`now` is an argument,
//! the time since the session began), awaits nothing and knows no model.
//!
//! Split by job: `hearing` (audio, turns, barge-in, transcripts), `responses`
//! (from the prompt to the last sample), `items` (what clients do to the
//! history).
//!
//! Invariants (random walks in `tests/session/walks.rs`): at most one response
//! in the conversation; exactly one `ResponseDone` a response and nothing of it
//! after; every `Added` has its `Done`; a barge-in cancels before the new turn is
//! committed; a response keeps the settings it started with; what comes late
//! from a stream that was given up is dropped, in [`Machine::handle`] alone.

mod hearing;
mod items;
mod responses;

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use super::command::{Command, CommandKind, Tag};
use super::event::{EndReason, Event, Rejection, RejectionCode, Timeline};
use super::history::History;
use super::ids::{CallId, ConversationId, ItemId, ResponseId, SessionId};
use super::settings::{BadSetting, Settings, SettingsLimits, SettingsPatch};
use crate::audio::HEARING_RATE;
use crate::config;
use crate::llm::{GenerationEvent, GenerationRequest};
use crate::stt::{RecognitionEvent, RecognitionOptions};
use crate::tts::{SynthesisEvent, VoiceOptions};
use crate::turn::AudioTime;

use hearing::{Hearing, TurnClock};
use responses::{Response, Stage};

/// Names a recognition stream.
pub type StreamId = u64;
/// Names a response towards the driver.
pub type ResponseNumber = u64;

/// Something that happened.
#[derive(Clone, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "moved once per input, never stored in bulk: boxing would only add an allocation"
)]
pub enum Input {
    /// The client asks for something.
    Command(Command),
    /// The scores of one voice-activity frame, in order.
    Frame {
        /// One past its last sample.
        end: AudioTime,
        /// Probability of voice, 0..=1.
        voice: f32,
        /// Level, dB of full scale.
        level_db: f32,
    },
    /// The answer to [`Effect::ScoreCompletion`].
    Completion {
        /// As asked.
        asked: AudioTime,
        /// 0..=1.
        probability: f32,
    },
    /// From a recognition stream.
    Recognition(StreamId, RecognitionEvent),
    /// From a generation.
    Generation(ResponseNumber, GenerationEvent),
    /// A generation could not be started. `too_long`: a shorter prompt may do.
    GenerationRefused {
        /// Which response.
        response: ResponseNumber,
        /// Why.
        message: String,
        /// The prompt did not fit.
        too_long: bool,
    },
    /// From a synthesis stream.
    Synthesis(ResponseNumber, SynthesisEvent),
    /// A timer that was set came due.
    Timer(Timer),
    /// The server is shutting down: no new response, end when the running one has ended.
    Drain,
}

/// What may come due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Timer {
    /// A transcript takes too long.
    Transcript(StreamId),
    /// Nobody has spoken for the idle timeout.
    Idle,
    /// The playback of the last answer has ended.
    Played,
}

/// What the driver must do.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Score how complete this audio sounds; answer with [`Input::Completion`].
    ScoreCompletion {
        /// Names the question.
        asked: AudioTime,
        /// At [`crate::audio::HEARING_RATE`].
        audio: Vec<f32>,
    },
    /// Forget the voice-activity state and what is left of a frame.
    ResetHearing,
    /// Open a recognition stream.
    OpenRecognition(StreamId, RecognitionOptions),
    /// Push audio to it.
    Recognize(StreamId, Vec<f32>),
    /// Ask for its transcript.
    Flush(StreamId, u64),
    /// Drop it.
    CloseRecognition(StreamId),
    /// Start an answer.
    Generate(ResponseNumber, Box<GenerationRequest>),
    /// Drop its generation and synthesis, and whatever of its audio is still queued.
    Stop(ResponseNumber, ResponseId),
    /// Open its voice.
    OpenSynthesis(ResponseNumber, VoiceOptions),
    /// Feed its voice.
    Speak(ResponseNumber, String),
    /// No more text for its voice.
    FinishSpeech(ResponseNumber),
    /// Drop what has ended.
    Close(ResponseNumber),
    /// Set (or move) a timer to this time since the session began.
    SetTimer(Timer, Duration),
    /// Forget a timer.
    ClearTimer(Timer),
    /// Record a turn's times.
    Record(Timeline),
}

/// What comes out.
#[derive(Clone, Debug)]
pub enum Output {
    /// For the dialect.
    Event(Event),
    /// For the driver.
    Effect(Effect),
}

/// One conversation.
pub struct Machine {
    limits: config::session::Session,
    session: SessionId,
    conversation: ConversationId,
    /// Makes ids unique across sessions.
    tag: String,
    made: u64,
    cache_key: u64,
    settings: Settings,
    history: History,
    hearing: Hearing,
    responses: Vec<Response>,
    next_response: ResponseNumber,
    /// Items whose words are still being recognised.
    unheard: HashSet<ItemId>,
    /// The caller said something that no response has taken up.
    unanswered: bool,
    /// Times of the turn that is to be answered next.
    hearing_clock: Option<TurnClock>,
    /// A voice has been heard: it cannot be changed any more.
    voice_used: bool,
    draining: bool,
    ended: bool,
    out: VecDeque<Output>,
}

impl Machine {
    /// A conversation with these settings. `tag` makes its ids unique; `cache_key` names its cache in the
    /// language model.
    pub fn new(config: &config::Config, settings: Settings, tag: &str, cache_key: u64) -> Self {
        let mut machine = Self {
            limits: config.session.clone(),
            session: SessionId(format!("sess_{tag}")),
            conversation: ConversationId(format!("conv_{tag}")),
            tag: tag.to_owned(),
            made: 0,
            cache_key,
            hearing: Hearing::new(config, &settings),
            settings,
            history: History::new(config.session.max_audio_seconds as usize * HEARING_RATE as usize),
            responses: Vec::new(),
            next_response: 1,
            unheard: HashSet::new(),
            unanswered: false,
            hearing_clock: None,
            voice_used: false,
            draining: false,
            ended: false,
            out: VecDeque::new(),
        };
        machine.emit(Event::Started {
            session: machine.session.clone(),
            conversation: machine.conversation.clone(),
            settings: machine.settings.clone(),
        });
        machine
    }

    /// Settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What was said and heard.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Whether [`Event::Ended`] has been said; everything after it is ignored.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Takes one input. Drain [`Machine::poll`] before the next.
    pub fn handle(&mut self, now: Duration, input: Input) {
        if self.ended {
            return;
        }
        match input {
            Input::Command(command) => self.command(now, command),
            Input::Frame { end, voice, level_db } => self.frame(now, end, voice, level_db),
            Input::Completion { asked, probability } => self.completion(now, asked, probability),
            // What names a stream or a response that is gone is stale and ends here.
            Input::Recognition(stream, event) => {
                if self.hearing.knows(stream) {
                    self.recognition(now, stream, event);
                }
            }
            Input::Generation(number, event) => {
                if self.response(number).is_some_and(|response| response.generating()) {
                    self.generation(now, number, event);
                }
            }
            Input::GenerationRefused { response, message, too_long } => {
                if self.response(response).is_some_and(|response| response.generating()) {
                    self.refused(now, response, message, too_long);
                }
            }
            Input::Synthesis(number, event) => {
                if self.response(number).is_some_and(|response| response.speaking()) {
                    self.synthesis(now, number, event);
                }
            }
            Input::Timer(timer) => self.timer(now, timer),
            Input::Drain => {
                self.draining = true;
                self.end_if_drained();
            }
        }
    }

    /// What follows from the inputs so far, in order.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// Ends the conversation: stops every response first.
    pub fn end(&mut self, now: Duration, reason: EndReason) {
        if self.ended {
            return;
        }
        // Nothing is left to drain: this is the end, for this reason.
        self.draining = false;
        self.stop_all(now);
        self.hang_up_hearing();
        self.emit(Event::Ended { reason });
        self.ended = true;
    }

    fn command(&mut self, now: Duration, Command { tag, kind }: Command) {
        match kind {
            CommandKind::Configure(patch) => self.configure(now, tag, &patch),
            CommandKind::AppendAudio(samples) => self.append(tag, &samples),
            CommandKind::CommitAudio => self.commit(now, tag),
            CommandKind::ClearAudio => self.clear_audio(now),
            CommandKind::CreateItem { item, place } => self.create_item(now, tag, item, &place),
            CommandKind::RetrieveItem(id) => self.retrieve_item(tag, &id),
            CommandKind::DeleteItem(id) => self.delete_item(tag, &id),
            CommandKind::TruncateItem { item, content_index, audio_end_ms } => {
                self.truncate_item(now, tag, &item, content_index, audio_end_ms);
            }
            CommandKind::CreateResponse(params) => self.create_response(now, tag, params),
            CommandKind::CancelResponse(id) => self.cancel_response(now, tag, id.as_ref()),
            CommandKind::ClearOutput => self.clear_output(now),
            CommandKind::Played(id, to) => self.played(&id, to.ms),
        }
    }

    fn configure(&mut self, now: Duration, tag: Tag, patch: &SettingsPatch) {
        let limits =
            SettingsLimits { instructions: self.limits.max_instructions_chars, tools: self.limits.max_tools };
        if self.voice_used && patch.voice.as_ref().is_some_and(|voice| *voice != self.settings.voice) {
            let message = "the voice cannot be changed once the agent has spoken".to_owned();
            return self.reject(
                tag,
                RejectionCode::InvalidValue,
                message,
                Some("session.audio.output.voice"),
            );
        }
        match self.settings.patched(patch, limits) {
            Ok(settings) => {
                let hearing_changed = settings.turn_detection != self.settings.turn_detection;
                self.settings = settings;
                if hearing_changed {
                    self.reconfigure_hearing(now);
                }
                self.emit(Event::Configured { settings: self.settings.clone() });
            }
            Err(BadSetting { param, message }) => {
                self.reject(tag, RejectionCode::InvalidValue, message, Some(param));
            }
        }
    }

    fn timer(&mut self, now: Duration, timer: Timer) {
        match timer {
            Timer::Transcript(stream) => self.transcript_late(now, stream),
            Timer::Idle => self.idle(now),
            Timer::Played => self.settle_playback(now),
        }
    }

    /// Ends a draining conversation in which nothing is said any more.
    fn end_if_drained(&mut self) {
        if self.draining && !self.ended && self.responses.iter().all(|response| response.stage == Stage::Over)
        {
            self.hang_up_hearing();
            self.emit(Event::Ended { reason: EndReason::Draining });
            self.ended = true;
        }
    }

    fn response(&self, number: ResponseNumber) -> Option<&Response> {
        self.responses.iter().find(|response| response.number == number)
    }

    fn response_mut(&mut self, number: ResponseNumber) -> Option<&mut Response> {
        self.responses.iter_mut().find(|response| response.number == number)
    }

    fn emit(&mut self, event: Event) {
        self.out.push_back(Output::Event(event));
    }

    fn effect(&mut self, effect: Effect) {
        self.out.push_back(Output::Effect(effect));
    }

    fn reject(&mut self, tag: Tag, code: RejectionCode, message: impl Into<String>, param: Option<&str>) {
        let rejection = Rejection { tag, code, message: message.into(), param: param.map(str::to_owned) };
        self.emit(Event::Rejected(rejection));
    }

    fn unique(&mut self, prefix: &str) -> String {
        self.made += 1;
        format!("{prefix}_{}{:06x}", self.tag, self.made)
    }

    fn new_item_id(&mut self) -> ItemId {
        loop {
            let id = ItemId(self.unique("item"));
            // A client may have given an item of its own this id.
            if self.history.get(&id).is_none() {
                return id;
            }
        }
    }

    fn new_response_id(&mut self) -> ResponseId {
        ResponseId(self.unique("resp"))
    }

    fn new_call_id(&mut self) -> CallId {
        CallId(self.unique("call"))
    }
}
