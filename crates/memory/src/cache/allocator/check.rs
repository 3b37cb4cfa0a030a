//! The invariants of a shard's allocator, which hold whenever no operation is in progress.

use super::{Allocator, AllocatorState};
use crate::cache::arena::{ARENA, SUBALLOCATION};
use crate::memory::header::Header;
use crate::pool::size_class::floor_class;

impl Allocator<'_> {
    /// Asserts the invariants. Returns the bytes of the arenas.
    pub(in crate::cache) fn check(&mut self) -> u64 {
        let epoch = self.store.epoch;
        assert!(self.store.exit_epoch <= epoch && self.store.invalidation_epoch <= epoch);
        let frees = self.fast_path.frees(epoch);
        assert!(frees || self.fast_path.frees_slowly());
        let (kept, _) = self.policies.idle_and_arenas();
        let AllocatorState {
            store, policies, ..
        } = &mut *self.state;
        let (lists, suballocations) = store.lists();
        let policy = policies.arenas();
        let arenas = policy.map_or(0, |policy| policy.check(suballocations, epoch));
        let arena_bytes = arenas + store.detached.bytes();
        let mut blocks = kept + suballocations.iter().count();
        let (mut bytes, mut listed) = (0, 0);
        for (class, list) in lists {
            for header in list.iter() {
                let own_class = floor_class(header.block.bytes());
                assert_eq!(
                    own_class, class,
                    "a free list contains a block of another class"
                );
                assert!(
                    header.block.other_uses.is_empty(),
                    "an idle block is in use on other streams"
                );
                bytes += header.block.bytes();
                listed += 1;
            }
        }
        let idle = store.idle().count();
        assert_eq!(idle, listed, "an idle block is in no free list");
        blocks += listed;
        let pending = store.pending.iter().map(|header| &**header);
        let pending = store.deferred.iter().chain(pending);
        let sizes = pending.map(|header: &Header| header.block.bytes());
        let pending = sizes.fold((0, 0), |(count, sum), size| (count + 1, sum + size));
        let counted = (
            self.counters.pending_blocks.get(),
            self.counters.pending_bytes.get(),
        );
        assert_eq!(counted, pending);
        for header in store.to_release.iter() {
            blocks += usize::from(header.class != ARENA);
            let is_part = header.class == SUBALLOCATION;
            bytes += if is_part { 0 } else { header.block.bytes() };
        }
        let idle_headers = self.counters.idle_headers();
        assert_eq!(
            idle_headers, blocks as u64,
            "the numbers of idle blocks differ"
        );
        let idle_bytes = bytes..=bytes + arena_bytes;
        let cached_bytes = self.counters.cached_bytes();
        assert!(
            idle_bytes.contains(&cached_bytes),
            "the numbers of idle bytes differ"
        );
        assert!(self.counters.escaped_blocks.get() <= self.counters.live_blocks.get());
        arena_bytes
    }
}
