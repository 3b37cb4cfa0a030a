//! The registry of a device's caches by name: look-up, configuration, statistics, invalidation,
//! removal and close.

use std::rc::Rc;

use super::record::AllocationRecord;
use super::report::CacheReport;
use super::scope;
use super::settings::{CacheConfig, EntryOptions};
use super::shard::NamedCache;
use super::shard::{BlockHandle, Caches, LocalShard, Shard};
use super::shard::{CLOSE, INVALIDATE, signal_each};
use super::stats::{CacheStats, Invalidation};
use crate::device::DevicePtr;
use crate::memory::header::List;
use crate::memory::{MemoryStats, WaitMode};
use crate::sync::Arc;

/// Signals every shard of a cache. Returns the blocks that go to the pool immediately.
fn signal_all(cache: &NamedCache, signals: u64) -> List {
    let mut idle = List::new();
    signal_each(&cache.shards(), signals, |mut more| {
        idle.append(&mut more);
        true
    });
    idle
}

impl Caches {
    /// Enters the cache `name`. If the cache does not exist, first creates it.
    pub(super) fn enter_shard(&self, name: &str, options: &EntryOptions) -> Option<LocalShard> {
        loop {
            let cache = self.named(name);
            cache.settings.apply(options);
            // `None` means that the cache was removed, and that this thread's shard is about to be
            // closed. Then `name` already refers to another cache.
            let Some(shard) = self.enter_named(&cache) else {
                continue;
            };
            // If another thread removes the cache, it may not find a shard that was just added. So
            // this thread signals the shard itself.
            if !self.is_named(&cache) {
                self.retire(cache);
                if let Some(idle) = shard.signal(CLOSE) {
                    self.return_idle(idle);
                }
            }
            return Some(shard);
        }
    }

