//! The device thread: admits, plans a pass, runs it, hands out what it settled.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};

use tokio::sync::mpsc;
use voluble_kernels::cpu::Pool;

use super::cache::{PAGE_TOKENS, Pages, PrefixStore, SequenceCache};
use super::handle::Tally;
use super::model::{Base, Buffers, DraftSegment, Drafter, Segment};
use super::policy::Drafting;
use super::sequence::{End, Sequence};
use super::{CacheUse, DecodeStats, Request, StopReason, TokenEvent};
use crate::config::engine::Engine as Settings;

/// What the handle asks for.
pub(super) enum Command {
    Submit(Box<Job>),
    Forget(u64),
    CacheUse(Sender<CacheUse>),
    Stop,
}

/// A request on its way in.
pub(super) struct Job {
    pub request: Request,
    pub prime: bool,
    pub events: mpsc::Sender<TokenEvent>,
}

pub(super) struct Worker {
    pub settings: Settings,
    pub pool: Pool,
    pub base: Base,
    pub drafter: Option<Drafter>,
    pub drafting: Drafting,
    pub pages: Pages,
    /// Requests inside, waiting and running; the handle refuses by it.
    pub inside: Arc<AtomicUsize>,
    pub tally: Arc<Tally>,
    pub store: PrefixStore,
    pub waiting: VecDeque<Job>,
    pub running: Vec<Sequence>,
    pub buffers: Buffers,
    /// A pass that reads this token panics: a test's lever.
    #[cfg(test)]
    pub trap: Option<u32>,
}

/// One sequence's part of a pass.
#[derive(Clone)]
struct Share {
    index: usize,
    tokens: Vec<u32>,
    logits: usize,
}

impl Worker {
    /// Works until told to stop or the handle is gone.
    pub(super) fn run(mut self, commands: &Receiver<Command>) {
        loop {
            loop {
                let idle = self.running.is_empty() && self.waiting.is_empty();
                let command = if idle {
                    commands.recv().map_err(|_| TryRecvError::Disconnected)
                } else {
                    commands.try_recv()
                };
                match command {
                    Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return,
                    Ok(command) => self.take(command),
                    Err(TryRecvError::Empty) => break,
                }
            }
            self.step();
        }
    }

    pub(super) fn take(&mut self, command: Command) {
        match command {
            Command::Submit(job) => self.waiting.push_back(*job),
            Command::Forget(key) => {
                self.store.forget(key);
                // One that is still running keeps nothing when it ends.
                self.running.iter_mut().filter(|s| s.key == Some(key)).for_each(|s| s.key = None);
                self.waiting
                    .iter_mut()
                    .filter(|job| job.request.cache_key == Some(key))
                    .for_each(|job| job.request.cache_key = None);
            }
            Command::CacheUse(reply) => {
                let (used, free) = (self.pages.used(), self.pages.free());
                let kept = self.store.len();
                // Whoever asked and went away needs no answer.
                let _gone = reply.send(CacheUse { used, free, limit: self.pages.limit(), kept });
            }
            Command::Stop => {}
        }
    }

    /// One step: at most one pass of the base, and a draft before it.
    pub(super) fn step(&mut self) {
        self.drop_cancelled();
        self.admit();
        if self.running.is_empty() {
            return;
        }
        self.draft();
        let plan = self.plan();
        if !self.pass(&plan) {
            // One of them brought the pass down. Nothing has changed, so each
            // gets a pass of its own, and only the culprit fails.
            for share in &plan {
                if !self.pass(std::slice::from_ref(share)) {
                    fail(&mut self.running[share.index], "the pass panicked");
                }
            }
        }
        self.retire();
        // The first in line of this step is the last of the next.
        if !self.running.is_empty() {
            self.running.rotate_left(1);
        }
    }

