//! The thread that speaks, and the queue before it.
//!
//! One thread owns the voices. It takes a clause at a time: first those of
//! answers that have no sound yet, since a caller is waiting in silence; else
//! the streams in turn, and none is passed over more than twice. A stream
//! whose listener has not taken its events yet is left alone until it has. A
//! stream that fails, or panics inside a voice, ends alone.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::mpsc;

use super::feed::{Clause, Cutter, Limits};
use super::port::{PlacedWord, Port, clause_events};
use super::{SynthesisEvent, SynthesisStream, TtsError, VoiceOptions};

/// How often a stream with a clause ready may be passed over.
const PATIENCE: u32 = 2;

/// What a voice is asked: one clause.
#[derive(Clone, Debug)]
pub struct Job {
    /// The clause.
    pub clause: Clause,
    /// The stream's voice.
    pub voice: VoiceOptions,
    /// Whether nothing of the stream comes after it, as far as is known now.
    pub last: bool,
}

/// A clause spoken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spoken {
    /// Samples at [`crate::audio::SPEAKING_RATE`].
    pub samples: Vec<f32>,
    /// Its words, in order, within the samples.
    pub words: Vec<PlacedWord>,
    /// Its phonemes, in order, within the samples.
    pub phonemes: Vec<PlacedPhoneme>,
    /// Whether the times are the network's own; else they are estimates.
    pub exact: bool,
}

/// A phoneme and when it sounds, in samples from the start of its clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedPhoneme {
    /// The IPA symbol.
    pub symbol: char,
    /// First sample.
    pub start: u64,
    /// Sample after the last.
    pub end: u64,
}

/// What the thread drives. Lives on it.
pub trait Speak: Send + 'static {
    /// Speaks one clause. Text without anything to say gives no samples.
    ///
    /// # Errors
    /// When the voice fails; the stream ends.
    fn speak(&mut self, job: &Job) -> Result<Spoken, TtsError>;

    /// Called after a panic inside [`Speak::speak`], before the next clause.
    fn recover(&mut self) {}

    /// What stops a run of [`Speak::speak`] from another thread.
    fn stopper(&self) -> Box<dyn Fn() + Send + Sync> {
        Box::new(|| {})
    }

    /// Forgets a stop that was asked for.
    fn ready(&mut self) {}
}

/// Bounds of a [`Worker`].
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Streams at once.
    pub streams: usize,
    /// Bytes of text in one stream.
    pub bytes: usize,
    /// Where clauses are cut.
    pub limits: Limits,
}

/// The thread and its queue. Dropping it ends both.
pub struct Worker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    bounds: Bounds,
    state: Mutex<State>,
    wake: Condvar,
    stop_run: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct State {
    streams: BTreeMap<u64, Stream>,
    /// Streams in the order in which they were served, longest ago first.
    turns: VecDeque<u64>,
    next: u64,
    running: Option<u64>,
    stop: bool,
}

struct Stream {
    port: Arc<Port>,
    voice: VoiceOptions,
    cutter: Cutter,
    clauses: VecDeque<Clause>,
    /// Bytes fed.
    fed: usize,
    /// Samples made.
    at: u64,
    passed: u32,
    finished: bool,
}

