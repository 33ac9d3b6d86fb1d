//! A machine, a clock that the test moves, and a client's view that checks the
//! order of everything it is told.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use voluble::audio::VAD_FRAME;
use voluble::config::Config;
use voluble::error::Private;
use voluble::llm::{FinishReason, GenerationEvent, GenerationRequest, GenerationUsage, Role};
use voluble::session::command::{Command, CommandKind, ResponseParams};
use voluble::session::event::{CancelReason, Event, Response, ResponseStatus};
use voluble::session::ids::{ItemId, ResponseId};
use voluble::session::item::{Item, ItemKind, ItemStatus, Part};
use voluble::session::machine::{Effect, Input, Machine, Output, ResponseNumber, StreamId, Timer};
use voluble::session::settings::{Eagerness, Modality, SessionKind, Settings, ToolChoice, TurnDetection};
use voluble::stt::{RecognitionEvent, Transcript};
use voluble::tts::SynthesisEvent;

/// Milliseconds of one voice-activity frame.
pub const FRAME_MS: u64 = 32;

pub fn settings() -> Settings {
    Settings {
        kind: SessionKind::Conversation,
        instructions: "Be brief.".into(),
        modality: Modality::Audio,
        turn_detection: TurnDetection::Silence {
            threshold: 0.5,
            prefix_padding_ms: 300,
            silence_duration_ms: 500,
            idle_timeout_ms: None,
            create_response: true,
            interrupt_response: true,
        },
        transcription: Some(Default::default()),
        voice: "default".into(),
        speed: 1.0,
        tools: Vec::new(),
        tool_choice: ToolChoice::Auto,
        max_output_tokens: None,
        temperature: 0.0,
    }
}

pub fn semantic() -> TurnDetection {
    TurnDetection::Semantic { eagerness: Eagerness::Auto, create_response: true, interrupt_response: true }
}

pub fn config() -> Config {
    let mut config = Config::default();
    config.session.max_turn_seconds = 60;
    config
}

/// Streams and responses that the machine has asked for and not yet given up.
#[derive(Default)]
pub struct World {
    pub recognitions: HashMap<StreamId, Option<u64>>,
    pub generations: HashMap<ResponseNumber, GenerationRequest>,
    pub voices: HashMap<ResponseNumber, (String, bool)>,
    pub completions: Vec<u64>,
    pub timers: HashMap<Timer, Duration>,
    /// Everything that was ever open, for late events.
    pub old_streams: Vec<StreamId>,
    pub old_responses: Vec<ResponseNumber>,
}

pub struct Rig {
    pub machine: Machine,
    pub now: Duration,
    pub heard: u64,
    pub world: World,
    pub view: View,
    pub events: Vec<Event>,
}

impl Rig {
    pub fn new(settings: Settings) -> Self {
        Self::with(&config(), settings)
    }

    pub fn with(config: &Config, settings: Settings) -> Self {
        let mut rig = Self {
            machine: Machine::new(config, settings, "t", 1),
            now: Duration::ZERO,
            heard: 0,
            world: World::default(),
            view: View::default(),
            events: Vec::new(),
        };
        rig.drain();
        rig
    }

    pub fn input(&mut self, input: Input) {
        self.machine.handle(self.now, input);
        self.drain();
    }

    pub fn command(&mut self, kind: CommandKind) {
        self.input(Input::Command(Command { tag: Some("tag".into()), kind }));
    }

    pub fn respond(&mut self) {
        self.command(CommandKind::CreateResponse(ResponseParams::default()));
    }

    pub fn pass(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        loop {
            let due = self.world.timers.iter().min_by_key(|(_, at)| **at).map(|(timer, at)| (*timer, *at));
            match due.filter(|(_, at)| *at <= until) {
                Some((timer, at)) => {
                    self.now = self.now.max(at);
                    self.world.timers.remove(&timer);
                    self.input(Input::Timer(timer));
                }
                None => break,
            }
        }
        self.now = until;
    }

    /// Audio in real time, a frame at a time. Each sample's value names its position, so that what is lost or
    /// used twice shows.
    pub fn hear(&mut self, frames: usize, voice: f32, level_db: f32) {
        for _ in 0..frames {
            self.pass(FRAME_MS);
            let samples = (self.heard..self.heard + VAD_FRAME as u64).map(|at| at as f32).collect();
            self.heard += VAD_FRAME as u64;
            self.command(CommandKind::AppendAudio(samples));
            self.input(Input::Frame { end: self.heard, voice, level_db });
        }
    }

    pub fn speak(&mut self, ms: u64) {
        self.hear((ms / FRAME_MS) as usize, 0.95, -20.0);
    }

