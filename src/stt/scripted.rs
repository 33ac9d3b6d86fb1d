//! A recogniser without a model, a thread or a clock, for tests of logic.
//!
//! Each stream says the next line of the script: all of it, or a word for every
//! so many samples pushed. Answers come at once, after further samples, or when
//! the test releases them. What was asked of it can be read back.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use super::{RecognitionEvent, RecognitionOptions, RecognitionStream, Recognizer, SttError, Transcript};
use crate::error::Private;

/// What one stream hears.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Everything that is said in the stream.
    pub text: String,
    /// Samples after which each further word is heard; 0 hears all at the first flush.
    pub samples_per_word: u64,
    /// Language it is reported in.
    pub language: Option<String>,
    /// No-speech probability it is reported with.
    pub no_speech: f32,
    /// Every flush fails with this message.
    pub failure: Option<String>,
}

impl Line {
    /// A line that is heard whole.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            samples_per_word: 0,
            language: Some("en".to_owned()),
            no_speech: 0.01,
            failure: None,
        }
    }

    /// A line of which a word is heard for every so many samples.
    pub fn spoken(text: impl Into<String>, samples_per_word: u64) -> Self {
        Self { samples_per_word, ..Self::new(text) }
    }

    /// A stream whose every flush fails.
    pub fn failing(message: impl Into<String>) -> Self {
        Self { failure: Some(message.into()), ..Self::new("") }
    }

    /// The words heard in so many samples.
    fn heard(&self, samples: u64) -> String {
        match samples.checked_div(self.samples_per_word) {
            None => self.text.clone(),
            Some(words) => {
                let words = usize::try_from(words).unwrap_or(usize::MAX);
                self.text.split_whitespace().take(words).collect::<Vec<_>>().join(" ")
            }
        }
    }
}

/// When a flush is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delay {
    /// At once, inside the call.
    #[default]
    None,
    /// When so many samples were pushed after it.
    Samples(u64),
    /// When [`Scripted::release`] names its marker.
    Held,
}

/// How a [`Scripted`] recogniser behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// What streams hear, in the order in which they are opened; afterwards they hear nothing.
    pub lines: Vec<Line>,
    /// Delay of every flush that `delays` does not name.
    pub delay: Delay,
    /// Delay by marker.
    pub delays: BTreeMap<u64, Delay>,
    /// Languages that can be asked for; empty is any.
    pub languages: Vec<String>,
    /// Streams that may be open at once.
    pub max_streams: usize,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            lines: Vec::new(),
            delay: Delay::None,
            delays: BTreeMap::new(),
            languages: Vec::new(),
            max_streams: 64,
        }
    }
}

/// What one stream was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The options it was opened with.
    pub options: RecognitionOptions,
    /// Samples pushed.
    pub samples: u64,
    /// Flushes: marker and samples pushed before it.
    pub flushes: Vec<(u64, u64)>,
    /// Whether it was dropped.
    pub closed: bool,
}

/// The recogniser. Clones share everything.
#[derive(Clone, Debug)]
pub struct Scripted {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    script: Script,
    lines: VecDeque<Line>,
    streams: Vec<Stream>,
}

#[derive(Debug)]
struct Stream {
    line: Line,
    asked: Asked,
    events: mpsc::Sender<RecognitionEvent>,
    /// The newest flush that is not answered: marker, samples before it, delay.
    waiting: Option<(u64, u64, Delay)>,
    /// An answer that the listener had no room for.
    undelivered: Option<RecognitionEvent>,
    shown: String,
}

impl Scripted {
    /// A recogniser that follows this script.
    pub fn new(script: Script) -> Self {
        let lines = script.lines.iter().cloned().collect();
        Self { shared: Arc::new(Mutex::new(Shared { script, lines, streams: Vec::new() })) }
    }

