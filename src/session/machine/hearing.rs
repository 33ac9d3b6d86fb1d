//! The caller's side: audio in, turns, barge-in, words.

use std::sync::Arc;
use std::time::Duration;

use super::{Effect, Event, Machine, StreamId, Timer};
use crate::audio::clock::Millis;
use crate::audio::ring::Ring;
use crate::audio::{HEARING_RATE, VAD_FRAME};
use crate::config;
use crate::error::Private;
use crate::session::command::Tag;
use crate::session::event::{CancelReason, RejectionCode, Timeline};
use crate::session::history::heard_item;
use crate::session::ids::ItemId;
use crate::session::item::{Item, ItemKind, Part, Place};
use crate::session::settings::{Eagerness, SessionKind, Settings, TurnDetection};
use crate::stt::{RecognitionEvent, RecognitionOptions};
use crate::turn::barge_in::{BargeIn, Cue as Barge, Floor};
use crate::turn::endpoint::{Cue, Detection, Endpoint, Signal};
use crate::turn::words::Tail;
use crate::turn::{self, AudioTime};

/// A turn that began so shortly before the agent became silent may be the caller's. Samples, padding included.
const RECENT: u64 = HEARING_RATE as u64;
/// Shortest audio that may be committed, as in OpenAI's protocol: 100 ms.
const MIN_COMMIT: u64 = HEARING_RATE as u64 / 10;

/// What the caller is doing.
pub(super) struct Hearing {
    turn_config: config::turn::Turn,
    max_turn: u64,
    ring: Ring,
    /// Samples received.
    now: AudioTime,
    /// One past the last sample of the newest scored frame.
    scored: AudioTime,
    /// Start of what was not committed or cleared yet.
    buffer: AudioTime,
    endpoint: Option<Endpoint>,
    barge_in: BargeIn,
    /// The agent can be heard.
    pub(super) agent_speaks: bool,
    turn: Option<Turn>,
    /// Turns that are over and wait for their words.
    committed: Vec<Committed>,
    next_stream: StreamId,
}

/// A turn under way.
struct Turn {
    item: ItemId,
    start: AudioTime,
    stream: StreamId,
    /// Speech under the agent's own: not announced until it takes the floor.
    held: bool,
    /// Samples with voice since the agent has become silent, of a held turn.
    alone: u64,
    marker: u64,
    /// The answer to the newest flush, while no audio with voice came after it.
    words: Option<Outcome>,
    /// The newest flush failed: the turn's end must ask again.
    failed: bool,
    /// The stream failed as a whole: no flush will be answered.
    broken: Option<String>,
    clock: TurnClock,
}

/// Times of a turn, for its [`Timeline`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TurnClock {
    /// When the last voiced sample was heard; `None` for a turn without audio.
    pub(super) speech_end: Duration,
    pub(super) speech: Option<Duration>,
    pub(super) likely: Option<Duration>,
    pub(super) fin: Option<Duration>,
    pub(super) transcript: Option<Duration>,
}

impl TurnClock {
    /// A turn that begins with a command, not with a voice.
    pub(super) fn typed(now: Duration) -> Self {
        Self { speech_end: now, ..Self::default() }
    }

    /// The stages up to the words.
    pub(super) fn timeline(&self) -> Timeline {
        let since = |at: Option<Duration>| at.map(|at| ms(at.saturating_sub(self.speech_end)));
        Timeline {
            speech_ms: self.speech.map(ms),
            likely_ms: since(self.likely),
            final_ms: since(self.fin),
            transcript_ms: since(self.transcript),
            ..Timeline::default()
        }
    }
}

pub(super) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// A turn that is over.
struct Committed {
    item: ItemId,
    stream: StreamId,
    marker: u64,
    samples: u64,
    clock: TurnClock,
    /// Whether its words are to be answered by themselves.
    answer: bool,
}

/// What a flush brought.
#[derive(Clone)]
enum Outcome {
    Words(String),
    Failed(String),
}

