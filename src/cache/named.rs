//! A named cache of one device: its settings, and a shard for each thread that uses it.

use std::rc::Rc;

use thread_local::ThreadLocal;

use super::Caches;
use super::identity::Identity;
use super::policy::CacheConfig;
use super::shard::{LocalShard, Shard};
use super::stack;
use super::stats::CacheStats;
use crate::sync::{Arc, Mutex};

/// A cache and its shards.
///
/// The slots of `local` are reused: a thread finds the shard that an ended one left, and with it
/// that thread's idle blocks. So a slot is no proof of ownership; a shard's state is.
#[derive(Debug)]
pub(super) struct NamedCache {
    pub(super) identity: Arc<Identity>,
    local: ThreadLocal<Arc<Shard>>,
    /// For threads whose slot holds a shard that somebody else is inside of.
    overflow: Mutex<Vec<Arc<Shard>>>,
}

impl NamedCache {
    pub(super) fn new(name: &str, config: CacheConfig) -> Self {
        Self {
            identity: Arc::new(Identity::new(name, config)),
            local: ThreadLocal::new(),
            overflow: Mutex::new(Vec::new()),
        }
    }

    pub(super) fn configure(&self, config: CacheConfig) {
        self.identity.configure(config);
    }

    /// Enters this thread's shard; the one that it is inside already, if it is.
    pub(super) fn enter(&self, caches: &Caches) -> Option<LocalShard> {
        if let Some(held) = stack::held_shard(&self.identity) {
            return held.enter().then_some(held);
        }
        let own = self
            .local
            .get_or(|| Shard::new(caches, Some(Arc::clone(&self.identity))));
        if own.enter() {
            return Some(Rc::new(Arc::clone(own)));
        }
        let mut overflow = self.overflow.lock();
        if let Some(free) = overflow.iter().find(|shard| shard.enter()) {
            return Some(Rc::new(Arc::clone(free)));
        }
        let fresh = Shard::new(caches, Some(Arc::clone(&self.identity)));
        let entered = fresh.enter().then(|| Rc::new(Arc::clone(&fresh)));
        overflow.push(fresh);
        entered
    }

    /// Every shard, whoever is inside.
    pub(super) fn shards(&self) -> Vec<Arc<Shard>> {
        let mut shards: Vec<_> = self.local.iter().cloned().collect();
        shards.extend(self.overflow.lock().iter().cloned());
        shards
    }

    pub(super) fn stats(&self) -> CacheStats {
        let mut stats = CacheStats::default();
        for shard in self.shards() {
            stats.add(&shard.counters);
        }
        stats
    }

    /// Bytes of every block whose home is this cache, live or idle.
    pub(super) fn owned_bytes(&self) -> u64 {
        self.shards()
            .iter()
            .map(|shard| shard.counters.owned_bytes.get())
            .sum()
    }
}
