//! The engine of all replays: runs a trace through an allocator in batches.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use super::event::TraceEvent;

/// An allocator to which a trace can be applied.
pub(crate) trait TraceAllocator {
    type Block: Debug;

    /// Allocates a block of at least `bytes` bytes. Returns the block and its first address, or
    /// `None` if the allocator is out of memory. `bytes` is not 0.
    fn allocate(&mut self, bytes: u64) -> Option<(Self::Block, u64)>;

    fn free(&mut self, block: Self::Block);

    /// Marks the end of an event.
    #[inline]
    fn end_event(&mut self) {}
}

/// An allocator under a trace, with counters of the events.
///
/// The measured time contains only the calls of the allocator and an array look-up. Counters are
/// updated after each batch.
///
/// Invariant: `live_bytes` is the sum of `requested`.
#[derive(Debug)]
pub(crate) struct ReplayEngine<A: TraceAllocator> {
    pub(crate) allocator: A,
    /// The blocks by slot; `None` if the slot is free, its allocation failed, or it has 0 bytes.
    live: Vec<Option<A::Block>>,
    /// The addresses of the last batch's allocations; `None` for a failed allocation.
    pub(crate) addresses: Vec<Option<u64>>,
    /// The requested bytes by slot; 0 for an unused slot.
    requested: Vec<u64>,
    live_bytes: u64,
    pub(crate) events: u64,
    pub(crate) failures: u64,
    pub(crate) peak_live_bytes: u64,
}

impl<A: TraceAllocator> ReplayEngine<A> {
    pub(crate) fn new(allocator: A) -> Self {
        Self {
            allocator,
            live: Vec::new(),
            addresses: Vec::new(),
            requested: Vec::new(),
            live_bytes: 0,
            events: 0,
            failures: 0,
            peak_live_bytes: 0,
        }
    }

    /// Applies a batch. An allocation first frees the previous block of its slot. Returns the time
    /// of the events, without the preparation and the counters.
    pub(crate) fn apply(&mut self, batch: &[TraceEvent]) -> Duration {
        let slots = batch.iter().map(|event| match event {
            TraceEvent::Allocate { slot, .. } => *slot as usize + 1,
            // A slot without an allocation has no block to free.
            TraceEvent::Free { .. } => 0,
        });
        let slots = slots.max().unwrap_or(0).max(self.live.len());
        self.live.resize_with(slots, || None);
        self.requested.resize(slots, 0);
        self.addresses.clear();
        self.addresses.reserve(batch.len());
        let start = Instant::now();
        for &event in batch {
            self.apply_event(event);
        }
        let elapsed = start.elapsed();
        self.count(batch);
        elapsed
    }

    #[inline]
    fn apply_event(&mut self, event: TraceEvent) {
        let slot = event.slot() as usize;
        // A failed allocation has no block.
        if let Some(block) = self.live.get_mut(slot).and_then(Option::take) {
            self.allocator.free(block);
        }
        match event {
            TraceEvent::Allocate { bytes: 0, .. } => self.addresses.push(Some(0)),
            TraceEvent::Allocate { bytes, .. } => {
                let (block, address) = self.allocator.allocate(bytes).unzip();
                self.live[slot] = block;
                self.addresses.push(address);
            }
            TraceEvent::Free { .. } => {}
        }
        self.allocator.end_event();
    }

    fn count(&mut self, batch: &[TraceEvent]) {
        let mut addresses = self.addresses.iter();
        self.events += batch.len() as u64;
        for &event in batch {
            let Some(requested) = self.requested.get_mut(event.slot() as usize) else {
                continue;
            };
            self.live_bytes -= std::mem::take(requested);
            let TraceEvent::Allocate { bytes, .. } = event else {
                continue;
            };
            if addresses.next().copied().flatten().is_none() {
                self.failures += 1;
                continue;
            }
            *requested = bytes;
            // The sum cannot overflow, because all blocks lie in a range of at most 2⁶³ bytes.
            self.live_bytes += bytes;
            self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes);
        }
    }
}

impl<A: TraceAllocator> Drop for ReplayEngine<A> {
    fn drop(&mut self) {
        // The allocator releases its memory after all blocks are freed.
        for block in self.live.drain(..).flatten() {
            self.allocator.free(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Counting<'a>(&'a std::cell::Cell<i64>);

    impl TraceAllocator for Counting<'_> {
        type Block = ();

        fn allocate(&mut self, _: u64) -> Option<((), u64)> {
            self.0.set(self.0.get() + 1);
            Some(((), 0))
        }

        fn free(&mut self, (): ()) {
            self.0.set(self.0.get() - 1);
        }
    }

    #[test]
    fn every_block_returns_and_unknown_slots_are_ignored() {
        let out = std::cell::Cell::new(0);
        let mut engine = ReplayEngine::new(Counting(&out));
        let allocate = |slot| TraceEvent::Allocate { slot, bytes: 8 };
        engine.apply(&[allocate(0), allocate(1), allocate(0)]);
        assert_eq!((out.get(), engine.events), (2, 3));
        engine.apply(&[TraceEvent::Free { slot: u32::MAX }]);
        assert_eq!((out.get(), engine.live.len()), (2, 2));
        drop(engine);
        assert_eq!(out.get(), 0);
    }
}