impl Hearing {
    pub(super) fn new(config: &config::Config, settings: &Settings) -> Self {
        let max_turn = u64::from(config.session.max_turn_seconds) * u64::from(HEARING_RATE);
        Self {
            endpoint: endpoint(settings, &config.turn),
            barge_in: BargeIn::new(&config.turn.barge_in),
            turn_config: config.turn.clone(),
            max_turn,
            // One second beyond the longest turn, so that its pre-roll is still there.
            ring: Ring::new((max_turn + u64::from(HEARING_RATE)) as usize),
            now: 0,
            scored: 0,
            buffer: 0,
            agent_speaks: false,
            turn: None,
            committed: Vec::new(),
            next_stream: 1,
        }
    }

    /// Whether a stream is still of interest.
    pub(super) fn knows(&self, stream: StreamId) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.stream == stream)
            || self.committed.iter().any(|turn| turn.stream == stream)
    }

    /// Whether this id was given to the turn under way, which is no item yet.
    pub(super) fn has_named(&self, id: &ItemId) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.item == *id)
    }

    /// Turns that wait for their words are answered by a response that waits for them too.
    pub(super) fn taken_up(&mut self) {
        for turn in &mut self.committed {
            turn.answer = false;
        }
    }

    /// Whether the caller has the floor now.
    pub(super) fn caller_speaks(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| !turn.held)
    }

    fn new_stream(&mut self) -> StreamId {
        self.next_stream += 1;
        self.next_stream - 1
    }
}

/// The end-of-turn policy that the settings ask for; `None`: the client decides.
fn endpoint(settings: &Settings, config: &config::turn::Turn) -> Option<Endpoint> {
    detection(settings).map(|detection| Endpoint::new(detection, config))
}

fn detection(settings: &Settings) -> Option<Detection> {
    Some(match &settings.turn_detection {
        TurnDetection::Manual => return None,
        TurnDetection::Silence { threshold, prefix_padding_ms, silence_duration_ms, .. } => {
            Detection::Silence {
                threshold: *threshold,
                prefix_padding: Millis(u64::from(*prefix_padding_ms)),
                silence: Millis(u64::from(*silence_duration_ms)),
            }
        }
        TurnDetection::Semantic { eagerness, .. } => Detection::Semantic {
            eagerness: match eagerness {
                Eagerness::Low => turn::Eagerness::Low,
                Eagerness::Medium => turn::Eagerness::Medium,
                Eagerness::High => turn::Eagerness::High,
                Eagerness::Auto => turn::Eagerness::Auto,
            },
        },
    })
}

fn at_ms(samples: AudioTime) -> u64 {
    samples * 1000 / u64::from(HEARING_RATE)
}

impl Machine {
    /// More audio.
    pub(super) fn append(&mut self, tag: Tag, samples: &[f32]) {
        let hearing = &mut self.hearing;
        let open = hearing.turn.as_ref().map_or(hearing.buffer, |turn| turn.start);
        // With detection the buffer moves on by itself; by hand the client must commit or clear.
        if hearing.endpoint.is_none() && hearing.now + samples.len() as u64 - open > hearing.max_turn {
            let seconds = hearing.max_turn / u64::from(HEARING_RATE);
            let message = format!("the input audio buffer holds at most {seconds} s; commit or clear it");
            return self.reject(tag, RejectionCode::InvalidValue, message, Some("audio"));
        }
        hearing.ring.push(samples);
        hearing.now += samples.len() as u64;
        if let Some(turn) = &hearing.turn {
            let stream = turn.stream;
            self.effect(Effect::Recognize(stream, samples.to_vec()));
        }
    }