    pub fn silence(&mut self, ms: u64) {
        self.hear((ms / FRAME_MS) as usize, 0.02, -70.0);
    }

    /// Answers the newest flush of every open stream.
    pub fn words(&mut self, text: &str) {
        let due: Vec<_> = self.world.recognitions.iter().filter_map(|(s, m)| m.map(|m| (*s, m))).collect();
        for (stream, marker) in due {
            self.input(Input::Recognition(stream, final_words(marker, text)));
        }
    }

    pub fn generation(&self) -> ResponseNumber {
        *self.world.generations.keys().max().expect("a generation is open")
    }

    pub fn write(&mut self, text: &str) {
        let number = self.generation();
        self.input(Input::Generation(number, text_event(text)));
    }

    pub fn written(&mut self) {
        let number = self.generation();
        self.input(Input::Generation(number, done()));
    }

    /// The voice says everything it was fed: 100 ms a word.
    pub fn voice(&mut self) {
        let (number, text) =
            self.world.voices.iter().map(|(n, (text, _))| (*n, text.clone())).max().expect("a voice is open");
        self.input(Input::Synthesis(number, SynthesisEvent::Clause { from: 0, to: text.len() }));
        let mut from = 0;
        for (index, word) in text.split(' ').enumerate() {
            let (start, end) = (index as u64 * 2400, (index as u64 + 1) * 2400);
            self.input(Input::Synthesis(
                number,
                SynthesisEvent::Word { from, to: from + word.len(), start, end },
            ));
            from += word.len() + 1;
            self.input(Input::Synthesis(number, SynthesisEvent::Audio { samples: vec![0.1; 2400] }));
        }
        if self.world.voices.get(&number).is_some_and(|(_, finished)| *finished) {
            self.input(Input::Synthesis(number, SynthesisEvent::Done));
        }
    }

    /// A whole answer, written and spoken.
    pub fn answer(&mut self, text: &str) {
        self.write(text);
        self.written();
        self.voice();
    }

    /// A whole turn of the caller.
    pub fn turn(&mut self, text: &str) {
        self.speak(800);
        self.silence(700);
        self.words(text);
    }

    fn drain(&mut self) {
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Event(event) => {
                    self.view.see(&event);
                    self.events.push(event);
                }
                Output::Effect(effect) => self.world.act(effect),
            }
        }
        self.view.settled();
    }

    pub fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Short names of the events so far, in order.
    pub fn names(&mut self) -> Vec<&'static str> {
        self.take().iter().map(name).collect()
    }

    pub fn prompt(&self) -> Vec<(Role, String)> {
        let (_, request) =
            self.world.generations.iter().max_by_key(|(n, _)| **n).expect("a generation is open");
        request.messages.iter().map(|m| (m.role, m.text.expose().clone())).collect()
    }
}

impl World {
    fn act(&mut self, effect: Effect) {
        match effect {
            Effect::ScoreCompletion { asked, audio } => {
                assert!(!audio.is_empty(), "a completion of nothing was asked");
                self.completions.push(asked);
            }
            Effect::ResetHearing | Effect::Record(_) => {}
            Effect::OpenRecognition(stream, _) => {
                assert!(self.recognitions.insert(stream, None).is_none(), "stream {stream} opened twice");
                self.old_streams.push(stream);
            }
            Effect::Recognize(stream, _) => {
                assert!(self.recognitions.contains_key(&stream), "audio for the closed stream {stream}");
            }
            Effect::Flush(stream, marker) => {
                let newest = self.recognitions.get_mut(&stream).expect("only an open stream is flushed");
                assert!(newest.is_none_or(|newest| newest < marker), "markers rise");
                *newest = Some(marker);
            }
            Effect::CloseRecognition(stream) => {
                assert!(self.recognitions.remove(&stream).is_some(), "stream {stream} closed twice");
            }
            Effect::Generate(number, request) => {
                self.generations.insert(number, *request);
                self.old_responses.push(number);
            }
            Effect::Stop(number, _) | Effect::Close(number) => {
                self.generations.remove(&number);
                self.voices.remove(&number);
            }
            Effect::OpenSynthesis(number, _) => {
                assert!(
                    self.voices.insert(number, (String::new(), false)).is_none(),
                    "voice {number} opened twice"
                );
            }
            Effect::Speak(number, text) => {
                self.voices.get_mut(&number).expect("only an open voice is fed").0.push_str(&text);
            }
            Effect::FinishSpeech(number) => {
                let (_, finished) = self.voices.get_mut(&number).expect("only an open voice is finished");
                assert!(!std::mem::replace(finished, true), "voice {number} finished twice");
            }
            Effect::SetTimer(timer, at) => drop(self.timers.insert(timer, at)),
            Effect::ClearTimer(timer) => drop(self.timers.remove(&timer)),
        }
    }
}

