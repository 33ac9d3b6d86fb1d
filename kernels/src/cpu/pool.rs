//! A few threads that run short parallel sections.
//!
//! A pass over a small model is a chain of some hundred sections of 10 to 500
//! microseconds, so waking a thread through the kernel each time would cost
//! more than the work. Threads therefore spin for a moment after a section
//! and park only when nothing follows.
//!
//! The caller never waits for a thread that has not begun: a section is taken
//! chunk by chunk from a counter, the caller takes chunks too, and when none
//! is left it closes the section and waits only for threads inside it. On a
//! machine whose cores are busy with other work, a thread that isn't scheduled
//! costs nothing but its help.

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};

/// Looks at the counter this often before parking: some 30 to 100 microseconds.
const SPINS: u32 = 3_000;

const OPEN: u64 = 1;
const INSIDE: u64 = 2;
const EPOCH: u64 = 1 << 16;

type Job<'a> = dyn Fn(usize) + Sync + 'a;

struct Section {
    job: *const Job<'static>,
    chunks: usize,
}

struct Shared {
    /// Bit 0: a section is open. Bits 1..16: threads inside. Above: its number.
    state: AtomicU64,
    section: UnsafeCell<Section>,
    next: AtomicUsize,
    panicked: AtomicBool,
    stop: AtomicBool,
    parked: Vec<AtomicBool>,
}

// SAFETY: `section` is written only by the caller of `run`, while no section is
// open and no thread is inside (it holds `turn`), and read only by threads
// inside; the state's release/acquire orders the two.
unsafe impl Sync for Shared {}
// SAFETY: the raw pointer in `section` is only used while `run` keeps the job alive.
unsafe impl Send for Shared {}

/// A pool of threads; the thread that calls [`Pool::run`] is one of them.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<Thread>,
    handles: Vec<JoinHandle<()>>,
    turn: Mutex<()>,
}

impl Pool {
    /// A pool in which `threads` threads work, the caller counted. At least 1.
    ///
    /// # Panics
    /// When the system refuses a thread.
    pub fn new(threads: usize) -> Self {
        let helpers = threads.clamp(1, 256) - 1;
        let empty: &'static Job<'static> = &|_| {};
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            section: UnsafeCell::new(Section { job: empty, chunks: 0 }),
            next: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            parked: (0..helpers).map(|_| AtomicBool::new(false)).collect(),
        });
        let handles: Vec<_> = (0..helpers)
            .map(|index| {
                let shared = Arc::clone(&shared);
                thread::Builder::new()
                    .name(format!("kernel-{index}"))
                    .spawn(move || help(&shared, index))
                    .expect("the system gives a thread to a pool built at start-up")
            })
            .collect();
        let threads = handles.iter().map(|handle| handle.thread().clone()).collect();
        Self { shared, threads, handles, turn: Mutex::new(()) }
    }

    /// Threads that work in a section, the caller counted.
    pub fn threads(&self) -> usize {
        self.handles.len() + 1
    }

    /// Calls `job` once for each of `0..chunks`, on all threads; returns when
    /// all calls have returned.
    ///
    /// # Panics
    /// When a call panics, after all others have returned; the pool stays usable.
    pub fn run(&self, chunks: usize, job: &Job<'_>) {
        if chunks <= 1 || self.handles.is_empty() {
            (0..chunks).for_each(job);
            return;
        }
        // A panic in an earlier section has been handed to its caller: nothing is left half done.
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = &*self.shared;
        // SAFETY: no section is open and no thread inside (`turn` is held and the
        // last `run` waited for it), so nobody reads `section`. The lifetime of
        // `job` is stretched; it is used only by threads inside, and this
        // function does not return before they have left.
        unsafe {
            *shared.section.get() =
                Section { job: std::mem::transmute::<*const Job<'_>, *const Job<'static>>(job), chunks };
        }
        shared.next.store(0, Ordering::Relaxed);
        let epoch = (shared.state.load(Ordering::Relaxed) / EPOCH).wrapping_add(1);
        shared.state.store(epoch.wrapping_mul(EPOCH) | OPEN, Ordering::SeqCst);
        for (flag, thread) in shared.parked.iter().zip(&self.threads) {
            if flag.load(Ordering::SeqCst) && flag.swap(false, Ordering::SeqCst) {
                thread.unpark();
            }
        }
        let mine = catch_unwind(AssertUnwindSafe(|| take(shared, chunks, job)));
        if mine.is_err() {
            // Nobody takes further chunks of a section that failed.
            shared.next.store(chunks, Ordering::Relaxed);
        }
        shared.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0_u32;
        while !shared.state.load(Ordering::Acquire).is_multiple_of(EPOCH) {
            spins += 1;
            if spins.is_multiple_of(SPINS) { thread::yield_now() } else { spin_loop() }
        }
        let theirs = shared.panicked.swap(false, Ordering::AcqRel);
        drop(turn);
        if let Err(cause) = mine {
            resume_unwind(cause);
        }
        assert!(!theirs, "a kernel thread panicked; its message is above");
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for (thread, handle) in self.threads.iter().zip(self.handles.drain(..)) {
            thread.unpark();
            // A helper catches the panics of its jobs, so it ends normally.
            let _ended = handle.join();
        }
    }
}

