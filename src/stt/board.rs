//! What all streams want, on one board; workers take the most urgent.
//!
//! Order: flushes, oldest first; finished segments; what may soon be asked for
//! (the voice fell quiet); partials, the stream that waited longest first. One
//! decoding per stream at a time. A flush that finds every worker busy stops a
//! partial (or a segment that no flush waits for, which is taken up again).
//!
//! Bounds: so many streams, one flush a stream, one undelivered answer a
//! stream. A listener that does not read loses partials, then older answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::guards::Signal;
use super::utterance::{Answer, Heard, Pace, Stretch, Utterance, Why};
use super::{RecognitionEvent, SttError, Transcript};
use crate::error::Private;

/// How long a worker sleeps before it offers a full listener its answer again.
const RETRY: Duration = Duration::from_millis(20);

/// What a stream is opened with.
pub(super) struct Opening {
    pub pace: Pace,
    pub language: Option<&'static str>,
    pub prompt: String,
    pub max_samples: u64,
    pub events: mpsc::Sender<RecognitionEvent>,
}

/// Work for a decoder.
pub(super) struct Job {
    stream: u64,
    pub stretch: Stretch,
    pub audio: Vec<f32>,
    pub signal: Signal,
    pub language: Option<&'static str>,
    pub guess: Option<&'static str>,
    pub prompt: String,
    pub cancel: Arc<AtomicBool>,
}

/// How a job ended.
pub(super) enum Outcome {
    /// The words; `lasting` when they may answer a flush.
    Heard { heard: Heard, lasting: bool },
    /// It was told to stop.
    Cancelled,
    /// The model failed; the text says how.
    Failed(String),
}

struct Running {
    stretch: Stretch,
    cancel: Arc<AtomicBool>,
}

struct Entry {
    utterance: Utterance,
    language: Option<&'static str>,
    prompt: String,
    max_samples: u64,
    full: bool,
    events: mpsc::Sender<RecognitionEvent>,
    /// An answer that the listener had no room for.
    undelivered: Option<RecognitionEvent>,
    running: Option<Running>,
    /// When it last got a partial, in jobs taken.
    served: u64,
}

impl Entry {
    fn send(&mut self, event: RecognitionEvent) {
        if self.undelivered.is_some() {
            // An older unanswered flush may be skipped; partials always may.
            if !matches!(event, RecognitionEvent::Partial { .. }) {
                self.undelivered = Some(event);
            }
            return;
        }
        match self.events.try_send(event) {
            Err(TrySendError::Full(event)) if !matches!(event, RecognitionEvent::Partial { .. }) => {
                self.undelivered = Some(event);
            }
            // A closed listener is noticed where the stream is next looked at.
            Ok(()) | Err(_) => {}
        }
    }

    fn retry(&mut self) {
        if let Some(event) = self.undelivered.take() {
            self.send(event);
        }
    }

    /// Moves on as far as what was heard allows.
    fn settle(&mut self) {
        if let Some(Answer { marker, heard, samples }) = self.utterance.settle() {
            let transcript = Transcript {
                text: Private::new(heard.text),
                language: heard.language.map(str::to_owned),
                no_speech: heard.no_speech,
                samples,
            };
            self.send(RecognitionEvent::Final { marker, transcript });
        }
    }

    fn cancel(&self) {
        if let Some(running) = &self.running {
            running.cancel.store(true, Ordering::Relaxed);
        }
    }
}

#[derive(Default)]
struct Inner {
    streams: BTreeMap<u64, Entry>,
    next_stream: u64,
    /// Counts flushes and jobs: who waited longer.
    order: u64,
    idle: usize,
    closed: bool,
    /// Heard last in any stream: callers of one service mostly speak one language.
    language: Option<&'static str>,
}

/// Shared by streams and workers.
pub(super) struct Board {
    inner: Mutex<Inner>,
    wake: Condvar,
    max_streams: usize,
}

impl Board {
    pub(super) fn new(max_streams: usize) -> Self {
        Self { inner: Mutex::default(), wake: Condvar::new(), max_streams }
    }

    /// A panic under the lock would be a bug of this file, and every change is
    /// made by one call: the board goes on with what it has.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a stream.
    pub(super) fn open(&self, opening: Opening) -> Result<u64, SttError> {
        let mut inner = self.lock();
        inner.streams.retain(|_, entry| !entry.events.is_closed());
        if inner.streams.len() >= self.max_streams || inner.closed {
            return Err(SttError::Busy);
        }
        let id = inner.next_stream;
        inner.next_stream += 1;
        let entry = Entry {
            utterance: Utterance::new(opening.pace),
            language: opening.language,
            prompt: opening.prompt,
            max_samples: opening.max_samples,
            full: false,
            events: opening.events,
            undelivered: None,
            running: None,
            served: 0,
        };
        inner.streams.insert(id, entry);
        Ok(id)
    }

    /// Adds audio to a stream.
    pub(super) fn push(&self, stream: u64, samples: &[f32]) {
        let mut inner = self.lock();
        let Some(entry) = inner.streams.get_mut(&stream) else { return };
        entry.retry();
        let room = entry.max_samples.saturating_sub(entry.utterance.samples());
        let taken = samples.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        entry.utterance.push(&samples[..taken]);
        if taken < samples.len() && !entry.full {
            entry.full = true;
            let seconds = entry.max_samples / u64::from(crate::audio::HEARING_RATE);
            let message = format!("the utterance is longer than {seconds} s; what follows is not heard");
            entry.send(RecognitionEvent::Failed { marker: None, message });
        }
        entry.settle();
        // A worker also brings what the listener had no room for.
        if entry.undelivered.is_some() || (entry.running.is_none() && entry.utterance.due().is_some()) {
            self.wake.notify_one();
        }
    }

