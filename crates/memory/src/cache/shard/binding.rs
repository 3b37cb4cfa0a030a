//! The binding of a shard to a thread, from the thread's first entry to the thread's end.
//! Afterwards, the next thread that enters the cache for the first time adopts the shard with its
//! idle blocks.
//!
//! A binding determines only which shard a thread enters. `state` determines which thread may
//! access the shard. If the system kills a thread, the destructor that ends the binding does not
//! run. The only effect is that the shard keeps its idle blocks until rung 3 reclaims them.

use super::Shard;
use crate::sync::{Ordering, thread_token};

/// The value of `bound_thread` while the shard is unbound.
pub(super) const NO_THREAD: u64 = 0;

impl Shard {
    pub(in crate::cache) fn is_bound(&self) -> bool {
        self.bound_thread.load(Ordering::Relaxed) != NO_THREAD
    }

    /// If the shard is unbound, binds it to this thread, and returns true. All changes by the
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

    /// Returns the name of the thread that the shard is bound to, or was last bound to.
    pub(in crate::cache) fn thread_name(&self) -> String {
        self.thread_name.lock().clone()
    }

    /// Ends the binding. The bound thread must not be inside the shard.
    pub(in crate::cache) fn end_binding(&self) {
        self.bound_thread.store(NO_THREAD, Ordering::Release);
    }
}

fn thread_name() -> String {
    let thread = std::thread::current();
    match thread.name() {
        Some(name) => name.to_owned(),
        None => format!("{:?}", thread.id()),
    }
}
