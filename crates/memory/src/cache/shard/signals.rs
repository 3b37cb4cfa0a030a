//! Signals to a shard's holder: requests for work that only the holder can do.
//!
//! Invariant: once the sender has returned and the holder has left, the signal has been handled.
//! The sender sets the signal and then reads the state; the holder sets the state and then reads
//! the signals. So one of the two sees the write of the other, if the processor keeps each store
//! before the load. The processor may instead delay the store beyond the load. The sender's heavy
//! barrier orders both sides. An exit needs a barrier of its own only if the system has no heavy
//! barrier.

use super::{CLOSED, IDLE, Shard, VISIT};
use crate::memory::header::{Header, List};
use crate::memory::{Census, OwnedBytes};
use crate::sync::barrier::{self, heavy_barrier};
use crate::sync::{Arc, Ordering, thread_token};

/// The holder returns every idle block to the pool at its next exit or entry. If its fast path is
/// closed as well, its next request returns them, or its next drop hands them over.
pub(super) const DRAIN: u64 = 1;
/// Like [`DRAIN`]; blocks that are live now also go to the pool, when they drop.
pub(in crate::cache) const INVALIDATE: u64 = 2;
/// The cache was removed, and the shard is to be closed.
pub(in crate::cache) const CLOSE: u64 = 4;
pub(super) const ANY_SIGNAL: u64 = DRAIN | INVALIDATE | CLOSE;
/// Never cleared. The heavy barrier of this system does not order other threads, so every exit
/// needs a barrier of its own.
const FENCE: u64 = 8;

/// Returns the initial signals of a shard.
pub(super) fn no_signals() -> u64 {
    if barrier::is_asymmetric() { 0 } else { FENCE }
}

/// Signals shards in order, as long as `take` returns true for the blocks that a shard releases at
/// once. A shard that another thread is inside follows the signal when that thread leaves.
pub(in crate::cache) fn signal_each(
    shards: &[Arc<Shard>],
    signals: u64,
    mut take: impl FnMut(List) -> bool,
) {
    let mut busy = Vec::new();
    for shard in shards {
        let goes_on = match shard.signal(signals) {
            Some(idle) => take(idle),
            None => {
                busy.push(shard);
                true
            }
        };
        if !goes_on {
            break;
        }
    }
    if busy.is_empty() {
        return;
    }
    // If a thread left its shard without seeing the signal, the barrier makes that exit visible to
    // this thread.
    heavy_barrier();
    for shard in busy {
        shard.drain_from_outside().map(&mut take);
    }
}

impl Shard {
    /// Sends a signal. If no other thread is inside, follows the signal now, and returns the blocks
    /// that go to the pool.
    pub(in crate::cache) fn signal(&self, signals: u64) -> Option<List> {
        self.signals.fetch_or(signals, Ordering::AcqRel);
        self.drain_from_outside()
    }

    /// Does all deferred work. Returns `None` if another thread is inside.
    pub(in crate::cache) fn drain_from_outside(&self) -> Option<List> {
        if self.is_closed() {
            return Some(List::new());
        }
        Some(self.guard()?.drain_and_publish())
    }

    /// Releases every idle block, as [`DRAIN`] does. Returns `None` if another thread is inside.
    pub(in crate::cache) fn drain_all_from_outside(&self) -> Option<List> {
        if self.is_closed() {
            return Some(List::new());
        }
        let mut guard = self.guard()?;
        let mut idle = guard.drain_deferred();
        idle.append(&mut guard.release_idle());
        guard.publish();
        Some(idle)
    }

    /// Returns true if a drain may find something.
    pub(in crate::cache) fn has_idle(&self) -> bool {
        self.idle_bytes() > 0 || self.counters.idle_headers() > 0 || self.has_remote()
    }

    /// Returns the idle and the pending bytes, without the blocks that other threads dropped.
    pub(in crate::cache) fn idle_bytes(&self) -> u64 {
        self.counters.cached_bytes() + self.counters.pending_bytes.get()
    }