/// What a strict client would conclude from the events, and complain about.
#[derive(Default)]
pub struct View {
    pub open: HashMap<ResponseId, Response>,
    pub done: HashMap<ResponseId, Response>,
    outputs: HashMap<ResponseId, HashSet<ItemId>>,
    parts: HashSet<ItemId>,
    audio_open: HashSet<ItemId>,
    added: HashSet<ItemId>,
    pub items: HashSet<ItemId>,
    speaking: Option<ItemId>,
    stopped: HashSet<ItemId>,
    committed_to: f32,
    interrupts: bool,
    barged: bool,
    pub ended: bool,
}

impl View {
    fn see(&mut self, event: &Event) {
        assert!(!self.ended, "{} after the end", name(event));
        match event {
            Event::Started { settings, .. } | Event::Configured { settings } => {
                self.interrupts = settings.interrupts_responses();
                if settings.turn_detection == TurnDetection::Manual {
                    self.speaking = None;
                }
            }
            Event::SpeechStarted { item, .. } => {
                assert!(self.speaking.is_none(), "a turn began inside a turn");
                self.speaking = Some(item.clone());
                self.barged = self.interrupts && self.conversation().is_some();
            }
            Event::SpeechStopped { item, .. } => {
                assert_eq!(self.speaking.take().as_ref(), Some(item), "another turn ended than began");
                assert!(self.stopped.insert(item.clone()), "two ends of one turn");
            }
            Event::AudioCommitted { .. } => {
                if self.interrupts {
                    assert!(
                        self.conversation().is_none() || !self.barged,
                        "committed before the old answer was cancelled"
                    );
                }
            }
            Event::AudioCleared => self.speaking = None,
            Event::ItemAdded { item, previous } => {
                assert!(previous.as_ref() != Some(&item.id));
                assert!(self.added.insert(item.id.clone()), "item {} added twice", item.id);
                self.items.insert(item.id.clone());
                self.consumed(item);
            }
            Event::ItemDone { item, .. } => {
                assert!(self.added.remove(&item.id), "item {} done without being added", item.id);
                assert_ne!(item.status, ItemStatus::InProgress, "a done item is in progress");
            }
            Event::ItemDeleted { item } => {
                assert!(self.items.remove(item), "deleted item {item} was not there");
            }
            Event::ResponseCreated(response) => {
                assert_eq!(response.status, ResponseStatus::InProgress);
                if response.conversation.is_some() {
                    assert!(self.conversation().is_none(), "two responses in the conversation");
                }
                assert!(!self.done.contains_key(&response.id));
                assert!(self.open.insert(response.id.clone(), response.clone()).is_none());
            }
            Event::OutputItemAdded { response, item, .. } => {
                self.must_be_open(response, event);
                assert!(self.outputs.entry(response.clone()).or_default().insert(item.id.clone()));
            }
            Event::OutputItemDone { response, item, .. } => {
                self.must_be_open(response, event);
                assert!(!self.parts.contains(&item.id), "an item was done before its part");
                assert!(self.outputs.entry(response.clone()).or_default().remove(&item.id));
                assert_ne!(item.status, ItemStatus::InProgress);
            }
            Event::PartAdded { at, modality } => {
                self.must_be_open(&at.response, event);
                assert!(self.parts.insert(at.item.clone()));
                if *modality == Modality::Audio {
                    self.audio_open.insert(at.item.clone());
                }
            }
            Event::PartDone { at, .. } => {
                self.must_be_open(&at.response, event);
                assert!(!self.audio_open.contains(&at.item), "a part was done before its audio");
                assert!(self.parts.remove(&at.item));
            }
            Event::TextDelta { at, .. } | Event::TextDone { at, .. } => {
                self.must_be_open(&at.response, event);
                assert!(self.parts.contains(&at.item), "text outside a part");
            }
            Event::AudioDelta { at, samples } => {
                self.must_be_open(&at.response, event);
                assert!(self.audio_open.contains(&at.item), "audio after its end");
                assert!(!samples.is_empty());
            }
            Event::AudioDone { at } => {
                self.must_be_open(&at.response, event);
                assert!(self.audio_open.remove(&at.item));
            }
            Event::ArgumentsDelta { at, .. } | Event::ArgumentsDone { at, .. } => {
                self.must_be_open(&at.response, event)
            }
            Event::ResponseDone(response) => {
                let begun = self.open.remove(&response.id).expect("one end a response, of one that began");
                assert!(self.outputs.remove(&response.id).unwrap_or_default().is_empty(), "items left open");
                assert_ne!(response.status, ResponseStatus::InProgress);
                assert_eq!(
                    (&begun.voice, begun.modality),
                    (&response.voice, response.modality),
                    "settings changed"
                );
                if response.status == ResponseStatus::Cancelled(CancelReason::TurnDetected) {
                    self.barged = false;
                }
                self.done.insert(response.id.clone(), response.clone());
            }
            Event::TurnMeasured { response, .. } => assert!(self.done.contains_key(response)),
            Event::Ended { .. } => {
                self.ended = true;
                assert!(self.open.is_empty(), "the end left responses open");
            }
            Event::Rejected(rejection) => assert!(!rejection.message.is_empty()),
            Event::OutputCleared { .. }
            | Event::IdleTimeout { .. }
            | Event::ItemRetrieved { .. }
            | Event::ItemTruncated { .. }
            | Event::TranscriptPartial { .. }
            | Event::TranscriptDone { .. }
            | Event::TranscriptFailed { .. } => {}
        }
    }

