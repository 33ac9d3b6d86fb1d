//! A generator without a model, a thread or a clock, for tests of logic.
//!
//! It answers from a list of [`Reply`]s, all at once or step by step as the
//! test releases it. What was asked of it can be read back.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::sync::mpsc;
use tokio_util::sync::PollSender;

use super::{
    FinishReason, Generation, GenerationEvent, GenerationRequest, GenerationUsage, Generator, LlmError, Role,
    ToolCall,
};
use crate::error::Private;

/// One step of an answer; each becomes one event.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The prompt is in the cache.
    Prefilled,
    /// Text, as one block of as many tokens as it has words.
    Text(String),
    /// A tool call; the generator makes its id (`call_scripted_N`).
    Call {
        /// Which tool.
        name: String,
        /// A JSON object, as text.
        arguments: String,
    },
    /// The end.
    Done(FinishReason),
    /// The end by failure.
    Fail(String),
}

/// One answer: what [`Scripted`] does when it is next asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// These steps, in order. An end is added when the last one is none.
    Steps(Vec<Step>),
    /// Refuses to start, as when the queue is full.
    Busy,
    /// Refuses to start, as when the prompt does not fit.
    TooLong,
}

impl Reply {
    /// Prefilled, then the text in blocks of two words, then `Stop`.
    pub fn text(text: &str) -> Self {
        let words: Vec<&str> = text.split_inclusive(' ').collect();
        let blocks = words.chunks(2).map(|pair| Step::Text(pair.concat()));
        Self::Steps(
            std::iter::once(Step::Prefilled).chain(blocks).chain([Step::Done(FinishReason::Stop)]).collect(),
        )
    }

    /// Prefilled, then one call, then `ToolCalls`.
    pub fn call(name: &str, arguments: &str) -> Self {
        let call = Step::Call { name: name.to_owned(), arguments: arguments.to_owned() };
        Self::Steps(vec![Step::Prefilled, call, Step::Done(FinishReason::ToolCalls)])
    }

    /// Prefilled, then the text in blocks of two words, then a failure.
    pub fn failing(text: &str, message: &str) -> Self {
        let Self::Steps(mut steps) = Self::text(text) else { unreachable!("`text` gives steps") };
        steps.pop();
        steps.push(Step::Fail(message.to_owned()));
        Self::Steps(steps)
    }

    fn steps(self) -> VecDeque<Step> {
        let mut steps = match self {
            Self::Steps(steps) => VecDeque::from(steps),
            Self::Busy | Self::TooLong => VecDeque::new(),
        };
        if !matches!(steps.back(), Some(Step::Done(_) | Step::Fail(_))) {
            let called = steps.iter().any(|step| matches!(step, Step::Call { .. }));
            steps.push_back(Step::Done(if called { FinishReason::ToolCalls } else { FinishReason::Stop }));
        }
        steps
    }
}

/// What one generation was asked and how it stands.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The request as it came.
    pub request: GenerationRequest,
    /// Text that was given out so far.
    pub said: String,
    /// Whether its `Done` or `Failed` was made.
    pub ended: bool,
    /// Whether it was dropped before its end was made.
    pub cancelled: bool,
}

/// The generator. Clones share everything.
#[derive(Clone, Default)]
pub struct Scripted {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    replies: Mutex<VecDeque<Reply>>,
    held: AtomicBool,
    /// Steps that may still be taken; ignored when nothing is held.
    permits: AtomicUsize,
    calls: AtomicU64,
    started: Mutex<Vec<Arc<Answer>>>,
    forgotten: Mutex<Vec<u64>>,
}

struct Answer {
    shared: Arc<Shared>,
    state: Mutex<State>,
}

struct State {
    asked: Asked,
    steps: VecDeque<Step>,
    usage: GenerationUsage,
    /// `None`: dropped.
    sender: Option<PollSender<GenerationEvent>>,
    /// What found no room in the channel yet.
    waiting: VecDeque<GenerationEvent>,
}

struct Handle(Arc<Answer>);

