//! What is counted about a cache: by one writer, read by anyone.

use crate::sync::plain::{AtomicU64, Ordering};

/// A snapshot of one named cache on one device, added up over its threads.
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
    /// Outermost entries.
    pub entries: u64,
    /// Requests served from the cache.
    pub hits: u64,
    /// Requests served from below it, those included that `max_bytes` kept out of it.
    pub misses: u64,
    /// Blocks of this cache that are handed out now, escaped ones included.
    pub live_blocks: u64,
    /// Bytes requested of them.
    pub live_bytes: u64,
    /// Blocks idle in this cache; an arena or a slab is one, a suballocation of it live or not.
    pub cached_blocks: u64,
    /// Bytes idle in this cache.
    pub cached_bytes: u64,
    /// Blocks that nobody holds, and that a stream other than their own may still use.
    pub pending_blocks: u64,
    /// Bytes of these.
    pub pending_bytes: u64,
    /// Entries that differed from their plan, under [`Policy::Plan`](crate::Policy::Plan).
    pub divergences: u64,
    /// Requests of recorded entries that came after the last one which there was room to record:
    /// of which neither [`cache_record`](crate::Device::cache_record) nor a plan knows.
    pub unrecorded: u64,
    /// Blocks alive after their scope's exit.
    pub escaped_blocks: u64,
    /// Exits that came while what their thread entered later was still open; each happens when that
    /// is left. With [`cache_scope!`](crate::cache_scope) alone, that is a future that was
    /// suspended inside of a scope.
    pub out_of_order_exits: u64,
    /// The highest `live_bytes`; over several threads, the sum of each one's own.
    pub peak_live_bytes: u64,
    /// Writes into an array, inside the scope, that gave it memory of its own, because other arrays
    /// or expressions share what it had: `Array::assign` of the crate `cachescope` says when.
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
        self.cached_bytes += counters.cached_bytes();
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

/// What an invalidation gave back at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Invalidation {
    /// Blocks that went back to the pool.
    pub blocks: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// A number with one writer at a time, the holder of the shard: a plain load and a plain store.
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

/// What a shard counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) entries: Counter,
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) live_blocks: Counter,
    /// Bytes requested of the live blocks.
    pub(crate) live_bytes: Counter,
    /// Bytes that they have.
    pub(crate) allocated_bytes: Counter,
    pub(crate) escaped_blocks: Counter,
    pub(crate) out_of_order_exits: Counter,
    pub(crate) divergences: Counter,
    /// All blocks whose home this is, live, idle and pending: an arena's suballocations, and not
    /// the arena.
    pub(crate) owned_blocks: Counter,
    pub(crate) owned_bytes: Counter,
    pub(crate) pending_blocks: Counter,
    pub(crate) pending_bytes: Counter,
    /// The highest `live_bytes` up to the last time that the shard published.
    pub(crate) peak_live_bytes: Counter,
    /// The highest `live_bytes` since.
    pub(crate) window_peak_bytes: Counter,
    /// As of the last look from outside: idle suballocations, and arenas.
    pub(crate) idle_suballocations: Counter,
    pub(crate) arenas: Counter,
    pub(crate) unrecorded: Counter,
    pub(crate) copies_on_write: Counter,
    /// The live bytes at the last exit that was not quiet.
    exit_live_bytes: Counter,
    /// By how much these rose since they last fell, and in how many entries.
    pub(crate) grown_bytes: Counter,
    pub(crate) grown_entries: Counter,
}

/// Live bytes that rose in so many entries and never fell are worth a warning.
const GROWING_ENTRIES: u64 = 50;

impl Counters {
    /// Notes at an exit whether live bytes rise from entry to entry. A quiet exit leaves them as
    /// they were. Answers whether it is time to warn of that.
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

    /// Blocks that are here and neither live nor pending. Saturating, because another thread may
    /// read in the middle of a change.
    pub(crate) fn cached_blocks(&self) -> u64 {
        if self.cached_bytes() == 0 {
            return 0; // An arena may be live as a whole, and headers of suballocations be idle without one.
        }
        let whole = self
            .idle_headers()
            .saturating_sub(self.idle_suballocations.get());
        whole + self.arenas.get()
    }

    /// The same with suballocations instead of arenas.
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

    /// The header of a suballocation or of an arena is released.
    pub(crate) fn count_released(&self, is_arena: bool) {
        let counter = if is_arena {
            &self.arenas
        } else {
            &self.idle_suballocations
        };
        counter.set(counter.get().saturating_sub(1));
    }

    /// All requests so far.
    pub(crate) fn served(&self) -> u64 {
        self.hits.get().wrapping_add(self.misses.get())
    }

    /// A block goes out.
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

    /// It comes back.
    #[inline]
    pub(crate) fn count_back(&self, block_bytes: u64, requested_bytes: u64) {
        self.live_blocks.sub(1);
        self.allocated_bytes.sub(block_bytes);
        self.live_bytes.sub(requested_bytes);
    }
}
