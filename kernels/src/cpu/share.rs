//! A slice that several threads write at once, each its own part.

use std::marker::PhantomData;

/// Hands out parts of a mutable slice to the threads of one parallel section.
pub(crate) struct Share<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: the parts handed out are disjoint (the contract of `part`), so
// threads never touch the same element; T itself may move between threads.
unsafe impl<T: Send> Sync for Share<'_, T> {}

impl<'a, T> Share<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// The part `at..at + len`.
    ///
    /// # Safety
    /// No two parts that live at the same time overlap.
    #[allow(clippy::mut_from_ref, reason = "the caller keeps the parts disjoint")]
    pub(crate) unsafe fn part(&self, at: usize, len: usize) -> &mut [T] {
        assert!(at + len <= self.len, "part {at}+{len} of {}", self.len);
        // SAFETY: within the slice by the assertion; exclusive by the contract.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), len) }
    }
}
