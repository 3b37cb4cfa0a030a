//! The region allocators. Their regions are so large that no allocation fails.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use cachescope::PoolKind;
use cachescope_tools::trace::{Allocation, Simulator};
use cubecl_ir::MemoryDeviceProperties;
use cubecl_runtime::logging::ServerLogger;
use cubecl_runtime::memory_management::{
    ManagedMemoryHandle, MemoryConfiguration, MemoryManagement, MemoryManagementOptions,
};
use cubecl_runtime::storage::BytesStorage;
use range_alloc::RangeAllocator;
use vk_mem::{
    VirtualAllocation, VirtualAllocationCreateFlags, VirtualAllocationCreateInfo, VirtualBlock,
    VirtualBlockCreateInfo,
};

use crate::peers::Pair;

/// The allocation unit. Sizes are rounded up to multiples of it.
const UNIT_BYTES: u64 = 512;
/// The largest region that offset-allocator can count in units.
const REGION_BYTES: u64 = UNIT_BYTES << 31;

/// An allocator that reports the addresses of its blocks.
pub trait Placer {
    /// A live block. Only the allocator that allocated the block may free it.
    type Block: fmt::Debug;

    fn allocate(&mut self, bytes: u64) -> Self::Block;
    fn free(&mut self, block: Self::Block);

    /// Returns the highest end of any block up to now, relative to the start of the region. Returns
    /// `None` without a region.
    fn peak_reserved_bytes(&self) -> Option<u64>;
}

fn units(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT_BYTES)
}

/// A pool of this library with one address range.
#[derive(Debug)]
pub struct Pool(Simulator);

impl Pool {
    pub fn new(kind: PoolKind) -> Self {
        let simulator = Simulator::new(kind, UNIT_BYTES, None);
        Self(simulator.expect("the host has such a pool"))
    }
}

impl Placer for Pool {
    type Block = Allocation;

    #[inline]
    fn allocate(&mut self, bytes: u64) -> Allocation {
        self.0.allocate(bytes).expect("the range suffices")
    }

    #[inline]
    fn free(&mut self, block: Allocation) {
        self.0.free(block);
    }

    fn peak_reserved_bytes(&self) -> Option<u64> {
        Some(self.0.peak_reserved_bytes())
    }
}

/// The crate offset-allocator, in units, with its default number of nodes.
pub struct Offsets {
    allocator: offset_allocator::Allocator,
    peak_units: u32,
}

impl Default for Offsets {
    fn default() -> Self {
        Self {
            allocator: offset_allocator::Allocator::new(units(REGION_BYTES) as u32),
            peak_units: 0,
        }
    }
}

pub struct Offset(offset_allocator::Allocation);

impl fmt::Debug for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offset({})", self.0.offset)
    }
}

impl Placer for Offsets {
    type Block = Offset;

    #[inline]
    fn allocate(&mut self, bytes: u64) -> Offset {
        let units = units(bytes) as u32;
        let block = self.allocator.allocate(units).expect("the region suffices");
        self.peak_units = self.peak_units.max(block.offset + units);
        Offset(block)
    }

    #[inline]
    fn free(&mut self, block: Offset) {
        self.allocator.free(block.0);
    }

    fn peak_reserved_bytes(&self) -> Option<u64> {
        Some(u64::from(self.peak_units) * UNIT_BYTES)
    }
}

/// The virtual block of the Vulkan Memory Allocator, in bytes, with its default strategy.
pub struct Virtual {
    block: VirtualBlock,
    peak_bytes: u64,
}

impl Default for Virtual {
    fn default() -> Self {
        let info = VirtualBlockCreateInfo {
            size: REGION_BYTES,
            ..Default::default()
        };
        Self {
            block: VirtualBlock::new(info).expect("a virtual block needs no device"),
            peak_bytes: 0,
        }
    }
}

impl Placer for Virtual {
    type Block = VirtualAllocation;

    #[inline]
    fn allocate(&mut self, bytes: u64) -> VirtualAllocation {
        let size = units(bytes) * UNIT_BYTES;
        let info = VirtualAllocationCreateInfo {
            size,
            alignment: 0,
            user_data: 0,
            flags: VirtualAllocationCreateFlags::empty(),
        };
        // SAFETY: `size` is not 0, and only this thread uses the block.
        let placed = unsafe { self.block.allocate(info) };
        let (allocation, offset) = placed.expect("the region suffices");
        self.peak_bytes = self.peak_bytes.max(offset + size);
        allocation
    }

    #[inline]
    fn free(&mut self, mut block: VirtualAllocation) {
        // SAFETY: only `allocate` creates a block, and `free` consumes it.
        unsafe { self.block.free(&mut block) };
    }

    fn peak_reserved_bytes(&self) -> Option<u64> {
        Some(self.peak_bytes)
    }
}

/// The crate range-alloc, a best-fit allocator, in units.
pub struct Ranges {
    allocator: RangeAllocator<u64>,
    peak_units: u64,
}

impl Default for Ranges {
    fn default() -> Self {
        Self {
            allocator: RangeAllocator::new(0..units(REGION_BYTES)),
            peak_units: 0,
        }
    }
}

impl Placer for Ranges {
    type Block = Range<u64>;

    #[inline]
    fn allocate(&mut self, bytes: u64) -> Range<u64> {
        let placed = self.allocator.allocate_range(units(bytes));
        let range = placed.expect("the region suffices");
        self.peak_units = self.peak_units.max(range.end);
        range
    }

    #[inline]
    fn free(&mut self, block: Range<u64>) {
        self.allocator.free_range(block);
    }

    fn peak_reserved_bytes(&self) -> Option<u64> {
        Some(self.peak_units * UNIT_BYTES)
    }
}

/// The maximum page size of [`SubSlices`]. As in cubecl's CUDA runtime, it is a quarter of the
/// memory of a 32 GiB device.
const PAGE_BYTES: u64 = 8 << 30;

/// cubecl's memory management, whose pools reserve pages and divide them into slices. The pages are
/// host memory that is never touched.
pub struct SubSlices(MemoryManagement<BytesStorage>);

impl Default for SubSlices {
    fn default() -> Self {
        let properties = MemoryDeviceProperties {
            max_page_size: PAGE_BYTES,
            alignment: UNIT_BYTES,
        };
        Self(MemoryManagement::from_configuration(
            BytesStorage::default(),
            &properties,
            MemoryConfiguration::SubSlices,
            Arc::new(ServerLogger::default()),
            MemoryManagementOptions::new("peer"),
        ))
    }
}

impl Placer for SubSlices {
    type Block = ManagedMemoryHandle;

    #[inline]
    fn allocate(&mut self, bytes: u64) -> ManagedMemoryHandle {
        self.0.reserve(bytes).expect("the largest page suffices")
    }

    #[inline]
    fn free(&mut self, block: ManagedMemoryHandle) {
        drop(block);
    }

    /// Returns the total size of the pages. Pages are released only by an explicit call.
    fn peak_reserved_bytes(&self) -> Option<u64> {
        Some(self.0.memory_usage().bytes_reserved)
    }
}

/// A C allocator. It has no region.
#[derive(Debug, Default)]
pub struct Malloc<P>(P);

impl<P: Pair<Block: fmt::Debug>> Placer for Malloc<P> {
    type Block = P::Block;

    #[inline]
    fn allocate(&mut self, bytes: u64) -> P::Block {
        self.0.allocate(bytes as usize)
    }

    #[inline]
    fn free(&mut self, block: P::Block) {
        self.0.free(block);
    }

    fn peak_reserved_bytes(&self) -> Option<u64> {
        None
    }
}
