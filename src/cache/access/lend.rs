//! Slabs that outlive what a plan does with them: what runs by their addresses alone, as a captured graph
//! does, holds the slab, and the plan goes on with another.

use std::ptr::NonNull;

use super::Access;
use crate::cache::chunk::PART;
use crate::cache::policy::Policy;
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

/// Whether the block is a part of a plan's slab, which others have in their turn.
pub(crate) fn is_planned(handle: &BlockHandle) -> bool {
    let identity = handle.home().identity.as_ref();
    handle.class == PART && identity.is_some_and(|own| own.config().policy == Policy::Plan)
}

impl Access<'_> {
    fn lend_slab(&mut self, address: DevicePtr) -> Option<BlockHandle> {
        let (part, slab_bytes, stamp) = self.inner.lend_slab(address)?;
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
        let header = Header::new(part, PART, NonNull::from(self.shard));
        Some(header.hand_out(slab_bytes, stamp))
    }
}
