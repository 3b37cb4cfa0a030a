//! The thread that a shard is reserved for, from the thread's first entry to its end. The next
//! thread that enters the cache for the first time then takes over the shard with its idle blocks.
//!
//! A binding determines which shard a thread enters. Only `state` determines what the thread may
//! do. If the system ends a thread by force, the destructor that ends the binding never runs. Then
//! the shard keeps its idle blocks until rung 3 reclaims them, and nothing else is wrong.

use super::Shard;
use crate::sync::{Ordering, thread_token};

/// The value of `bound_thread` while the shard is reserved for no thread.
pub(super) const NO_THREAD: u64 = 0;

impl Shard {
    pub(in crate::cache) fn is_bound(&self) -> bool {
        self.bound_thread.load(Ordering::Relaxed) != NO_THREAD
    }

    /// Reserves the shard for this thread, if it is reserved for no thread. All changes by the
    /// previous thread are then visible.
    pub(in crate::cache) fn bind_to_thread(&self) -> bool {
        let bound = self.bound_thread.compare_exchange(
            NO_THREAD,
            thread_token(),
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if bound.is_ok() {
            *self.thread_name.lock() = thread_name();
        }
        bound.is_ok()
    }

    /// Returns the name of the thread that the shard is, or was last, reserved for.
    pub(in crate::cache) fn thread_name(&self) -> String {
        self.thread_name.lock().clone()
    }

    /// Ends the reservation for this thread, which is not inside the shard any more.
    pub(in crate::cache) fn end_binding(&self) {
        self.bound_thread.store(NO_THREAD, Ordering::Release);
    }
}

/// Returns the name of the calling thread, or its number if it has none.
fn thread_name() -> String {
    let thread = std::thread::current();
    match thread.name() {
        Some(name) => name.to_owned(),
        None => format!("{:?}", thread.id()),
    }
}