fn take(shared: &Shared, chunks: usize, job: &Job<'_>) {
    loop {
        let chunk = shared.next.fetch_add(1, Ordering::Relaxed);
        if chunk >= chunks {
            return;
        }
        job(chunk);
    }
}

fn help(shared: &Shared, index: usize) {
    let mut seen = 0;
    loop {
        let Some(epoch) = enter(shared, index, seen) else { return };
        seen = epoch;
        // SAFETY: this thread is inside an open section, so `run` has written
        // it and waits for us before it returns: the job is alive.
        let (job, chunks) = unsafe {
            let section = &*shared.section.get();
            (&*section.job, section.chunks)
        };
        if catch_unwind(AssertUnwindSafe(|| take(shared, chunks, job))).is_err() {
            shared.next.store(chunks, Ordering::Relaxed);
            shared.panicked.store(true, Ordering::Release);
        }
        shared.state.fetch_sub(INSIDE, Ordering::Release);
    }
}

/// Waits for a section other than `seen` and goes inside. `None`: the pool ends.
fn enter(shared: &Shared, index: usize, seen: u64) -> Option<u64> {
    let mut spins = 0;
    loop {
        let state = shared.state.load(Ordering::SeqCst);
        let epoch = state / EPOCH;
        if state & OPEN != 0 && epoch != seen {
            let inside = state + INSIDE;
            if shared.state.compare_exchange(state, inside, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Some(epoch);
            }
            continue;
        }
        spins += 1;
        if spins < SPINS {
            spin_loop();
            continue;
        }
        spins = 0;
        shared.parked[index].store(true, Ordering::SeqCst);
        // Looked at after the flag is up: either we see the new section here or
        // its caller sees the flag and unparks us.
        let state = shared.state.load(Ordering::SeqCst);
        let news = state & OPEN != 0 && state / EPOCH != seen;
        if shared.stop.load(Ordering::SeqCst) {
            return None;
        }
        if !news {
            thread::park();
        }
        shared.parked[index].store(false, Ordering::SeqCst);
        if shared.stop.load(Ordering::SeqCst) {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_runs_once() {
        for threads in [1, 2, 5] {
            let pool = Pool::new(threads);
            for chunks in [0, 1, 2, 3, 17, 1000] {
                let counts: Vec<AtomicUsize> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
                pool.run(chunks, &|chunk| {
                    counts[chunk].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn many_short_sections_lose_nothing() {
        let pool = Pool::new(3);
        let total = AtomicUsize::new(0);
        for _ in 0..20_000 {
            pool.run(4, &|chunk| {
                total.fetch_add(chunk, Ordering::Relaxed);
            });
        }
        assert_eq!(total.load(Ordering::Relaxed), 6 * 20_000);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives() {
        let pool = Pool::new(2);
        for bad in 0..8 {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.run(8, &|chunk| assert!(chunk != bad, "chunk {chunk} fails on purpose"));
            }));
            assert!(outcome.is_err());
            let done = AtomicUsize::new(0);
            pool.run(8, &|_| {
                done.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(done.load(Ordering::Relaxed), 8);
        }
    }
}
