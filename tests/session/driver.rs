//! The task of a conversation, with scripted parts and paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::rig::{name, settings};
use voluble::config::Config;
use voluble::error::{Classify, Kind, Private};
use voluble::llm::scripted::{Reply, Scripted as Llm};
use voluble::llm::{Generation, GenerationEvent, GenerationRequest, Generator, LlmError, Role};
use voluble::session::command::{Command, CommandKind, ResponseParams};
use voluble::session::event::{EndReason, Event, ResponseStatus};
use voluble::session::item::{Item, ItemKind, ItemStatus, Part, Place};
use voluble::session::manager::{Manager, Parts, SessionError, SessionHandle};
use voluble::session::settings::{Eagerness, Modality, Settings, TurnDetection};
use voluble::stt::scripted::Scripted as Stt;
use voluble::tts::scripted::Scripted as Tts;
use voluble::turn::scripted::{Script as TurnScript, Scripted as Turns};

/// Scripted parts and the manager over them.
struct Server {
    stt: Stt,
    llm: Llm,
    tts: Tts,
    turns: Turns,
    manager: Arc<Manager>,
}

impl Server {
    fn new(config: Config, words: &[&str], replies: impl IntoIterator<Item = Reply>) -> Self {
        let (stt, llm) = (Stt::saying(words.iter().copied()), Llm::new(replies));
        let (tts, turns) = (Tts::default(), Turns::new(TurnScript::default()));
        let parts = Parts {
            recognizer: Arc::new(stt.clone()),
            generator: Arc::new(llm.clone()),
            synthesizer: Arc::new(tts.clone()),
            turn_models: Arc::new(turns.clone()),
        };
        Self { stt, llm, tts, turns, manager: Arc::new(Manager::new(Arc::new(config), parts)) }
    }

    fn call(&self, settings: Settings) -> Caller {
        Caller::new(self.manager.open(settings).expect("there is room"))
    }

    /// Nothing of any part is left running.
    async fn is_idle(&self) {
        let idle = async {
            while self.manager.open_sessions() > 0 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(60), idle).await.expect("every session ends");
        assert!(self.stt.asked().iter().all(|stream| stream.closed), "a recognition was left open");
        assert!(self.llm.asked().iter().all(|one| one.ended || one.cancelled), "a generation was left open");
        let done = |stream: &voluble::tts::scripted::Asked| stream.finished || stream.cancelled;
        assert!(self.tts.asked().iter().all(done), "a voice was left open");
    }
}

/// A client that reads everything at once.
struct Caller {
    commands: mpsc::Sender<Command>,
    events: mpsc::UnboundedReceiver<Event>,
    seen: Vec<Event>,
}

impl Caller {
    fn new(handle: SessionHandle) -> Self {
        let SessionHandle { commands, mut events } = handle;
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Self { commands, events: receiver, seen: Vec::new() }
    }

    async fn send(&self, kind: CommandKind) {
        self.commands.send(Command { tag: None, kind }).await.expect("the session lives");
    }