    /// Counts the memory of this shard, except if the shard is closed: its memory then counts as
    /// orphans. Returns the counted bytes.
    ///
    /// A thread whose token is in `waiting` releases only idle blocks until its request is served.
    pub(in crate::cache) fn count(&self, census: &mut Census, waiting: &[u64]) -> OwnedBytes {
        if self.is_closed() {
            return OwnedBytes::default();
        }
        let counted = census.count(self.counters.owned());
        if let Some(holder) = self.holder() {
            census.entered_bytes += match waiting.contains(&holder) {
                true => counted.idle_bytes() + counted.pending_bytes,
                false => counted.bytes,
            };
        }
        census.has_remote |= self.has_remote();
        counted
    }

    /// Returns the token of the thread inside, if it is not this thread.
    pub(in crate::cache) fn holder(&self) -> Option<u64> {
        let state = self.state.load(Ordering::Relaxed);
        let is_entered = state != CLOSED && state & VISIT == 0 && state != IDLE;
        (is_entered && state != thread_token()).then_some(state)
    }

    /// Follows signals that were sent while the holder was leaving. After the holder has left, it
    /// reads the signals again. The holder finds these signals, unless the sender finds the shard
    /// idle.
    #[cold]
    #[inline(never)]
    pub(super) fn follow_late_signals(&self, mut signals: u64) {
        if signals & FENCE != 0 {
            heavy_barrier();
            signals = self.signals.load(Ordering::Relaxed);
        }
        if signals & (DRAIN | INVALIDATE) != 0
            && let Some(mut guard) = self.guard()
        {
            let idle = guard.drain_and_publish();
            self.return_as_signalled(idle, signals);
        }
        if signals & CLOSE != 0 {
            self.device.sweep_retired();
        }
    }

    /// Returns true if a thread waits for the idle blocks.
    #[inline]
    pub(super) fn has_waiter(&self) -> bool {
        self.signals.load(Ordering::Relaxed) & DRAIN != 0
    }

    /// Signals [`DRAIN`], and sends the thread inside to the slow path, where it finds the signal.
    pub(in crate::cache) fn request_idle(&self) {
        self.signals.fetch_or(DRAIN, Ordering::AcqRel);
        self.fast_path.close();
    }

    /// Releases every idle block for a thread that waits for memory. Returns them, for the pool;
    /// empty if no thread waits. Called by the holder.
    pub(in crate::cache) fn release_for_waiter(&self) -> List {
        if self.signals.fetch_and(!DRAIN, Ordering::AcqRel) & DRAIN == 0 {
            return List::new();
        }
        let mut guard = self.own();
        guard.open_fast_path();
        guard.drain_remote();
        guard.release_for_waiter()
    }

    /// Takes back a block that was not freed by the fast path. Called by the holder. If a thread
    /// waits for memory, the idle blocks go to a list of the device, without a lock.
    pub(super) fn free_by_holder(&self, header: Box<Header>) {
        let mut guard = self.own();
        guard.free_slowly(header);
        if !self.fast_path.frees_slowly() {
            return;
        }
        guard.open_fast_path(); // It has no effect while frees are recorded.
        drop(guard);
        if self.has_waiter() {
            self.device.hand_over(self.release_for_waiter());
        }
    }

    /// Returns blocks to the pool. After an invalidation, also releases to the device the segments
    /// and pages that become idle in the pool.
    pub(super) fn return_as_signalled(&self, idle: List, signals: u64) {
        if signals & INVALIDATE != 0 {
            self.device.return_and_release(idle);
        } else {
            self.device.return_idle(idle);
        }
    }

    /// Takes the signals about blocks; [`CLOSE`] stays set.
    pub(in crate::cache) fn take_signals(&self) -> u64 {
        let request = DRAIN | INVALIDATE;
        match self.signals.load(Ordering::Relaxed) & request {
            0 => 0,
            _ => self.signals.fetch_and(!request, Ordering::AcqRel) & request,
        }
    }

    #[cfg(test)]
    pub(in crate::cache) fn is_signalled(&self) -> bool {
        self.signals.load(Ordering::Relaxed) & ANY_SIGNAL != 0
    }
}
