//! Rung 3 of the ladder: the memory reclaims idle blocks from the named caches.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::policy::Policy;
use super::report::Growth;
use super::shard::NamedCache;
use super::shard::{Caches, Shard};
use super::shard::{DRAIN, signal_each};
use crate::error::{CacheUse, LineUse, OutOfMemoryReport};
use crate::memory::Reclaim;
use crate::sync::Arc;

impl Reclaim for Caches {
    fn reclaim(&self, need_bytes: u64) -> u64 {
        let _moving = self.moving.lock();
        self.close_retired();
        let mut shards: Vec<Arc<Shard>> =
            self.all().iter().flat_map(|cache| cache.shards()).collect();
        // Each key is read once: threads enter meanwhile, and a sort needs constant keys.
        shards.sort_by_cached_key(|shard| shard.last_used());
        let mut freed_bytes = self.drain_uncached();
        if freed_bytes < need_bytes {
            signal_each(&shards, DRAIN, |idle| {
                freed_bytes += self.return_idle(idle);
                freed_bytes < need_bytes
            });
        }
        freed_bytes
    }

    fn describe(&self, report: &mut OutOfMemoryReport) {
        let stats = self.memory_stats();
        report.live_bytes = stats.live_bytes;
        report.pending_bytes = stats.pending_bytes;
        let caches = self.all();
        let uses = caches.iter().map(|cache| describe_cache(cache));
        let is_of_use = |cache: &CacheUse| {
            let is_requester = report.scope.as_ref() == Some(&cache.name);
            cache.cached_bytes + cache.detached_bytes + cache.live_bytes > 0 || is_requester
        };
        report.caches = uses.filter(is_of_use).collect();
        report
            .caches
            .sort_by_key(|cache| Reverse(cache.cached_bytes + cache.live_bytes));
    }
}

impl Caches {
    /// Returns the growth of the cache `name`, or `None` if no cache has this name.
    pub(crate) fn growth(&self, name: &str) -> Option<Growth> {
        let usage = describe_cache(&*self.find(name)?);
        Some(Growth {
            entries: usage.grown_entries,
            bytes: usage.grown_bytes,
            lines: usage.lines,
        })
    }
}

/// Returns the memory that a cache holds, and the lines that allocated it, as far as these are
/// recorded.
fn describe_cache(cache: &NamedCache) -> CacheUse {
    let stats = cache.stats();
    let mut lines: BTreeMap<_, LineUse> = BTreeMap::new();
    let mut usage = CacheUse {
        name: cache.settings.name.to_string(),
        cached_bytes: stats.cached_bytes,
        detached_bytes: stats.detached_bytes,
        live_bytes: stats.live_bytes,
        peak_live_bytes: stats.peak_live_bytes,
        escaped_blocks: stats.escaped_blocks,
        keeps_until_exit: cache.settings.config().policy == Policy::Bump,
        ..CacheUse::default()
    };
    for shard in cache.shards() {
        usage.grown_bytes += shard.counters.grown_bytes.get();
        usage.grown_entries += shard.counters.grown_entries.get();
        for record in shard.live_records() {
            let call_site = record.call_site;
            let line = lines.entry(call_site).or_insert(LineUse {
                call_site,
                bytes: 0,
                blocks: 0,
            });
            line.bytes += record.bytes;
            line.blocks += 1;
        }
    }
    usage.lines = lines.into_values().collect();
    usage.lines.sort_by_key(|line| Reverse(line.bytes));
    usage
}