    /// Asks a stream for the text of everything pushed so far.
    pub(super) fn flush(&self, stream: u64, marker: u64) {
        let mut inner = self.lock();
        let order = inner.order;
        inner.order += 1;
        let idle = inner.idle;
        let Some(entry) = inner.streams.get_mut(&stream) else { return };
        entry.retry();
        entry.utterance.flush(marker, order);
        entry.settle();
        if entry.utterance.waiting().is_none() {
            if entry.undelivered.is_some() {
                self.wake.notify_one();
            }
            return;
        }
        match &entry.running {
            Some(running) if entry.utterance.still_wanted(running.stretch) => return,
            Some(_) => entry.cancel(),
            None if idle == 0 => inner.make_room(),
            None => {}
        }
        self.wake.notify_one();
    }

    /// Closes a stream and stops its work.
    pub(super) fn close(&self, stream: u64) {
        if let Some(entry) = self.lock().streams.remove(&stream) {
            entry.cancel();
        }
    }

    /// Closes every stream and sends the workers home.
    pub(super) fn shut(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.streams.values().for_each(Entry::cancel);
        inner.streams.clear();
        self.wake.notify_all();
    }

    /// Waits for work; `None` when there will be no more.
    pub(super) fn next(&self) -> Option<Job> {
        let mut inner = self.lock();
        loop {
            if inner.closed {
                return None;
            }
            inner.streams.values_mut().for_each(Entry::retry);
            if let Some(job) = inner.take() {
                return Some(job);
            }
            inner.idle += 1;
            inner = if inner.streams.values().any(|e| e.undelivered.is_some()) {
                self.wake.wait_timeout(inner, RETRY).unwrap_or_else(PoisonError::into_inner).0
            } else {
                self.wake.wait(inner).unwrap_or_else(PoisonError::into_inner)
            };
            inner.idle -= 1;
        }
    }

    /// Takes back a job.
    pub(super) fn done(&self, job: &Job, outcome: Outcome) {
        let mut inner = self.lock();
        let Some(entry) = inner.streams.get_mut(&job.stream) else { return };
        entry.running = None;
        let mut language = None;
        match outcome {
            Outcome::Cancelled => {}
            Outcome::Heard { heard, lasting } => {
                language = heard.language.filter(|_| lasting && !heard.text.is_empty());
                if entry.utterance.begins_at(job.stretch.from)
                    && entry.utterance.waiting().is_none()
                    && let Some(text) = entry.utterance.news(&heard)
                {
                    entry.send(RecognitionEvent::Partial { text: Private::new(text) });
                }
                if lasting {
                    entry.utterance.heard(job.stretch, heard);
                }
            }
            Outcome::Failed(message) => {
                tracing::warn!(message, why = ?job.stretch.why, "a decoding failed");
                match (job.stretch.why, entry.utterance.marker()) {
                    (Why::Partial | Why::Early, _) => {}
                    (Why::Final, marker @ Some(_)) => {
                        entry.utterance.forget_flush();
                        entry.send(RecognitionEvent::Failed { marker, message });
                    }
                    (_, marker) => {
                        entry.send(RecognitionEvent::Failed { marker, message });
                        // Else it would be tried for ever.
                        entry.utterance.heard(job.stretch, Heard::default());
                    }
                }
            }
        }
        entry.settle();
        if entry.utterance.due().is_some() {
            self.wake.notify_one();
        }
        inner.language = language.or(inner.language);
    }
}

impl Inner {
    /// Stops the least urgent decoding, so that a flush need not wait for it.
    fn make_room(&self) {
        let victim = self
            .streams
            .values()
            .filter(|entry| entry.utterance.waiting().is_none())
            .filter_map(|entry| entry.running.as_ref())
            .filter(|running| !running.cancel.load(Ordering::Relaxed))
            .max_by_key(|running| running.stretch.why);
        if let Some(running) = victim {
            running.cancel.store(true, Ordering::Relaxed);
        }
    }

    /// The most urgent job.
    fn take(&mut self) -> Option<Job> {
        let free = || self.streams.iter().filter(|(_, e)| e.running.is_none() && !e.events.is_closed());
        let urgent = free()
            .filter_map(|(&id, entry)| {
                let stretch = entry.utterance.due_in_full()?;
                Some(((stretch.why, entry.utterance.waiting().unwrap_or(id)), id, stretch))
            })
            .min_by_key(|(key, ..)| *key)
            .map(|(_, id, stretch)| (id, stretch));
        let (id, stretch) = urgent.or_else(|| {
            free()
                .filter_map(|(&id, entry)| Some((entry.utterance.due()?, entry.served, id)))
                .min_by_key(|(stretch, served, id)| (stretch.why, *served, *id))
                .map(|(stretch, _, id)| (id, stretch))
        })?;
        self.order += 1;
        let (order, last) = (self.order, self.language);
        let entry = self.streams.get_mut(&id)?;
        if stretch.why >= Why::Early {
            entry.served = order;
        }
        let cancel = Arc::new(AtomicBool::new(false));
        entry.running = Some(Running { stretch, cancel: Arc::clone(&cancel) });
        let (audio, signal) = entry.utterance.take(stretch);
        Some(Job {
            stream: id,
            stretch,
            audio,
            signal,
            language: entry.language,
            guess: entry.utterance.language().or(last),
            prompt: entry.prompt.clone(),
            cancel,
        })
    }
}