    /// One scored frame: who speaks, who may.
    pub(super) fn frame(&mut self, now: Duration, end: AudioTime, voice: f32, level_db: f32) {
        self.settle_playback(now);
        self.hearing.scored = end;
        let Some(endpoint) = &mut self.hearing.endpoint else { return };
        let signals = endpoint.on(Cue::Frame { end, voice, level_db });
        for signal in signals {
            self.signal(now, signal);
        }
        if self.hearing.agent_speaks {
            let playing_db = self.playing_db(now);
            let floor = self.hearing.barge_in.on(Barge::Frame { end, voice, level_db, playing_db });
            self.barge(now, floor);
        } else if let Some(turn) = self.hearing.turn.as_mut().filter(|turn| turn.held) {
            let rules = &self.hearing.turn_config.barge_in;
            turn.alone += if voice >= rules.threshold { VAD_FRAME as u64 } else { 0 };
            if turn.alone >= Millis(u64::from(rules.take_ms)).heard() {
                self.announce();
                self.interrupt(now);
            }
        }
    }

    /// How complete the turn sounds.
    pub(super) fn completion(&mut self, now: Duration, asked: AudioTime, probability: f32) {
        let Some(endpoint) = &mut self.hearing.endpoint else { return };
        for signal in endpoint.on(Cue::Completion { asked, probability }) {
            self.signal(now, signal);
        }
    }

    fn signal(&mut self, now: Duration, signal: Signal) {
        match signal {
            Signal::Started { start, .. } => self.turn_started(now, start),
            Signal::Likely { speech_end } => self.turn_likely(now, speech_end),
            Signal::AskCompletion { asked, audio } => {
                let audio = self.hearing.ring.range(audio).samples;
                self.effect(Effect::ScoreCompletion { asked, audio });
            }
            Signal::Retracted => {
                if let Some(turn) = &mut self.hearing.turn {
                    turn.words = None;
                    turn.clock.likely = None;
                }
            }
            Signal::Final { speech_end, .. } => self.turn_final(now, speech_end),
        }
    }

    fn turn_started(&mut self, now: Duration, start: AudioTime) {
        self.effect(Effect::ClearTimer(Timer::Idle));
        let start = start.max(self.hearing.buffer);
        let item = self.new_item_id();
        let stream = self.open_recognition(start);
        let interrupts = self.settings.interrupts_responses();
        let held = self.hearing.agent_speaks && interrupts;
        self.hearing.turn = Some(Turn {
            item: item.clone(),
            start,
            stream,
            held,
            alone: 0,
            marker: 0,
            words: None,
            failed: false,
            broken: None,
            clock: TurnClock::default(),
        });
        if held {
            return;
        }
        self.emit(Event::SpeechStarted { item, at_ms: at_ms(start) });
        // An answer that has not become sound yet makes way at once: there is no echo to mistake.
        if interrupts {
            self.interrupt(now);
        }
    }

    /// Opens a stream and gives it the audio from `start` on.
    fn open_recognition(&mut self, start: AudioTime) -> StreamId {
        let stream = self.hearing.new_stream();
        let transcription = self.settings.transcription.as_ref();
        let options = RecognitionOptions {
            language: transcription.and_then(|settings| settings.language.clone()),
            prompt: transcription.and_then(|settings| settings.prompt.clone()),
            // Also where the client wants none: the policies read how the words end.
            partials: true,
        };
        self.effect(Effect::OpenRecognition(stream, options));
        let audio = self.hearing.ring.range(start..self.hearing.now).samples;
        self.effect(Effect::Recognize(stream, audio));
        stream
    }

    /// The voice fell: the words are asked for already, so that they are there when the turn is final.
    fn turn_likely(&mut self, now: Duration, speech_end: AudioTime) {
        let behind = self.hearing.now.saturating_sub(speech_end);
        let Some(turn) = &mut self.hearing.turn else { return };
        turn.clock.speech_end = now.saturating_sub(heard(behind));
        turn.clock.speech = Some(heard(speech_end.saturating_sub(turn.start)));
        turn.clock.likely = Some(now);
        turn.marker += 1;
        turn.words = None;
        turn.failed = false;
        let (stream, marker) = (turn.stream, turn.marker);
        self.effect(Effect::Flush(stream, marker));
    }