    /// After every input: nothing may hang half said.
    fn settled(&self) {
        for id in &self.added {
            let writing = self.outputs.values().any(|items| items.contains(id));
            assert!(writing, "item {id} was added and is neither done nor being written");
        }
    }

    fn conversation(&self) -> Option<&Response> {
        self.open.values().find(|response| response.conversation.is_some())
    }

    fn must_be_open(&self, response: &ResponseId, event: &Event) {
        assert!(self.open.contains_key(response), "{} outside its response", name(event));
    }

    /// Committed audio is whole, in order, and never used twice.
    fn consumed(&mut self, item: &Item) {
        let ItemKind::Message { parts, .. } = &item.kind else { return };
        for part in parts {
            let Part::InputAudio { audio, .. } = part else { continue };
            let (Some(first), Some(last)) = (audio.first(), audio.last()) else { continue };
            assert_eq!(*last - *first, (audio.len() - 1) as f32, "a hole in the committed audio");
            assert!(
                *first >= self.committed_to,
                "audio from {first} was committed up to {}",
                self.committed_to
            );
            self.committed_to = *last + 1.0;
        }
    }
}

pub fn text_event(text: &str) -> GenerationEvent {
    GenerationEvent::Text { delta: Private::new(text.to_owned()), tokens: 2 }
}

pub fn done() -> GenerationEvent {
    GenerationEvent::Done { reason: FinishReason::Stop, usage: GenerationUsage::default() }
}

pub fn final_words(marker: u64, text: &str) -> RecognitionEvent {
    let transcript =
        Transcript { text: Private::new(text.to_owned()), language: None, no_speech: 0.0, samples: 16_000 };
    RecognitionEvent::Final { marker, transcript }
}

pub fn name(event: &Event) -> &'static str {
    match event {
        Event::Started { .. } => "started",
        Event::Configured { .. } => "configured",
        Event::Rejected(_) => "rejected",
        Event::SpeechStarted { .. } => "speech_started",
        Event::SpeechStopped { .. } => "speech_stopped",
        Event::IdleTimeout { .. } => "idle_timeout",
        Event::AudioCommitted { .. } => "committed",
        Event::AudioCleared => "cleared",
        Event::ItemAdded { .. } => "item_added",
        Event::ItemDone { .. } => "item_done",
        Event::ItemRetrieved { .. } => "item_retrieved",
        Event::ItemDeleted { .. } => "item_deleted",
        Event::ItemTruncated { .. } => "item_truncated",
        Event::TranscriptPartial { .. } => "partial",
        Event::TranscriptDone { .. } => "transcript",
        Event::TranscriptFailed { .. } => "transcript_failed",
        Event::ResponseCreated(_) => "response_created",
        Event::OutputItemAdded { .. } => "output_added",
        Event::OutputItemDone { .. } => "output_done",
        Event::PartAdded { .. } => "part_added",
        Event::PartDone { .. } => "part_done",
        Event::TextDelta { .. } => "text",
        Event::TextDone { .. } => "text_done",
        Event::AudioDelta { .. } => "audio",
        Event::AudioDone { .. } => "audio_done",
        Event::ArgumentsDelta { .. } => "arguments",
        Event::ArgumentsDone { .. } => "arguments_done",
        Event::ResponseDone(_) => "response_done",
        Event::OutputCleared { .. } => "output_cleared",
        Event::TurnMeasured { .. } => "measured",
        Event::Ended { .. } => "ended",
    }
}
