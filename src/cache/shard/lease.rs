//! Which thread a shard is kept for, from its first entry to the end of the thread; the next thread
//! that enters the cache for the first time takes it over then, and uses what is idle in it.
//!
//! A lease says where a thread enters, not what it may do: that is `state` alone. So nothing is wrong,
//! but that a shard waits for rung 3 with its idle blocks, where the destructor never runs that tells
//! of a thread's end: where the system ends a thread by force.

use std::collections::BTreeMap;
use std::ptr;
use std::rc::Rc;

use super::{LocalShard, Shard};
use crate::cache::identity::Identity;
use crate::sync::{Arc, Ordering, thread_token};

/// `lessee`: nobody, yet or any more.
pub(super) const NOBODY: u64 = 0;

impl Shard {
    pub(in crate::cache) fn is_leased(&self) -> bool {
        self.lessee.load(Ordering::Relaxed) != NOBODY
    }

    /// Keeps the shard for this thread, if it is nobody's. What the last lessee did to it is done.
    pub(in crate::cache) fn lease(&self) -> bool {
        self.lessee
            .compare_exchange(NOBODY, thread_token(), Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Leaves the shard, which this thread is not inside of any more, to the next.
    pub(in crate::cache) fn end_lease(&self) {
        self.lessee.store(NOBODY, Ordering::Release);
    }
}

/// The shards that are leased to this thread, by the cache.
///
/// Invariant: each keeps the identity alive whose address it is found by.
pub(in crate::cache) struct Leases {
    shards: BTreeMap<*const Identity, LocalShard>,
    /// How many there may be before those are let go of that were closed.
    room: usize,
}

impl Leases {
    pub(in crate::cache) const fn new() -> Self {
        Self {
            shards: BTreeMap::new(),
            room: 8,
        }
    }

    /// The shard of the cache `identity`.
    pub(in crate::cache) fn find(&self, identity: &Arc<Identity>) -> Option<&LocalShard> {
        self.shards.get(&Arc::as_ptr(identity))
    }

    /// Keeps a shard; answers those that were closed meanwhile, as their caches were removed or their
    /// devices ended.
    #[must_use = "dropping them is for who has let go of the leases"]
    pub(in crate::cache) fn insert(&mut self, shard: &LocalShard) -> Vec<LocalShard> {
        let identity = shard.identity.as_ref().map_or(ptr::null(), Arc::as_ptr);
        self.shards.insert(identity, Rc::clone(shard));
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

impl Drop for Leases {
    fn drop(&mut self) {
        for shard in self.shards.values() {
            shard.end_lease();
        }
    }
}