    fn turn_final(&mut self, now: Duration, speech_end: AudioTime) {
        let Some(turn) = self.hearing.turn.take() else { return };
        if turn.held {
            // Speech under the agent's own that did not take the floor: a listener's sign, or an echo.
            self.hearing.buffer = self.hearing.scored;
            self.effect(Effect::CloseRecognition(turn.stream));
            return self.answer_if_due(now);
        }
        self.emit(Event::SpeechStopped { item: turn.item.clone(), at_ms: at_ms(speech_end) });
        let answer = self.settings.creates_responses();
        // What was received after the frame that decided may hold the beginning of the next turn.
        let end = self.hearing.scored;
        self.commit_turn(now, turn, end, answer);
    }

    /// A turn becomes an item of the conversation.
    fn commit_turn(&mut self, now: Duration, mut turn: Turn, end: AudioTime, answer: bool) {
        turn.clock.fin = Some(now);
        let audio = Arc::new(self.hearing.ring.range(turn.start..end).samples);
        self.hearing.buffer = end;
        let item = heard_item(turn.item.clone(), audio);
        self.make_room();
        let previous = self.history.last();
        self.emit(Event::AudioCommitted { item: turn.item.clone(), previous: previous.clone() });
        self.history.add(item.clone(), &Place::End).expect("clients may not use the id of an open turn");
        self.emit(Event::ItemAdded { item: item.clone(), previous: previous.clone() });
        self.emit(Event::ItemDone { item, previous });
        self.unheard.insert(turn.item.clone());
        if turn.marker == 0 || turn.failed {
            turn.marker += 1;
            self.effect(Effect::Flush(turn.stream, turn.marker));
        }
        let words = turn.broken.take().map(Outcome::Failed).or(turn.words.take());
        let stream = turn.stream;
        self.hearing.committed.push(Committed {
            item: turn.item,
            stream,
            marker: turn.marker,
            samples: end.saturating_sub(turn.start),
            clock: turn.clock,
            answer,
        });
        match words {
            Some(outcome) => self.heard(now, stream, outcome),
            None => {
                let limit = Duration::from_millis(u64::from(self.limits.transcript_timeout_ms));
                self.effect(Effect::SetTimer(Timer::Transcript(stream), now + limit));
            }
        }
    }

    pub(super) fn recognition(&mut self, now: Duration, stream: StreamId, event: RecognitionEvent) {
        match event {
            RecognitionEvent::Partial { text } => self.partial(now, stream, &text),
            RecognitionEvent::Final { marker, transcript } => {
                let outcome = Outcome::Words(transcript.text.expose().trim().to_owned());
                self.flushed(now, stream, Some(marker), outcome);
            }
            RecognitionEvent::Failed { marker, message } => {
                self.flushed(now, stream, marker, Outcome::Failed(message));
            }
        }
    }

    fn partial(&mut self, now: Duration, stream: StreamId, text: &Private<String>) {
        let Some(turn) = self.hearing.turn.as_ref().filter(|turn| turn.stream == stream) else { return };
        let (item, held) = (turn.item.clone(), turn.held);
        if let Some(endpoint) = &mut self.hearing.endpoint {
            for signal in endpoint.on(Cue::Words(Tail::of(text.expose()))) {
                self.signal(now, signal);
            }
        }
        if self.hearing.agent_speaks {
            let floor = self.hearing.barge_in.on(Barge::Words(text.expose()));
            self.barge(now, floor);
        }
        if !held && self.settings.transcription.is_some() {
            self.emit(Event::TranscriptPartial { item, text: text.clone() });
        }
    }

