//! Rung 3 of the reclaim ladder: the memory reclaims idle blocks from the named caches.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::policy::Policy;
use super::report::Growth;
use super::shard::NamedCache;
use super::shard::{Caches, Shard};
use super::stats::CacheStats;
use crate::error::{CacheUse, LineUse, OutOfMemoryReport};
use crate::memory::{Census, OwnedBytes, Reclaim};
use crate::sync::Arc;
use crate::sync::barrier::heavy_barrier;

impl Reclaim for Caches {
    fn reclaim(&self, need_bytes: u64) -> u64 {
        let _moving = self.moving.lock();
        self.close_retired();
        let mut shards: Vec<Arc<Shard>> =
            self.all().iter().flat_map(|cache| cache.shards()).collect();
        // Each key is read once. Concurrent entries change the keys, and a sort needs constant
        // keys.
        shards.sort_by_cached_key(|shard| shard.last_used());
        let mut freed_bytes = self.drain_uncached();
        let mut entered = Vec::new();
        for shard in shards.iter().filter(|shard| shard.has_idle()) {
            if freed_bytes >= need_bytes {
                return freed_bytes;
            }
            match shard.drain_all_from_outside() {
                Some(idle) => freed_bytes += self.return_idle(idle),
                None => entered.push(shard),
            }
        }
        if freed_bytes < need_bytes && !entered.is_empty() {
            freed_bytes += self.request_idle(&entered, &shards, need_bytes - freed_bytes);
        }
        freed_bytes
    }

    fn census(&self) -> Census {
        self.count(&self.all()).0
    }

    fn describe(&self, report: &mut OutOfMemoryReport) {
        self.drain_all();
        let caches = self.all();
        let (census, uses) = self.count(&caches);
        census.write_to(report);
        let is_of_use = |(cache, _): &(CacheUse, _)| {
            let is_requester = report.scope.as_ref() == Some(&cache.name);
            cache.cached_bytes + cache.detached_bytes + cache.live_bytes > 0 || is_requester
        };
        let uses = uses.into_iter().zip(&caches).filter(is_of_use);
        let rounding = self.memory.rounding();
        let completed = uses.map(|(usage, cache)| CacheUse {
            lines: lines(cache),
            peak_taken_bytes: rounding.most_bytes(usage.peak_live_bytes),
            ..usage
        });
        report.caches = completed.collect();
        report
            .caches
            .sort_by_key(|cache| Reverse(cache.cached_bytes + cache.live_bytes));
    }
}

impl Caches {
    /// Requests idle blocks from the threads inside the shards `entered`, until about `need_bytes`
    /// are requested. `shards` contains all shards of the device. Returns the bytes that were freed
    /// immediately, from shards without a thread inside.
    fn request_idle(&self, entered: &[&Arc<Shard>], shards: &[Arc<Shard>], need_bytes: u64) -> u64 {
        let mut requested_bytes = 0;
        let is_needed = |shard: &&&Arc<Shard>| {
            let is_needed = requested_bytes < need_bytes;
            requested_bytes += shard.idle_bytes();
            is_needed
        };
        let mut called: Vec<&Arc<Shard>> = entered.iter().take_while(is_needed).copied().collect();
        // A thread's next request goes to its innermost scope, so all shards of the thread get the
        // signal.
        let threads: Vec<u64> = called.iter().filter_map(|shard| shard.holder()).collect();
        let is_of_them = |shard: &&Arc<Shard>| {
            let holder = shard.holder();
            holder.is_some_and(|holder| threads.contains(&holder))
        };
        called.extend(shards.iter().filter(is_of_them));
        called.iter().for_each(|shard| shard.request_idle());
        // If a thread left its shard before it read the signal, the barrier makes the exit visible
        // to this thread.
        heavy_barrier();
        let left = called.iter().filter_map(|shard| shard.drain_from_outside());
        left.map(|idle| self.return_idle(idle)).sum()
    }

    pub(crate) fn growth(&self, name: &str) -> Option<Growth> {
        let cache = self.find(name)?;
        self.drain_shards(&cache);
        let shards = cache.shards();
        let counters = || shards.iter().map(|shard| &shard.counters);
        Some(Growth {
            entries: counters().map(|own| own.grown_entries.get()).sum(),
            bytes: counters().map(|own| own.grown_bytes.get()).sum(),
            lines: lines(&cache),
        })
    }

    /// Returns a consistent census of the device's memory, and the memory that each of `caches`
    /// holds.
    fn count(&self, caches: &[Arc<NamedCache>]) -> (Census, Vec<CacheUse>) {
        // The lock prevents the close of a shard. A closed shard's blocks would count twice: in the
        // shard and as orphans.
        let _moving = self.moving.lock();
        let shards: Vec<Vec<Arc<Shard>>> = caches.iter().map(|cache| cache.shards()).collect();
        let uncached = self.uncached.lock().clone();
        let waiting = self.memory.waiting();
        let mut uses = Vec::with_capacity(caches.len());
        let census = self.memory.census(|census| {
            for (cache, shards) in caches.iter().zip(&shards) {
                let counted = shards
                    .iter()
                    .map(|shard| shard.count(census, &waiting))
                    .collect();
                uses.push(describe_cache(cache, shards, counted));
            }
            if let Some(shard) = &uncached {
                shard.count(census, &waiting);
            }
            census.count(self.totals.orphans_owned());
        });
        (census, uses)
    }
}

/// Returns the memory that the shards of a cache hold, from the bytes `counted` per shard. The
/// result has no call sites.
fn describe_cache(cache: &NamedCache, shards: &[Arc<Shard>], counted: Vec<OwnedBytes>) -> CacheUse {
    let mut stats = CacheStats::default();
    let mut usage = CacheUse::default();
    for (shard, counted) in shards.iter().zip(counted) {
        stats.add(&shard.counters);
        let idle_bytes = counted.idle_bytes();
        usage.cached_bytes += idle_bytes;
        usage.stuck_bytes += match shard.holder() {
            Some(_) => shard.counters.left_bytes().min(idle_bytes),
            None => idle_bytes, // The reclaim has released the other idle blocks.
        };
        usage.detached_bytes += counted.detached_bytes;
        usage.live_bytes += counted.live_bytes;
        usage.grown_bytes += shard.counters.grown_bytes.get();
        usage.grown_entries += shard.counters.grown_entries.get();
        if shard.holder().is_some() && shard.has_idle() {
            usage.entered_by.push(shard.thread_name());
        }
    }
    usage.entered_by.sort();
    CacheUse {
        name: cache.settings.name.to_string(),
        peak_live_bytes: stats.peak_live_bytes,
        escaped_blocks: stats.escaped_blocks,
        keeps_until_exit: cache.settings.config().policy == Policy::Bump,
        ..usage
    }
}

/// Returns the recorded call sites that allocated the live memory of a cache, sorted by descending
/// bytes.
fn lines(cache: &NamedCache) -> Vec<LineUse> {
    let mut lines: BTreeMap<_, LineUse> = BTreeMap::new();
    for record in cache.shards().iter().flat_map(|shard| shard.live_records()) {
        let call_site = record.call_site;
        let line = lines.entry(call_site).or_insert(LineUse {
            call_site,
            bytes: 0,
            blocks: 0,
        });
        line.bytes += record.bytes;
        line.blocks += 1;
    }
    let mut lines: Vec<LineUse> = lines.into_values().collect();
    lines.sort_by_key(|line| Reverse(line.bytes));
    lines
}
