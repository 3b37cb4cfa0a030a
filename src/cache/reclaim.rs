//! Rung 3 of the ladder: what the memory below takes back from the named caches.

use std::cmp::Reverse;

use super::caches::{Caches, Shard};
use super::shard::{DRAIN, signal_each};
use crate::error::OomReport;
use crate::memory::Reclaim;
use crate::sync::Arc;

impl Reclaim for Caches {
    fn reclaim(&self, need_bytes: u64) -> u64 {
        let _moving = self.moving.lock();
        self.close_retired();
        let mut shards: Vec<Arc<Shard>> =
            self.all().iter().flat_map(|cache| cache.shards()).collect();
        // Each is read once: threads enter meanwhile, and a sort needs keys that stand still.
        shards.sort_by_cached_key(|shard| shard.last_used());
        let mut given_bytes = self.drain_uncached();
        if given_bytes < need_bytes {
            signal_each(&shards, DRAIN, |idle| {
                given_bytes += self.give(idle);
                given_bytes < need_bytes
            });
        }
        given_bytes
    }

    fn describe(&self, report: &mut OomReport) {
        let stats = self.memory_stats();
        report.live_bytes = stats.live_bytes;
        report.pending_bytes = stats.pending_bytes;
        let named = self.all();
        let cached = named
            .iter()
            .map(|cache| (cache.settings.name.to_string(), cache.stats().cached_bytes));
        report.caches = cached.filter(|(_, bytes)| *bytes > 0).collect();
        report.caches.sort_by_key(|(_, bytes)| Reverse(*bytes));
    }
}
