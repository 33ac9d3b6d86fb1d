//! The engine as others see it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use tokio::sync::mpsc;
use voluble_kernels::cpu::Pool;

use super::cache::{PAGE_TOKENS, Pages, PrefixStore};
use super::model::{Base, Buffers, Drafter};
use super::policy::{Costs, Drafting};
use super::worker::{Command, Job, Worker};
use super::{DecodeParams, EngineError, Request, TokenStream, warmup};
use crate::config::engine::Engine as Settings;

/// Where the weights lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weights {
    /// The base, a GGUF file.
    pub base: PathBuf,
    /// Its drafter, a safetensors file.
    pub drafter: Option<PathBuf>,
}

/// What was loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    /// `general.architecture` of the base.
    pub architecture: String,
    /// Ids are below this.
    pub vocabulary: usize,
    /// Tokens that a prompt and its answer may have together.
    pub context: usize,
    /// Bytes of weights that a pass of the base reads.
    pub base_bytes: usize,
    /// Bytes of weights that a draft reads; 0 without a drafter.
    pub draft_bytes: usize,
    /// Most tokens of a draft; 0 without a drafter.
    pub block: usize,
    /// Threads that compute.
    pub threads: usize,
    /// Milliseconds that passes took at load.
    pub costs: Costs,
}

/// What the cache holds, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheUse {
    /// Pages that sequences and kept caches hold.
    pub used: usize,
    /// Pages that were given back and wait for the next taker.
    pub free: usize,
    /// Most pages that may exist.
    pub limit: usize,
    /// Caches kept between requests.
    pub kept: usize,
}

/// What the engine has done since it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Passes of the base.
    pub passes: u64,
    /// Rows in them.
    pub rows: u64,
    /// Passes of the drafter.
    pub drafts: u64,
}

/// The counters as the worker counts them.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub passes: AtomicU64,
    pub rows: AtomicU64,
    pub drafts: AtomicU64,
}

/// A handle to the engine; clones lead to the same one. The last one that goes
/// stops it, and what is still running ends without a word.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    info: Info,
    commands: Mutex<Sender<Command>>,
    inside: Arc<AtomicUsize>,
    tally: Arc<Tally>,
    most_inside: usize,
    queue: usize,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("info", &self.inner.info).finish_non_exhaustive()
    }
}

