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
/// simulated driver.
#[derive(Debug)]
pub struct SimulatedMemory {
    memory: DeviceMemory,
    device: Arc<SimulatedDevice>,
}

/// A block of a [`SimulatedMemory`].
#[derive(Debug)]
pub struct SimulatedMemoryBlock(Block);

impl SimulatedMemory {
    /// Creates the memory of a device whose size is in `costs`. If `limit_bytes` is given, it
    /// limits the reserved bytes.
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
        })
    }

    /// Returns a block of `bytes` (not 0) and its address, or `None` if no memory is left.
    pub fn allocate(&self, bytes: u64) -> Option<(SimulatedMemoryBlock, u64)> {
        let request = Request {
            bytes,
            stream: StreamId::default(),
            scope: None,
        };
        let block = self.memory.allocate(&request).ok()?;
        let address = block.address.0;
        Some((SimulatedMemoryBlock(block), address))
    }

    /// Takes a block back.
    pub fn free(&self, SimulatedMemoryBlock(block): SimulatedMemoryBlock) {
        self.memory.free([block]);
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