    /// The answer to a flush, of an open turn or of one that is over.
    fn flushed(&mut self, now: Duration, stream: StreamId, marker: Option<u64>, outcome: Outcome) {
        if let Some(turn) = self.hearing.turn.as_mut().filter(|turn| turn.stream == stream) {
            match (marker, outcome) {
                (None, Outcome::Failed(message)) => turn.broken = Some(message),
                // Only the newest flush counts, and only while no voice came after it.
                (Some(marker), Outcome::Words(words))
                    if marker == turn.marker && turn.clock.likely.is_some() =>
                {
                    turn.clock.transcript = Some(now);
                    turn.words = Some(Outcome::Words(words));
                }
                (Some(marker), Outcome::Failed(_)) if marker == turn.marker => turn.failed = true,
                _ => {}
            }
            return;
        }
        let due = self.hearing.committed.iter().find(|turn| turn.stream == stream);
        if due.is_some_and(|turn| marker.is_none_or(|marker| marker >= turn.marker)) {
            self.heard(now, stream, outcome);
        }
    }

    pub(super) fn transcript_late(&mut self, now: Duration, stream: StreamId) {
        if self.hearing.committed.iter().any(|turn| turn.stream == stream) {
            self.heard(now, stream, Outcome::Failed("recognition took too long".to_owned()));
        }
    }

    /// The words of a turn that is over.
    fn heard(&mut self, now: Duration, stream: StreamId, outcome: Outcome) {
        let Some(index) = self.hearing.committed.iter().position(|turn| turn.stream == stream) else {
            return;
        };
        let mut turn = self.hearing.committed.remove(index);
        turn.clock.transcript.get_or_insert(now);
        self.effect(Effect::ClearTimer(Timer::Transcript(stream)));
        self.effect(Effect::CloseRecognition(stream));
        self.unheard.remove(&turn.item);
        let words = match outcome {
            Outcome::Words(words) => {
                self.history.set_transcript(&turn.item, &words);
                if self.settings.transcription.is_some() || self.settings.kind == SessionKind::Transcription {
                    let seconds = turn.samples as f64 / f64::from(HEARING_RATE);
                    let text = Private::new(words.clone());
                    self.emit(Event::TranscriptDone { item: turn.item.clone(), text, seconds });
                }
                words
            }
            Outcome::Failed(message) => {
                self.history.set_transcript(&turn.item, "");
                self.emit(Event::TranscriptFailed { item: turn.item.clone(), message });
                String::new()
            }
        };
        if turn.answer && !words.is_empty() {
            self.unanswered = true;
            self.hearing_clock = Some(turn.clock);
        }
        self.generate_waiting();
        self.answer_if_due(now);
    }

    /// Answers what the caller said, once nobody speaks and no response is under way.
    pub(super) fn answer_if_due(&mut self, now: Duration) {
        let pending = self.hearing.committed.iter().any(|turn| turn.answer);
        if self.unanswered
            && !pending
            && !self.draining
            && !self.hearing.caller_speaks()
            && self.active().is_none()
            && self.settings.creates_responses()
        {
            let clock = self.hearing_clock.take().unwrap_or_else(|| TurnClock::typed(now));
            self.answer(now, clock);
        } else if !self.unanswered && !self.hearing.caller_speaks() && self.active().is_none() {
            self.start_idle(now);
        }
    }

    fn barge(&mut self, now: Duration, floor: Floor) {
        // Without a turn the end-of-turn policy is not sure yet; the floor is given again with the next frame.
        if floor == Floor::TakeFloor && self.settings.interrupts_responses() && self.hearing.turn.is_some() {
            self.announce();
            self.interrupt(now);
        }
    }

    /// A turn that was held back is one like any other from now on; whether there was one.
    fn announce(&mut self) -> bool {
        let Some(turn) = self.hearing.turn.as_mut().filter(|turn| turn.held) else { return false };
        turn.held = false;
        let (item, start) = (turn.item.clone(), turn.start);
        self.emit(Event::SpeechStarted { item, at_ms: at_ms(start) });
        true
    }

    /// The caller has the floor: the agent stops.
    fn interrupt(&mut self, now: Duration) {
        self.yield_floor(now, CancelReason::TurnDetected);
    }