    /// A recogniser whose streams hear these texts, one each.
    pub fn saying<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::new(Script { lines: texts.into_iter().map(Line::new).collect(), ..Script::default() })
    }

    /// Adds a line for a stream that is not yet opened.
    pub fn add(&self, line: Line) {
        lock(&self.shared).lines.push_back(line);
    }

    /// Answers the flush with this marker, in whichever stream waits for it.
    pub fn release(&self, marker: u64) {
        for stream in &mut lock(&self.shared).streams {
            stream.answer_if(|waiting, _, _| waiting == marker);
        }
    }

    /// What every stream was asked so far, in the order in which they were opened.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.shared).streams.iter().map(|stream| stream.asked.clone()).collect()
    }
}

impl Recognizer for Scripted {
    fn open(
        &self,
        options: &RecognitionOptions,
        events: mpsc::Sender<RecognitionEvent>,
    ) -> Result<Box<dyn RecognitionStream>, SttError> {
        let mut shared = lock(&self.shared);
        let open = shared.streams.iter().filter(|s| !s.asked.closed).count();
        if open >= shared.script.max_streams {
            return Err(SttError::Busy);
        }
        if let Some(language) = &options.language
            && !shared.script.languages.is_empty()
            && !shared.script.languages.contains(language)
        {
            return Err(SttError::Language(language.clone()));
        }
        let line = shared.lines.pop_front().unwrap_or_else(|| Line::new(""));
        let asked = Asked { options: options.clone(), samples: 0, flushes: Vec::new(), closed: false };
        let shown = String::new();
        shared.streams.push(Stream { line, asked, events, waiting: None, undelivered: None, shown });
        Ok(Box::new(Handle { shared: Arc::clone(&self.shared), index: shared.streams.len() - 1 }))
    }
}

impl Stream {
    fn send(&mut self, event: RecognitionEvent) {
        if self.asked.closed {
            return;
        }
        match self.events.try_send(event) {
            Err(mpsc::error::TrySendError::Full(event)) => self.undelivered = Some(event),
            // A closed listener wants nothing any more.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
        }
    }

    fn push(&mut self, samples: usize) {
        self.asked.samples += samples as u64;
        if let Some(event) = self.undelivered.take() {
            self.send(event);
        }
        let now = self.asked.samples;
        self.answer_if(|_, end, delay| matches!(delay, Delay::Samples(n) if now >= end + n));
        if self.asked.options.partials && self.line.samples_per_word > 0 && self.undelivered.is_none() {
            let text = self.line.heard(now);
            if !text.is_empty() && text != self.shown {
                self.shown.clone_from(&text);
                self.send(RecognitionEvent::Partial { text: Private::new(text) });
            }
        }
    }

    fn answer_if(&mut self, due: impl Fn(u64, u64, Delay) -> bool) {
        let Some((marker, end, delay)) = self.waiting else { return };
        if !due(marker, end, delay) {
            return;
        }
        self.waiting = None;
        let event = match &self.line.failure {
            Some(message) => RecognitionEvent::Failed { marker: Some(marker), message: message.clone() },
            None => RecognitionEvent::Final {
                marker,
                transcript: Transcript {
                    text: Private::new(self.line.heard(end)),
                    language: self.line.language.clone(),
                    no_speech: self.line.no_speech,
                    samples: end,
                },
            },
        };
        self.send(event);
    }
}

struct Handle {
    shared: Arc<Mutex<Shared>>,
    index: usize,
}

impl RecognitionStream for Handle {
    fn push(&mut self, samples: &[f32]) {
        lock(&self.shared).streams[self.index].push(samples.len());
    }

    fn flush(&mut self, marker: u64) {
        let mut shared = lock(&self.shared);
        let delay = shared.script.delays.get(&marker).copied().unwrap_or(shared.script.delay);
        let stream = &mut shared.streams[self.index];
        let end = stream.asked.samples;
        stream.asked.flushes.push((marker, end));
        stream.waiting = Some((marker, end, delay));
        stream.answer_if(|_, _, delay| matches!(delay, Delay::None | Delay::Samples(0)));
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        lock(&self.shared).streams[self.index].asked.closed = true;
    }
}

