//! The allocator of a shard: its store and its active policy. One thread at a time uses an
//! allocator. The module [`shard`](super::shard) selects this thread, and handles the signals of
//! other threads.
//!
//! Architecture invariant: an allocator never calls foreign code or drops a handle on a block. So
//! no code reenters an allocator while it is borrowed.

mod aging;
mod arena;
#[cfg(test)]
mod check;
mod fast_path;
mod hit;
mod observe;
mod refill;
mod release;
mod skipped;

use std::mem;
use std::ops::{Deref, DerefMut};

use crate::cache::arena::DetachedArenas;
use crate::cache::policy::{CachePolicy, Policies, Policy, dispatch};
use crate::cache::settings::CacheSettings;
use crate::cache::stats::Counters;
use crate::cache::store::Store;
use crate::memory::header::Home;
use aging::Aging;
pub(super) use fast_path::FastPath;

/// The epoch of a block that belongs to no cache. This epoch is below all other epochs.
const UNCACHED_EPOCH: u64 = 0;
/// The epoch of a header without a block, for arrays of 0 bytes.
pub(super) const EMPTY_EPOCH: u64 = u64::MAX >> 1;

/// The store and the policies of a shard.
///
/// Invariants:
/// - Each block of the shard is live, pending, to be released, or idle. An idle block is in the
///   store or the active policy.
/// - Between two entries, no suballocation of an attached arena is live.
pub(super) struct AllocatorState {
    pub(super) store: Store,
    policies: Policies,
    fills: bool,
    /// True while the device's recorder records requests and frees. Requests and frees then take
    /// the slow path.
    is_observed: bool,
    /// True if the policy or the record has work to do at the beginning of an entry. `ends` is true
    /// if the policy or the record has work to do at the end.
    begins: bool,
    ends: bool,
    /// The version of the settings that the policy was configured with.
    version: u64,
    /// The nesting depth of entries; 0 if no thread is inside.
    depth: u64,
    /// The number of entries that the shard had counted when the last entry ended.
    counted_entries: u64,
    /// The number of requests that the shard had served when the last entry ended.
    counted_requests: u64,
    aging: Aging,
    /// The first epoch in which an exit may have blocks to release.
    due_epoch: u64,
    /// The peak of allocated bytes, by full block lengths. The peak is measured at misses.
    peak_out_bytes: u64,
    /// The `peak_out_bytes` at the end of the previous entry.
    known_out_bytes: u64,
    /// The number of live headers without a block.
    empties: u64,
}

impl AllocatorState {
    /// Creates the allocator of a cache. If `is_uncached` is true, creates the allocator of blocks
    /// that belong to no cache. If `fills` is true, the device fills every block, so no request is
    /// a hit.
    pub(super) fn new(home: Home, is_uncached: bool, fills: bool) -> Self {
        let mut store = Store::new(home);
        store.invalidation_epoch = u64::from(is_uncached);
        Self {
            store,
            policies: Policies::default(),
            fills,
            is_observed: false,
            begins: false,
            ends: false,
            version: 0,
            depth: 0,
            counted_entries: 0,
            counted_requests: 0,
            aging: Aging::default(),
            due_epoch: u64::MAX,
            peak_out_bytes: 0,
            known_out_bytes: 0,
            empties: 0,
        }
    }

    pub(super) fn is_entered(&self) -> bool {
        self.depth > 0
    }

    pub(super) fn begin_nested(&mut self) {
        self.depth += 1;
        if let Some(policy) = self.policies.arenas() {
            policy.begin_nested();
        }
    }

    /// Ends an entry. Returns true for the outermost entry.
    #[inline]
    pub(super) fn end_nested(&mut self) -> bool {
        self.depth -= 1;
        if self.depth > 0
            && let Some(policy) = self.policies.arenas()
        {
            policy.end_nested(&mut self.store);
        }
        self.depth == 0
    }

    /// Returns true if an exit has no block to release.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.store.epoch < self.due_epoch && self.store.to_release.is_empty()
    }

    fn keeps_idle(&mut self) -> bool {
        dispatch!(self.policies, policy => policy.keeps_idle())
    }

    /// Returns the policy whose idle blocks serve requests. If requests are recorded or blocks are
    /// filled, returns `None`, because each request takes the slow path.
    pub(super) fn fast_policy(&mut self) -> Option<Policy> {
        let policy = dispatch!(self.policies, policy => policy.fast_path());
        (!self.is_slow()).then_some(policy)
    }

    /// Returns the epoch of the blocks that the fast path takes back; `None` while frees are
    /// recorded.
    #[inline]
    pub(super) fn free_epoch(&self) -> Option<u64> {
        (!self.is_observed).then_some(self.store.epoch)
    }

    fn is_slow(&self) -> bool {
        self.is_observed || self.is_filled_or_recorded()
    }

    fn is_filled_or_recorded(&self) -> bool {
        self.fills || self.store.is_recording()
    }
}