    /// In real time, 20 ms at a time.
    async fn play(&self, ms: u64, level: f32) {
        for _ in 0..ms / 20 {
            self.send(CommandKind::AppendAudio(tone(20, level))).await;
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn speak(&self, ms: u64) {
        self.play(ms, 0.3).await;
    }

    async fn silence(&self, ms: u64) {
        self.play(ms, 0.0).await;
    }

    /// Reads until an event of this name, which is returned.
    async fn until(&mut self, wanted: &str) -> Event {
        let reading = async {
            loop {
                let event = self.events.recv().await.unwrap_or_else(|| panic!("the end before {wanted}"));
                self.seen.push(event.clone());
                if name(&event) == wanted {
                    return event;
                }
            }
        };
        match timeout(Duration::from_secs(120), reading).await {
            Ok(event) => event,
            Err(_) => panic!("no {wanted} after {:?}", self.names()),
        }
    }

    async fn ended(&mut self) -> EndReason {
        let Event::Ended { reason } = self.until("ended").await else { unreachable!("asked for by name") };
        assert!(self.events.recv().await.is_none(), "nothing comes after the end");
        reason
    }

    fn names(&self) -> Vec<&'static str> {
        self.seen.iter().map(name).collect()
    }
}

fn tone(ms: usize, level: f32) -> Vec<f32> {
    (0..ms * 16).map(|i| if i % 2 == 0 { level } else { -level }).collect()
}

fn manual(modality: Modality) -> Settings {
    Settings { turn_detection: TurnDetection::Manual, modality, ..settings() }
}

fn semantic() -> Settings {
    let turn_detection = TurnDetection::Semantic {
        eagerness: Eagerness::Auto,
        create_response: true,
        interrupt_response: true,
    };
    Settings { turn_detection, ..settings() }
}

fn typed(text: &str) -> CommandKind {
    let parts = vec![Part::InputText(Private::new(text.to_owned()))];
    let kind = ItemKind::Message { role: Role::User, parts };
    let item = Item { id: "".into(), status: ItemStatus::Completed, kind };
    CommandKind::CreateItem { item, place: Place::End }
}

fn respond() -> CommandKind {
    CommandKind::CreateResponse(ResponseParams::default())
}

fn words(count: usize) -> String {
    (0..count).map(|i| format!("word{i}, ")).collect::<String>() + "end."
}

#[tokio::test(start_paused = true)]
async fn a_spoken_turn_goes_through_every_part_and_leaves_nothing_behind() {
    let server =
        Server::new(Config::default(), &["what is the capital of france"], [Reply::text("It is Paris.")]);
    let mut caller = server.call(semantic());
    caller.silence(1_000).await;
    caller.speak(1_000).await;
    caller.silence(1_500).await;
    caller.until("response_done").await;
    let names: Vec<_> =
        caller.names().into_iter().filter(|name| !["audio", "text", "partial"].contains(name)).collect();
    assert_eq!(
        names,
        [
            "started",
            "speech_started",
            "speech_stopped",
            "committed",
            "item_added",
            "item_done",
            "transcript",
            "response_created",
            "output_added",
            "item_added",
            "part_added",
            "audio_done",
            "text_done",
            "part_done",
            "item_done",
            "output_done",
            "response_done",
        ]
    );
    let samples: usize = caller
        .seen
        .iter()
        .map(|event| if let Event::AudioDelta { samples, .. } = event { samples.len() } else { 0 })
        .sum();
    assert_eq!(samples, 3 * 7_200, "three words");
    let prompt = &server.llm.asked()[0].request;
    let last = prompt.messages.last().expect("the caller's words");
    assert_eq!((last.role, last.text.expose().as_str()), (Role::User, "what is the capital of france"));
    assert!(!server.turns.asked().is_empty(), "completion was scored");
    let Event::TurnMeasured { timeline, .. } = caller.until("measured").await else {
        unreachable!("by name")
    };
    let stages = [timeline.likely_ms, timeline.final_ms, timeline.first_audio_ms, timeline.first_audible_ms];
    let stages: Vec<f64> = stages.into_iter().map(|at| at.expect("the stage happened")).collect();
    assert!(stages.is_sorted() && stages[0] >= 100.0 && stages[3] < 1_500.0, "{stages:?}");
    drop(caller);
    server.is_idle().await;
    assert_eq!(server.llm.forgotten(), [prompt.cache_key.expect("a conversation has a cache")]);
}

#[tokio::test(start_paused = true)]
async fn audio_sent_at_once_gives_the_turns_of_audio_sent_in_real_time() {
    // The pause is one that only a completion score makes an end of.
    let pieces = [(1_000, 0.0), (900, 0.3), (900, 0.0), (1_200, 0.3), (2_500, 0.0)];
    let mut turns = Vec::new();
    for at_once in [false, true] {
        let server = Server::new(Config::default(), &["one", "two"], []);
        let mut caller = server.call(semantic());
        if at_once {
            let all = pieces.iter().flat_map(|(ms, level)| tone(*ms, *level)).collect();
            caller.send(CommandKind::AppendAudio(all)).await;
        } else {
            for (ms, level) in pieces {
                caller.play(ms as u64, level).await;
            }
        }
        caller.until("speech_stopped").await;
        caller.until("speech_stopped").await;
        caller.until("response_done").await;
        let spoken = |event: &Event| match event {
            Event::SpeechStarted { at_ms, .. } | Event::SpeechStopped { at_ms, .. } => Some(*at_ms),
            _ => None,
        };
        turns.push(caller.seen.iter().filter_map(spoken).collect::<Vec<_>>());
    }
    assert_eq!(turns[0].len(), 4);
    assert_eq!(turns[0], turns[1]);
}

#[tokio::test(start_paused = true)]
async fn what_a_cancelled_answer_had_queued_never_sounds() {
    let server = Server::new(Config::default(), &[], [Reply::text(&words(200))]);
    let SessionHandle { commands, mut events } =
        server.manager.open(manual(Modality::Audio)).expect("there is room");
    let send = async |kind| commands.send(Command { tag: None, kind }).await.expect("the session lives");
    // All of the text but not its end, so that there is an answer to cancel.
    server.llm.hold();
    send(typed("tell me everything")).await;
    send(respond()).await;
    sleep(Duration::from_millis(50)).await;
    server.llm.release(100);
    // Nothing is read: a minute of sound waits.
    sleep(Duration::from_secs(2)).await;
    send(CommandKind::CancelResponse(None)).await;
    sleep(Duration::from_millis(50)).await;
    let mut samples = 0;
    loop {
        match events.recv().await.expect("the session lives") {
            Event::AudioDelta { samples: some, .. } => samples += some.len(),
            Event::ResponseDone(response) => {
                assert!(matches!(response.status, ResponseStatus::Cancelled(_)), "{:?}", response.status);
                break;
            }
            _ => {}
        }
    }
    assert!(samples <= 5 * 2_400, "{samples} samples came after the cancel");
    drop((commands, events));
    server.is_idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_loses_its_session_and_no_other() {
    let server = Server::new(Config::default(), &["hello"], [Reply::text(&words(500)), Reply::text("Hi.")]);
    let stuck = server.manager.open(manual(Modality::Audio)).expect("there is room");
    for kind in [typed("tell me everything"), respond()] {
        stuck.commands.send(Command { tag: None, kind }).await.expect("the session lives");
    }
    let mut caller = server.call(semantic());
    caller.silence(1_000).await;
    caller.speak(1_000).await;
    caller.silence(1_500).await;
    caller.until("response_done").await;
    let began = Instant::now();
    stuck.commands.closed().await;
    assert!(
        began.elapsed() <= Duration::from_millis(10_500),
        "given up after the limit: {:?}",
        began.elapsed()
    );
    caller.send(respond()).await;
    caller.until("response_done").await;
    drop((caller, stuck));
    server.is_idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_server_refuses_clearly_and_admits_again() {
    let mut config = Config::default();
    config.session.max_sessions = 2;
    let server = Server::new(config, &[], []);
    let one = server.call(settings());
    let _two = server.call(settings());
    let refused = server.manager.open(settings()).expect_err("two are there");
    assert!(matches!(refused, SessionError::Full(2)));
    assert_eq!(refused.kind(), Kind::Capacity);
    assert!(refused.public_message().contains("2 conversations"), "{refused}");
    drop(one);
    let admitted = async {
        while server.manager.open(settings()).is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(5), admitted).await.expect("a place was given back");
}

#[tokio::test(start_paused = true)]
async fn draining_lets_answers_end_and_admits_nobody() {
    let server = Server::new(Config::default(), &[], [Reply::text("Let me finish.")]);
    server.llm.hold();
    let mut busy = server.call(manual(Modality::Text));
    let mut quiet = server.call(settings());
    busy.send(typed("hi")).await;
    busy.send(respond()).await;
    busy.until("response_created").await;
    let manager = Arc::clone(&server.manager);
    let drained = tokio::spawn(async move { manager.drain().await });
    assert_eq!(quiet.ended().await, EndReason::Draining);
    let refused = server.manager.open(settings()).expect_err("the server drains");
    assert!(matches!(refused, SessionError::Draining));
    assert!(!drained.is_finished());
    server.llm.release_all();
    assert_eq!(busy.ended().await, EndReason::Draining);
    let done =
        |event: &Event| matches!(event, Event::ResponseDone(r) if r.status == ResponseStatus::Completed);
    assert!(busy.seen.iter().any(done), "{:?}", busy.names());
    drained.await.expect("the drain ends");
    server.is_idle().await;
}

#[tokio::test(start_paused = true)]
async fn draining_has_a_limit() {
    let server = Server::new(Config::default(), &[], [Reply::text("Never said.")]);
    server.llm.hold();
    let mut caller = server.call(manual(Modality::Text));
    caller.send(typed("hi")).await;
    caller.send(respond()).await;
    caller.until("response_created").await;
    let began = Instant::now();
    server.manager.drain().await;
    assert!(began.elapsed() >= Duration::from_secs(10) && began.elapsed() < Duration::from_secs(12));
    assert_eq!(caller.ended().await, EndReason::Draining);
    assert!(caller.names().contains(&"response_done"), "the answer is closed first");
    server.is_idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_conversation_has_a_longest_time() {
    let mut config = Config::default();
    config.session.max_minutes = 1;
    let server = Server::new(config, &[], []);
    let began = Instant::now();
    let mut caller = server.call(settings());
    assert_eq!(caller.ended().await, EndReason::Expired);
    assert_eq!(began.elapsed().as_secs(), 60);
    server.is_idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_hangs_up_stops_everything() {
    let server = Server::new(Config::default(), &["hello"], [Reply::text(&words(50))]);
    server.llm.hold();
    let caller = server.call(semantic());
    caller.silence(1_000).await;
    caller.speak(1_000).await;
    caller.silence(1_500).await;
    let Caller { commands, mut events, .. } = caller;
    drop(commands);
    let mut last = None;
    while let Some(event) = events.recv().await {
        last = Some(event);
    }
    assert_eq!(last, Some(Event::Ended { reason: EndReason::Closed }));
    server.is_idle().await;
    assert!(server.llm.asked()[0].cancelled);
}

#[tokio::test(start_paused = true)]
async fn without_scores_silence_decides() {
    let server = Server::new(Config::default(), &["hello"], [Reply::text("Hi.")]);
    server.turns.rewrite(|script| script.completion_fails = true);
    let mut caller = server.call(semantic());
    caller.silence(1_000).await;
    caller.speak(1_000).await;
    caller.silence(4_000).await;
    caller.until("response_done").await;
    server.turns.rewrite(|script| script.voice_fails = true);
    caller.speak(1_000).await;
    caller.send(typed("typing still works")).await;
    caller.send(respond()).await;
    caller.until("response_done").await;
}

/// Panics when asked for the first time, then works.
struct Broken {
    inner: Llm,
    works: AtomicBool,
}

impl Generator for Broken {
    fn start(
        &self,
        request: GenerationRequest,
        events: mpsc::Sender<GenerationEvent>,
    ) -> Result<Box<dyn Generation>, LlmError> {
        assert!(self.works.swap(true, Ordering::SeqCst), "a broken assumption, as a test asks for it");
        self.inner.start(request, events)
    }

    fn forget(&self, cache_key: u64) {
        self.inner.forget(cache_key);
    }

    fn model(&self) -> &str {
        "broken"
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_one_session_and_is_told() {
    let server = Server::new(Config::default(), &[], []);
    let generator = Arc::new(Broken { inner: server.llm.clone(), works: AtomicBool::new(false) });
    let parts = Parts { generator, ..server.manager.parts().clone() };
    let manager = Manager::new(Arc::new(Config::default()), parts);
    let mut unlucky = Caller::new(manager.open(manual(Modality::Text)).expect("there is room"));
    let mut lucky = Caller::new(manager.open(manual(Modality::Text)).expect("there is room"));
    unlucky.send(typed("hi")).await;
    unlucky.send(respond()).await;
    assert_eq!(unlucky.ended().await, EndReason::Failed);
    lucky.send(typed("hi")).await;
    lucky.send(respond()).await;
    lucky.until("response_done").await;
    assert_eq!(manager.open_sessions(), 1, "its place is free again");
    assert_eq!(server.llm.forgotten().len(), 1, "its cache is forgotten");
}
