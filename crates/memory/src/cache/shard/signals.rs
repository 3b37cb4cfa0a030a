//! Signals to a shard's holder. A signal requests an operation that only the holder can execute.
//!
//! Invariant: after the sender has returned and the holder has left, the signal has been handled.
//! The sender stores the signal and then loads the state. The leaving holder stores the state and
//! then loads the signals. If each thread's store precedes its load, at least one thread loads the
//! other thread's value. But the processor may delay a store beyond a later load. The sender's
//! heavy barrier orders the accesses of the two threads. If the system has no heavy barrier, each
//! exit needs its own barrier.

use super::{CLOSED, IDLE, Shard, VISIT};
use crate::memory::header::{Header, List};
use crate::memory::{Census, OwnedBytes};
use crate::sync::barrier::{self, heavy_barrier};
use crate::sync::{Arc, Ordering, thread_token};

/// The signal to return every idle block to the pool. The holder follows this signal at its next
/// exit or entry. If the fast path is closed too, the holder follows the signal at its next request
/// or drop.
pub(super) const DRAIN: u64 = 1;
/// The signal to invalidate the shard. It also has the effect of [`DRAIN`]. Live blocks also go to
/// the pool when they drop.
pub(in crate::cache) const INVALIDATE: u64 = 2;
/// The signal to close the shard, because the cache was removed.
pub(in crate::cache) const CLOSE: u64 = 4;
pub(super) const ANY_SIGNAL: u64 = DRAIN | INVALIDATE | CLOSE;
/// The signal that every exit needs its own barrier, because the system's heavy barrier does not
/// order other threads. This signal is never cleared.
const FENCE: u64 = 8;

pub(super) fn no_signals() -> u64 {
    if barrier::is_asymmetric() { 0 } else { FENCE }
}

/// Signals shards in order. Calls `take` with the blocks that a shard releases immediately, and
/// stops if `take` returns false. If another thread is inside a shard, the thread inside follows
/// the signal when it leaves.
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
    // If a thread left its shard before it read the signal, the barrier makes the exit visible to
    // this thread.
    heavy_barrier();
    for shard in busy {
        shard.drain_from_outside().map(&mut take);
    }
}

impl Shard {
    /// Sends a signal. If no other thread is inside, follows the signal immediately, and returns
    /// the blocks that go to the pool.
    pub(in crate::cache) fn signal(&self, signals: u64) -> Option<List> {
        self.signals.fetch_or(signals, Ordering::AcqRel);
        self.drain_from_outside()
    }

    /// Drains the shard. Returns the blocks that go to the pool; `None` if another thread is
    /// inside.
    pub(in crate::cache) fn drain_from_outside(&self) -> Option<List> {
        if self.is_closed() {
            return Some(List::new());
        }
        Some(self.guard()?.drain_and_publish())
    }

    /// Releases every idle block, like [`DRAIN`]. Returns `None` if another thread is inside.
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

    pub(in crate::cache) fn has_idle(&self) -> bool {
        self.idle_bytes() > 0 || self.counters.idle_headers() > 0 || self.has_remote()
    }

    /// Returns the sum of idle and pending bytes, without the blocks that other threads dropped.
    pub(in crate::cache) fn idle_bytes(&self) -> u64 {
        self.counters.cached_bytes() + self.counters.pending_bytes.get()
    }

    /// Adds the memory of this shard to `census`. Returns the counted bytes. The memory of a closed
    /// shard is not added, because it counts as orphans.
    ///
    /// `waiting` has the tokens of waiting threads. A waiting thread releases only idle blocks
    /// until its request is served.
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

    /// Returns the token of the thread inside the shard, except for the calling thread.
    pub(in crate::cache) fn holder(&self) -> Option<u64> {
        let state = self.state.load(Ordering::Relaxed);
        let is_entered = state != CLOSED && state & VISIT == 0 && state != IDLE;
        (is_entered && state != thread_token()).then_some(state)
    }

    /// Follows signals that were sent while the holder left. After the holder has left, it reads
    /// the signals again. If this read misses a signal, the sender finds the shard idle.
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

    #[inline]
    pub(super) fn has_waiter(&self) -> bool {
        self.signals.load(Ordering::Relaxed) & DRAIN != 0
    }

    /// Signals [`DRAIN`], and closes the fast path. The holder then reads the signal on the slow
    /// path.
    pub(in crate::cache) fn request_idle(&self) {
        self.signals.fetch_or(DRAIN, Ordering::AcqRel);
        self.fast_path.close();
    }

    /// If a thread waits for memory, releases every idle block. Returns the blocks, which go to the
    /// pool. The caller must be the holder.
    pub(in crate::cache) fn release_for_waiter(&self) -> List {
        if self.signals.fetch_and(!DRAIN, Ordering::AcqRel) & DRAIN == 0 {
            return List::new();
        }
        let mut guard = self.own();
        guard.open_fast_path();
        guard.drain_remote();
        guard.release_for_waiter()
    }

    /// Takes back a block that the fast path did not free. If a thread waits for memory, hands over
    /// the idle blocks to the device without a lock. The caller must be the holder.
    pub(super) fn free_by_holder(&self, header: Box<Header>) {
        let mut guard = self.own();
        guard.free_slowly(header);
        if !self.fast_path.frees_slowly() {
            return;
        }
        guard.open_fast_path(); // While frees are recorded, this has no effect.
        drop(guard);
        if self.has_waiter() {
            self.device.hand_over(self.release_for_waiter());
        }
    }

    /// Returns blocks to the pool. After an invalidation, also releases idle segments and pages of
    /// the pool to the device.
    pub(super) fn return_as_signalled(&self, idle: List, signals: u64) {
        if signals & INVALIDATE != 0 {
            self.device.return_and_release(idle);
        } else {
            self.device.return_idle(idle);
        }
    }

    /// Removes and returns the signals about blocks. [`CLOSE`] stays set.
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