    /// The agent's sound began.
    pub(super) fn agent_started(&mut self) {
        self.hearing.agent_speaks = true;
        let at = self.hearing.now;
        self.hearing.barge_in.on(Barge::AgentStarted { at });
    }

    /// The agent's sound is over or was stopped; the caller's speech that was held under it is a turn of its
    /// own now.
    pub(super) fn agent_stopped(&mut self, now: Duration) {
        if !self.hearing.agent_speaks {
            return;
        }
        self.hearing.agent_speaks = false;
        let callers = self.hearing.barge_in.caller_speaks();
        self.hearing.barge_in.on(Barge::AgentStopped);
        if !callers {
            return self.forget_echo();
        }
        // As at the start of a turn: the next answer, not heard yet, makes way.
        if self.announce() && self.settings.interrupts_responses() {
            self.interrupt(now);
        }
    }

    /// A turn was held back and the agent is silent now: what began long before is the agent's own echo; what
    /// began just now may be the caller, who is heard if the voice goes on.
    fn forget_echo(&mut self) {
        let oldest = self.hearing.scored.saturating_sub(RECENT);
        if let Some(turn) = self.hearing.turn.take_if(|turn| turn.held && turn.start < oldest) {
            self.effect(Effect::CloseRecognition(turn.stream));
            self.hearing.buffer = self.hearing.scored;
            if let Some(endpoint) = &mut self.hearing.endpoint {
                endpoint.reset();
            }
        }
    }

    /// The client ends the turn by hand.
    pub(super) fn commit(&mut self, now: Duration, tag: Tag) {
        if let Some(turn) = self.hearing.turn.take() {
            if let Some(endpoint) = &mut self.hearing.endpoint {
                endpoint.reset();
            }
            if !turn.held {
                let at_ms = at_ms(self.hearing.now);
                self.emit(Event::SpeechStopped { item: turn.item.clone(), at_ms });
            }
            let turn = Turn { marker: turn.marker + 1, words: None, failed: false, ..turn };
            self.effect(Effect::Flush(turn.stream, turn.marker));
            return self.commit_by_hand(now, turn);
        }
        let audio = self.hearing.now - self.hearing.buffer;
        if audio < MIN_COMMIT {
            let message = format!(
                "Error committing input audio buffer: buffer too small. Expected at least 100ms of audio, but buffer \
                 only has {}ms of audio.",
                at_ms(audio)
            );
            return self.reject(tag, RejectionCode::CommitEmpty, message, None);
        }
        let start = self.hearing.buffer.max(self.hearing.ring.start());
        let (item, stream) = (self.new_item_id(), self.open_recognition(start));
        let turn = Turn {
            item,
            start,
            stream,
            held: false,
            alone: 0,
            marker: 0,
            words: None,
            failed: false,
            broken: None,
            clock: TurnClock::default(),
        };
        self.commit_by_hand(now, turn);
    }

    fn commit_by_hand(&mut self, now: Duration, mut turn: Turn) {
        turn.clock.speech_end = now;
        turn.clock.speech = Some(heard(self.hearing.now - turn.start));
        self.commit_turn(now, turn, self.hearing.now, false);
    }

    pub(super) fn clear_audio(&mut self, now: Duration) {
        if let Some(turn) = self.hearing.turn.take() {
            self.effect(Effect::CloseRecognition(turn.stream));
        }
        if let Some(endpoint) = &mut self.hearing.endpoint {
            endpoint.reset();
        }
        self.hearing.buffer = self.hearing.now;
        self.effect(Effect::ResetHearing);
        self.emit(Event::AudioCleared);
        self.answer_if_due(now);
    }