impl Engine {
    /// Loads a model, runs it for a moment (that warms it up and measures what
    /// rows cost) and starts its thread. Takes seconds.
    ///
    /// # Errors
    /// [`EngineError::Weights`]: one line that names the file and what is wrong with it.
    ///
    /// # Panics
    /// When the system refuses a thread.
    pub fn load(weights: &Weights, settings: &Settings) -> Result<Self, EngineError> {
        let (worker, info) = build(weights, settings)?;
        let (commands, receiver) = channel();
        let (inside, tally) = (Arc::clone(&worker.inside), Arc::clone(&worker.tally));
        let thread = thread::Builder::new()
            .name("engine".to_owned())
            .spawn(move || worker.run(&receiver))
            .expect("the system gives a thread to an engine built at start-up");
        let inner = Inner {
            info,
            commands: Mutex::new(commands),
            inside,
            tally,
            most_inside: settings.max_sequences + settings.queue,
            queue: settings.queue,
            thread: Some(thread),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What was loaded.
    pub fn info(&self) -> &Info {
        &self.inner.info
    }

    /// Starts to continue a prompt. Never waits for the model.
    ///
    /// `max_tokens` is cut to what fits the context; the answer then ends with
    /// [`super::StopReason::Length`].
    ///
    /// # Errors
    /// What cannot be honoured: no prompt, ids outside the vocabulary, settings
    /// outside their range, a prompt that is too long, a full queue.
    pub fn submit(&self, request: Request) -> Result<TokenStream, EngineError> {
        self.check(&request)?;
        let most = self.inner.info.context - request.prompt.len();
        let mut request = request;
        request.params.max_tokens = request.params.max_tokens.min(u32::try_from(most).unwrap_or(u32::MAX));
        // Every token, `Prefilled`, `Done`.
        let (events, receiver) = mpsc::channel(request.params.max_tokens as usize + 2);
        self.enter(Job { request, prime: false, events })?;
        Ok(TokenStream { events: receiver })
    }

    /// Reads a beginning that many prompts will share (a system prompt), so
    /// that those that come find it read. Meant for the moment when a
    /// conversation begins and nobody waits yet. It is kept until room is needed.
    ///
    /// # Errors
    /// As [`Engine::submit`].
    pub fn prime(&self, prompt: Vec<u32>) -> Result<(), EngineError> {
        let params = DecodeParams {
            max_tokens: 1,
            temperature: 0.0,
            top_p: 1.0,
            seed: 0,
            stop: Vec::new(),
            draft: false,
        };
        let request = Request { prompt, params, cache_key: None };
        self.check(&request)?;
        let (events, _unread) = mpsc::channel(1);
        self.enter(Job { request, prime: true, events })
    }

    /// Forgets the cache kept under this key, and keeps none when a request of
    /// the key that is still running ends.
    pub fn forget(&self, cache_key: u64) {
        // A stopped engine has forgotten already.
        let _stopped = self.send(Command::Forget(cache_key));
    }

    /// What the cache holds. Waits for the pass that is running.
    ///
    /// # Errors
    /// [`EngineError::Stopped`].
    pub fn cache_use(&self) -> Result<CacheUse, EngineError> {
        let (reply, answer) = channel();
        self.send(Command::CacheUse(reply))?;
        answer.recv().map_err(|_| EngineError::Stopped)
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        let read = |count: &AtomicU64| count.load(Ordering::Acquire);
        let Tally { passes, rows, drafts } = &*self.inner.tally;
        Counters { passes: read(passes), rows: read(rows), drafts: read(drafts) }
    }

    /// Requests inside, running or waiting.
    pub fn inside(&self) -> usize {
        self.inner.inside.load(Ordering::Acquire)
    }

    fn send(&self, command: Command) -> Result<(), EngineError> {
        let commands = self.inner.commands.lock().unwrap_or_else(PoisonError::into_inner);
        commands.send(command).map_err(|_| EngineError::Stopped)
    }

    fn enter(&self, job: Job) -> Result<(), EngineError> {
        let most = self.inner.most_inside;
        let more = |inside: usize| (inside < most).then_some(inside + 1);
        self.inner
            .inside
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .map_err(|_| EngineError::Busy(self.inner.queue))?;
        self.send(Command::Submit(Box::new(job)))
    }

    fn check(&self, request: &Request) -> Result<(), EngineError> {
        let invalid = |what: String| Err(EngineError::Invalid(what));
        let DecodeParams { max_tokens, temperature, top_p, .. } = request.params;
        let Info { vocabulary, context, .. } = self.inner.info;
        if request.prompt.is_empty() {
            return invalid("the prompt is empty".to_owned());
        }
        if let Some(id) = request.prompt.iter().find(|id| **id as usize >= vocabulary) {
            return invalid(format!("the prompt holds the id {id}; the vocabulary ends before {vocabulary}"));
        }
        if max_tokens == 0 {
            return invalid("max_tokens must be at least 1".to_owned());
        }
        if !(0.0..=100.0).contains(&temperature) {
            return invalid(format!("temperature must be from 0 to 100, not {temperature}"));
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return invalid(format!("top_p must be above 0 and at most 1, not {top_p}"));
        }
        if request.prompt.len() >= context {
            return Err(EngineError::TooLong { tokens: request.prompt.len(), limit: context - 1 });
        }
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let commands = self.commands.get_mut().unwrap_or_else(PoisonError::into_inner);
        // A thread that is gone needs no telling.
        let _gone = commands.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // Its panics are caught within; should one have escaped, its message is in the log.
            let _ended = thread.join();
        }
    }
}

/// Loads everything that the thread will own.
pub(super) fn build(weights: &Weights, settings: &Settings) -> Result<(Worker, Info), EngineError> {
    let pool = Pool::new(threads(settings));
    let base = Base::load(&pool, &weights.base)?;
    let drafter = match &weights.drafter {
        Some(path) if settings.draft => Some(Drafter::load(&pool, path, &base)?),
        _ => None,
    };
    let mut buffers = Buffers::default();
    let costs = warmup::costs(&pool, &base, drafter.as_ref(), &mut buffers);
    let config = base.config();
    let info = Info {
        architecture: config.architecture.clone(),
        vocabulary: config.vocabulary,
        context: settings.context_tokens.min(config.context).min(settings.cache_tokens),
        base_bytes: base.bytes(),
        draft_bytes: drafter.as_ref().map_or(0, Drafter::bytes),
        block: drafter.as_ref().map_or(0, Drafter::block_rows),
        threads: pool.threads(),
        costs: costs.clone(),
    };
    // One more: see `Worker::admit`.
    let limit = settings.cache_tokens.div_ceil(PAGE_TOKENS) + 1;
    let pages = Pages::new(config.shape(), config.layers, limit);
    let worker = Worker {
        settings: settings.clone(),
        pool,
        base,
        drafter,
        drafting: Drafting::new(costs),
        pages,
        inside: Arc::default(),
        tally: Arc::default(),
        store: PrefixStore::default(),
        waiting: VecDeque::new(),
        running: Vec::new(),
        buffers,
        #[cfg(test)]
        trap: None,
    };
    Ok((worker, info))
}

/// More threads than this do not help a model of this size.
const MOST_THREADS: usize = 8;

fn threads(settings: &Settings) -> usize {
    match settings.threads {
        0 => thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS),
        threads => threads,
    }
}
