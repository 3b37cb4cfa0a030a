//! The end of a shard, and the blocks that are still out then.

use super::{CLOSED, Keep, Owner, Shard};
use crate::cache::allocator::EMPTY_EPOCH;
use crate::cache::arena::SUBALLOCATION;
use crate::cache::record::RECORDED;
use crate::memory::header::{Header, List};
use crate::sync::{Arc, Ordering};

impl<D: Owner> Shard<D> {
    /// Closes the shard for good, unless a thread is inside; answers what goes to the pool.
    pub(in crate::cache) fn close(self: &Arc<Self>, device: D::KeepAlive) -> Option<List<Self>> {
        if self.is_closed() {
            return Some(List::new());
        }
        if self.is_held() {
            return None;
        }
        let mut guard = self.guard()?;
        // Set before the list shows that it is closed: whoever sees that may be the last orphan.
        *self.keep.lock() = Some((device, Arc::clone(self)));
        // Held until it is filled: an orphan may come before that.
        let mut orphaned = self.orphaned.lock();
        for header in self.remote.close() {
            guard.free(header);
        }
        let (idle, orphans, detached) = guard.close();
        *orphaned = detached;
        drop(orphaned);
        self.state.store(CLOSED, Ordering::Release);
        self.end.read();
        drop(self.count_orphans(orphans as i64));
        Some(idle)
    }

    /// Counts orphans; with the last of them, answers what they kept alive.
    fn count_orphans(&self, more: i64) -> Option<Keep<D>> {
        let before = self.orphans.fetch_add(more, Ordering::AcqRel);
        if before + more == 0 {
            self.end.own();
            self.keep.lock().take()
        } else {
            None
        }
    }

    /// Gives the block of an orphan back, or the arenas that a suballocation was the last of.
    fn free_orphan(&self, mut header: Box<Header<Self>>) {
        header.set_epoch(header.epoch() & !RECORDED);
        let blocks = if header.class == SUBALLOCATION {
            let mut orphaned = self.orphaned.lock();
            orphaned.share(&mut header);
            orphaned.free(header.epoch())
        } else {
            List::from(header)
        };
        self.device
            .memory()
            .free(blocks.map(|header| header.into_block()));
    }

    /// Takes a block back from a thread that does not hold the shard.
    #[cold]
    #[inline(never)]
    pub(super) fn take_back(&self, header: Box<Header<Self>>) -> Option<Keep<D>> {
        let mut header = self.remote.push(header).err()?;
        // Closed: `keep` was set before, and lasts until this orphan is counted.
        header.end_uses(); // First: another stream's use stands in the epoch too.
        if header.epoch() != EMPTY_EPOCH {
            self.device.totals().drop_orphan(header.requested_bytes);
            self.free_orphan(header);
        }
        self.end.read();
        self.count_orphans(-1)
    }
}
