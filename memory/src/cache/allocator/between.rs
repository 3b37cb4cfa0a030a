//! The requests of a handle between two entries. Free lists alone serve them: the next entry hands
//! out all of an arena.

use super::Allocator;
use crate::cache::stats::Counters;
use crate::device::StreamId;
use crate::memory::header::{HandedOut, Header};
use crate::pool::Rounding;

impl Allocator {
    /// Returns the block of a hit between two entries.
    #[cold]
    pub(in crate::cache) fn allocate_between_entries(
        &mut self,
        counters: &Counters,
        bytes: u64,
        stream: StreamId,
    ) -> Option<HandedOut> {
        debug_assert!(!self.is_entered());
        self.fast_path?;
        let rounded_bytes = Rounding::Units.round(bytes)?;
        let header = self.store.pop_exact(rounded_bytes, stream)?;
        Some(self.hand_out_hit(counters, header, bytes))
    }

    /// Hands out a block that was idle.
    pub(in crate::cache) fn hand_out_hit(
        &self,
        counters: &Counters,
        header: Box<Header>,
        requested_bytes: u64,
    ) -> HandedOut {
        counters.hits.add(1);
        counters.count_out(header.block.bytes(), requested_bytes);
        header.hand_out(requested_bytes, self.store.epoch)
    }
}
