//! Models of other allocators: their documented rules as arithmetic over a trace. No memory is
//! reserved.

mod cuda_pool;
mod driver;
mod parts;
mod pytorch;
#[cfg(test)]
mod tests;

use std::fmt::Debug;

use cachescope_tools::simulation::{DriverCosts, DriverLedger};
use cachescope_tools::trace::TraceEvent;
use serde::Serialize;

use cuda_pool::CudaPool;
use driver::Driver;
use pytorch::PyTorch;

/// The unit that block sizes are multiples of.
const UNIT_BYTES: u64 = 512;
/// Sizes and sums are below this, as in all traces.
const RANGE_BYTES: u64 = 1 << 63;

/// The allocator of a device.
trait Model: Debug {
    /// Returns a block for a request of 1 byte or more, or `None` if the device has no memory for
    /// it.
    fn allocate(&mut self, bytes: u64) -> Option<Block>;
    /// Takes a block back.
    fn free(&mut self, block: Block);
    /// Returns the bytes reserved from the device.
    fn reserved_bytes(&self) -> u64;
    /// Returns the driver that the model calls.
    fn driver(&mut self) -> &mut Driver;
    /// Checks the invariants, and returns the blocks in use.
    #[cfg(test)]
    fn check(&self) -> Vec<(u64, u64)>;
}

/// A block that is in use.
#[derive(Debug)]
struct Block {
    /// The number of the model's pool that the block is from.
    pool: usize,
    start: u64,
}

/// A model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelKind {
    /// PyTorch's allocator of CUDA memory with segments of fixed sizes, its default.
    PyTorch,
    /// PyTorch's allocator of CUDA memory with `expandable_segments:True`.
    PyTorchExpandable,
    /// CUDA's stream-ordered pool.
    CudaPool,
}

impl ModelKind {
    const ALL: [Self; 3] = [Self::PyTorch, Self::PyTorchExpandable, Self::CudaPool];

    /// Its name as an option.
    fn name(self) -> &'static str {
        match self {
            Self::PyTorch => "pytorch",
            Self::PyTorchExpandable => "pytorch-expandable",
            Self::CudaPool => "cuda-pool",
        }
    }

    /// Returns the text that describes the model in a table.
    fn description(self) -> &'static str {
        match self {
            Self::PyTorch => "model of PyTorch's allocator",
            Self::PyTorchExpandable => "model of PyTorch's allocator, expandable segments",
            Self::CudaPool => "model of CUDA's stream-ordered pool, which keeps what is freed",
        }
    }

    fn build(self, limit_bytes: Option<u64>, driver: Driver) -> Box<dyn Model> {
        match self {
            Self::PyTorch => Box::new(PyTorch::new(false, limit_bytes, driver)),
            Self::PyTorchExpandable => Box::new(PyTorch::new(true, limit_bytes, driver)),
            Self::CudaPool => Box::new(CudaPool::new(limit_bytes, driver)),
        }
    }
}

/// One model or several.
pub(crate) type Models = &'static [ModelKind];

/// The models that an option names.
pub(crate) fn parse(name: &str) -> Result<Models, String> {
    const ALL: Models = &ModelKind::ALL;
    if name == "all" {
        return Ok(ALL);
    }
    let known = ALL.iter().position(|kind| kind.name() == name);
    known.map(|index| &ALL[index..=index]).ok_or_else(|| {
        let names: Vec<_> = ALL.iter().map(|kind| kind.name()).collect();
        format!("no such model: one of {}, all", names.join(", "))
    })
}

/// A model that runs a trace batch by batch.
#[derive(Debug)]
pub(crate) struct ModelRun {
    model: Box<dyn Model>,
    /// By slot; `None` for one that is free, failed, or is of 0 bytes.
    live: Vec<Option<Live>>,
    live_bytes: u64,
    row: ModelRow,
}

/// A request that was met.
#[derive(Debug)]
struct Live {
    block: Block,
    requested_bytes: u64,
}

/// The results of a model.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ModelRow {
    pub(crate) name: &'static str,
    description: &'static str,
    events: u64,
    pub(crate) peak_live_bytes: u64,
    pub(crate) peak_reserved_bytes: u64,
    pub(crate) ratio: f64,
    pub(crate) failures: u64,
}

impl ModelRun {
    /// Returns a model before the first event, for a device with `limit_bytes` bytes. Its calls
    /// have the costs of the table `costs`.
    pub(crate) fn new(
        kind: ModelKind,
        limit_bytes: Option<u64>,
        costs: Option<&DriverCosts>,
    ) -> Self {
        let ledger = costs.map(DriverLedger::new);
        Self {
            model: kind.build(limit_bytes, Driver { ledger }),
            live: Vec::new(),
            live_bytes: 0,
            row: ModelRow {
                name: kind.name(),
                description: kind.description(),
                events: 0,
                peak_live_bytes: 0,
                peak_reserved_bytes: 0,
                ratio: 1.0,
                failures: 0,
            },
        }
    }

    /// Applies the next events.
    pub(crate) fn apply(&mut self, batch: &[TraceEvent]) {
        for &event in batch {
            self.row.events += 1;
            match event {
                TraceEvent::Allocate { slot, bytes } => self.allocate(slot as usize, bytes),
                TraceEvent::Free { slot } => self.free(slot as usize),
                _ => continue, // An event that no model knows.
            }
            if let Some(ledger) = &mut self.model.driver().ledger {
                ledger.advance();
            }
        }
    }

    /// Returns the costs of its calls, if costs are computed.
    pub(crate) fn ledger(&mut self) -> Option<DriverLedger> {
        self.model.driver().ledger.clone()
    }

    fn allocate(&mut self, slot: usize, bytes: u64) {
        if slot >= self.live.len() {
            self.live.resize_with(slot + 1, || None);
        }
        // For these PyTorch returns a null pointer.
        if bytes == 0 {
            return;
        }
        let Some(block) = self.model.allocate(bytes) else {
            self.row.failures += 1;
            return;
        };
        self.live[slot] = Some(Live {
            block,
            requested_bytes: bytes,
        });
        self.live_bytes += bytes;
        let row = &mut self.row;
        row.peak_live_bytes = row.peak_live_bytes.max(self.live_bytes);
        row.peak_reserved_bytes = row.peak_reserved_bytes.max(self.model.reserved_bytes());
    }

    fn free(&mut self, slot: usize) {
        if let Some(live) = self.live[slot].take() {
            self.live_bytes -= live.requested_bytes;
            self.model.free(live.block);
        }
    }

    /// The results so far.
    pub(crate) fn outcome(&self) -> ModelRow {
        let mut row = self.row.clone();
        if row.peak_live_bytes > 0 {
            row.ratio = row.peak_reserved_bytes as f64 / row.peak_live_bytes as f64;
        }
        row
    }
}

impl ModelRow {
    /// Its row in a table of pools. It has no time, for a model's own is of no meaning.
    pub(crate) fn text(&self) -> String {
        format!(
            "{:<10} {:>12} {:>10} {:>20} {:>20} {:>8.4} {:>10}  {}",
            "model",
            self.events,
            "",
            self.peak_live_bytes,
            self.peak_reserved_bytes,
            self.ratio,
            self.failures,
            self.description
        )
    }
}
