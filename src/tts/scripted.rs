//! A synthesizer without a model, a thread or a clock, for tests of logic.
//!
//! It cuts clauses as the real one does, gives every word the same number of
//! samples, and says everything at once, or step by step as the test releases
//! it. What was asked of it can be read back.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use super::feed::{Clause, Cutter, Limits};
use super::port::{PlacedWord, Port, clause_events};
use super::{SynthesisEvent, SynthesisStream, Synthesizer, TtsError, VoiceOptions};

/// How a [`Scripted`] synthesizer behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Samples of each word at speed 1, at [`crate::audio::SPEAKING_RATE`].
    pub samples_per_word: usize,
    /// Streams that may be open at once.
    pub max_streams: usize,
    /// Where clauses are cut.
    pub limits: Limits,
    /// A clause that contains this fails its stream.
    pub fail_on: Option<String>,
    /// Whether clauses wait for [`Scripted::release`].
    pub held: bool,
}

impl Default for Script {
    fn default() -> Self {
        // 300 ms a word: about what people speak.
        Self {
            samples_per_word: 7_200,
            max_streams: 64,
            limits: Limits::default(),
            fail_on: None,
            held: false,
        }
    }
}

/// What one stream was asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The voice it was opened with.
    pub voice: VoiceOptions,
    /// Everything fed.
    pub text: String,
    /// Whether `finish` was called.
    pub finished: bool,
    /// Whether it was dropped before its `Done` or `Failed` was made.
    pub cancelled: bool,
}

/// The synthesizer. Clones share everything.
#[derive(Clone)]
pub struct Scripted {
    shared: Arc<Shared>,
}

struct Shared {
    script: Script,
    /// Clauses that may still be said; ignored when nothing is held.
    permits: AtomicUsize,
    held: AtomicBool,
    open: AtomicUsize,
    streams: Mutex<Vec<Arc<Stream>>>,
}

struct Stream {
    shared: Arc<Shared>,
    port: Arc<Port>,
    state: Mutex<State>,
}

struct State {
    asked: Asked,
    cutter: Cutter,
    clauses: VecDeque<Clause>,
    at: u64,
    ended: bool,
}

struct Handle(Arc<Stream>);

impl Scripted {
    /// A synthesizer that follows this script.
    pub fn new(script: Script) -> Self {
        let held = AtomicBool::new(script.held);
        Self {
            shared: Arc::new(Shared {
                script,
                permits: AtomicUsize::new(0),
                held,
                open: AtomicUsize::new(0),
                streams: Mutex::default(),
            }),
        }
    }

    /// Lets this many more clauses be said, streams in the order in which they were opened.
    pub fn release(&self, clauses: usize) {
        self.shared.permits.fetch_add(clauses, Ordering::SeqCst);
        self.work();
    }

    /// Holds nothing back from now on.
    pub fn release_all(&self) {
        self.shared.held.store(false, Ordering::SeqCst);
        self.work();
    }

    /// What every stream was asked so far, in the order in which they were opened.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.shared.streams).iter().map(|stream| lock(&stream.state).asked.clone()).collect()
    }

    fn work(&self) {
        let streams = lock(&self.shared.streams).clone();
        streams.iter().for_each(|stream| stream.work());
    }
}

impl Default for Scripted {
    fn default() -> Self {
        Self::new(Script::default())
    }
}

impl Synthesizer for Scripted {
    fn open(
        &self,
        voice: &VoiceOptions,
        events: mpsc::Sender<SynthesisEvent>,
    ) -> Result<Box<dyn SynthesisStream>, TtsError> {
        if self.shared.open.load(Ordering::SeqCst) >= self.shared.script.max_streams {
            return Err(TtsError::Busy);
        }
        self.shared.open.fetch_add(1, Ordering::SeqCst);
        let asked = Asked { voice: voice.clone(), text: String::new(), finished: false, cancelled: false };
        let stream = Arc::new(Stream {
            shared: Arc::clone(&self.shared),
            port: Port::new(events, || {}),
            state: Mutex::new(State {
                asked,
                cutter: Cutter::new(self.shared.script.limits),
                clauses: VecDeque::new(),
                at: 0,
                ended: false,
            }),
        });
        lock(&self.shared.streams).push(Arc::clone(&stream));
        Ok(Box::new(Handle(stream)))
    }

    fn voices(&self) -> Vec<String> {
        vec!["scripted".to_owned()]
    }
}

impl Shared {
    /// Takes a permit, when one is needed.
    fn may_speak(&self) -> bool {
        !self.held.load(Ordering::SeqCst)
            || self
                .permits
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                .is_ok()
    }
}

impl Stream {
    fn work(&self) {
        let mut state = lock(&self.state);
        while !state.ended && !state.clauses.is_empty() && self.shared.may_speak() {
            let clause = state.clauses.pop_front().expect("checked above to hold one");
            if self.shared.script.fail_on.as_ref().is_some_and(|word| clause.text.contains(word.as_str())) {
                state.ended = true;
                self.port.put([SynthesisEvent::Failed { message: "the script says so".to_owned() }]);
                return;
            }
            let (words, samples) = self.say(&clause, state.asked.voice.speed);
            self.port.put(clause_events(clause.from, clause.to(), state.at, &words, &samples));
            state.at += samples.len() as u64;
        }
        if !state.ended && state.asked.finished && state.clauses.is_empty() {
            state.ended = true;
            self.port.put([SynthesisEvent::Done]);
        }
    }

