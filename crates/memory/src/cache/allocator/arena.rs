//! The arenas of an allocator: requests that a new arena serves, frees of suballocations, and
//! arenas that outlive an entry.

use super::{Allocator, AllocatorState};
use crate::cache::arena::SUBALLOCATION;
use crate::cache::policy::Need;
use crate::cache::request::Request;
use crate::device::DevicePtr;
use crate::memory::Block;
use crate::memory::header::{HandedOut, Header};

impl AllocatorState {
    pub(super) fn detach_arenas(&mut self) {
        if let Some(policy) = self.policies.arenas() {
            policy.detach(&mut self.store, false);
        }
    }

    pub(super) fn note_block(&mut self, request: &Request) {
        if let Some(policy) = self.policies.arenas() {
            policy.note_block(request);
        }
    }
}

impl Allocator<'_> {
    /// Retries [`refill`](Self::refill) without a new arena, because the memory has no space for
    /// the requested arena.
    pub(in crate::cache) fn without_arena(&mut self, request: &Request) -> Result<HandedOut, Need> {
        if let Some(policy) = self.policies.arenas() {
            policy.without_arena();
        }
        self.refill(request)
    }

    /// Serves a request from a new arena. If the arena is no longer needed, returns it. A callback
    /// of the memory may have left the scope, or entered it with another policy.
    pub(in crate::cache) fn refill_from(
        &mut self,
        arena: Block,
        request: &Request,
    ) -> (Result<HandedOut, Need>, Option<Block>) {
        if !self.is_entered() {
            return (Err(Need::Block), Some(arena));
        }
        match self.refill(request) {
            Err(Need::Arena { min_bytes, .. }) if min_bytes <= arena.bytes() => {}
            other => return (other, Some(arena)),
        }
        let AllocatorState {
            store,
            policies,
            due_epoch,
            ..
        } = &mut *self.state;
        let Some(policy) = policies.arenas() else {
            return (Err(Need::Block), Some(arena));
        };
        *due_epoch = 0; // The exit must run, because it may release arenas.
        let arena = store.new_arena(self.counters, arena);
        let served = policy.add_arena(store, self.counters, arena, request);
        self.update_fast_path();
        match served {
            Ok(header) => {
                self.counters.misses.add(1);
                (Ok(self.hand_out(header, request)), None)
            }
            Err(need) => (Err(need), None),
        }
    }

    /// Hands out the slab that contains `address` as one block. The slab is detached first, so that
    /// it serves no further request. Its live suballocations stay valid.
    pub(in crate::cache) fn export_slab(&mut self, address: DevicePtr) -> Option<HandedOut> {
        let AllocatorState {
            store, policies, ..
        } = &mut *self.state;
        if let Some(policy) = policies.arenas()
            && policy.detach_at(store, address)
        {
            store.epoch += 1;
        }
        self.update_fast_path();
        self.update_free_epoch();
        let home = self.store.home();
        let (slab, epoch) = self.state.store.detached.export(address)?;
        let slab_bytes = slab.block.bytes();
        let block = slab.block.new_suballocation();
        let mut header = Header::new(block, SUBALLOCATION, home);
        header.join_slab(slab);
        self.counters.owned_blocks.add(1);
        self.counters.count_out(0, slab_bytes);
        if !self.is_entered() {
            // Every block that is live between two entries counts as escaped.
            self.store.exit_epoch = self.store.epoch;
        }
        if epoch < self.store.exit_epoch {
            self.counters.escaped_blocks.add(1);
        }
        Some(header.hand_out(slab_bytes, epoch))
    }

    pub(super) fn free_suballocation(&mut self, mut header: Box<Header>) {
        if !header.block.other_uses.is_empty() {
            if let Some(policy) = self.policies.arenas() {
                policy.share(&mut header);
            }
            self.store.detached.share(&mut header);
            self.update_fast_path();
        }
        if header.epoch() == self.store.epoch {
            self.store.push(header);
        } else {
            self.store.free_detached(header);
        }
    }

    /// Updates the counters of arenas that serve requests, of unused bytes of detached arenas, and
    /// of idle suballocations.
    pub(in crate::cache) fn count_arenas(&mut self) {
        let (idle, arenas) = self.policies.idle_and_arenas();
        let idle = idle + self.store.idle_suballocations().iter().count();
        self.counters.idle_suballocations.set(idle as u64);
        self.counters.arenas.set(arenas as u64);
        self.counters
            .detached_bytes
            .set(self.store.detached.unused_bytes());
    }
}