impl Scripted {
    /// A generator that gives these answers in order, and when they are used
    /// up says the caller's last words back ("You said: ...").
    pub fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let scripted = Self::default();
        lock(&scripted.shared.replies).extend(replies);
        scripted
    }

    /// Holds every step back until [`release`](Self::release).
    #[must_use]
    pub fn held(self) -> Self {
        self.hold();
        self
    }

    /// Holds every step back from now on.
    pub fn hold(&self) {
        self.shared.held.store(true, Ordering::SeqCst);
    }

    /// Adds an answer at the end of the list.
    pub fn push(&self, reply: Reply) {
        lock(&self.shared.replies).push_back(reply);
    }

    /// Lets this many more steps be taken, generations in the order in which they were started.
    pub fn release(&self, steps: usize) {
        self.shared.permits.fetch_add(steps, Ordering::SeqCst);
        self.work();
    }

    /// Holds nothing back from now on.
    pub fn release_all(&self) {
        self.shared.held.store(false, Ordering::SeqCst);
        self.work();
    }

    /// Every generation so far, in the order in which they were started. Refused ones are not among them.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.shared.started).iter().map(|answer| lock(&answer.state).asked.clone()).collect()
    }

    /// The keys that were forgotten, in order.
    pub fn forgotten(&self) -> Vec<u64> {
        lock(&self.shared.forgotten).clone()
    }

    fn work(&self) {
        let started = lock(&self.shared.started).clone();
        started.iter().for_each(Answer::work);
    }
}

impl Generator for Scripted {
    fn start(
        &self,
        request: GenerationRequest,
        events: mpsc::Sender<GenerationEvent>,
    ) -> Result<Box<dyn Generation>, LlmError> {
        let scripted = lock(&self.shared.replies).pop_front();
        let reply = scripted.unwrap_or_else(|| echo(&request));
        match &reply {
            Reply::Busy => return Err(LlmError::Busy),
            Reply::TooLong => {
                return Err(LlmError::TooLong { tokens: prompt_tokens(&request) as usize, limit: 0 });
            }
            Reply::Steps(_) => {}
        }
        let usage = GenerationUsage { prompt_tokens: prompt_tokens(&request), ..GenerationUsage::default() };
        let asked = Asked { request, said: String::new(), ended: false, cancelled: false };
        let answer = Arc::new(Answer {
            shared: Arc::clone(&self.shared),
            state: Mutex::new(State {
                asked,
                steps: reply.steps(),
                usage,
                sender: Some(PollSender::new(events)),
                waiting: VecDeque::new(),
            }),
        });
        lock(&self.shared.started).push(Arc::clone(&answer));
        answer.work();
        Ok(Box::new(Handle(answer)))
    }

    fn forget(&self, cache_key: u64) {
        lock(&self.shared.forgotten).push(cache_key);
    }

    fn model(&self) -> &str {
        "scripted"
    }
}

/// The answer when the script has none left.
fn echo(request: &GenerationRequest) -> Reply {
    let last = request.messages.iter().rfind(|message| message.role == Role::User);
    Reply::text(&format!("You said: {}", last.map_or("nothing.", |message| message.text.expose().as_str())))
}

/// A count that grows with the prompt, as a real one would: its words.
fn prompt_tokens(request: &GenerationRequest) -> u32 {
    request.messages.iter().map(|message| words(message.text.expose())).sum()
}

fn words(text: &str) -> u32 {
    u32::try_from(text.split_whitespace().count()).unwrap_or(u32::MAX)
}

impl Shared {
    /// Takes a permit, when one is needed.
    fn may_step(&self) -> bool {
        !self.held.load(Ordering::SeqCst)
            || self
                .permits
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                .is_ok()
    }
}

impl Answer {
    fn work(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        while state.sender.is_some() && !state.asked.ended && self.shared.may_step() {
            let step = state.steps.pop_front().expect("steps end with an end, after which none is taken");
            let event = state.take(step, &self.shared.calls);
            state.waiting.push_back(event);
        }
        state.send(&Waker::from(Arc::clone(self)));
    }
}

impl State {
    fn take(&mut self, step: Step, calls: &AtomicU64) -> GenerationEvent {
        match step {
            Step::Prefilled => GenerationEvent::Prefilled,
            Step::Text(text) => {
                self.asked.said.push_str(&text);
                let tokens = words(&text).max(1);
                self.usage.completion_tokens += tokens;
                self.usage.passes += 1;
                GenerationEvent::Text { delta: Private::new(text), tokens }
            }
            Step::Call { name, arguments } => {
                self.usage.completion_tokens += words(&arguments) + 1;
                self.usage.passes += 1;
                let id = format!("call_scripted_{}", calls.fetch_add(1, Ordering::SeqCst));
                GenerationEvent::ToolCall(ToolCall { id, name, arguments })
            }
            Step::Done(reason) => {
                self.asked.ended = true;
                GenerationEvent::Done { reason, usage: self.usage }
            }
            Step::Fail(message) => {
                self.asked.ended = true;
                GenerationEvent::Failed { message }
            }
        }
    }

