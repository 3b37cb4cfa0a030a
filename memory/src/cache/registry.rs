//! The caches of a device by name: found, configured, counted, invalidated, removed, closed.

use std::rc::Rc;

use super::caches::{BlockHandle, Caches, CachesRef, LocalShard, Shard};
use super::named::NamedCache;
use super::record::{AllocationRecord, FinishedRecord};
use super::report::CacheReport;
use super::scope;
use super::settings::{CacheConfig, EntryOptions};
use super::shard::{CLOSE, INVALIDATE, signal_each};
use super::stats::{CacheStats, Invalidation};
use crate::device::DevicePtr;
use crate::memory::header::List;
use crate::memory::{MemoryStats, WaitMode};
use crate::sync::Arc;

/// Asks every shard of a cache; answers what goes to the pool for it at once.
fn signal_all(cache: &NamedCache<CachesRef>, signals: u64) -> List<Shard> {
    let mut idle = List::new();
    signal_each(&cache.shards(), signals, |mut more| {
        idle.append(&mut more);
        true
    });
    idle
}

impl Caches {
    /// Enters the cache `name`, which is made if there is none.
    pub(super) fn enter_shard(&self, name: &str, options: &EntryOptions) -> Option<LocalShard> {
        loop {
            let cache = self.named(name);
            cache.settings.apply(options);
            // None where the thread is inside a shard of the cache that is to be closed: by now the
            // name is another cache's.
            let Some(shard) = self.enter_named(&cache) else {
                continue;
            };
            // Only now, with the shard standing in its cache, is a remover sure to see it.
            if !self.is_named(&cache) {
                self.retire(cache);
                if let Some(idle) = shard.signal(CLOSE) {
                    self.give(idle);
                }
            }
            return Some(shard);
        }
    }

    /// Enters this thread's shard; the one that it is inside already, if it is. `None` where that
    /// is to be closed.
    fn enter_named(&self, cache: &NamedCache<CachesRef>) -> Option<LocalShard> {
        let known =
            scope::held_shard(&cache.settings).or_else(|| scope::thread_shard(&cache.settings));
        if let Some(own) = known {
            return own.enter().then_some(own);
        }
        let shard = cache.bind_shard(|settings| self.new_shard(Some(settings)));
        if !shard.enter() {
            shard.end_binding();
            return None;
        }
        let shard = Rc::new(shard);
        scope::keep_binding(&shard);
        Some(shard)
    }

    /// Keeps a cache that was removed while it was being entered, until its shards are closed.
    fn retire(&self, cache: Arc<NamedCache<CachesRef>>) {
        let mut registry = self.registry.lock();
        if !registry
            .retired
            .iter()
            .any(|other| Arc::ptr_eq(other, &cache))
        {
            registry.retired.push(cache);
        }
    }

    fn is_named(&self, cache: &Arc<NamedCache<CachesRef>>) -> bool {
        self.find(&cache.settings.name)
            .is_some_and(|now| Arc::ptr_eq(&now, cache))
    }

    fn named(&self, name: &str) -> Arc<NamedCache<CachesRef>> {
        let mut registry = self.registry.lock();
        if let Some(cache) = registry.named.get(name) {
            return Arc::clone(cache);
        }
        let observed = self.memory.recorder().is_active();
        let cache = Arc::new(NamedCache::new(name, self.config.default_cache, observed));
        registry.named.insert(name.into(), Arc::clone(&cache));
        cache
    }

    pub(super) fn find(&self, name: &str) -> Option<Arc<NamedCache<CachesRef>>> {
        self.registry.lock().named.get(name).cloned()
    }

    /// Every cache that may hold blocks, those included that were removed under somebody's feet.
    pub(super) fn all(&self) -> Vec<Arc<NamedCache<CachesRef>>> {
        let registry = self.registry.lock();
        registry
            .named
            .values()
            .chain(&registry.retired)
            .cloned()
            .collect()
    }

    fn retired(&self) -> Vec<Arc<NamedCache<CachesRef>>> {
        self.registry.lock().retired.clone()
    }

    /// Sets up the cache `name`, now and for the time when it is first used.
    pub(crate) fn configure(&self, name: &str, config: CacheConfig) {
        self.named(name).configure(config);
    }

