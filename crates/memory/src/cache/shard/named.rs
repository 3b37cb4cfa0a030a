//! The named caches of one device: settings, and a shard for each thread that uses a cache.

use std::collections::HashMap;

use super::Shard;
use crate::cache::settings::{CacheConfig, CacheSettings};
use crate::cache::stats::CacheStats;
use crate::sync::{Arc, Mutex};

/// A cache and its shards. Each shard is bound to one thread, or available to the next thread.
#[derive(Debug)]
pub(in crate::cache) struct NamedCache {
    pub(in crate::cache) settings: Arc<CacheSettings>,
    shards: Mutex<Vec<Arc<Shard>>>,
}

impl NamedCache {
    pub(in crate::cache) fn new(name: &str, config: CacheConfig, observed: bool) -> Self {
        Self {
            settings: Arc::new(CacheSettings::new(name, config, observed)),
            shards: Mutex::default(),
        }
    }

    /// Binds a shard to this thread, and returns it. Selects the most recently used unbound shard,
    /// with its idle blocks. If there is none, creates a shard.
    pub(in crate::cache) fn bind_shard(
        &self,
        new: impl FnOnce(Arc<CacheSettings>) -> Arc<Shard>,
    ) -> Arc<Shard> {
        let mut shards = self.shards.lock();
        let free = shards.iter().filter(|shard| !shard.is_bound());
        if let Some(last) = free.max_by_key(|shard| shard.last_used())
            && last.bind_to_thread()
        {
            return Arc::clone(last);
        }
        let fresh = new(Arc::clone(&self.settings));
        fresh.bind_to_thread();
        shards.push(Arc::clone(&fresh));
        fresh
    }

    pub(in crate::cache) fn shards(&self) -> Vec<Arc<Shard>> {
        self.shards.lock().clone()
    }

    pub(in crate::cache) fn stats(&self) -> CacheStats {
        let mut stats = CacheStats::default();
        for shard in self.shards() {
            stats.add(&shard.counters);
        }
        stats
    }

    /// Returns the bytes of all blocks of this cache, live or idle.
    pub(in crate::cache) fn owned_bytes(&self) -> u64 {
        self.shards()
            .iter()
            .map(|shard| shard.counters.owned_bytes.get())
            .sum()
    }
}

/// The named caches, and the retired caches. A retired cache was removed while a thread was inside.
#[derive(Debug, Default)]
pub(in crate::cache) struct Registry {
    pub(in crate::cache) named: HashMap<Box<str>, Arc<NamedCache>>,
    pub(in crate::cache) retired: Vec<Arc<NamedCache>>,
}
