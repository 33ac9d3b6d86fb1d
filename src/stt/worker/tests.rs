//! The board and the workers with a model that does as the test says.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc as channel;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc;

use super::*;
use crate::stt::board::Opening;
use crate::stt::utterance::Pace;
use crate::stt::whisper::{Stream, start};
use crate::stt::{RecognitionEvent, RecognitionStream};

const PACE: Pace = Pace { segment: 400, partial: None, eager: false, partials_last: true };
/// Longer than any step takes; reached only when something is broken.
const PATIENCE: Duration = Duration::from_secs(10);

/// Says the level of its loudest sample, after the test lets it.
struct Fake {
    steps: Arc<Mutex<channel::Receiver<Step>>>,
    seen: channel::Sender<usize>,
}

enum Step {
    Answer,
    /// Works until it is cancelled.
    UntilCancelled,
    Panic,
    Fail,
}

impl Decode for Fake {
    fn run(&mut self, request: &Request<'_>) -> Result<Decoded, Stopped> {
        self.seen.send(request.audio.len()).expect("the test listens");
        let step = self.steps.lock().expect("no test panics under it").recv_timeout(PATIENCE);
        match step.expect("the test says how it goes on") {
            Step::Answer => {}
            Step::UntilCancelled => {
                while !request.cancel.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                return Err(Stopped::Cancelled);
            }
            Step::Panic => panic!("as the test asked"),
            Step::Fail => return Err(Stopped::Failed("as the test asked".to_owned())),
        }
        let loudest = request.audio.iter().copied().fold(0.0, f32::max);
        let text = format!("level {}", (loudest * 100.0).round());
        Ok(Decoded { text, language: "en", no_speech: 0.1, logprob: -0.1, cut: false })
    }
}

struct House {
    board: Arc<Board>,
    threads: Vec<JoinHandle<()>>,
    steps: channel::Sender<Step>,
    seen: channel::Receiver<usize>,
    made: Arc<AtomicUsize>,
}

impl House {
    fn new() -> Self {
        let (steps, steps_rx) = channel::channel();
        let (seen_tx, seen) = channel::channel();
        let steps_rx = Arc::new(Mutex::new(steps_rx));
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let maker: Maker = Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            let fake = Fake { steps: Arc::clone(&steps_rx), seen: seen_tx.clone() };
            Ok(Decoders { full: Box::new(fake), partial: None })
        });
        let rules = Rules {
            limits: Limits { no_speech: 0.6, min_logprob: -1.0 },
            tokens_per_s: 6.0,
            allowed: Vec::new(),
        };
        let board = Arc::new(Board::new(3));
        let threads = start(&board, &maker, &Arc::new(rules), 1).expect("the fake starts");
        Self { board, threads, steps, seen, made }
    }

    fn open(&self, pace: Pace, room: usize) -> (Stream, mpsc::Receiver<RecognitionEvent>) {
        let (events, rx) = mpsc::channel(room);
        let opening =
            Opening { pace, language: None, prompt: String::new(), max_samples: 16_000 * 60, events };
        let stream = self.board.open(opening).expect("a stream is free");
        (Stream { board: Arc::clone(&self.board), stream }, rx)
    }

    fn step(&self, step: Step) {
        self.steps.send(step).expect("the fake lives");
    }

    /// Waits until the fake has begun, and says with how many samples.
    fn begun(&self) -> usize {
        self.seen.recv_timeout(PATIENCE).expect("a decoding begins")
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.board.shut();
        for thread in self.threads.drain(..) {
            thread.join().expect("a worker outlives its jobs");
        }
    }
}

