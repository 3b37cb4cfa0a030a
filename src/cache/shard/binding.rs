//! Which thread a shard is kept for, from its first entry to the end of the thread; the next thread
//! that enters the cache for the first time takes it over then, and uses what is idle in it.
//!
//! A binding says where a thread enters, not what it may do: that is `state` alone. So nothing is wrong,
//! but that a shard waits for rung 3 with its idle blocks, where the destructor never runs that tells
//! of a thread's end: where the system ends a thread by force.

use std::collections::BTreeMap;
use std::ptr;
use std::rc::Rc;

use super::{LocalShard, Shard};
use crate::cache::settings::CacheSettings;
use crate::sync::{Arc, Ordering, thread_token};

/// `bound_thread`: nobody, yet or any more.
pub(super) const NO_THREAD: u64 = 0;

impl Shard {
    pub(in crate::cache) fn is_bound(&self) -> bool {
        self.bound_thread.load(Ordering::Relaxed) != NO_THREAD
    }

    /// Keeps the shard for this thread, if it is nobody's. What the last bound_thread did to it is done.
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

/// The shards that are bound to this thread, by the cache.
///
/// Invariant: each keeps the settings alive whose address it is found by.
pub(in crate::cache) struct ThreadBindings {
    shards: BTreeMap<*const CacheSettings, LocalShard>,
    /// How many there may be before those are let go of that were closed.
    room: usize,
}

impl ThreadBindings {
    pub(in crate::cache) const fn new() -> Self {
        Self {
            shards: BTreeMap::new(),
            room: 8,
        }
    }

    /// The shard of the cache `settings`.
    pub(in crate::cache) fn find(&self, settings: &Arc<CacheSettings>) -> Option<&LocalShard> {
        self.shards.get(&Arc::as_ptr(settings))
    }

    /// Keeps a shard; answers those that were closed meanwhile, as their caches were removed or their
    /// devices ended.
    #[must_use = "dropping them is for who has let go of the bindings"]
    pub(in crate::cache) fn insert(&mut self, shard: &LocalShard) -> Vec<LocalShard> {
        let settings = shard.settings.as_ref().map_or(ptr::null(), Arc::as_ptr);
        self.shards.insert(settings, Rc::clone(shard));
        if self.shards.len() <= self.room {
            return Vec::new();
        }
        let mut closed = Vec::new();
        self.shards.retain(|_, shard| {
            let is_closed = shard.is_closed();
            closed.extend(is_closed.then(|| Rc::clone(shard)));
            !is_closed
        });
        self.room = self.shards.len() * 2;
        closed
    }
}

impl Drop for ThreadBindings {
    fn drop(&mut self) {
        for shard in self.shards.values() {
            shard.end_binding();
        }
    }
}
