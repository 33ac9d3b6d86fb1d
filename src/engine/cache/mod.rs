//! Keys and values of what a sequence has read.
//!
//! Pages of [`PAGE_TOKENS`] tokens hold all layers. Pages are reference
//! counted: sequences with a common beginning share them, and a shared page is
//! copied before it is written. [`Pages`] counts them and keeps returned ones
//! for the next taker, so free and used pages always add up to those that exist.
//!
//! A cache can be cut back at any token ([`SequenceCache::truncate`]); what lies
//! behind its length is meaningless and is overwritten by the next pass.

mod prefix;

pub use prefix::PrefixStore;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use half::f16;
use voluble_kernels::cpu::attention::Shape;

/// Tokens of one page.
pub const PAGE_TOKENS: usize = 32;

/// The pages that exist.
#[derive(Clone, Debug)]
pub struct Pages {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Numbers of one page.
    len: usize,
    limit: usize,
    used: AtomicUsize,
    free: Mutex<Vec<Box<[f16]>>>,
}

/// No page is free and no more may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cache is full")]
pub struct Full;

impl Pages {
    /// At most `limit` pages for a model of this shape.
    pub fn new(shape: Shape, layers: usize, limit: usize) -> Self {
        let len = shape.layer_len() * layers;
        let inner = Inner { len, limit, used: AtomicUsize::new(0), free: Mutex::new(Vec::new()) };
        Self { inner: Arc::new(inner) }
    }

    /// Most pages that may exist.
    pub fn limit(&self) -> usize {
        self.inner.limit
    }

    /// Pages that someone holds.
    pub fn used(&self) -> usize {
        self.inner.used.load(Ordering::Acquire)
    }

    /// Pages that were returned and wait for the next taker.
    pub fn free(&self) -> usize {
        self.inner.free.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn take(&self) -> Result<Page, Full> {
        let mut free = self.inner.free.lock().unwrap_or_else(PoisonError::into_inner);
        let used = self.inner.used.load(Ordering::Acquire);
        let data = match free.pop() {
            Some(data) => data,
            None if used < self.inner.limit => vec![f16::ZERO; self.inner.len].into_boxed_slice(),
            None => return Err(Full),
        };
        self.inner.used.store(used + 1, Ordering::Release);
        Ok(Page { data, owner: Arc::clone(&self.inner) })
    }
}

/// One page; goes back to its owner when the last holder drops it.
#[derive(Debug)]
struct Page {
    data: Box<[f16]>,
    owner: Arc<Inner>,
}

impl Drop for Page {
    fn drop(&mut self) {
        let mut free = self.owner.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(std::mem::take(&mut self.data));
        // Under the lock, like every change of it.
        let used = self.owner.used.load(Ordering::Acquire);
        self.owner.used.store(used - 1, Ordering::Release);
    }
}

/// What one sequence has read.
#[derive(Clone, Debug)]
pub struct SequenceCache {
    pages: Vec<Arc<Page>>,
    len: usize,
    from: Pages,
}

impl SequenceCache {
    /// An empty cache.
    pub fn new(from: &Pages) -> Self {
        Self { pages: Vec::new(), len: 0, from: from.clone() }
    }

    /// Tokens held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Pages held.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Makes room for `more` tokens behind its end, in pages nobody else holds.
    ///
    /// # Errors
    /// [`Full`]; what was got so far is kept, and trying again is fine.
    pub fn reserve(&mut self, more: usize) -> Result<(), Full> {
        let (first, last) = (self.len / PAGE_TOKENS, (self.len + more).div_ceil(PAGE_TOKENS));
        for index in first..last {
            if index >= self.pages.len() {
                self.pages.push(Arc::new(self.from.take()?));
            } else if Arc::get_mut(&mut self.pages[index]).is_none() {
                let mut own = self.from.take()?;
                own.data.copy_from_slice(&self.pages[index].data);
                self.pages[index] = Arc::new(own);
            }
        }
        Ok(())
    }

    /// Counts `more` tokens, which a pass has written, as read.
    ///
    /// # Panics
    /// When there was no room for them.
    pub fn advance(&mut self, more: usize) {
        assert!(self.len + more <= self.pages.len() * PAGE_TOKENS, "tokens were reserved");
        self.len += more;
    }

    /// Forgets what follows the first `len` tokens. Longer than it is: nothing happens.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Gives back pages that hold no token.
    pub fn trim(&mut self) {
        self.pages.truncate(self.len.div_ceil(PAGE_TOKENS));
    }

    /// The first `len` tokens, sharing their pages.
    pub fn share(&self, len: usize) -> Self {
        let len = len.min(self.len);
        let pages = self.pages[..len.div_ceil(PAGE_TOKENS)].to_vec();
        Self { pages, len, from: self.from.clone() }
    }

    /// The page of a position and the place in it, for writing.
    pub(crate) fn page_mut(&mut self, position: usize) -> (&mut [f16], usize) {
        let page = Arc::get_mut(&mut self.pages[position / PAGE_TOKENS])
            .expect("reserve made the pages behind the end exclusive");
        (&mut page.data, position % PAGE_TOKENS)
    }

    /// All pages, for reading.
    pub(crate) fn views(&self) -> Vec<&[f16]> {
        self.pages.iter().map(|page| &*page.data).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(limit: usize) -> Pages {
        let shape = Shape { heads: 2, kv_heads: 1, head_dim: 32, page_tokens: PAGE_TOKENS };
        Pages::new(shape, 1, limit)
    }

    #[test]
    fn free_and_used_add_up() {
        let all = pages(4);
        let mut a = SequenceCache::new(&all);
        a.reserve(PAGE_TOKENS * 2 + 1).expect("three of four");
        a.advance(PAGE_TOKENS * 2 + 1);
        assert_eq!((all.used(), all.free()), (3, 0));
        let b = a.share(PAGE_TOKENS + 1);
        assert_eq!(all.used(), 3);
        a.truncate(3);
        a.trim();
        assert_eq!((all.used(), all.free()), (2, 1));
        drop(a);
        assert_eq!((all.used(), all.free()), (2, 1));
        drop(b);
        assert_eq!((all.used(), all.free()), (0, 3));
    }

    #[test]
    fn a_shared_page_is_copied_before_it_is_written() {
        let all = pages(4);
        let mut a = SequenceCache::new(&all);
        a.reserve(5).expect("room");
        a.page_mut(4).0[7] = f16::ONE;
        a.advance(5);
        let mut b = a.share(5);
        b.reserve(1).expect("room");
        b.page_mut(5).0[7] = f16::from_f32(2.0);
        assert_eq!(a.views()[0][7], f16::ONE);
        assert_eq!(b.views()[0][7], f16::from_f32(2.0));
        assert_eq!(all.used(), 2);
    }

    #[test]
    fn a_full_cache_says_so() {
        let all = pages(1);
        let mut a = SequenceCache::new(&all);
        assert_eq!(a.reserve(PAGE_TOKENS + 1), Err(Full));
        let mut b = SequenceCache::new(&all);
        assert_eq!(b.reserve(1), Err(Full));
        drop(a);
        assert_eq!(b.reserve(1), Ok(()));
    }
}
