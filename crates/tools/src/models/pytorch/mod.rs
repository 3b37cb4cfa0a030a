//! PyTorch's caching allocator of CUDA memory, by its documented rules.
//!
//! - Sizes are rounded up to multiples of 512 bytes.
//! - Requests of at most 1 MiB are met from the small pool, larger requests from the large pool.
//! - A pool returns its smallest free block that fits. Among blocks of one size it returns the
//!   block with the lowest address.
//! - If none fits, a segment is reserved. It has 2 MiB in the small pool, and 20 MiB in the large
//!   pool for requests below 10 MiB. For a larger request, it has the size of the request, rounded
//!   up to 2 MiB. Expandable segments grow at their end instead, in pages of 2 and 20 MiB.
//! - The rest of a larger block is split off if it is large enough. The rest must have at least 512
//!   bytes in the small pool and in expandable segments. In other segments of the large pool, it
//!   must have more than 1 MiB.
//! - Freed blocks merge with free neighbours of their segment.
//! - Nothing is released to the device until it has no more memory. Then all wholly free segments,
//!   or pages of expandable segments, are released, and the request is tried once more.
//!
//! The model has one stream, and its ranges have no end. PyTorch's ranges end an eighth behind the
//! device's memory, which matters below tight limits only. Rules that are off by default are left
//! out (a largest size to split, rounding to powers of two, garbage collection).
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

/// The largest request that the small pool meets.
const SMALL_REQUEST_BYTES: u64 = MIB;
/// The size of a segment or a page of the small pool.
const SMALL_SEGMENT_BYTES: u64 = 2 * MIB;
/// The size of a page of the large pool, and of its segments for requests below the next size.
const LARGE_SEGMENT_BYTES: u64 = 20 * MIB;
/// The request size from which on a segment is made for one request.
const OWN_SEGMENT_BYTES: u64 = 10 * MIB;
/// The unit of the sizes of segments for one request.
const OWN_SEGMENT_UNIT_BYTES: u64 = 2 * MIB;

/// One of the two pools.
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

/// Memory of one class of sizes.
trait Pool: Debug {
    /// Takes a block from the free memory.
    fn take(&mut self, bytes: u64) -> Option<u64>;
    /// Reserves the memory that a block needs beside the free memory, up to `room_bytes`. Returns
    /// the number of reserved bytes.
    fn grow(&mut self, bytes: u64, room_bytes: u64, driver: &mut Driver) -> u64;
    /// Takes a block back.
    fn release(&mut self, start: u64);
    /// Releases wholly free memory, and returns the number of released bytes.
    fn trim(&mut self, driver: &mut Driver) -> u64;
    /// Checks the pool's invariants, and returns the blocks in use and the reserved bytes.
    #[cfg(test)]
    fn check(&self) -> (Vec<(u64, u64)>, u64);
}

/// The allocator of a device.
#[derive(Debug)]
pub(super) struct PyTorch {
    /// One pool of each [`Class`].
    pools: [Box<dyn Pool>; 2],
    reserved_bytes: u64,
    limit_bytes: u64,
    driver: Driver,
}

impl PyTorch {
    /// Returns an allocator without segments, for a device with `limit_bytes` bytes.
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
