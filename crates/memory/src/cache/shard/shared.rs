//! A shard that threads use only by visits. No thread is inside the shard, even during an entry. So
//! an entry may begin on one thread and end on another thread.

use std::mem;
use std::ptr::NonNull;

use super::{BlockHandle, Guard, IDLE, Shard, VISIT};
use crate::device::StreamId;
use crate::sync::Ordering;

impl Shard {
    /// Begins an entry. Returns false if the shard is closed.
    pub(in crate::cache) fn enter_by_visit(&self) -> bool {
        let Some(mut guard) = self.guard() else {
            return false;
        };
        if guard.is_entered() {
            guard.begin_nested();
            return true;
        }
        self.last_used
            .store(self.device.totals.miss_epoch(), Ordering::Relaxed);
        guard.begin();
        let idle = guard.drain_deferred();
        drop(guard);
        self.device.return_idle(idle);
        true
    }

    /// Ends the innermost entry. Returns false if no entry is in progress, or if the shard is
    /// closed.
    pub(in crate::cache) fn exit_by_visit(&self) -> bool {
        let Some(mut guard) = self.guard().filter(|guard| guard.is_entered()) else {
            return false;
        };
        if !guard.end_nested() {
            return true;
        }
        let idle = guard.end_and_drain();
        drop(guard);
        self.device.return_idle(idle);
        true
    }

    /// Returns the block of a hit. Returns `None` on a miss, or if another thread visits the shard.
    #[inline]
    pub(in crate::cache) fn hit_by_visit(
        &self,
        bytes: u64,
        stream: StreamId,
    ) -> Option<BlockHandle> {
        let mut guard = self.try_visit()?;
        if !self.remote.is_empty() {
            guard.drain_remote();
        }
        guard.any_hit(bytes, stream).map(BlockHandle::from)
    }

    /// Begins a visit that lasts until [`end_visit`](Self::end_visit). Before a fork, this visit
    /// ensures that no other thread uses the shard. Returns false if the shard is closed.
    pub(in crate::cache) fn hold(&self) -> bool {
        self.guard().map(mem::forget).is_some()
    }

    /// If no thread holds the shard, visits it.
    #[inline]
    fn try_visit(&self) -> Option<Guard<'_>> {
        self.state
            .compare_exchange(IDLE, VISIT, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        Some(self.held(true))
    }
}

/// Takes back a block by a visit to its shard. If this would need a lock or a wait, returns the
/// block.
#[inline]
pub(in crate::cache) fn free_by_visit(block: BlockHandle) -> Option<BlockHandle> {
    let home = NonNull::from(block.home());
    // SAFETY: a shard outlives every header that names it. After the block has returned, the visit
    // below prevents the close of the shard. The end of the visit is the last access.
    let shard = unsafe { home.as_ref() };
    if shard.settings.is_none() {
        return Some(block);
    }
    let Some(mut guard) = shard.try_visit() else {
        return Some(block);
    };
    // Only a visitor sets `follows_recording`, so no other thread sets it during this visit.
    if shard.follows_recording.load(Ordering::Relaxed) {
        drop(guard);
        return Some(block);
    }
    match block.into_header() {
        Ok(header) => {
            if let Some(header) = guard.free(header) {
                guard.free_slowly(header);
            }
            None
        }
        Err(shared) => {
            drop(guard);
            Some(shared)
        }
    }
}
