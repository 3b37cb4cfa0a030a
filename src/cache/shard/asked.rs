//! What others ask of a shard that only its holder can do.
//!
//! Invariant: once both are done, whoever asked and whoever was inside, it has been done. The asker sets
//! the mark and then looks at the state; the holder sets the state and then looks at the marks. So one of
//! the two sees the other, if the processor keeps both in order: it may let a store wait while it loads.
//! The asker's heavy barrier orders both sides; the exit has nothing to pay but where there is none.

use super::Shard;
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
pub(super) const ASKED: u64 = DRAIN | INVALIDATE | CLOSE;
/// Never taken back: a heavy barrier is none for others here, so every exit needs one of its own.
const FENCE: u64 = 8;

/// The marks of a shard that nobody asked anything.
pub(super) fn unmarked() -> u64 {
    if barrier::is_asymmetric() { 0 } else { FENCE }
}

/// Asks shards one after the other for what only their holders can do, as long as `take` says of what one
/// gives at once that there is to be more. Those that a thread is inside of do it as it leaves.
pub(in crate::cache) fn ask_each(
    shards: &[Arc<Shard>],
    marks: u64,
    mut take: impl FnMut(List<Shard>) -> bool,
) {
    let mut busy = Vec::new();
    for shard in shards {
        let goes_on = match shard.ask(marks) {
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
    // Whoever left one of them without seeing its mark has left it by now for this thread's eyes.
    heavy_barrier();
    for shard in busy {
        shard.settle_from_outside().map(&mut take);
    }
}

impl Shard {
    /// Asks for what only the holder can do; where nobody is inside, or the calling thread is, it is done
    /// now, and the answer is what goes to the pool for it.
    pub(in crate::cache) fn ask(&self, marks: u64) -> Option<List<Self>> {
        self.marks.fetch_or(marks, Ordering::AcqRel);
        self.settle_from_outside()
    }

    /// Does whatever is due; `None` while another thread is inside.
    pub(in crate::cache) fn settle_from_outside(&self) -> Option<List<Self>> {
        if self.is_closed() {
            return Some(List::new());
        }
        let mut access = self.access()?;
        let idle = access.settle();
        access.publish();
        Some(idle)
    }

    /// What was asked while the holder was on its way out: its look back finds it, unless the asker finds
    /// the shard idle.
    #[cold]
    #[inline(never)]
    pub(super) fn follow_late_marks(&self, mut marks: u64) {
        if marks & FENCE != 0 {
            heavy_barrier();
            marks = self.marks.load(Ordering::Relaxed);
        }
        if marks & (DRAIN | INVALIDATE) != 0
            && let Some(mut access) = self.access()
        {
            let idle = access.settle();
            access.publish();
            self.give_as_asked(idle, marks);
        }
        if marks & CLOSE != 0 {
            self.device.sweep_retired();
        }
    }

    /// An invalidation gives to the device as well what falls idle in the pool.
    pub(super) fn give_as_asked(&self, idle: List<Self>, marks: u64) {
        if marks & INVALIDATE != 0 {
            self.device.give_and_release(idle);
        } else {
            self.device.give(idle);
        }
    }

    /// What the holder is asked to do with the blocks; it stays asked to close.
    pub(in crate::cache) fn take_marks(&self) -> u64 {
        let wanted = DRAIN | INVALIDATE;
        match self.marks.load(Ordering::Relaxed) & wanted {
            0 => 0,
            _ => self.marks.fetch_and(!wanted, Ordering::AcqRel) & wanted,
        }
    }

    #[cfg(test)]
    pub(in crate::cache) fn is_marked(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & ASKED != 0
    }
}