    /// What `name` counts, or `None` where there is no such cache.
    pub(crate) fn cache_stats(&self, name: &str) -> Option<CacheStats> {
        let cache = self.find(name)?;
        self.drain_shards(&cache);
        Some(cache.stats())
    }

    /// What every cache counts, by name.
    pub(crate) fn reports(&self) -> Vec<CacheReport> {
        let named: Vec<_> = self.registry.lock().named.values().cloned().collect();
        let reports = named.into_iter().map(|cache| {
            self.drain_shards(&cache);
            CacheReport {
                name: cache.settings.name.to_string(),
                policy: cache.settings.config().policy,
                stats: cache.stats(),
            }
        });
        let mut reports: Vec<_> = reports.collect();
        reports.sort_by(|a, b| a.name.cmp(&b.name));
        reports
    }

    /// What was recorded of the last entry of `name` that was recorded.
    pub(crate) fn cache_record(&self, name: &str) -> Vec<AllocationRecord> {
        let shards = self
            .find(name)
            .map_or_else(Vec::new, |cache| cache.shards());
        let records = shards.iter().map(|shard| shard.record());
        let last = records.max_by_key(|record| record.number);
        last.map_or_else(Vec::new, FinishedRecord::into_records)
    }

    /// What the device's memory and all its caches count.
    pub(crate) fn memory_stats(&self) -> MemoryStats {
        self.drain_all();
        // No shard is closed meanwhile: its blocks would count here, and as orphans once more.
        let _moving = self.moving.lock();
        let mut sums = CacheStats::default();
        for cache in self.all() {
            for shard in cache.shards().iter().filter(|shard| !shard.is_closed()) {
                sums.add(&shard.counters);
            }
        }
        if let Some(uncached) = self
            .uncached
            .lock()
            .as_ref()
            .filter(|shard| !shard.is_closed())
        {
            sums.add(&uncached.counters);
        }
        let (orphan_blocks, orphan_bytes) = self.totals.orphans();
        let live_bytes = sums.live_bytes + orphan_bytes;
        let memory = self.memory.stats();
        MemoryStats {
            live_blocks: sums.live_blocks + orphan_blocks,
            live_bytes,
            cached_bytes: sums.cached_bytes,
            peak_live_bytes: self.totals.peak_bytes().max(live_bytes),
            pending_bytes: memory.pending_bytes + sums.pending_bytes,
            // Saturating: a thread inside its scope may move blocks meanwhile.
            allocated_bytes: memory.allocated_bytes.saturating_sub(sums.pending_bytes),
            ..memory
        }
    }

    pub(crate) fn reset_peaks(&self) {
        self.drain_all();
        for shard in self.all().iter().flat_map(|cache| cache.shards()) {
            if let Some(mut guard) = shard.guard() {
                guard.reset_peaks();
            }
        }
        self.totals.reset_peak();
        self.memory.reset_peaks();
    }

    /// Gives every idle block of the cache back to the pool, and to the device what thereby falls
    /// idle there.
    pub(crate) fn invalidate(&self, name: &str) -> Invalidation {
        self.find(name)
            .map_or_else(Invalidation::default, |cache| self.invalidate_cache(&cache))
    }

    pub(crate) fn invalidate_all(&self) -> Invalidation {
        let mut sum = Invalidation::default();
        for cache in self.all() {
            let one = self.invalidate_cache(&cache);
            sum.blocks += one.blocks;
            sum.bytes += one.bytes;
        }
        sum
    }

    fn invalidate_cache(&self, cache: &NamedCache<CachesRef>) -> Invalidation {
        let given = {
            let _moving = self.moving.lock();
            self.give_and_release(signal_all(cache, INVALIDATE))
        };
        self.record_invalidation(&cache.settings, given.bytes);
        self.memory.drain_pending(WaitMode::Wait);
        given
    }

    /// Removes the cache itself: what is idle goes back as by an invalidation, and the rest when
    /// it drops or when the thread inside leaves.
    pub(crate) fn remove(&self, name: &str) -> Invalidation {
        let given = self.retire_named(name);
        self.memory.drain_pending(WaitMode::Wait);
        given
    }