    fn send(&mut self, waker: &Waker) {
        let mut context = Context::from_waker(waker);
        let Some(sender) = &mut self.sender else { return };
        while !self.waiting.is_empty() {
            match sender.poll_reserve(&mut context) {
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
        if self.asked.ended {
            // As a real generator does: the channel ends after the last event.
            self.sender = None;
        }
    }
}

impl Wake for Answer {
    fn wake(self: Arc<Self>) {
        lock(&self.state).send(&Waker::from(Arc::clone(&self)));
    }
}

impl Generation for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.asked.cancelled = !state.asked.ended;
        state.waiting.clear();
        let sender = state.sender.take();
        drop(state);
        // Its end may wake the receiver: not under the lock.
        drop(sender);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic on outside input runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::{Message, SamplingParams, ToolChoice};
    use super::*;

    fn request(text: &str) -> GenerationRequest {
        GenerationRequest {
            cache_key: Some(7),
            messages: vec![Message::text(Role::User, text)],
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            params: SamplingParams::default(),
        }
    }

    fn drain(rx: &mut mpsc::Receiver<GenerationEvent>) -> Vec<GenerationEvent> {
        std::iter::from_fn(|| rx.try_recv().ok()).collect()
    }

    fn text(events: &[GenerationEvent]) -> String {
        let deltas = events.iter().filter_map(|event| match event {
            GenerationEvent::Text { delta, .. } => Some(delta.expose().as_str()),
            _ => None,
        });
        deltas.collect()
    }

    #[test]
    fn replies_come_in_order_and_then_an_echo() {
        let scripted = Scripted::new([Reply::text("Hello there, you."), Reply::call("look", "{}")]);
        let (tx, mut rx) = mpsc::channel(100);
        let one = scripted.start(request("hi"), tx.clone()).expect("started");
        let events = drain(&mut rx);
        assert_eq!(events[0], GenerationEvent::Prefilled);
        assert_eq!(text(&events), "Hello there, you.");
        assert!(matches!(
            events.last(),
            Some(GenerationEvent::Done {
                reason: FinishReason::Stop,
                usage: GenerationUsage { prompt_tokens: 1, completion_tokens: 3, passes: 2, .. }
            })
        ));
        let two = scripted.start(request("hi"), tx.clone()).expect("started");
        let events = drain(&mut rx);
        assert!(matches!(&events[1], GenerationEvent::ToolCall(call) if call.name == "look"));
        assert!(matches!(events[2], GenerationEvent::Done { reason: FinishReason::ToolCalls, .. }));
        let three = scripted.start(request("good day"), tx).expect("started");
        assert_eq!(text(&drain(&mut rx)), "You said: good day");
        drop((one, two, three));
        assert!(scripted.asked().iter().all(|asked| asked.ended && !asked.cancelled));
    }

    #[test]
    fn held_steps_are_released_one_by_one() {
        let scripted = Scripted::new([Reply::text("one two three four")]).held();
        let (tx, mut rx) = mpsc::channel(100);
        let generation = scripted.start(request("hi"), tx).expect("started");
        assert!(drain(&mut rx).is_empty());
        scripted.release(2);
        assert_eq!(text(&drain(&mut rx)), "one two ");
        drop(generation);
        scripted.release_all();
        assert!(drain(&mut rx).is_empty());
        assert!(scripted.asked()[0].cancelled);
        assert_eq!(scripted.asked()[0].said, "one two ");
    }

    #[test]
    fn refusals_and_failures() {
        let scripted = Scripted::new([Reply::Busy, Reply::TooLong, Reply::failing("well ", "it broke")]);
        let (tx, mut rx) = mpsc::channel(100);
        assert!(matches!(scripted.start(request("hi"), tx.clone()), Err(LlmError::Busy)));
        assert!(matches!(scripted.start(request("hi"), tx.clone()), Err(LlmError::TooLong { .. })));
        let _generation = scripted.start(request("hi"), tx).expect("started");
        let events = drain(&mut rx);
        assert_eq!(text(&events), "well ");
        assert_eq!(events.last(), Some(&GenerationEvent::Failed { message: "it broke".to_owned() }));
        scripted.forget(7);
        assert_eq!(scripted.forgotten(), [7]);
    }

    #[test]
    fn a_narrow_channel_loses_nothing() {
        let scripted = Scripted::new([Reply::text("a b c d e f g h")]);
        let (tx, mut rx) = mpsc::channel(1);
        let _generation = scripted.start(request("hi"), tx).expect("started");
        let events = drain(&mut rx);
        assert_eq!(text(&events), "a b c d e f g h");
        assert!(matches!(events.last(), Some(GenerationEvent::Done { .. })));
        assert_eq!(rx.try_recv(), Err(mpsc::error::TryRecvError::Disconnected));
    }
}
