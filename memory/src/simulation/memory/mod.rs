//! A device's memory over the simulated driver.

#[cfg(test)]
mod tests;

use super::device::SimulatedDevice;
use crate::costs::{DriverCosts, DriverLedger};
use crate::device::StreamId;
use crate::error::Result;
use crate::memory::{Block, DeviceMemory, MemoryConfig, Request};
use crate::pool::PoolKind;
use crate::pool::simulated::check_simulated;
use crate::sync::Arc;

/// The complete memory of a device, with source, pool, growth and reclaim ladder, over the
/// simulated driver. A block is known by the number of its slot.
#[derive(Debug)]
pub struct SimulatedMemory {
    memory: DeviceMemory,
    device: Arc<SimulatedDevice>,
    /// By slot: the block and the bytes requested.
    live: Vec<Option<(Block, u64)>>,
}

impl SimulatedMemory {
    /// Creates the memory of a device with the bytes that `costs` names, or `limit_bytes` if that
    /// is less.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for [`PoolKind::StreamOrdered`].
    #[track_caller]
    pub fn new(pool: PoolKind, costs: &DriverCosts, limit_bytes: Option<u64>) -> Result<Self> {
        check_simulated(pool)?;
        let total_bytes = costs.memory_bytes();
        let device = Arc::new(SimulatedDevice::new(DriverLedger::new(costs), total_bytes));
        let config = MemoryConfig {
            pool,
            limit_bytes,
            ..MemoryConfig::default()
        };
        let backend = Arc::clone(&device);
        Ok(Self {
            memory: DeviceMemory::new(backend, &config)?,
            device,
            live: Vec::new(),
        })
    }

    /// Allocates the block of a free slot. Returns false if no memory is left.
    pub fn allocate(&mut self, slot: usize, bytes: u64) -> bool {
        if slot >= self.live.len() {
            self.live.resize_with(slot + 1, || None);
        }
        debug_assert!(self.live[slot].is_none(), "slot {slot} is in use");
        let request = Request {
            bytes,
            stream: StreamId::default(),
            scope: None,
        };
        let Ok(block) = self.memory.allocate(&request) else {
            return false;
        };
        self.live[slot] = Some((block, bytes));
        true
    }

    /// Frees the block of a slot, and returns its requested bytes; 0 for a free slot.
    pub fn free(&mut self, slot: usize) -> u64 {
        let Some((block, bytes)) = self.live.get_mut(slot).and_then(Option::take) else {
            return 0;
        };
        self.memory.free([block]);
        bytes
    }

    /// Counts an event of the program.
    pub fn advance(&self) {
        self.device.with_ledger(DriverLedger::advance);
    }

    /// Returns the ledger of the driver's calls.
    pub fn ledger(&self) -> DriverLedger {
        self.device.with_ledger(|ledger| ledger.clone())
    }

    /// Returns the peak of the bytes reserved from the device.
    pub fn peak_reserved_bytes(&self) -> u64 {
        self.memory.stats().peak_reserved_bytes
    }
}

impl Drop for SimulatedMemory {
    fn drop(&mut self) {
        let live = self.live.iter_mut().filter_map(Option::take);
        let blocks: Vec<Block> = live.map(|(block, _)| block).collect();
        self.memory.free(blocks);
    }
}
