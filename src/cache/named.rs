//! A named cache of one device: its settings, and a shard for each thread that uses it.

use std::rc::Rc;

use super::Caches;
use super::scope;
use super::settings::{CacheConfig, CacheSettings};
use super::shard::{LocalShard, Shard};
use super::stats::CacheStats;
use crate::sync::{Arc, Mutex};

/// A cache and its shards, each of which is bound to one thread or waits for the next.
#[derive(Debug)]
pub(super) struct NamedCache {
    pub(super) settings: Arc<CacheSettings>,
    shards: Mutex<Vec<Arc<Shard>>>,
}

impl NamedCache {
    pub(super) fn new(name: &str, config: CacheConfig) -> Self {
        Self {
            settings: Arc::new(CacheSettings::new(name, config)),
            shards: Mutex::default(),
        }
    }

    pub(super) fn configure(&self, config: CacheConfig) {
        self.settings.configure(config);
    }

    /// Enters this thread's shard; the one that it is inside already, if it is. `None` where that is to
    /// be closed.
    pub(super) fn enter(&self, caches: &Caches) -> Option<LocalShard> {
        let known =
            scope::held_shard(&self.settings).or_else(|| scope::thread_shard(&self.settings));
        if let Some(own) = known {
            return own.enter().then_some(own);
        }
        let shard = self.bind_shard(caches);
        if !shard.enter() {
            shard.end_binding();
            return None;
        }
        let shard = Rc::new(shard);
        scope::keep_binding(&shard);
        Some(shard)
    }

    /// A shard for this thread: the one that an ended thread used last, with the blocks that are idle
    /// there, or a new one.
    fn bind_shard(&self, caches: &Caches) -> Arc<Shard> {
        let mut shards = self.shards.lock();
        let free = shards.iter().filter(|shard| !shard.is_bound());
        if let Some(last) = free.max_by_key(|shard| shard.last_used())
            && last.bind_to_thread()
        {
            return Arc::clone(last);
        }
        let fresh = Shard::new(caches, Some(Arc::clone(&self.settings)));
        fresh.bind_to_thread();
        shards.push(Arc::clone(&fresh));
        fresh
    }

    /// Every shard, whoever is inside.
    pub(super) fn shards(&self) -> Vec<Arc<Shard>> {
        self.shards.lock().clone()
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