    fn drop_cancelled(&mut self) {
        for sequence in &mut self.running {
            if sequence.events.is_closed() && !sequence.prime {
                sequence.ended = Some(End::Cancelled);
            }
        }
        self.retire();
        let before = self.waiting.len();
        self.waiting.retain(|job| job.prime || !job.events.is_closed());
        self.inside.fetch_sub(before - self.waiting.len(), Ordering::AcqRel);
    }

    /// Takes ended sequences out; what they have read is kept for the next turn.
    fn retire(&mut self) {
        let mut index = 0;
        while index < self.running.len() {
            if self.running[index].ended.is_none() {
                index += 1;
                continue;
            }
            let mut sequence = self.running.remove(index);
            let failed = matches!(sequence.ended, Some(End::Failed(_)));
            if (sequence.key.is_some() || sequence.prime) && !failed {
                self.store.put(sequence.key, &sequence.tokens, sequence.cache.clone());
            }
            // Given back before the reader hears of the end, and can ask.
            sequence.cache = SequenceCache::new(&self.pages);
            sequence.farewell();
            self.inside.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn admit(&mut self) {
        while let Some(job) = self.waiting.front() {
            let most = job.request.prompt.len() + job.request.params.max_tokens as usize;
            // One more: a page that is shared is copied before it is written.
            let pages = most.div_ceil(PAGE_TOKENS) + 1;
            let held: usize = self.running.iter().map(|sequence| sequence.pages).sum();
            if self.running.len() >= self.settings.max_sequences || held + pages > self.pages.limit() {
                return;
            }
            let Some(job) = self.waiting.pop_front() else { return };
            self.start(job, pages);
        }
    }

    fn start(&mut self, job: Job, pages: usize) {
        let Job { request, prime, events } = job;
        let prompt = request.prompt.len();
        // The last token is read in any case: its logits are needed.
        let limit = if prime { prompt } else { prompt - 1 };
        let cache = self.store.take(request.cache_key, &request.prompt, limit);
        let cache = cache.unwrap_or_else(|| SequenceCache::new(&self.pages));
        let stats = DecodeStats {
            prompt_tokens: prompt as u32,
            cached_tokens: cache.len() as u32,
            ..DecodeStats::default()
        };
        let ended = (prime && cache.len() == prompt).then_some(End::Done(StopReason::Length));
        self.running.push(Sequence {
            tokens: request.prompt,
            prompt,
            cache,
            params: request.params,
            key: request.cache_key,
            prime,
            events,
            stats,
            taps: Vec::new(),
            depths: self.drafting.depths(),
            drafts: Vec::new(),
            check: 0,
            pages,
            ended,
        });
        self.retire();
    }

    /// Makes room in a sequence's cache; what is kept for later turns gives way.
    fn reserve(store: &mut PrefixStore, cache: &mut SequenceCache, rows: usize) -> bool {
        while cache.reserve(rows).is_err() {
            if !store.evict() {
                return false;
            }
        }
        true
    }

    /// Drafts for every sequence whose draft pays.
    fn draft(&mut self) {
        let Some(drafter) = &self.drafter else { return };
        let mut rows = vec![0; self.running.len()];
        for (sequence, rows) in self.running.iter_mut().zip(&mut rows) {
            if sequence.prefilling() || !sequence.params.draft || sequence.taps.is_empty() {
                continue;
            }
            let early = sequence.tokens.len() - sequence.prompt <= 1;
            let block = if early { self.settings.first_block } else { self.settings.block };
            // The base's own next token follows the drafts.
            let limit = block.min(drafter.block_rows()).min(sequence.left().saturating_sub(1));
            *rows = self.drafting.rows(&mut sequence.depths, limit);
            if *rows > 0 && !Self::reserve(&mut self.store, &mut sequence.cache, *rows + 1) {
                *rows = 0;
            }
        }
        if rows.iter().all(|rows| *rows == 0) {
            return;
        }
        let outcome = {
            let mut segments: Vec<DraftSegment<'_>> = self
                .running
                .iter_mut()
                .zip(&rows)
                .filter(|(_, rows)| **rows > 0)
                .map(|(sequence, rows)| DraftSegment {
                    anchor: sequence.tokens[sequence.tokens.len() - 1],
                    cache: &mut sequence.cache,
                    taps: &sequence.taps,
                    rows: *rows,
                })
                .collect();
            let (pool, base, buffers) = (&self.pool, &self.base, &mut self.buffers);
            catch_unwind(AssertUnwindSafe(|| drafter.draft(pool, base, &mut segments, buffers)))
        };
        self.tally.drafts.fetch_add(1, Ordering::AcqRel);
        let Ok(drafts) = outcome else {
            // Drafts only save time: this step goes on without.
            tracing::error!("a draft panicked; its message is above");
            return;
        };
        let drafted = self.running.iter_mut().zip(&rows).filter(|(_, rows)| **rows > 0);
        for ((sequence, _), drafts) in drafted.zip(drafts) {
            sequence.check = self.drafting.check(&drafts);
            sequence.drafts = drafts;
        }
    }

    /// Who reads what in the next pass.
    fn plan(&mut self) -> Vec<Share> {
        let mut plan = Vec::new();
        let decoding = |sequence: &Sequence| !sequence.prefilling();
        let busy: usize = self.running.iter().filter(|s| decoding(s)).map(|s| 1 + s.check).sum();
        let room = self.settings.pass_rows.saturating_sub(busy);
        // Prompts must not make those who speak stutter, nor wait for ever.
        let mut budget = if busy > 0 { room.min(self.settings.pass_rows / 4).max(4) } else { room };
        for (index, sequence) in self.running.iter_mut().enumerate() {
            let (rows, logits) = if decoding(sequence) {
                (1, 1 + sequence.check)
            } else {
                let rows = sequence.unread().min(budget);
                budget -= rows;
                (rows, usize::from(rows == sequence.unread() && !sequence.prime))
            };
            if rows == 0 {
                continue;
            }
            let from = sequence.cache.len();
            let mut tokens = sequence.tokens[from..from + rows].to_vec();
            tokens.extend(sequence.drafts[..sequence.check].iter().map(|draft| draft.token));
            if Self::reserve(&mut self.store, &mut sequence.cache, tokens.len()) {
                plan.push(Share { index, tokens, logits });
            } else {
                fail(sequence, "the cache is full although admission reckoned with it");
            }
        }
        plan
    }

    /// Runs a pass; `false`: it panicked and changed nothing.
    fn pass(&mut self, plan: &[Share]) -> bool {
        if plan.is_empty() {
            return true;
        }
        let taps = self.drafter.as_ref().map_or(&[][..], Drafter::taps);
        #[cfg(test)]
        let trap = self.trap;
        let passed = {
            let mut segments = Vec::with_capacity(plan.len());
            let mut shares = plan.iter().peekable();
            for (index, sequence) in self.running.iter_mut().enumerate() {
                if let Some(share) = shares.next_if(|share| share.index == index) {
                    let cache = &mut sequence.cache;
                    segments.push(Segment { cache, tokens: &share.tokens, logits: share.logits });
                }
            }
            let (pool, base, buffers) = (&self.pool, &self.base, &mut self.buffers);
            catch_unwind(AssertUnwindSafe(|| {
                #[cfg(test)]
                for segment in &segments {
                    assert!(!segment.tokens.iter().any(|token| Some(*token) == trap), "the test's trap");
                }
                base.forward(pool, &mut segments, taps, buffers);
            }))
            .is_ok()
        };
        if !passed {
            return false;
        }
        let (vocabulary, hidden) = (self.base.config().vocabulary, self.base.config().hidden);
        self.tally.passes.fetch_add(1, Ordering::AcqRel);
        let rows: usize = plan.iter().map(|share| share.tokens.len()).sum();
        self.tally.rows.fetch_add(rows as u64, Ordering::AcqRel);
        let (mut row, mut logits_at) = (0, 0);
        for share in plan {
            let logits = &self.buffers.logits()[logits_at * vocabulary..][..share.logits * vocabulary];
            let sequence = &mut self.running[share.index];
            let (drafting, flood) = (&mut self.drafting, self.settings.loop_tokens);
            let read = share.tokens.len();
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                sequence.take_in(read, logits, vocabulary, drafting, flood)
            }));
            match outcome {
                Ok(last) if sequence.params.draft && !taps.is_empty() => {
                    sequence.taps = self.buffers.taps(row + last, hidden);
                }
                Ok(_) => {}
                Err(_) => fail(sequence, "taking in a pass panicked"),
            }
            row += read;
            logits_at += share.logits;
        }
        true
    }
}

