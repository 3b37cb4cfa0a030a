//! PyTorch's caching allocator of CUDA memory, by its documented rules.
//!
//! - Sizes are rounded up to multiples of 512 bytes.
//! - The small pool serves requests of at most 1 MiB. The large pool serves larger requests.
//! - A pool returns its smallest free block that fits. Among blocks of equal size, it returns the
//!   block with the lowest address.
//! - If no free block fits, the pool reserves a segment. A segment of the small pool has 2 MiB. A
//!   segment of the large pool has 20 MiB for requests below 10 MiB. For a larger request, its size
//!   is the request, rounded up to 2 MiB. An expandable segment instead grows at its end, by pages
//!   of 2 MiB (small pool) or 20 MiB (large pool).
//! - If a block is larger than the request, and the remainder is large enough, the remainder is
//!   split off. In the small pool and in expandable segments, the remainder must have at least 512
//!   bytes. In other segments of the large pool, it must have more than 1 MiB.
//! - A freed block merges with free neighbours in its segment.
//! - Memory is released only if the device is out of memory. Then all wholly free segments, or all
//!   free pages of expandable segments, are released, and the request is retried once.
//!
//! The model has one stream, and unbounded address ranges. PyTorch's ranges are an eighth larger
//! than the device's memory. Their end matters only for tight limits. The model omits three rules
//! that are off by default. The rules are a maximum size to split, rounding to powers of two, and
//! garbage collection.
//!
//! Sources: PyTorch's notes on CUDA semantics ("Memory management", "Optimizing memory usage with
//! `PYTORCH_CUDA_ALLOC_CONF`"); Z. DeVito, "A guide to PyTorch's CUDA caching allocator".
//! `benches/peers/pytorch/allocator.py` compares this model with PyTorch's own library.

mod expandable;
mod segmented;
#[cfg(test)]
mod tests;

use std::fmt::Debug;

use super::driver::Driver;
use super::{Model, ModelBlock, RANGE_BYTES, UNIT_BYTES};
use expandable::ExpandablePool;
use segmented::SegmentedPool;

const MIB: u64 = 1 << 20;

/// The largest request that the small pool serves.
const SMALL_REQUEST_BYTES: u64 = MIB;
/// The size of a segment or of a page in the small pool.
const SMALL_SEGMENT_BYTES: u64 = 2 * MIB;
/// The page size of the large pool, and its segment size for requests below [`OWN_SEGMENT_BYTES`].
const LARGE_SEGMENT_BYTES: u64 = 20 * MIB;
/// The minimum size of a request that has its own segment.
const OWN_SEGMENT_BYTES: u64 = 10 * MIB;
/// The granularity of segments that serve one request.
const OWN_SEGMENT_UNIT_BYTES: u64 = 2 * MIB;

/// The class of a request size. Each class has one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Small,
    Large,
}

impl Class {
    fn of(rounded_bytes: u64) -> Self {
        if rounded_bytes <= SMALL_REQUEST_BYTES {
            Self::Small
        } else {
            Self::Large
        }
    }
}

trait Pool: Debug {
    /// Returns a free block of at least `bytes` bytes, and marks it as used.
    fn take(&mut self, bytes: u64) -> Option<u64>;
    /// Reserves memory for a block of `bytes` bytes, up to `room_bytes`. Returns the number of
    /// reserved bytes.
    fn grow(&mut self, bytes: u64, room_bytes: u64, driver: &mut Driver) -> u64;
    fn release(&mut self, start: u64);
    /// Releases wholly free segments or pages. Returns the number of released bytes.
    fn trim(&mut self, driver: &mut Driver) -> u64;
    /// Checks the invariants. Returns the blocks in use and the reserved bytes.
    #[cfg(test)]
    fn check(&self) -> (Vec<(u64, u64)>, u64);
}

#[derive(Debug)]
pub(super) struct PyTorch {
    /// The pools, one per [`Class`].
    pools: [Box<dyn Pool>; 2],
    reserved_bytes: u64,
    limit_bytes: u64,
    driver: Driver,
}

impl PyTorch {
    /// Creates an allocator without segments, for a device with `limit_bytes` bytes.
    pub(super) fn new(is_expandable: bool, limit_bytes: Option<u64>, driver: Driver) -> Self {
        let pool = |class| -> Box<dyn Pool> {
            if is_expandable {
                Box::new(ExpandablePool::new(class))
            } else {
                Box::new(SegmentedPool::new(class))
            }
        };
        Self {
            pools: [Class::Small, Class::Large].map(pool),
            reserved_bytes: 0,
            limit_bytes: limit_bytes.unwrap_or(RANGE_BYTES).min(RANGE_BYTES),
            driver,
        }
    }

    fn grow_and_take(&mut self, pool: usize, bytes: u64) -> Option<u64> {
        let room_bytes = self.limit_bytes - self.reserved_bytes;
        let pool = &mut self.pools[pool];
        self.reserved_bytes += pool.grow(bytes, room_bytes, &mut self.driver);
        pool.take(bytes)
    }

    fn trim(&mut self) {
        for pool in &mut self.pools {
            self.reserved_bytes -= pool.trim(&mut self.driver);
        }
    }
}

impl Model for PyTorch {
    fn allocate(&mut self, bytes: u64) -> Option<ModelBlock> {
        let bytes = bytes.checked_next_multiple_of(UNIT_BYTES)?;
        let pool = Class::of(bytes) as usize;
        let start = self.pools[pool].take(bytes);
        let start = start.or_else(|| self.grow_and_take(pool, bytes));
        let start = start.or_else(|| {
            self.trim();
            self.grow_and_take(pool, bytes)
        })?;
        Some(ModelBlock { pool, start })
    }

    fn free(&mut self, block: ModelBlock) {
        self.pools[block.pool].release(block.start);
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
        let [(mut small, small_bytes), (large, large_bytes)] =
            self.pools.each_ref().map(|pool| pool.check());
        assert_eq!(small_bytes + large_bytes, self.reserved_bytes);
        small.extend(large);
        small
    }
}