    /// The same without waiting for the work on what goes back.
    fn retire_named(&self, name: &str) -> Invalidation {
        let cache = {
            let mut registry = self.registry.lock();
            let Some(cache) = registry.named.remove(name) else {
                return Invalidation::default();
            };
            registry.retired.push(Arc::clone(&cache));
            cache
        };
        let _moving = self.moving.lock();
        let invalidation = self.give_and_release(signal_all(&cache, INVALIDATE | CLOSE));
        self.record_invalidation(&cache.settings, invalidation.bytes);
        self.close_retired();
        invalidation
    }

    /// Closes what is left of removed caches, as far as nobody is inside.
    pub(super) fn sweep_retired(&self) {
        let _moving = self.moving.lock();
        self.close_retired();
    }

    /// The same for who holds `moving`.
    pub(super) fn close_retired(&self) {
        for cache in self.retired() {
            for shard in cache.shards() {
                self.close_shard(&shard);
            }
        }
        // A thread may have entered meanwhile: it stood its shard in the cache before it looked
        // whether the cache is still here, and looks under this lock.
        let is_open = |cache: &Arc<NamedCache<CachesRef>>| {
            cache.shards().iter().any(|shard| !shard.is_closed())
        };
        self.registry.lock().retired.retain(is_open);
    }

    /// The last handle is gone: everything idle goes back to the device. A thread that asked a live
    /// array for its device meanwhile has a handle again, and will be the last in its turn.
    pub(super) fn close(&self) {
        let names: Vec<_> = self.registry.lock().named.keys().cloned().collect();
        for name in names {
            self.retire_named(&name);
        }
        self.sweep_retired();
        let uncached = self.uncached.lock().take();
        if let Some(shard) = uncached {
            let _moving = self.moving.lock();
            self.close_shard(&shard);
        }
        // What is busy is left to the memory's end, or to whoever asks a live array for the device.
        self.memory.trim(0, WaitMode::Poll);
        self.memory.free_imported();
    }

    /// Closes a shard, unless a thread is inside.
    fn close_shard(&self, shard: &Arc<Shard>) {
        if let Some(idle) = self.this.upgrade().and_then(|this| shard.close(this)) {
            self.give(idle);
        }
    }

    /// Brings home what was dropped elsewhere, in every shard that can be looked into.
    pub(super) fn drain_all(&self) {
        self.drain_uncached();
        self.sweep_retired();
        for cache in self.all() {
            self.drain_shards(&cache);
        }
        self.memory.drain_pending(WaitMode::Poll);
    }

    fn drain_shards(&self, cache: &NamedCache<CachesRef>) {
        let _moving = self.moving.lock();
        for shard in cache.shards() {
            if let Some(mut guard) = shard.guard() {
                let idle = guard.drain_deferred();
                guard.publish();
                guard.count_arenas();
                self.give(idle);
            }
        }
    }

    /// A handle that keeps the slab in which `address` lies from being used or released, until it
    /// drops. It begins where the slab does, and all of the slab's bytes are requested. `None`
    /// where no slab of a plan does, or where another thread is inside of its scope. What runs by
    /// addresses alone, as a captured graph does, holds the slab so.
    ///
    /// Suballocations that are live stay valid, as when they outlive their entry; the plan goes on
    /// with another slab.
    pub(crate) fn export_slab(&self, address: DevicePtr) -> Option<BlockHandle> {
        let _moving = self.moving.lock();
        let caches = self.all();
        let mut shards = caches.iter().flat_map(|cache| cache.shards());
        shards.find_map(|shard| shard.guard()?.export_slab(address))
    }

    pub(super) fn give_and_release(&self, idle: List<Shard>) -> Invalidation {
        let mut given = Invalidation::default();
        self.memory.free_and_release(idle.map(|header| {
            let block = header.into_block();
            given.blocks += 1;
            given.bytes += block.bytes();
            block
        }));
        given
    }

    /// Bytes of every block of the shard's cache.
    pub(super) fn owned_bytes(&self, shard: &Shard) -> u64 {
        let Some(settings) = &shard.settings else {
            return 0;
        };
        // By name first: there may be thousands. A cache that was removed is no longer found so.
        let named = self.find(&settings.name).into_iter();
        let own = named
            .chain(self.retired())
            .find(|cache| Arc::ptr_eq(&cache.settings, settings));
        own.map_or(0, |cache| cache.owned_bytes())
    }
}
