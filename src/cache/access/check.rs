//! What is true of a shard's inside whenever nobody is in the middle of anything.

use super::Access;
use crate::cache::chunk::{CHUNK, PART};
use crate::pool::size_class::{CLASSES, floor_class};

impl Access<'_> {
    /// Asserts the invariants of the inside, and answers the bytes of its chunks.
    pub(in crate::cache) fn check(&mut self) -> u64 {
        let inner = &mut *self.inner;
        let counters = &self.shard.counters;
        let (mut blocks, mut bytes) = (0, 0);
        let (slab_bytes, parts) = inner.plans.check();
        let chunk_bytes =
            inner.bump.check(&inner.bins[PART], inner.clock) + slab_bytes + inner.aside.bytes();
        blocks += parts + inner.bins[PART].iter().count() as u64;
        let mut in_bins = 0;
        for (class, bin) in inner.bins[..CLASSES].iter().enumerate() {
            for header in bin.iter() {
                assert_eq!(
                    floor_class(header.block.bytes()),
                    class,
                    "a bin holds blocks of its class"
                );
                assert!(
                    header.block.other_streams.is_empty(),
                    "it is its stream's alone"
                );
                blocks += 1;
                bytes += header.block.bytes();
                in_bins += 1;
            }
        }
        assert_eq!(
            inner.idle().count(),
            in_bins,
            "every block is found in its class"
        );
        let pending = inner
            .shared
            .iter()
            .chain(inner.pending.iter().map(|header| &**header));
        let sizes = pending.map(|header| header.block.bytes());
        let (pending_blocks, pending_bytes) =
            sizes.fold((0, 0), |(count, sum), size| (count + 1, sum + size));
        assert_eq!(counters.pending_blocks.get(), pending_blocks);
        assert_eq!(counters.pending_bytes.get(), pending_bytes);
        for header in inner.stale.iter() {
            blocks += u64::from(header.class != CHUNK);
            bytes += if header.class == PART {
                0
            } else {
                header.block.bytes()
            };
        }
        assert_eq!(counters.idle_headers(), blocks, "what is not live is idle");
        let idle_bytes = bytes..=bytes + chunk_bytes;
        assert!(
            idle_bytes.contains(&counters.cached_bytes()),
            "and so are its bytes"
        );
        assert!(counters.escaped_blocks.get() <= counters.live_blocks.get());
        assert!(inner.exited_at <= inner.clock && inner.invalidated_at <= inner.clock);
        assert_eq!(
            inner.depth > 0,
            !self.visiting,
            "a visitor finds nobody inside"
        );
        chunk_bytes
    }
}