    /// The way turns end was changed. A turn under way goes on under the new rules, or, where the client decides
    /// from now on, becomes audio in the buffer.
    pub(super) fn reconfigure_hearing(&mut self, now: Duration) {
        match (detection(&self.settings), &mut self.hearing.endpoint) {
            (Some(detection), Some(endpoint)) => {
                endpoint.configure(detection, &self.hearing.turn_config);
                if !self.settings.interrupts_responses() {
                    self.announce();
                }
            }
            (Some(_), None) => {
                self.hearing.endpoint = endpoint(&self.settings, &self.hearing.turn_config);
            }
            (None, _) => {
                self.hearing.endpoint = None;
                if let Some(turn) = self.hearing.turn.take() {
                    self.hearing.buffer = turn.start;
                    self.effect(Effect::CloseRecognition(turn.stream));
                }
            }
        }
        self.effect(Effect::ClearTimer(Timer::Idle));
        self.answer_if_due(now);
    }

    pub(super) fn hang_up_hearing(&mut self) {
        if let Some(turn) = self.hearing.turn.take() {
            self.effect(Effect::CloseRecognition(turn.stream));
        }
        for turn in std::mem::take(&mut self.hearing.committed) {
            self.effect(Effect::CloseRecognition(turn.stream));
        }
    }

    /// Starts waiting for somebody to speak, where the settings ask for it.
    pub(super) fn start_idle(&mut self, now: Duration) {
        if let TurnDetection::Silence { idle_timeout_ms: Some(limit), .. } = self.settings.turn_detection
            && self.settings.creates_responses()
        {
            let from = now.max(self.playing_until());
            self.effect(Effect::SetTimer(Timer::Idle, from + Duration::from_millis(u64::from(limit))));
        }
    }

    /// Nobody spoke: the silence becomes a turn, and the agent speaks up.
    pub(super) fn idle(&mut self, now: Duration) {
        if self.hearing.turn.is_some() || self.active().is_some() || self.draining {
            return;
        }
        let (start, end) = (self.hearing.buffer.max(self.hearing.ring.start()), self.hearing.now);
        let item = heard_item(self.new_item_id(), Arc::new(self.hearing.ring.range(start..end).samples));
        let id = item.id.clone();
        self.hearing.buffer = end;
        self.emit(Event::IdleTimeout { item: id.clone(), start_ms: at_ms(start), end_ms: at_ms(end) });
        self.make_room();
        let previous = self.history.last();
        self.emit(Event::AudioCommitted { item: id.clone(), previous: previous.clone() });
        self.history.add(item.clone(), &Place::End).expect("the id was just made and the place is the end");
        self.history.set_transcript(&id, "");
        self.emit(Event::ItemAdded { item: item.clone(), previous: previous.clone() });
        self.emit(Event::ItemDone { item, previous });
        self.speak_up(now);
    }

    /// A user's item with audio but no words (made by the client): its words are recognised.
    pub(super) fn recognise_item(&mut self, now: Duration, item: &Item) {
        let ItemKind::Message { parts, .. } = &item.kind else { return };
        let audio = parts.iter().find_map(|part| match part {
            Part::InputAudio { transcript: None, audio } => Some(audio.clone()),
            _ => None,
        });
        let Some(audio) = audio else { return };
        let stream = self.hearing.new_stream();
        self.effect(Effect::OpenRecognition(stream, RecognitionOptions::default()));
        self.effect(Effect::Recognize(stream, audio.to_vec()));
        self.effect(Effect::Flush(stream, 1));
        self.unheard.insert(item.id.clone());
        let limit = Duration::from_millis(u64::from(self.limits.transcript_timeout_ms));
        self.effect(Effect::SetTimer(Timer::Transcript(stream), now + limit));
        self.hearing.committed.push(Committed {
            item: item.id.clone(),
            stream,
            marker: 1,
            samples: audio.len() as u64,
            clock: TurnClock::typed(now),
            answer: false,
        });
    }
}

/// How long samples heard last.
fn heard(samples: u64) -> Duration {
    Duration::from_nanos(samples * 1_000_000_000 / u64::from(HEARING_RATE))
}
