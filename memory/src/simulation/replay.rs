//! The replay of a trace through a device's memory over a simulated driver.

use super::costs::{DriverCall, DriverCosts};
use super::device::SimulatedDevice;
use super::ledger::DriverLedger;
use crate::device::StreamId;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{Block, DeviceMemory, MemoryConfig, Request};
use crate::pool::PoolKind;
use crate::sync::Arc;
use crate::trace::TraceEvent;

/// A device's memory that runs a trace batch by batch: the complete memory, with source, pool,
/// growth and reclaim ladder.
#[derive(Debug)]
pub struct DeviceReplay {
    memory: DeviceMemory,
    device: Arc<SimulatedDevice>,
    /// By slot: the block and the bytes requested.
    live: Vec<Option<(Block, u64)>>,
    events: u64,
    live_bytes: u64,
    peak_live_bytes: u64,
    failures: u64,
}

/// The results of a replay. The times of the driver are simulated.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceOutcome {
    /// The number of allocations and frees, including failed ones.
    pub events: u64,
    /// The peak of the live bytes, as requested, without failed allocations.
    pub peak_live_bytes: u64,
    /// The peak of the bytes reserved from the device.
    pub peak_reserved_bytes: u64,
    /// The number of allocations that failed.
    pub failures: u64,
    /// The number of calls of the driver.
    pub calls: u64,
    /// The ledger of the driver's calls.
    pub ledger: DriverLedger,
}

impl DeviceOutcome {
    /// Returns the number of calls of one kind.
    pub fn calls_of(&self, call: DriverCall) -> u64 {
        self.ledger.calls_of(call)
    }
}

impl DeviceReplay {
    /// Creates a device before the first event, with the memory that `costs` names, or
    /// `limit_bytes` if that is less.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) for [`PoolKind::StreamOrdered`], the driver's own
    /// pool.
    #[track_caller]
    pub fn new(pool: PoolKind, costs: &DriverCosts, limit_bytes: Option<u64>) -> Result<Self> {
        if pool == PoolKind::StreamOrdered {
            let text = "the stream-ordered pool belongs to the driver and cannot be simulated";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
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
            events: 0,
            live_bytes: 0,
            peak_live_bytes: 0,
            failures: 0,
        })
    }

    /// Applies the next events. An allocation first frees the previous block of its slot.
    pub fn apply(&mut self, batch: &[TraceEvent]) {
        for &event in batch {
            self.events += 1;
            match event {
                TraceEvent::Allocate { slot, bytes } => self.allocate(slot as usize, bytes),
                TraceEvent::Free { slot } => self.free(slot as usize),
            }
            self.device.with_ledger(DriverLedger::advance);
        }
    }

    fn allocate(&mut self, slot: usize, bytes: u64) {
        if slot >= self.live.len() {
            self.live.resize_with(slot + 1, || None);
        }
        self.free(slot);
        if bytes == 0 {
            return;
        }
        let request = Request {
            bytes,
            stream: StreamId::default(),
            scope: None,
        };
        let Ok(block) = self.memory.allocate(&request) else {
            self.failures += 1;
            return;
        };
        self.live[slot] = Some((block, bytes));
        self.live_bytes += bytes;
        self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes);
    }

    fn free(&mut self, slot: usize) {
        // A failed allocation has no block.
        if let Some((block, bytes)) = self.live.get_mut(slot).and_then(Option::take) {
            self.live_bytes -= bytes;
            self.memory.free([block]);
        }
    }

    #[cfg(test)]
    pub(super) fn trim(&self, keep_bytes: u64) {
        self.memory.trim(keep_bytes, crate::memory::WaitMode::Wait);
    }

    /// Asserts the invariants of the memory, that blocks do not overlap, and that the device holds
    /// the reserved bytes.
    #[cfg(test)]
    pub(super) fn check(&self) {
        self.memory.check();
        let live = self.live.iter().flatten();
        let mut blocks = Vec::from_iter(live.map(|(block, _)| (block.address.0, block.bytes())));
        blocks.sort_unstable();
        assert!(blocks.is_sorted_by(|one, other| one.0 + one.1 <= other.0));
        let stats = self.memory.stats();
        assert_eq!(stats.reserved_bytes, self.device.used_bytes());
        assert_eq!(
            stats.allocated_bytes,
            blocks.iter().map(|(_, bytes)| bytes).sum::<u64>()
        );
    }

    /// Returns the results so far.
    pub fn outcome(&self) -> DeviceOutcome {
        let ledger = self.device.with_ledger(|ledger| ledger.clone());
        DeviceOutcome {
            events: self.events,
            peak_live_bytes: self.peak_live_bytes,
            peak_reserved_bytes: self.memory.stats().peak_reserved_bytes,
            failures: self.failures,
            calls: ledger.calls(),
            ledger,
        }
    }
}

impl Drop for DeviceReplay {
    fn drop(&mut self) {
        let live = self.live.iter_mut().filter_map(Option::take);
        let blocks: Vec<Block> = live.map(|(block, _)| block).collect();
        self.memory.free(blocks);
    }
}
