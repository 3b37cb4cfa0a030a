//! The close of a shard, and its orphans: the blocks that are live at the close.

use super::{CLOSED, Caches, OrphanReferences, Shard};
use crate::cache::allocator::EMPTY_EPOCH;
use crate::cache::arena::SUBALLOCATION;
use crate::cache::record::RECORDED;
use crate::memory::header::{Header, List};
use crate::sync::{Arc, Ordering};

impl Shard {
    /// Closes the shard permanently. Returns the blocks that go to the pool; `None` if a thread is
    /// inside.
    pub(in crate::cache) fn close(self: &Arc<Self>, device: Arc<Caches>) -> Option<List> {
        if self.is_closed() {
            return Some(List::new());
        }
        if self.is_held() {
            return None;
        }
        let mut guard = self.guard()?;
        // `kept_alive` is set before the list is closed. A thread that finds the list closed may
        // drop the last orphan, and then takes `kept_alive`.
        *self.kept_alive.lock() = Some((device, Arc::clone(self)));
        // The lock of `orphaned` is held until the arenas are stored, because an orphan may drop
        // earlier.
        let mut orphaned = self.orphaned.lock();
        for header in self.remote.close() {
            guard.free_slowly(header);
        }
        let (idle, orphans, detached) = guard.close();
        *orphaned = detached;
        drop(orphaned);
        self.state.store(CLOSED, Ordering::Release);
        self.end.read();
        drop(self.count_orphans(orphans as i64));
        Some(idle)
    }

    /// Adds `more` to the count of orphans. If the count becomes 0, returns the references that the
    /// orphans kept alive.
    fn count_orphans(&self, more: i64) -> Option<OrphanReferences> {
        let before = self.orphans.fetch_add(more, Ordering::AcqRel);
        if before + more == 0 {
            self.end.own();
            self.kept_alive.lock().take()
        } else {
            None
        }
    }

    /// Releases the block of an orphan to the pool. If the orphan is the last suballocation of
    /// arenas, releases these arenas.
    fn free_orphan(&self, mut header: Box<Header>) {
        header.set_epoch(header.epoch() & !RECORDED);
        let blocks = if header.class == SUBALLOCATION {
            let mut orphaned = self.orphaned.lock();
            orphaned.share(&mut header);
            orphaned.free(header.epoch(), header.block.bytes())
        } else {
            List::from(header)
        };
        let bytes = blocks.iter().map(|header| header.block.bytes()).sum();
        self.device.totals.release_orphaned(bytes);
        self.device
            .memory()
            .free(blocks.map(|header| header.into_block()));
    }

    /// Takes back a block from a thread that does not hold the shard. If the block is the last
    /// orphan, returns the references that it kept alive.
    #[cold]
    #[inline(never)]
    pub(super) fn end_orphan(&self, header: Box<Header>) -> Option<OrphanReferences> {
        let mut header = self.remote.push(header).err()?;
        // The list refused the header, so the shard is closed, and `kept_alive` is set. It stays
        // set until `count_orphans` has counted this orphan.
        header.end_uses(); // This clears the bit `SHARED` of the epoch.
        if header.epoch() != EMPTY_EPOCH {
            self.device.totals.drop_orphan(header.requested_bytes);
            self.free_orphan(header);
        }
        self.end.read();
        self.count_orphans(-1)
    }
}