struct Handle {
    shared: Arc<Shared>,
    id: u64,
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn start(speak: impl Speak, bounds: Bounds) -> Result<Self, TtsError> {
        let shared = Arc::new(Shared {
            bounds,
            state: Mutex::default(),
            wake: Condvar::new(),
            stop_run: speak.stopper(),
        });
        let thread = std::thread::Builder::new()
            .name("tts".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.run(speak)
            })
            .map_err(|error| TtsError::Model(format!("cannot start a thread: {error}")))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// [`TtsError::Busy`] when no stream is free.
    pub fn open(
        &self,
        voice: &VoiceOptions,
        events: mpsc::Sender<SynthesisEvent>,
    ) -> Result<Box<dyn SynthesisStream>, TtsError> {
        let mut state = self.shared.lock();
        if state.turns.len() >= self.shared.bounds.streams {
            return Err(TtsError::Busy);
        }
        let id = state.next;
        state.next += 1;
        let shared = Arc::downgrade(&self.shared);
        // The lock is taken so that the notice cannot fall between the thread's look and its sleep.
        let port = Port::new(events, move || {
            if let Some(shared) = shared.upgrade() {
                drop(shared.lock());
                shared.wake.notify_one();
            }
        });
        let stream = Stream {
            port,
            voice: voice.clone(),
            cutter: Cutter::new(self.shared.bounds.limits),
            clauses: VecDeque::new(),
            fed: 0,
            at: 0,
            passed: 0,
            finished: false,
        };
        state.streams.insert(id, stream);
        state.turns.push_back(id);
        Ok(Box::new(Handle { shared: Arc::clone(&self.shared), id }))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.stop = true;
            if state.running.is_some() {
                (self.shared.stop_run)();
            }
        }
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the synthesis thread panicked");
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Voices run without the lock; what runs under it leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut speak: impl Speak) {
        let mut state = self.lock();
        loop {
            if state.stop {
                // Nobody will be served any more: the channels end.
                state.streams.values().for_each(|stream| stream.port.close());
                return;
            }
            let Some((id, job)) = state.pick() else {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.running = Some(id);
            // Under the lock: a stop that comes later is meant for this run.
            speak.ready();
            drop(state);
            let result = catch_unwind(AssertUnwindSafe(|| speak.speak(&job))).unwrap_or_else(|_| {
                tracing::error!("a voice panicked; its stream ends");
                speak.recover();
                Err(TtsError::Model("the voice failed".to_owned()))
            });
            state = self.lock();
            state.running = None;
            state.deliver(id, &job.clause, result);
        }
    }
}

impl State {
    /// The clause whose turn it is.
    fn pick(&mut self) -> Option<(u64, Job)> {
        let streams = &self.streams;
        let ready: Vec<(usize, u64)> = self
            .turns
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, id)| {
                streams.get(id).is_some_and(|stream| {
                    !stream.clauses.is_empty() && !stream.port.is_closed() && !stream.port.is_waiting()
                })
            })
            .collect();
        let (place, id) = *ready
            .iter()
            .find(|(_, id)| streams[id].passed >= PATIENCE)
            .or_else(|| ready.iter().find(|(_, id)| streams[id].at == 0))
            .or_else(|| ready.first())?;
        for (earlier, other) in &ready {
            if *earlier < place {
                self.streams.get_mut(other).expect("found above").passed += 1;
            }
        }
        self.turns.remove(place);
        self.turns.push_back(id);
        let stream = self.streams.get_mut(&id).expect("found above");
        stream.passed = 0;
        let clause = stream.clauses.pop_front().expect("found above to hold one");
        let last = stream.finished && stream.clauses.is_empty();
        Some((id, Job { clause, voice: stream.voice.clone(), last }))
    }

    /// Hands a clause out, unless its stream was dropped meanwhile.
    fn deliver(&mut self, id: u64, clause: &Clause, result: Result<Spoken, TtsError>) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        match result {
            Ok(spoken) => {
                let events =
                    clause_events(clause.from, clause.to(), stream.at, &spoken.words, &spoken.samples);
                stream.at += spoken.samples.len() as u64;
                stream.port.put(events);
                self.end_if_done(id);
            }
            Err(error) => self.fail(id, &error.to_string()),
        }
    }

    fn end_if_done(&mut self, id: u64) {
        if let Some(stream) = self.streams.get(&id)
            && stream.finished
            && stream.clauses.is_empty()
            && self.running != Some(id)
        {
            stream.port.put([SynthesisEvent::Done]);
            self.retire(id);
        }
    }

    fn fail(&mut self, id: u64, message: &str) {
        if let Some(stream) = self.streams.get(&id) {
            stream.port.put([SynthesisEvent::Failed { message: message.to_owned() }]);
            self.retire(id);
        }
    }

    /// Nothing more will be said; what was said still travels until the handle is dropped.
    fn retire(&mut self, id: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.clauses.clear();
            stream.finished = true;
        }
        self.turns.retain(|turn| *turn != id);
    }

    fn is_retired(&self, id: u64) -> bool {
        !self.turns.contains(&id)
    }
}

impl SynthesisStream for Handle {
    fn feed(&mut self, text: &str) {
        let mut state = self.shared.lock();
        if state.is_retired(self.id) {
            return;
        }
        let most = self.shared.bounds.bytes;
        let Some(stream) = state.streams.get_mut(&self.id) else { return };
        if stream.finished {
            return;
        }
        stream.fed += text.len();
        if stream.fed > most {
            state.fail(self.id, &format!("the text is longer than {most} bytes (tts.max_stream_bytes)"));
            return;
        }
        let clauses = &mut stream.clauses;
        stream.cutter.push(text, &mut |clause| clauses.push_back(clause));
        if !stream.clauses.is_empty() {
            self.shared.wake.notify_one();
        }
    }

