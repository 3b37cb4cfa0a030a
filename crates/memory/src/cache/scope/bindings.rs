//! The shards that a thread has entered. They stay bound to the thread until the thread ends.
//!
//! The destructor of the scope stack ends the bindings. A new thread adopts the most recently used
//! unbound shard. The crate `thread_local` is not suitable. If a new thread reuses an ended
//! thread's identifier, `thread_local` passes the ended thread's value to it.

use std::collections::BTreeMap;
use std::ptr;
use std::rc::Rc;

use crate::cache::settings::CacheSettings;
use crate::cache::shard::LocalShard;
use crate::sync::Arc;

/// The shards that are bound to this thread, by cache.
///
/// Invariant: a shard's key is the address of its settings. The shard keeps these settings alive.
pub(super) struct ThreadBindings {
    shards: BTreeMap<*const CacheSettings, LocalShard>,
    /// The number of shards above which [`insert`](Self::insert) removes closed shards.
    room: usize,
}

impl ThreadBindings {
    pub(super) const fn new() -> Self {
        Self {
            shards: BTreeMap::new(),
            room: 8,
        }
    }

    pub(super) fn find(&self, settings: &Arc<CacheSettings>) -> Option<&LocalShard> {
        self.shards.get(&Arc::as_ptr(settings))
    }

    /// Adds a shard. If there are then too many shards, removes the closed shards, and returns
    /// them. A shard is closed after its cache was removed or its device ended. The caller must
    /// drop the returned shards outside the borrow of the bindings.
    #[must_use = "drop the shards after the borrow of the bindings"]
    pub(super) fn insert(&mut self, shard: &LocalShard) -> Vec<LocalShard> {
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