    /// Enters this thread's shard of the cache. If the thread is already inside a shard of the
    /// cache, enters this shard again. Returns `None` if the shard is about to be closed.
    fn enter_named(&self, cache: &NamedCache) -> Option<LocalShard> {
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

    /// Retains a cache that was removed during an entry, until its shards are closed.
    fn retire(&self, cache: Arc<NamedCache>) {
        let mut registry = self.registry.lock();
        if !registry
            .retired
            .iter()
            .any(|other| Arc::ptr_eq(other, &cache))
        {
            registry.retired.push(cache);
        }
    }

    fn is_named(&self, cache: &Arc<NamedCache>) -> bool {
        self.find(&cache.settings.name)
            .is_some_and(|now| Arc::ptr_eq(&now, cache))
    }

    pub(super) fn named(&self, name: &str) -> Arc<NamedCache> {
        scope::settle();
        let mut registry = self.registry.lock();
        if let Some(cache) = registry.named.get(name) {
            return Arc::clone(cache);
        }
        let observed = self.memory.recorder().is_active();
        let cache = Arc::new(NamedCache::new(name, self.config.default_cache, observed));
        registry.named.insert(name.into(), Arc::clone(&cache));
        cache
    }

    pub(super) fn find(&self, name: &str) -> Option<Arc<NamedCache>> {
        scope::settle();
        self.registry.lock().named.get(name).cloned()
    }

    /// Returns every cache that may hold blocks, including caches that were removed while a thread
    /// was inside.
    pub(super) fn all(&self) -> Vec<Arc<NamedCache>> {
        scope::settle();
        let registry = self.registry.lock();
        registry
            .named
            .values()
            .chain(&registry.retired)
            .cloned()
            .collect()
    }

    fn retired(&self) -> Vec<Arc<NamedCache>> {
        self.registry.lock().retired.clone()
    }

    /// Configures the cache `name`. If the cache does not exist, first creates it.
    pub(crate) fn configure(&self, name: &str, config: CacheConfig) {
        self.named(name).settings.configure(config);
        if let Some(idle) = config.max_idle {
            self.sweep_timer.schedule(idle);
        }
    }

    pub(crate) fn cache_stats(&self, name: &str) -> Option<CacheStats> {
        let cache = self.find(name)?;
        self.drain_shards(&cache);
        Some(cache.stats())
    }

    pub(crate) fn reports(&self) -> Vec<CacheReport> {
        scope::settle();
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

    /// Returns the record of the last recorded entry of `name`.
    pub(crate) fn cache_record(&self, name: &str) -> Vec<AllocationRecord> {
        let shards = self
            .find(name)
            .map_or_else(Vec::new, |cache| cache.shards());
        let records = shards.iter().filter_map(|shard| shard.record());
        let last = records.max_by_key(|record| record.number);
        last.map_or_else(Vec::new, |record| record.records().to_vec())
    }

    pub(crate) fn memory_stats(&self) -> MemoryStats {
        self.drain_all();
        // The lock prevents the close of a shard. A closed shard's blocks would count twice: in the
        // shard and as orphans.
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
            // The subtraction saturates, because a thread inside its scope may move blocks
            // concurrently.
            allocated_bytes: memory.allocated_bytes.saturating_sub(sums.pending_bytes),
            ..memory
        }
    }

    pub(crate) fn live_and_reserved_bytes(&self) -> (u64, u64) {
        let stats = self.memory_stats();
        (stats.live_bytes, stats.reserved_bytes)
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

    /// Returns every idle block of the cache to the pool. Releases the segments and pages that
    /// become idle in the pool to the device.
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

    fn invalidate_cache(&self, cache: &NamedCache) -> Invalidation {
        let invalidation = {
            let _moving = self.moving.lock();
            self.return_and_release(signal_all(cache, INVALIDATE))
        };
        self.record_invalidation(&cache.settings, invalidation.bytes);
        self.memory.drain_pending(WaitMode::Wait);
        invalidation
    }

    /// Removes the cache. Idle blocks return to the pool like in an invalidation. Live blocks
    /// return when they drop. If a thread is inside a shard, the shard's idle blocks return when
    /// the thread leaves.
    pub(crate) fn remove(&self, name: &str) -> Invalidation {
        let invalidation = self.retire_named(name);
        self.memory.drain_pending(WaitMode::Wait);
        invalidation
    }

    /// Like [`remove`](Self::remove), but does not wait for the work that uses the returned memory.
    fn retire_named(&self, name: &str) -> Invalidation {
        scope::settle();
        let cache = {
            let mut registry = self.registry.lock();
            let Some(cache) = registry.named.remove(name) else {
                return Invalidation::default();
            };
            registry.retired.push(Arc::clone(&cache));
            cache
        };
        let _moving = self.moving.lock();
        let invalidation = self.return_and_release(signal_all(&cache, INVALIDATE | CLOSE));
        self.record_invalidation(&cache.settings, invalidation.bytes);
        self.close_retired();
        invalidation
    }

    /// Closes the remaining shards of removed caches, except shards with a thread inside.
    pub(super) fn sweep_retired(&self) {
        let _moving = self.moving.lock();
        self.close_retired();
    }

    /// Like [`sweep_retired`](Self::sweep_retired), for a caller that holds `moving`.
    pub(super) fn close_retired(&self) {
        for cache in self.retired() {
            for shard in cache.shards() {
                self.close_shard(&shard);
            }
        }
        // A thread may enter a retired cache concurrently. The thread first adds its shard to the
        // cache. Then it checks under this lock that the cache is registered.
        let is_open =
            |cache: &Arc<NamedCache>| cache.shards().iter().any(|shard| !shard.is_closed());
        self.registry.lock().retired.retain(is_open);
    }

    /// Closes the caches after the last handle has dropped. All idle memory returns to the device.
    /// A thread may get a new handle from a live array. When this handle drops, the caches are
    /// closed again.
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
        // Busy memory is released when `self.memory` drops, or when the caches are closed again.
        self.memory.trim(0, WaitMode::Poll);
        self.memory.free_imported();
    }

    fn close_shard(&self, shard: &Arc<Shard>) {
        if let Some(idle) = self.this.upgrade().and_then(|this| shard.close(this)) {
            self.return_idle(idle);
        }
    }

    /// Takes back the blocks that other threads dropped, in every shard without another thread
    /// inside.
    pub(super) fn drain_all(&self) {
        self.drain_uncached();
        self.sweep_retired();
        for cache in self.all() {
            self.drain_shards(&cache);
        }
        self.memory.drain_pending(WaitMode::Poll);
    }

    /// If a sweep is due, evicts the blocks that were unused for `max_idle`. The caller must not
    /// hold a lock or a borrow of a shard.
    pub(super) fn sweep_by_time(&self) {
        if !self.sweep_timer.take_due() {
            return;
        }
        for cache in self.all() {
            if let Some(idle) = cache.settings.config().max_idle {
                self.drain_shards(&cache);
                self.sweep_timer.schedule(idle);
            }
        }
    }

    pub(super) fn drain_shards(&self, cache: &NamedCache) {
        let _moving = self.moving.lock();
        for shard in cache.shards() {
            if let Some(mut guard) = shard.guard() {
                let idle = guard.drain_and_publish();
                guard.count_arenas();
                self.return_idle(idle);
            }
        }
    }

    /// Returns a handle on the slab that contains `address`. Until the handle drops, the slab
    /// serves no request and is not released. The handle's block has the slab's address, and its
    /// requested bytes are the whole slab. Returns `None` if no slab of a plan contains `address`,
    /// or if another thread is inside the slab's scope. Code that uses memory by address only, such
    /// as a captured graph, needs this handle.
    ///
    /// Live suballocations stay valid, like suballocations that outlive their entry. The plan
    /// continues with another slab.
    pub(crate) fn export_slab(&self, address: DevicePtr) -> Option<BlockHandle> {
        let _moving = self.moving.lock();
        let caches = self.all();
        let mut shards = caches.iter().flat_map(|cache| cache.shards());
        let slab = shards.find_map(|shard| shard.guard()?.export_slab(address));
        slab.map(BlockHandle::from)
    }

    pub(super) fn return_and_release(&self, idle: List) -> Invalidation {
        let mut invalidation = Invalidation::default();
        self.memory.free_and_release(idle.map(|header| {
            let block = header.into_block();
            invalidation.blocks += 1;
            invalidation.bytes += block.bytes();
            block
        }));
        invalidation
    }

    pub(super) fn owned_bytes(&self, shard: &Shard) -> u64 {
        let Some(settings) = &shard.settings else {
            return 0;
        };
        // The search by name comes first, because there may be thousands of caches. A removed cache
        // is among the retired caches.
        let named = self.find(&settings.name).into_iter();
        let own = named
            .chain(self.retired())
            .find(|cache| Arc::ptr_eq(&cache.settings, settings));
        own.map_or(0, |cache| cache.owned_bytes())
    }
}
