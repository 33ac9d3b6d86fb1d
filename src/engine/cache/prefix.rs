//! Caches kept between requests, found again by what they have read.

use super::SequenceCache;

struct Entry {
    /// Whose it is; `None` for a beginning that all may use.
    key: Option<u64>,
    tokens: Vec<u32>,
    cache: SequenceCache,
    used: u64,
}

/// Caches of finished requests. The least recently used go first.
#[derive(Default)]
pub struct PrefixStore {
    entries: Vec<Entry>,
    clock: u64,
}

/// Tokens that two sequences have in common from the start.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl PrefixStore {
    /// Kept caches.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The cache that has read the longest beginning of `prompt`, cut to what
    /// is common and at most `limit` tokens. The key's own entry leaves the
    /// store; another's pages are shared.
    pub fn take(&mut self, key: Option<u64>, prompt: &[u32], limit: usize) -> Option<SequenceCache> {
        self.clock += 1;
        let own = key.and_then(|key| self.entries.iter().position(|entry| entry.key == Some(key)));
        let best = (0..self.entries.len())
            .map(|index| (common(&self.entries[index].tokens, prompt).min(limit), index))
            // Of equals the own one: it needs no copy.
            .max_by_key(|(len, index)| (*len, Some(*index) == own));
        let (len, index) = best.filter(|(len, _)| *len > 0)?;
        if Some(index) == own {
            let mut cache = self.entries.swap_remove(index).cache;
            cache.truncate(len);
            cache.trim();
            return Some(cache);
        }
        self.entries[index].used = self.clock;
        let shared = self.entries[index].cache.share(len);
        if let Some(own) = own {
            self.entries.swap_remove(own);
        }
        Some(shared)
    }

    /// Keeps a cache that has read `tokens`; an older one of the same key goes.
    pub fn put(&mut self, key: Option<u64>, tokens: &[u32], mut cache: SequenceCache) {
        cache.truncate(tokens.len());
        cache.trim();
        if cache.is_empty() {
            return;
        }
        self.clock += 1;
        let tokens = tokens[..cache.len()].to_vec();
        self.entries.retain(|entry| match key {
            Some(_) => entry.key != key,
            None => entry.key.is_some() || entry.tokens != tokens,
        });
        self.entries.push(Entry { key, tokens, cache, used: self.clock });
    }

    /// Drops what is kept under a key.
    pub fn forget(&mut self, key: u64) {
        self.entries.retain(|entry| entry.key != Some(key));
    }

    /// Drops the least recently used. `false`: there is none.
    pub fn evict(&mut self) -> bool {
        let oldest = (0..self.entries.len()).min_by_key(|index| self.entries[*index].used);
        oldest.map(|index| self.entries.swap_remove(index)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PAGE_TOKENS, Pages};
    use super::*;
    use voluble_kernels::cpu::attention::Shape;

    fn pages() -> Pages {
        let shape = Shape { heads: 1, kv_heads: 1, head_dim: 32, page_tokens: PAGE_TOKENS };
        Pages::new(shape, 1, 100)
    }

    fn cache(pages: &Pages, len: usize) -> SequenceCache {
        let mut cache = SequenceCache::new(pages);
        cache.reserve(len).expect("room");
        cache.advance(len);
        cache
    }

    #[test]
    fn the_longest_common_beginning_is_found() {
        let pages = pages();
        let mut store = PrefixStore::default();
        store.put(Some(1), &[1, 2, 3, 4], cache(&pages, 4));
        store.put(Some(2), &[1, 2, 9], cache(&pages, 3));
        // Another's longer beginning beats the own shorter one, which goes.
        assert_eq!(store.take(Some(2), &[1, 2, 3, 7], 9).map(|c| c.len()), Some(3));
        assert_eq!(store.len(), 1);
        assert_eq!(store.take(None, &[5], 9).map(|c| c.len()), None);
        // The own entry leaves the store and is cut.
        assert_eq!(store.take(Some(1), &[1, 2, 3, 4], 3).map(|c| c.len()), Some(3));
        assert!(store.is_empty());
        assert_eq!(pages.used(), 0);
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let pages = pages();
        let mut store = PrefixStore::default();
        for key in 0..3 {
            store.put(Some(key), &[key as u32 + 10, 1], cache(&pages, 2));
        }
        assert!(store.take(None, &[10, 1, 5], 9).is_some());
        assert!(store.evict());
        assert!(store.take(None, &[11, 1], 9).is_none());
        store.forget(0);
        assert!(store.take(None, &[10, 1], 9).is_none());
        assert!(store.evict());
        assert!(!store.evict());
        assert_eq!(pages.used(), 0);
    }
}