/// The allocator of a shard, for the thread that holds the shard.
pub(super) struct Allocator<'a> {
    pub(super) state: &'a mut AllocatorState,
    pub(super) counters: &'a Counters,
    pub(super) fast_path: &'a FastPath,
}

impl Deref for Allocator<'_> {
    type Target = AllocatorState;

    #[inline]
    fn deref(&self) -> &AllocatorState {
        self.state
    }
}

impl DerefMut for Allocator<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut AllocatorState {
        self.state
    }
}

impl Allocator<'_> {
    /// Opens the fast paths of requests and frees. While requests or frees are recorded, their fast
    /// path stays closed.
    pub(in crate::cache) fn open_fast_path(&mut self) {
        self.update_fast_path();
        self.update_free_epoch();
    }

    fn update_fast_path(&mut self) {
        let policy = self.fast_policy();
        self.fast_path.set_policy(policy);
    }

    fn begin_policy(&mut self) {
        let AllocatorState {
            store, policies, ..
        } = &mut *self.state;
        dispatch!(policies, policy => policy.begin(store));
        if self.store.is_recording() {
            self.due_epoch = 0; // The exit must run, because it ends the record.
        }
        self.update_fast_path();
    }

    #[cold]
    fn configure(&mut self, settings: &CacheSettings) {
        self.version = settings.version(); // Read first: the next entry applies later changes.
        let config = settings.config();
        if self.policies.active != config.policy {
            self.release_all();
            // The last exit detached the arenas with live suballocations, so the policy holds no
            // memory.
            let left = self.policies.idle_and_arenas();
            debug_assert_eq!(left, (0, 0), "the previous policy still holds memory");
            self.policies.activate(config.policy);
        }
        self.store.records = config.record;
        self.begins = config.record || dispatch!(self.policies, policy => policy.begins());
        self.ends = config.record || dispatch!(self.policies, policy => policy.ends());
        self.observe(settings.is_observed());
        self.aging.configure(&config);
        self.due_epoch = if self.keeps_idle() {
            self.aging.due_epoch()
        } else {
            0
        };
        self.update_fast_path();
    }

    /// Invalidates the live blocks, which then go to the pool when they drop.
    pub(super) fn invalidate(&mut self) {
        self.detach_arenas();
        self.store.epoch += 1;
        self.store.invalidation_epoch = self.store.epoch;
        self.update_free_epoch();
    }

    /// Begins an outermost entry. `entries` is the number of earlier entries. Returns true if the
    /// settings have changed since the last entry.
    #[inline]
    pub(super) fn begin(&mut self, settings: &CacheSettings, entries: u64) -> bool {
        self.depth = 1;
        if entries != self.counted_entries {
            let skipped = entries - self.counted_entries;
            self.end_skipped(skipped);
            self.counters
                .escaped_blocks
                .set(self.counters.live_blocks.get());
        }
        self.counted_entries = entries + 1;
        let has_changed = self.version != settings.version();
        if has_changed {
            self.configure(settings);
        }
        if self.begins {
            self.begin_policy();
        }
        has_changed
    }

    /// Ends the outermost entry. Live blocks then count as escaped. Returns true if the entry was
    /// recorded.
    #[inline]
    pub(super) fn end(&mut self) -> bool {
        let live_blocks = self.counters.live_blocks.get();
        let is_recorded =
            self.ends && self.end_policy(live_blocks != self.counters.escaped_blocks.get());
        self.known_out_bytes = self.peak_out_bytes;
        self.end_skipped(1);
        self.counters.escaped_blocks.set(live_blocks);
        is_recorded
    }

    #[inline(never)]
    fn end_policy(&mut self, escapes: bool) -> bool {
        let AllocatorState {
            store, policies, ..
        } = &mut *self.state;
        dispatch!(policies, policy => policy.end(store, self.counters, escapes))
    }

    /// Closes the allocator. Returns the number of live headers, and the detached arenas with live
    /// suballocations.
    pub(super) fn close(&mut self) -> (u64, DetachedArenas) {
        let headers = self.counters.live_blocks.get() + self.empties;
        (headers, mem::take(&mut self.store.detached))
    }
}
