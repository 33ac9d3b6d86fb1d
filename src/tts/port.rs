//! The way out of a stream: events into a bounded channel, with no thread that
//! waits for room.
//!
//! What does not fit waits here, in order. When the receiver takes an event,
//! the channel wakes the port, and the port sends on from there, on the
//! receiver's thread. So a slow listener holds up nobody but itself.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::sync::mpsc;
use tokio_util::sync::PollSender;

use super::SynthesisEvent;
use crate::audio::SPEAKING_RATE;

/// Samples in one [`SynthesisEvent::Audio`], at most: 100 ms.
pub const CHUNK: usize = SPEAKING_RATE as usize / 10;

/// A word and when it sounds, in samples from the start of its clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedWord {
    /// First byte in everything fed.
    pub from: usize,
    /// Byte after the last in everything fed.
    pub to: usize,
    /// First sample.
    pub start: u64,
    /// Sample after the last.
    pub end: u64,
}

pub(super) struct Port {
    way: Mutex<Way>,
    /// Called, with no lock held, when everything has left or nobody listens any more.
    idle: Box<dyn Fn() + Send + Sync>,
}

struct Way {
    /// `None`: closed.
    sender: Option<PollSender<SynthesisEvent>>,
    waiting: VecDeque<SynthesisEvent>,
}

impl Port {
    pub(super) fn new(
        events: mpsc::Sender<SynthesisEvent>,
        idle: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Self> {
        let way = Way { sender: Some(PollSender::new(events)), waiting: VecDeque::new() };
        Arc::new(Self { way: Mutex::new(way), idle: Box::new(idle) })
    }

    /// Puts events in line and sends what fits.
    pub(super) fn put(self: &Arc<Self>, events: impl IntoIterator<Item = SynthesisEvent>) {
        let mut way = self.lock();
        if way.sender.is_some() {
            way.waiting.extend(events);
            way.send(&Waker::from(Arc::clone(self)));
        }
    }

    /// Whether events wait for the listener.
    pub(super) fn is_waiting(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Whether nobody will read what is put in.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().sender.as_ref().and_then(PollSender::get_ref).is_none_or(mpsc::Sender::is_closed)
    }

    /// Drops what waits and lets go of the channel.
    pub(super) fn close(&self) {
        let mut way = self.lock();
        way.waiting.clear();
        let sender = way.sender.take();
        drop(way);
        // Its end may wake the receiver: not under the lock.
        drop(sender);
    }

    fn lock(&self) -> MutexGuard<'_, Way> {
        // Nothing that can panic runs under this lock, so it is never left half changed.
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Way {
    fn send(&mut self, waker: &Waker) {
        let mut context = Context::from_waker(waker);
        let Some(sender) = &mut self.sender else { return };
        while !self.waiting.is_empty() {
            // Not under the task's budget: when that is used up, the channel wakes the waker at once, which
            // would enter this port a second time, under its own lock.
            let reserve = std::pin::pin!(tokio::task::unconstrained(poll_fn(|cx| sender.poll_reserve(cx))));
            match reserve.poll(&mut context) {
                Poll::Pending => return,
                Poll::Ready(Ok(())) => {
                    let event = self.waiting.pop_front().expect("checked above to hold one");
                    if sender.send_item(event).is_ok() {
                        continue;
                    }
                }
                Poll::Ready(Err(_)) => {}
            }
            // The receiver is gone.
            self.waiting.clear();
        }
    }
}

impl Wake for Port {
    fn wake(self: Arc<Self>) {
        let idle = {
            let mut way = self.lock();
            way.send(&Waker::from(Arc::clone(&self)));
            way.waiting.is_empty()
        };
        if idle {
            (self.idle)();
        }
    }
}

/// The events of one clause in the order in which they are due: the clause,
/// then its sound in pieces, each word before the piece in which it starts.
/// `at` is where the clause begins, in samples of the stream.
pub(super) fn clause_events(
    from: usize,
    to: usize,
    at: u64,
    words: &[PlacedWord],
    samples: &[f32],
) -> Vec<SynthesisEvent> {
    let mut events = vec![SynthesisEvent::Clause { from, to }];
    let mut words = words.iter().peekable();
    let mut place = |until: u64, events: &mut Vec<SynthesisEvent>| {
        while let Some(word) = words.next_if(|word| word.start < until) {
            events.push(SynthesisEvent::Word {
                from: word.from,
                to: word.to,
                start: at + word.start,
                end: at + word.end,
            });
        }
    };
    for (index, piece) in samples.chunks(CHUNK).enumerate() {
        place((index * CHUNK + piece.len()) as u64, &mut events);
        events.push(SynthesisEvent::Audio { samples: piece.to_vec() });
    }
    place(u64::MAX, &mut events);
    events
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn audio(n: usize) -> SynthesisEvent {
        SynthesisEvent::Audio { samples: vec![n as f32] }
    }

    #[test]
    fn a_slow_listener_gets_everything_in_order() {
        let (tx, mut rx) = mpsc::channel(2);
        let idle = Arc::new(AtomicUsize::new(0));
        let port = Port::new(tx, {
            let idle = Arc::clone(&idle);
            move || {
                idle.fetch_add(1, Ordering::Relaxed);
            }
        });
        port.put((0..10).map(audio));
        assert!(port.is_waiting());
        for n in 0..10 {
            assert_eq!(rx.try_recv(), Ok(audio(n)));
        }
        assert!(!port.is_waiting());
        assert!(idle.load(Ordering::Relaxed) >= 1);
        assert!(rx.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_task_out_of_budget_is_no_deadlock() {
        let (tx, mut rx) = mpsc::channel(1);
        let port = Port::new(tx, || {});
        for n in 0..1_000 {
            port.put([audio(n), audio(n)]);
            assert_eq!(rx.try_recv(), Ok(audio(n)));
            assert_eq!(rx.try_recv(), Ok(audio(n)));
        }
    }

    #[test]
    fn a_listener_that_leaves_empties_the_port() {
        let (tx, rx) = mpsc::channel(1);
        let port = Port::new(tx, || {});
        port.put((0..5).map(audio));
        drop(rx);
        assert!(port.is_closed());
        assert!(!port.is_waiting());
        port.put([audio(9)]);
        assert!(!port.is_waiting());
    }

    #[test]
    fn a_closed_port_ends_the_channel() {
        let (tx, mut rx) = mpsc::channel(1);
        let port = Port::new(tx, || {});
        port.put((0..5).map(audio));
        port.close();
        assert_eq!(rx.try_recv(), Ok(audio(0)));
        assert_eq!(rx.try_recv(), Err(mpsc::error::TryRecvError::Disconnected));
    }

    #[test]
    fn words_come_before_their_sound() {
        let words = [
            PlacedWord { from: 10, to: 12, start: 0, end: 100 },
            PlacedWord { from: 13, to: 15, start: CHUNK as u64, end: CHUNK as u64 + 1 },
        ];
        let events = clause_events(10, 16, 1_000, &words, &vec![0.0; CHUNK + 1]);
        assert_eq!(events[0], SynthesisEvent::Clause { from: 10, to: 16 });
        assert_eq!(events[1], SynthesisEvent::Word { from: 10, to: 12, start: 1_000, end: 1_100 });
        assert!(matches!(&events[2], SynthesisEvent::Audio { samples } if samples.len() == CHUNK));
        assert!(matches!(events[3], SynthesisEvent::Word { from: 13, .. }));
        assert!(matches!(&events[4], SynthesisEvent::Audio { samples } if samples.len() == 1));
        assert_eq!(events.len(), 5);
    }
}
