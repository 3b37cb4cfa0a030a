//! The counters of a cache. Each counter has one writer at a time, and any thread may read a
//! counter.

use crate::memory::OwnedBytes;
use crate::sync::plain::{AtomicU64, Ordering};

/// A snapshot of one named cache on one device, summed over all threads.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::{Buffer, Device, cache_scope};
///
/// let device = Device::current();
/// for _ in 0..3 {
///     cache_scope!("stats-example", { Buffer::new(&device, 1024)?; });
/// }
/// let stats = device.cache_stats("stats-example").unwrap();
/// assert_eq!((stats.entries, stats.hits, stats.misses), (3, 2, 1));
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// The count of outermost entries. An entry without a request is counted at its end.
    pub entries: u64,
    /// Requests served from the cache.
    pub hits: u64,
    /// Requests served by the device's memory, including requests that bypassed the cache because
    /// of `max_bytes`.
    pub misses: u64,
    /// Blocks of this cache with a handle, including escaped blocks.
    pub live_blocks: u64,
    /// Bytes requested for the live blocks.
    pub live_bytes: u64,
    /// Blocks idle in this cache. An arena or a slab counts as one idle block, even with live
    /// suballocations. If a suballocation outlives its entry, its arena or slab does not count.
    pub cached_blocks: u64,
    /// Bytes idle in this cache.
    pub cached_bytes: u64,
    /// Bytes of arenas and slabs that contain escaped blocks, without the escaped blocks. These
    /// bytes serve no request, and are released when the last escaped block drops. The bytes exist
    /// only under [`Policy::Bump`](crate::Policy::Bump) and [`Policy::Plan`](crate::Policy::Plan).
    pub detached_bytes: u64,
    /// Freed blocks that streams other than the block's own stream may still use.
    pub pending_blocks: u64,
    /// Bytes of the pending blocks.
    pub pending_bytes: u64,
    /// Entries that differed from their plan, under [`Policy::Plan`](crate::Policy::Plan).
    pub divergences: u64,
    /// Requests that were not recorded because the record of their entry was full. Neither
    /// [`cache_record`](crate::Device::cache_record) nor a plan includes them.
    pub unrecorded: u64,
    /// Blocks that are live after their scope's exit.
    pub escaped_blocks: u64,
    /// Exits in the wrong order: the thread was still inside a later scope, device or stream. The
    /// exit takes effect when the thread leaves the later scope, device or stream. If the program
    /// uses only [`cache_scope!`](crate::cache_scope), the cause is a future that was suspended
    /// inside a scope.
    pub out_of_order_exits: u64,
    /// The peak of `live_bytes`. For several threads, the value is the sum of the threads' own
    /// peaks.
    pub peak_live_bytes: u64,
    /// Writes inside the scope that allocated new memory for their array, because other arrays or
    /// expressions shared the old memory. `Array::assign` of the crate `cachescope` documents the
    /// conditions.
    pub copies_on_write: u64,
}

impl CacheStats {
    pub(crate) fn add(&mut self, counters: &Counters) {
        self.entries += counters.entries.get();
        self.hits += counters.hits.get();
        self.misses += counters.misses.get();
        self.live_blocks += counters.live_blocks.get();
        self.live_bytes += counters.live_bytes.get();
        self.cached_blocks += counters.cached_blocks();
        let detached_bytes = counters.detached_bytes.get();
        self.detached_bytes += detached_bytes;
        self.cached_bytes += counters.cached_bytes().saturating_sub(detached_bytes);
        self.pending_blocks += counters.pending_blocks.get();
        self.pending_bytes += counters.pending_bytes.get();
        self.divergences += counters.divergences.get();
        self.unrecorded += counters.unrecorded.get();
        self.escaped_blocks += counters.escaped_blocks.get();
        self.out_of_order_exits += counters.out_of_order_exits.get();
        self.copies_on_write += counters.copies_on_write.get();
        self.peak_live_bytes += counters
            .peak_live_bytes
            .get()
            .max(counters.window_peak_bytes.get());
    }
}

/// The blocks that an invalidation released immediately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Invalidation {
    /// Blocks that returned to the pool.
    pub blocks: usize,
    /// Bytes of the returned blocks.
    pub bytes: u64,
}

/// A counter that only the holder of the shard writes. So an update needs only a plain load and a
/// plain store.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.set(self.get().wrapping_add(more));
    }

    #[inline]
    pub(crate) fn sub(&self, less: u64) {
        self.set(self.get().wrapping_sub(less));
    }
}

