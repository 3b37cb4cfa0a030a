//! Which thread a shard is kept for, from its first entry to the end of the thread; the next thread
//! that enters the cache for the first time takes it over then, and uses what is idle in it.
//!
//! A binding says where a thread enters, not what it may do: that is `state` alone. So nothing is
//! wrong, but that a shard waits for rung 3 with its idle blocks, where the destructor never runs
//! that tells of a thread's end: where the system ends a thread by force.

use super::{Owner, Shard};
use crate::sync::{Ordering, thread_token};

/// `bound_thread`: nobody, yet or any more.
pub(super) const NO_THREAD: u64 = 0;

impl<D: Owner> Shard<D> {
    pub(in crate::cache) fn is_bound(&self) -> bool {
        self.bound_thread.load(Ordering::Relaxed) != NO_THREAD
    }

    /// Keeps the shard for this thread, if it is nobody's. What the thread before did to it is
    /// done.
    pub(in crate::cache) fn bind_to_thread(&self) -> bool {
        self.bound_thread
            .compare_exchange(
                NO_THREAD,
                thread_token(),
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Leaves the shard, which this thread is not inside of any more, to the next.
    pub(in crate::cache) fn end_binding(&self) {
        self.bound_thread.store(NO_THREAD, Ordering::Release);
    }
}