/// A test that panicked under the lock has failed already.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> RecognitionOptions {
        RecognitionOptions { partials: true, ..RecognitionOptions::default() }
    }

    fn texts(events: &mut mpsc::Receiver<RecognitionEvent>) -> Vec<String> {
        std::iter::from_fn(|| events.try_recv().ok())
            .map(|event| match event {
                RecognitionEvent::Partial { text } => format!("..{}", text.expose()),
                RecognitionEvent::Final { marker, transcript } => {
                    format!("{marker}:{}", transcript.text.expose())
                }
                RecognitionEvent::Failed { marker, message } => format!("{marker:?}!{message}"),
            })
            .collect()
    }

    #[test]
    fn words_are_heard_as_they_are_said() {
        let stt =
            Scripted::new(Script { lines: vec![Line::spoken("one two three", 100)], ..Script::default() });
        let (tx, mut rx) = mpsc::channel(16);
        let mut stream = stt.open(&options(), tx).expect("a stream is free");
        stream.push(&[0.0; 150]);
        stream.flush(1);
        stream.push(&[0.0; 150]);
        stream.flush(2);
        assert_eq!(texts(&mut rx), ["..one", "1:one", "..one two three", "2:one two three"]);
        assert_eq!(stt.asked()[0].flushes, [(1, 150), (2, 300)]);
    }

    #[test]
    fn answers_can_be_delayed_and_held_and_the_newest_flush_wins() {
        let script = Script {
            lines: vec![Line::new("yes"), Line::new("no")],
            delay: Delay::Held,
            delays: BTreeMap::from([(5, Delay::Samples(10))]),
            ..Script::default()
        };
        let stt = Scripted::new(script);
        let (tx, mut rx) = mpsc::channel(16);
        let mut stream = stt.open(&options(), tx).expect("a stream is free");
        stream.flush(1);
        stream.flush(2);
        stt.release(1);
        assert!(texts(&mut rx).is_empty());
        stt.release(2);
        assert_eq!(texts(&mut rx), ["2:yes"]);
        stream.flush(5);
        stream.push(&[0.0; 9]);
        assert!(texts(&mut rx).is_empty());
        stream.push(&[0.0; 1]);
        assert_eq!(texts(&mut rx), ["5:yes"]);
        stream.flush(6);
        drop(stream);
        stt.release(6);
        assert!(texts(&mut rx).is_empty(), "a dropped stream says nothing");
        assert!(stt.asked()[0].closed);
    }

    #[test]
    fn it_fails_and_refuses_as_told() {
        let script = Script {
            lines: vec![Line::failing("out of order")],
            languages: vec!["en".to_owned()],
            max_streams: 1,
            ..Script::default()
        };
        let stt = Scripted::new(script);
        let (tx, mut rx) = mpsc::channel(16);
        let german = RecognitionOptions { language: Some("de".to_owned()), ..options() };
        assert!(matches!(stt.open(&german, tx.clone()), Err(SttError::Language(_))));
        let mut stream = stt.open(&options(), tx.clone()).expect("a stream is free");
        assert!(matches!(stt.open(&options(), tx.clone()), Err(SttError::Busy)));
        stream.flush(3);
        assert_eq!(texts(&mut rx), ["Some(3)!out of order"]);
        drop(stream);
        assert!(stt.open(&options(), tx).is_ok());
    }

    #[test]
    fn a_full_listener_gets_the_answer_later() {
        let stt = Scripted::saying(["yes"]);
        let (tx, mut rx) = mpsc::channel(1);
        let mut stream = stt.open(&options(), tx).expect("a stream is free");
        stream.flush(1);
        stream.flush(2);
        assert_eq!(texts(&mut rx), ["1:yes"]);
        stream.push(&[0.0; 1]);
        assert_eq!(texts(&mut rx), ["2:yes"]);
    }
}