/// The counters of a shard.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) entries: Counter,
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) live_blocks: Counter,
    pub(crate) live_bytes: Counter,
    /// Full block lengths of the live blocks, in bytes.
    pub(crate) allocated_bytes: Counter,
    pub(crate) escaped_blocks: Counter,
    pub(crate) out_of_order_exits: Counter,
    pub(crate) divergences: Counter,
    /// All blocks with this shard as home: live, idle and pending. Suballocations count as blocks,
    /// and arenas do not.
    pub(crate) owned_blocks: Counter,
    pub(crate) owned_bytes: Counter,
    pub(crate) pending_blocks: Counter,
    pub(crate) pending_bytes: Counter,
    /// The peak of `live_bytes` up to the shard's last publication.
    pub(crate) peak_live_bytes: Counter,
    /// The peak of `live_bytes` since the shard's last publication.
    pub(crate) window_peak_bytes: Counter,
    /// The `live_bytes` that were last published to the device's totals.
    pub(crate) published_bytes: Counter,
    /// The number of idle suballocations at the last call of `count_arenas`. `arenas` is the number
    /// of arenas at this call.
    pub(crate) idle_suballocations: Counter,
    pub(crate) arenas: Counter,
    /// The unused bytes of detached arenas at the last call of `count_arenas`.
    pub(crate) detached_bytes: Counter,
    pub(crate) unrecorded: Counter,
    pub(crate) copies_on_write: Counter,
    /// The idle bytes that remained when the holder last released idle blocks for a waiting thread.
    left_bytes: Counter,
    /// The number of entries at the release that set `left_bytes`.
    left_entries: Counter,
    /// The live bytes at the last exit that was not quiet.
    exit_live_bytes: Counter,
    /// The rise of `exit_live_bytes` since its last fall. `grown_entries` is the number of entries
    /// with a rise.
    pub(crate) grown_bytes: Counter,
    pub(crate) grown_entries: Counter,
}

/// The number of entries with rising live bytes at which a warning is due. A fall of live bytes
/// resets the count.
const GROWING_ENTRIES: u64 = 50;

impl Counters {
    /// Counts the rise of live bytes since the last exit. Each exit except a quiet exit calls this
    /// function. A quiet exit leaves the live bytes unchanged. Returns true if a warning is due.
    pub(crate) fn count_growth(&self) -> bool {
        let (before, now) = (self.exit_live_bytes.get(), self.live_bytes.get());
        self.exit_live_bytes.set(now);
        if now > before {
            self.grown_bytes.add(now - before);
            self.grown_entries.add(1);
        } else if now < before {
            self.grown_bytes.set(0);
            self.grown_entries.set(0);
        }
        now > before && self.grown_entries.get() == GROWING_ENTRIES
    }

    /// Returns the number of idle blocks. Live and pending blocks do not count. The subtraction
    /// saturates, because another thread may read the counters during a change.
    pub(crate) fn cached_blocks(&self) -> u64 {
        if self.cached_bytes() <= self.detached_bytes.get() {
            return 0; // Live arenas and headers without an arena do not count.
        }
        let whole = self
            .idle_headers()
            .saturating_sub(self.idle_suballocations.get());
        whole + self.arenas.get()
    }

    /// Returns the number of idle headers. Suballocations count, and arenas do not.
    pub(crate) fn idle_headers(&self) -> u64 {
        self.owned_blocks
            .get()
            .saturating_sub(self.live_blocks.get() + self.pending_blocks.get())
    }

    pub(crate) fn cached_bytes(&self) -> u64 {
        self.owned_bytes
            .get()
            .saturating_sub(self.allocated_bytes.get() + self.pending_bytes.get())
    }

    pub(crate) fn owned(&self) -> OwnedBytes {
        OwnedBytes {
            bytes: self.owned_bytes.get(),
            pending_bytes: self.pending_bytes.get(),
            allocated_bytes: self.allocated_bytes.get(),
            live_bytes: self.live_bytes.get(),
            detached_bytes: self.detached_bytes.get(),
        }
    }

    /// Records the idle bytes that remain after a release for a waiting thread.
    pub(crate) fn note_left(&self) {
        let left_bytes = self.cached_bytes();
        let left_bytes = left_bytes.saturating_sub(self.detached_bytes.get());
        self.left_bytes.set(left_bytes);
        self.left_entries.set(self.entries.get());
    }

    /// Returns the idle bytes that the holder could not release in the current entry, because live
    /// blocks share their arena. Returns 0 if the holder has not released blocks for a waiting
    /// thread in this entry.
    pub(crate) fn left_bytes(&self) -> u64 {
        match self.left_entries.get() == self.entries.get() {
            true => self.left_bytes.get(),
            false => 0,
        }
    }

    pub(crate) fn count_released(&self, is_arena: bool) {
        let counter = if is_arena {
            &self.arenas
        } else {
            &self.idle_suballocations
        };
        counter.set(counter.get().saturating_sub(1));
    }

    /// Merges the peak of the window into the shard's peak, and begins a new window at the current
    /// live bytes.
    #[inline]
    pub(crate) fn begin_window(&self) {
        let peak = self.window_peak_bytes.get();
        if peak > self.peak_live_bytes.get() {
            self.peak_live_bytes.set(peak);
        }
        self.window_peak_bytes.set(self.live_bytes.get());
    }

    pub(crate) fn served(&self) -> u64 {
        self.hits.get().wrapping_add(self.misses.get())
    }

    #[inline]
    pub(crate) fn count_out(&self, block_bytes: u64, requested_bytes: u64) {
        self.live_blocks.add(1);
        self.allocated_bytes.add(block_bytes);
        let live_bytes = self.live_bytes.get() + requested_bytes;
        self.live_bytes.set(live_bytes);
        if live_bytes > self.window_peak_bytes.get() {
            self.window_peak_bytes.set(live_bytes);
        }
    }

    #[inline]
    pub(crate) fn count_back(&self, block_bytes: u64, requested_bytes: u64) {
        self.live_blocks.sub(1);
        self.allocated_bytes.sub(block_bytes);
        self.live_bytes.sub(requested_bytes);
    }
}