fn fail(sequence: &mut Sequence, why: &str) {
    tracing::error!(reason = why, "a sequence failed");
    sequence.ended = Some(End::Failed(format!("internal error: {why}")));
}

#[cfg(test)]
mod tests {
    use super::super::{DecodeParams, Weights, handle};
    use super::*;
    use crate::models::Store;

    fn worker() -> Worker {
        let base = Store::default().path("smollm2-135m-instruct", "model.gguf");
        let settings = Settings { threads: 1, ..Settings::default() };
        let weights = Weights { base, drafter: None };
        handle::build(&weights, &settings).expect("run `voluble models pull all` first").0
    }

    fn submit(worker: &mut Worker, prompt: &[u32]) -> mpsc::Receiver<TokenEvent> {
        let params = DecodeParams {
            max_tokens: 5,
            temperature: 0.0,
            top_p: 1.0,
            seed: 0,
            stop: Vec::new(),
            draft: true,
        };
        let request = Request { prompt: prompt.to_vec(), params, cache_key: Some(u64::from(prompt[0])) };
        let (events, receiver) = mpsc::channel(7);
        worker.inside.fetch_add(1, Ordering::AcqRel);
        worker.take(Command::Submit(Box::new(Job { request, prime: false, events })));
        receiver
    }

    fn drain(events: &mut mpsc::Receiver<TokenEvent>) -> (Vec<u32>, Option<TokenEvent>) {
        let (mut tokens, mut last) = (Vec::new(), None);
        while let Ok(event) = events.try_recv() {
            if let TokenEvent::Block(block) = &event {
                tokens.extend(block);
            }
            last = Some(event);
        }
        (tokens, last)
    }

