//! Slabs that outlive what a plan does with them: what runs by their addresses alone, as a captured graph
//! does, holds the slab, and the plan goes on with another.

use std::ptr::NonNull;

use super::Access;
use crate::cache::chunk::PART;
use crate::cache::{BlockHandle, Caches};
use crate::device::DevicePtr;
use crate::memory::header::Header;

impl Caches {
    /// A handle that keeps the slab in which `address` lies from being used or released, until it drops; it
    /// begins where the slab does, and all of its bytes are requested. `None` where no slab of a plan does, or where another thread is inside of its scope.
    ///
    /// Parts that are out stay valid, as when they outlive their entry.
    pub(crate) fn lend_slab(&self, address: DevicePtr) -> Option<BlockHandle> {
        let _moving = self.moving.lock();
        let caches = self.all();
        let mut shards = caches.iter().flat_map(|cache| cache.shards());
        shards.find_map(|shard| shard.access()?.lend_slab(address))
    }
}

/// Whether the block is a part of a slab that the present entry of this thread plans with: others have it in
/// their turn once it drops.
pub(crate) fn is_planned(handle: &BlockHandle) -> bool {
    handle.is_of_slab() && handle.home().is_held()
}

impl Access<'_> {
    fn lend_slab(&mut self, address: DevicePtr) -> Option<BlockHandle> {
        let (slab, stamp) = self.inner.lend_slab(address)?;
        let slab_bytes = slab.block.bytes();
        let mut header = Header::new(
            slab.block.new_suballocation(),
            PART,
            NonNull::from(self.shard),
        );
        header.join_slab(slab);
        let counters = &self.shard.counters;
        counters.owned_blocks.add(1);
        counters.count_out(0, slab_bytes);
        if self.inner.depth == 0 {
            // As whatever is out between two entries.
            self.inner.exited_at = self.inner.clock;
        }
        if stamp < self.inner.exited_at {
            counters.escaped_blocks.add(1);
        }
        Some(header.hand_out(slab_bytes, stamp))
    }
}
