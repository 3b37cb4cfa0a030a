//! The shards that a thread has entered, reserved for it until it ends.
//!
//! The destructor of the scope stack ends the bindings. A new thread adopts the free shard that was
//! used last. The crate `thread_local` would pass an ended thread's value to any thread that gets
//! that thread's slot.

use std::collections::BTreeMap;
use std::ptr;
use std::rc::Rc;

use crate::cache::settings::CacheSettings;
use crate::cache::shard::LocalShard;
use crate::sync::Arc;

/// The shards that are bound to this thread, by cache.
///
/// Invariant: each shard keeps the settings alive whose address is its key.
pub(super) struct ThreadBindings {
    shards: BTreeMap<*const CacheSettings, LocalShard>,
    /// The number of shards above which the closed shards are removed.
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

    /// Adds a shard. Returns the shards that were closed meanwhile, because their caches were
    /// removed or their devices ended.
    #[must_use = "dropping them is for who has let go of the bindings"]
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