    #[test]
    fn a_panic_in_a_pass_fails_only_the_sequence_that_caused_it() {
        let mut worker = worker();
        let mut alone = submit(&mut worker, &[10, 11, 12]);
        while !worker.running.is_empty() || !worker.waiting.is_empty() {
            worker.step();
        }
        let (wanted, _) = drain(&mut alone);
        worker.take(Command::Forget(10));
        worker.trap = Some(4242);
        let mut good = submit(&mut worker, &[10, 11, 12]);
        let mut bad = submit(&mut worker, &[20, 4242, 21]);
        while !worker.running.is_empty() || !worker.waiting.is_empty() {
            worker.step();
        }
        let (tokens, last) = drain(&mut good);
        assert_eq!(tokens, wanted);
        assert!(matches!(last, Some(TokenEvent::Done { reason: StopReason::Length, .. })), "{last:?}");
        let (tokens, last) = drain(&mut bad);
        assert!(tokens.is_empty());
        assert!(matches!(last, Some(TokenEvent::Failed { .. })), "{last:?}");
        assert_eq!(worker.inside.load(Ordering::Acquire), 0);
        // What failed is not kept, and holds no page.
        assert_eq!(worker.store.len(), 1);
        worker.take(Command::Forget(10));
        assert_eq!(worker.pages.used(), 0);
        worker.trap = None;
        let mut again = submit(&mut worker, &[10, 11, 12]);
        while !worker.running.is_empty() || !worker.waiting.is_empty() {
            worker.step();
        }
        assert_eq!(drain(&mut again).0, wanted);
    }
}
