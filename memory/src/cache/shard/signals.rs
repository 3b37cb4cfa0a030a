//! Signals to a shard's holder: what only it can do.
//!
//! Invariant: once the sender has returned and the holder has left, the signal was followed. The
//! sender sets the signal and then reads the state; the holder sets the state and then reads the
//! signals. So one of the two sees the other, if the processor keeps both in order: it may delay a
//! store beyond a load. The sender's heavy barrier orders both sides; the exit pays only where
//! there is none.

use super::{Owner, Shard};
use crate::memory::header::List;
use crate::sync::barrier::{self, heavy_barrier};
use crate::sync::{Arc, Ordering};

/// At its next exit or entry the holder gives every idle block back.
pub(in crate::cache) const DRAIN: u64 = 1;
/// And what is live now goes to the pool when it drops.
pub(in crate::cache) const INVALIDATE: u64 = 2;
/// The cache was removed, and the shard is to be closed.
pub(in crate::cache) const CLOSE: u64 = 4;
/// Any of these.
pub(super) const ANY_SIGNAL: u64 = DRAIN | INVALIDATE | CLOSE;
/// Never taken back: a heavy barrier is none for others here, so every exit needs one of its own.
const FENCE: u64 = 8;

/// The signals of a shard that has none.
pub(super) fn no_signals() -> u64 {
    if barrier::is_asymmetric() { 0 } else { FENCE }
}

/// Signals shards one after the other, as long as `take` wants more of what they release at once.
/// Those that a thread is inside of follow as it leaves.
pub(in crate::cache) fn signal_each<D: Owner>(
    shards: &[Arc<Shard<D>>],
    signals: u64,
    mut take: impl FnMut(List<Shard<D>>) -> bool,
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
    // Whoever left one of them without seeing its signal has left it by now for this thread's eyes.
    heavy_barrier();
    for shard in busy {
        shard.drain_from_outside().map(&mut take);
    }
}

impl<D: Owner> Shard<D> {
    /// Sends a signal. Where nobody is inside, or the calling thread is, follows it now, and
    /// answers what goes to the pool for it.
    pub(in crate::cache) fn signal(&self, signals: u64) -> Option<List<Self>> {
        self.signals.fetch_or(signals, Ordering::AcqRel);
        self.drain_from_outside()
    }

    /// Does whatever is due; `None` while another thread is inside.
    pub(in crate::cache) fn drain_from_outside(&self) -> Option<List<Self>> {
        if self.is_closed() {
            return Some(List::new());
        }
        let mut guard = self.guard()?;
        let idle = guard.drain_deferred();
        guard.publish();
        Some(idle)
    }

    /// Follows signals that came while the holder was on its way out: its look back finds them,
    /// unless the sender finds the shard idle.
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
            let idle = guard.drain_deferred();
            guard.publish();
            self.give_as_signalled(idle, signals);
        }
        if signals & CLOSE != 0 {
            self.device.close_removed();
        }
    }

    /// An invalidation gives to the device as well what falls idle in the pool.
    pub(super) fn give_as_signalled(&self, idle: List<Self>, signals: u64) {
        self.device.give_back(idle, signals & INVALIDATE != 0);
    }

    /// Takes the signals about blocks; the one to close stays.
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