/// The next event; `None` when the stream is closed.
fn receive(events: &mut mpsc::Receiver<RecognitionEvent>) -> Option<RecognitionEvent> {
    for _ in 0..PATIENCE.as_millis() {
        match events.try_recv() {
            Ok(event) => return Some(event),
            Err(mpsc::error::TryRecvError::Disconnected) => return None,
            Err(mpsc::error::TryRecvError::Empty) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    panic!("no event came");
}

fn next(events: &mut mpsc::Receiver<RecognitionEvent>) -> String {
    match receive(events).expect("the stream is open") {
        RecognitionEvent::Partial { text } => format!("..{}", text.expose()),
        RecognitionEvent::Final { marker, transcript } => format!("{marker}:{}", transcript.text.expose()),
        RecognitionEvent::Failed { marker, message } => format!("{marker:?}!{message}"),
    }
}

/// A quiet start, then a voice of this level.
fn voice(level: f32, frames: usize) -> Vec<f32> {
    let mut audio = vec![0.001; 10 * 320];
    audio.extend(vec![level; frames * 320]);
    audio
}

#[test]
fn finals_go_before_partials_and_stop_them() {
    let house = House::new();
    let showing = Pace { partial: Some(20), ..PACE };
    let (mut talker, mut talk) = house.open(showing, 16);
    let (mut asker, mut ask) = house.open(PACE, 16);
    house.step(Step::UntilCancelled);
    talker.push(&voice(0.5, 30));
    assert_eq!(house.begun(), 40 * 320);
    house.step(Step::Answer);
    asker.push(&voice(0.2, 30));
    asker.flush(1);
    assert_eq!(next(&mut ask), "1:level 20");
    house.step(Step::Answer);
    talker.push(&voice(0.5, 30));
    assert_eq!(next(&mut talk), "..level 50");
}

#[test]
fn a_newer_flush_stops_the_older() {
    let house = House::new();
    let (mut stream, mut events) = house.open(PACE, 16);
    house.step(Step::UntilCancelled);
    stream.push(&voice(0.2, 30));
    stream.flush(1);
    house.begun();
    house.step(Step::Answer);
    stream.push(&vec![0.4; 20 * 320]);
    stream.flush(2);
    assert_eq!(next(&mut events), "2:level 40");
}

#[test]
fn a_flush_after_more_silence_takes_what_is_under_way() {
    let house = House::new();
    let (mut stream, mut events) = house.open(PACE, 16);
    stream.push(&voice(0.2, 30));
    stream.flush(1);
    house.begun();
    stream.push(&[0.001; 10 * 320]);
    stream.flush(2);
    house.step(Step::Answer);
    assert_eq!(next(&mut events), "2:level 20");
    assert!(house.seen.try_recv().is_err(), "it was not decoded again");
}

#[test]
fn a_panic_and_a_failure_cost_one_job_each() {
    let house = House::new();
    let (mut stream, mut events) = house.open(PACE, 16);
    stream.push(&voice(0.2, 30));
    house.step(Step::Panic);
    stream.flush(1);
    assert_eq!(next(&mut events), "Some(1)!the speech model panicked");
    house.step(Step::Fail);
    stream.flush(2);
    assert_eq!(next(&mut events), "Some(2)!as the test asked");
    house.step(Step::Answer);
    stream.flush(3);
    assert_eq!(next(&mut events), "3:level 20");
    assert_eq!(house.made.load(Ordering::Relaxed), 2, "the model was made anew after the panic");
}

#[test]
fn the_oldest_flush_is_served_first() {
    let house = House::new();
    let (mut a, mut a_events) = house.open(PACE, 16);
    let (mut b, mut b_events) = house.open(PACE, 16);
    let (mut c, mut c_events) = house.open(PACE, 16);
    a.push(&voice(0.1, 10));
    b.push(&voice(0.2, 20));
    c.push(&voice(0.3, 30));
    a.flush(1);
    assert_eq!(house.begun(), 20 * 320);
    c.flush(3);
    b.flush(2);
    (0..3).for_each(|_| house.step(Step::Answer));
    assert_eq!((house.begun(), house.begun()), (40 * 320, 30 * 320));
    assert_eq!(next(&mut a_events), "1:level 10");
    assert_eq!(next(&mut b_events), "2:level 20");
    assert_eq!(next(&mut c_events), "3:level 30");
}

#[test]
fn dropping_a_stream_stops_its_work_and_frees_its_place() {
    let house = House::new();
    let (mut stream, mut events) = house.open(PACE, 16);
    house.step(Step::UntilCancelled);
    stream.push(&voice(0.2, 30));
    stream.flush(1);
    house.begun();
    drop(stream);
    assert!(receive(&mut events).is_none(), "nothing is said any more");
    let streams: Vec<_> = (0..3).map(|_| house.open(PACE, 1)).collect();
    let (events, _rx) = mpsc::channel(1);
    let opening = Opening { pace: PACE, language: None, prompt: String::new(), max_samples: 1, events };
    assert!(matches!(house.board.open(opening), Err(SttError::Busy)));
    drop(streams);
}

#[test]
fn a_listener_without_room_gets_its_answer_when_it_has_some() {
    let house = House::new();
    let (mut stream, mut events) = house.open(PACE, 1);
    stream.push(&[0.0; 3200]);
    (1..=3).for_each(|marker| stream.flush(marker));
    assert_eq!(next(&mut events), "1:");
    assert_eq!(next(&mut events), "3:", "the newest is kept");
}

#[test]
fn an_utterance_without_end_is_told_so_once() {
    let house = House::new();
    let (events, mut rx) = mpsc::channel(8);
    let opening = Opening { pace: PACE, language: None, prompt: String::new(), max_samples: 32_000, events };
    let stream = house.board.open(opening).expect("a stream is free");
    let mut stream = Stream { board: Arc::clone(&house.board), stream };
    (0..5).for_each(|_| stream.push(&[0.0; 16_000]));
    assert_eq!(next(&mut rx), "None!the utterance is longer than 2 s; what follows is not heard");
    stream.flush(1);
    assert_eq!(next(&mut rx), "1:", "what was heard is still answered");
}

#[test]
fn a_model_that_does_not_start_is_an_error() {
    let maker: Maker = Arc::new(|| Err(SttError::Model("no memory".to_owned())));
    let rules = Rules {
        limits: Limits { no_speech: 0.6, min_logprob: -1.0 },
        tokens_per_s: 6.0,
        allowed: Vec::new(),
    };
    let error = start(&Arc::new(Board::new(1)), &maker, &Arc::new(rules), 2).expect_err("it cannot start");
    assert_eq!(error.to_string(), "speech model: no memory");
}