    fn finish(&mut self) {
        let mut state = self.shared.lock();
        if state.is_retired(self.id) {
            return;
        }
        let Some(stream) = state.streams.get_mut(&self.id) else { return };
        stream.clauses.extend(stream.cutter.finish());
        stream.finished = true;
        state.end_if_done(self.id);
        self.shared.wake.notify_one();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.turns.retain(|turn| *turn != self.id);
        let stream = state.streams.remove(&self.id);
        if state.running == Some(self.id) {
            (self.shared.stop_run)();
        }
        drop(state);
        if let Some(stream) = stream {
            stream.port.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as std_mpsc;

    use super::*;

    /// Says one sample a byte; waits at each clause until the test lets it go.
    struct Puppet {
        started: std_mpsc::Sender<String>,
        go: std_mpsc::Receiver<()>,
        stopped: Arc<std::sync::atomic::AtomicUsize>,
    }

    impl Speak for Puppet {
        fn speak(&mut self, job: &Job) -> Result<Spoken, TtsError> {
            self.started.send(job.clause.text.trim().to_owned()).expect("the test listens");
            self.go.recv().expect("the test lives");
            assert!(!job.clause.text.contains("panic"), "as the test wants it");
            if job.clause.text.contains("fail") {
                return Err(TtsError::Model("broken".to_owned()));
            }
            Ok(Spoken { samples: vec![0.5; job.clause.text.len()], ..Spoken::default() })
        }

        fn stopper(&self) -> Box<dyn Fn() + Send + Sync> {
            let stopped = Arc::clone(&self.stopped);
            Box::new(move || {
                stopped.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            })
        }
    }

    struct Stage {
        worker: Worker,
        started: std_mpsc::Receiver<String>,
        go: std_mpsc::Sender<()>,
        stopped: Arc<std::sync::atomic::AtomicUsize>,
    }

    impl Stage {
        fn new(streams: usize, bytes: usize) -> Self {
            let (started_tx, started) = std_mpsc::channel();
            let (go, go_rx) = std_mpsc::channel();
            let stopped = Arc::default();
            let puppet = Puppet { started: started_tx, go: go_rx, stopped: Arc::clone(&stopped) };
            let bounds = Bounds { streams, bytes, limits: Limits::default() };
            Self { worker: Worker::start(puppet, bounds).expect("a thread is free"), started, go, stopped }
        }

        fn open(&self, room: usize) -> (Box<dyn SynthesisStream>, mpsc::Receiver<SynthesisEvent>) {
            let (tx, rx) = mpsc::channel(room);
            (self.worker.open(&VoiceOptions::default(), tx).expect("a stream is free"), rx)
        }

        fn next(&self) -> String {
            self.started.recv().expect("the thread lives")
        }

        fn go(&self) {
            self.go.send(()).expect("the thread lives");
        }
    }

    fn rest(rx: &mut mpsc::Receiver<SynthesisEvent>) -> Vec<SynthesisEvent> {
        let mut events = Vec::new();
        while let Some(event) = rx.blocking_recv() {
            let end = matches!(event, SynthesisEvent::Done | SynthesisEvent::Failed { .. });
            events.push(event);
            if end {
                break;
            }
        }
        events
    }

    #[test]
    fn streams_take_turns_and_newcomers_go_first() {
        let stage = Stage::new(8, 1_000);
        let (mut a, _ra) = stage.open(100);
        a.feed("A one. A two. A three. A four. A five. ");
        assert_eq!(stage.next(), "A one.");
        let (mut b, _rb) = stage.open(100);
        b.feed("B one. B two. B three. ");
        let (mut c, _rc) = stage.open(100);
        c.feed("C one. C two. ");
        let mut order = Vec::new();
        for _ in 0..9 {
            stage.go();
            order.push(stage.next());
        }
        stage.go();
        let firsts: Vec<&str> = order.iter().map(|text| &text[..1]).collect();
        assert_eq!(&order[..2], ["B one.", "C one."]);
        assert_eq!(firsts[2..7].concat(), "ABCAB", "{order:?}");
    }

    #[test]
    fn nobody_is_passed_over_for_ever() {
        let stage = Stage::new(100, 1_000);
        let (mut a, _ra) = stage.open(100);
        a.feed("A one. A two. ");
        assert_eq!(stage.next(), "A one.");
        let mut others = Vec::new();
        for n in 0..10 {
            let (mut new, rx) = stage.open(100);
            new.feed(&format!("N{n}. "));
            others.push((new, rx));
        }
        let order: Vec<String> = (0..11)
            .map(|_| {
                stage.go();
                stage.next()
            })
            .collect();
        stage.go();
        let place = order.iter().position(|text| text == "A two.").expect("it is said");
        assert!(place <= PATIENCE as usize + 8 && order[0] == "N0.", "{order:?}");
    }

    #[test]
    fn a_dropped_stream_is_stopped_and_says_nothing_more() {
        let stage = Stage::new(1, 1_000);
        let (mut a, mut ra) = stage.open(100);
        a.feed("A one. A two. ");
        assert_eq!(stage.next(), "A one.");
        drop(a);
        assert_eq!(stage.stopped.load(std::sync::atomic::Ordering::SeqCst), 1);
        // Its place is free at once.
        let (mut b, mut rb) = stage.open(100);
        b.feed("B one.");
        b.finish();
        stage.go();
        assert_eq!(stage.next(), "B one.");
        stage.go();
        assert_eq!(rest(&mut rb).last(), Some(&SynthesisEvent::Done));
        assert_eq!(rest(&mut ra), []);
    }

    #[test]
    fn a_failure_and_a_panic_end_only_their_stream() {
        for bad in ["fail", "panic"] {
            let stage = Stage::new(8, 1_000);
            let (mut a, mut ra) = stage.open(100);
            a.feed(&format!("A {bad} here. "));
            let (mut b, mut rb) = stage.open(100);
            b.feed("B one.");
            b.finish();
            for _ in 0..2 {
                stage.next();
                stage.go();
            }
            assert!(matches!(rest(&mut ra)[..], [SynthesisEvent::Failed { .. }]));
            assert_eq!(rest(&mut rb).last(), Some(&SynthesisEvent::Done));
            a.feed("More. ");
            a.finish();
        }
    }

    #[test]
    fn a_slow_listener_holds_up_nobody_and_loses_nothing() {
        let stage = Stage::new(8, 1_000);
        let (mut slow, mut slow_rx) = stage.open(1);
        slow.feed("A one. A two. ");
        slow.finish();
        assert_eq!(stage.next(), "A one.");
        stage.go();
        let (mut b, mut rb) = stage.open(100);
        b.feed("B one. B two.");
        b.finish();
        for text in ["B one.", "B two."] {
            assert_eq!(stage.next(), text);
            stage.go();
        }
        assert_eq!(rest(&mut rb).last(), Some(&SynthesisEvent::Done));
        // Now the slow one reads, and its second clause is made.
        let reader = std::thread::spawn(move || rest(&mut slow_rx));
        assert_eq!(stage.next(), "A two.");
        stage.go();
        let events = reader.join().expect("it only reads");
        let samples: usize = events
            .iter()
            .map(|e| if let SynthesisEvent::Audio { samples } = e { samples.len() } else { 0 })
            .sum();
        assert_eq!(samples, "A one. A two. ".len());
        assert_eq!(events.last(), Some(&SynthesisEvent::Done));
    }

    #[test]
    fn bounds_are_kept() {
        let stage = Stage::new(1, 10);
        let (mut a, mut ra) = stage.open(100);
        let (tx, _rx) = mpsc::channel(1);
        assert!(matches!(stage.worker.open(&VoiceOptions::default(), tx), Err(TtsError::Busy)));
        a.feed("twelve bytes");
        let events = rest(&mut ra);
        assert!(matches!(&events[..], [SynthesisEvent::Failed { message }] if message.contains("10 bytes")));
    }

    #[test]
    fn nothing_fed_is_done_at_once() {
        let stage = Stage::new(1, 10);
        let (mut a, mut ra) = stage.open(100);
        a.finish();
        assert_eq!(rest(&mut ra), [SynthesisEvent::Done]);
    }

    #[test]
    fn the_end_of_the_worker_ends_the_channels() {
        let stage = Stage::new(1, 10);
        let (a, mut ra) = stage.open(100);
        drop(stage);
        assert_eq!(rest(&mut ra), []);
        drop(a);
    }
}
