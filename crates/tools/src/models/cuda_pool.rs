//! A model of CUDA's stream-ordered memory pool (`cuMemAllocAsync`), by its documented rules.
//!
//! - Sizes are rounded up to multiples of 512 bytes.
//! - A free block serves later requests. On the stream that freed it, the block is reusable at
//!   once.
//! - If no free block fits, unused memory is remapped to one contiguous address range. If unused
//!   memory is too small, the pool grows, in this model by multiples of 32 MiB.
//! - Synchronisation releases no memory to the device, as with the unlimited release threshold that
//!   frameworks set. With CUDA's default threshold, synchronisation releases all unused memory.
//!
//! The documentation does not define which free block serves a request. The model uses the smallest
//! block that fits. The documentation does not define the growth step either. Steps of 32 MiB are
//! often observed.
//!
//! Sources: CUDA Programming Guide, "Stream-ordered memory allocator". V. Mehta and others, "Using
//! the NVIDIA CUDA stream-ordered memory allocator, part 1", which describes remapping.

use super::driver::Driver;
use super::parts::Parts;
use super::{Model, ModelBlock, RANGE_BYTES, UNIT_BYTES};
use crate::simulation::DriverCall;

/// The growth step of the pool.
const GROWTH_BYTES: u64 = 32 << 20;
/// The granularity of remapping.
const PAGE_BYTES: u64 = 2 << 20;

/// An unbounded address range, some pages of which are mapped.
///
/// Invariant: gaps between parts are unmapped pages, so they begin and end at multiples of
/// [`PAGE_BYTES`].
#[derive(Debug)]
pub(super) struct CudaPool {
    parts: Parts,
    reserved_bytes: u64,
    limit_bytes: u64,
    driver: Driver,
}

impl CudaPool {
    pub(super) fn new(limit_bytes: Option<u64>, driver: Driver) -> Self {
        Self {
            parts: Parts::default(),
            reserved_bytes: 0,
            limit_bytes: limit_bytes.unwrap_or(RANGE_BYTES).min(RANGE_BYTES),
            driver,
        }
    }

    fn take(&mut self, bytes: u64) -> Option<u64> {
        let (_, start) = self.parts.fitting(bytes).next()?;
        self.parts.split(start, bytes);
        Some(start)
    }

    /// If the last part is free, extends it to at least `bytes` bytes. Otherwise, adds a free part
    /// behind all parts. Remaps unused pages first, then maps new pages. Returns false if the
    /// memory limit or the address range is too small.
    fn grow(&mut self, bytes: u64) -> bool {
        let (end, room_bytes) = (self.parts.end(), self.limit_bytes - self.reserved_bytes);
        let start = self.parts.free_before(end).unwrap_or(end);
        let missing_bytes = bytes - (end - start);
        let Some(pages) = missing_bytes.checked_next_multiple_of(PAGE_BYTES) else {
            return false;
        };
        let unused_bytes = self.unused_bytes(start);
        let reused_bytes = unused_bytes.min(pages);
        let wanted_bytes = pages - reused_bytes;
        let steps_bytes = wanted_bytes.checked_next_multiple_of(GROWTH_BYTES);
        let fits = |bytes: &u64| *bytes <= room_bytes;
        let Some(new_bytes) = steps_bytes.filter(fits).or(Some(wanted_bytes).filter(fits)) else {
            return false;
        };
        if end
            .checked_add(reused_bytes + new_bytes)
            .is_none_or(|end| end > RANGE_BYTES)
        {
            return false;
        }
        self.take_unused(start, reused_bytes);
        self.driver
            .each(DriverCall::MemUnmap, reused_bytes / PAGE_BYTES, PAGE_BYTES);
        self.driver.map(0, reused_bytes / PAGE_BYTES, PAGE_BYTES);
        let steps = new_bytes / GROWTH_BYTES;
        self.driver.map(steps, 0, GROWTH_BYTES);
        let rest_bytes = new_bytes - steps * GROWTH_BYTES;
        self.driver.map(u64::from(rest_bytes > 0), 0, rest_bytes);
        self.reserved_bytes += new_bytes;
        self.parts.add_free(end, reused_bytes + new_bytes);
        true
    }

    /// Returns the whole pages of each free part before `end`: the part's start, and the pages'
    /// start and end.
    fn unused_pages(&self, end: u64) -> impl Iterator<Item = (u64, u64, u64)> {
        let parts = self.parts.free_parts().into_iter();
        let before = parts.filter(move |&(_, start)| start < end);
        before.filter_map(|(bytes, start)| {
            let first = start.next_multiple_of(PAGE_BYTES);
            let last = (start + bytes) / PAGE_BYTES * PAGE_BYTES;
            (first < last).then_some((start, first, last))
        })
    }

    fn unused_bytes(&self, end: u64) -> u64 {
        self.unused_pages(end)
            .map(|(_, first, last)| last - first)
            .sum()
    }

    /// Removes `bytes` of unused pages before `end` from the parts.
    fn take_unused(&mut self, end: u64, bytes: u64) {
        let mut left_bytes = bytes;
        for (start, first, last) in Vec::from_iter(self.unused_pages(end)) {
            let last = last.min(first + left_bytes);
            left_bytes -= last - first;
            if first == last {
                return;
            }
            let part_end = start + self.parts.remove_free(start);
            for (start, end) in [(start, first), (last, part_end)] {
                if start < end {
                    self.parts.add_free(start, end - start);
                }
            }
        }
    }
}

impl Model for CudaPool {
    fn allocate(&mut self, bytes: u64) -> Option<ModelBlock> {
        self.driver.call(DriverCall::MemAllocAsync, bytes);
        let bytes = bytes.checked_next_multiple_of(UNIT_BYTES)?;
        let start = self.take(bytes).or_else(|| {
            let grown = self.grow(bytes);
            grown.then(|| self.take(bytes)).flatten()
        })?;
        Some(ModelBlock { pool: 0, start })
    }

    fn free(&mut self, block: ModelBlock) {
        self.driver.call(DriverCall::MemFreeAsync, 0);
        self.parts.release(block.start);
    }

    fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }

    fn driver(&self) -> &Driver {
        &self.driver
    }

    fn driver_mut(&mut self) -> &mut Driver {
        &mut self.driver
    }

    #[cfg(test)]
    fn check(&self) -> Vec<(u64, u64)> {
        let (used, reserved_bytes) = self.parts.check();
        assert_eq!(reserved_bytes, self.reserved_bytes);
        for (start, end) in self.parts.gaps() {
            assert_eq!(start % PAGE_BYTES, 0);
            assert_eq!(end.unwrap_or(0) % PAGE_BYTES, 0);
        }
        used
    }
}