    fn say(&self, clause: &Clause, speed: f32) -> (Vec<PlacedWord>, Vec<f32>) {
        let n = (self.shared.script.samples_per_word as f32 / speed.clamp(0.25, 4.0)).round() as u64;
        let mut words: Vec<PlacedWord> = Vec::new();
        for word in clause.text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)) {
            // `split_whitespace` gives slices of the text itself, so the distance is the place.
            let from = clause.from + (word.as_ptr().addr() - clause.text.as_ptr().addr());
            let start = words.len() as u64 * n;
            words.push(PlacedWord { from, to: from + word.len(), start, end: start + n });
        }
        // A saw of 240 Hz: audible, and no sample is zero for long.
        let samples = (0..words.len() * n as usize).map(|i| (i % 100) as f32 / 200.0 - 0.25).collect();
        (words, samples)
    }
}

impl SynthesisStream for Handle {
    fn feed(&mut self, text: &str) {
        {
            let state = &mut *lock(&self.0.state);
            if state.asked.finished {
                return;
            }
            state.asked.text.push_str(text);
            let clauses = &mut state.clauses;
            state.cutter.push(text, &mut |clause| clauses.push_back(clause));
        }
        self.0.work();
    }

    fn finish(&mut self) {
        {
            let state = &mut *lock(&self.0.state);
            let rest = state.cutter.finish();
            state.clauses.extend(rest);
            state.asked.finished = true;
        }
        self.0.work();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        {
            let mut state = lock(&self.0.state);
            state.asked.cancelled = !state.ended;
            state.ended = true;
        }
        self.0.shared.open.fetch_sub(1, Ordering::SeqCst);
        self.0.port.close();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(rx: &mut mpsc::Receiver<SynthesisEvent>) -> Vec<SynthesisEvent> {
        std::iter::from_fn(|| rx.try_recv().ok()).collect()
    }

    fn samples(events: &[SynthesisEvent]) -> usize {
        events
            .iter()
            .map(|event| if let SynthesisEvent::Audio { samples } = event { samples.len() } else { 0 })
            .sum()
    }

    #[test]
    fn every_word_has_its_place() {
        let (tx, mut rx) = mpsc::channel(1_000);
        let scripted = Scripted::default();
        let mut stream = scripted.open(&VoiceOptions::default(), tx).expect("it is free");
        stream.feed("Hello the");
        stream.feed("re. How are you?");
        stream.finish();
        let events = drain(&mut rx);
        assert_eq!(events.last(), Some(&SynthesisEvent::Done));
        assert_eq!(samples(&events), 5 * 7_200);
        let words: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                SynthesisEvent::Word { from, to, start, .. } => {
                    Some((&"Hello there. How are you?"[*from..*to], *start))
                }
                _ => None,
            })
            .collect();
        assert_eq!(
            words,
            [("Hello", 0), ("there.", 7_200), ("How", 14_400), ("are", 21_600), ("you?", 28_800)]
        );
    }

    #[test]
    fn a_held_script_goes_step_by_step() {
        let (tx, mut rx) = mpsc::channel(1_000);
        let scripted = Scripted::new(Script { held: true, ..Script::default() });
        let mut stream = scripted.open(&VoiceOptions::default(), tx).expect("it is free");
        stream.feed("One. Two. Three.");
        stream.finish();
        assert!(drain(&mut rx).is_empty());
        scripted.release(1);
        assert_eq!(samples(&drain(&mut rx)), 7_200);
        assert!(drain(&mut rx).is_empty());
        scripted.release_all();
        let rest = drain(&mut rx);
        assert_eq!(samples(&rest), 2 * 7_200);
        assert_eq!(rest.last(), Some(&SynthesisEvent::Done));
    }

    #[test]
    fn drop_cancels_and_frees() {
        let scripted = Scripted::new(Script { max_streams: 1, ..Script::default() });
        let (tx, mut rx) = mpsc::channel(1);
        let mut stream = scripted.open(&VoiceOptions::default(), tx.clone()).expect("it is free");
        assert!(matches!(scripted.open(&VoiceOptions::default(), tx.clone()), Err(TtsError::Busy)));
        stream.feed("Hello there. ");
        drop(stream);
        assert!(scripted.asked()[0].cancelled);
        // One event was in the channel; what waited is gone.
        assert_eq!(drain(&mut rx).len(), 1);
        assert!(scripted.open(&VoiceOptions::default(), tx).is_ok());
    }

    #[test]
    fn a_script_can_fail() {
        let (tx, mut rx) = mpsc::channel(100);
        let scripted = Scripted::new(Script { fail_on: Some("bad".to_owned()), ..Script::default() });
        let mut stream = scripted.open(&VoiceOptions::default(), tx).expect("it is free");
        stream.feed("Good. A bad thing. More.");
        stream.finish();
        assert!(matches!(drain(&mut rx).last(), Some(SynthesisEvent::Failed { .. })));
    }

    #[test]
    fn a_narrow_channel_loses_nothing() {
        let (tx, mut rx) = mpsc::channel(1);
        let scripted = Scripted::default();
        let mut stream = scripted.open(&VoiceOptions::default(), tx).expect("it is free");
        stream.feed("One two three four. Five six.");
        stream.finish();
        let events = drain(&mut rx);
        assert_eq!(samples(&events), 6 * 7_200);
        assert_eq!(events.last(), Some(&SynthesisEvent::Done));
    }
}
