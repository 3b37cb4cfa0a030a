//! Models of other allocators: their documented rules as arithmetic over a trace. No memory is
//! reserved.
//!
//! # Examples
//!
//! ```
//! use cachescope_tools::models::{ModelKind, ModelReplay};
//! use cachescope_tools::trace::TraceEvent::Allocate;
//!
//! let mut model = ModelReplay::new(ModelKind::PyTorch, None, None);
//! model.apply(&[Allocate { slot: 0, bytes: 1000 }]);
//! let outcome = model.outcome();
//! assert_eq!((outcome.peak_live_bytes, outcome.peak_reserved_bytes), (1000, 2 << 20));
//! ```

mod cuda_pool;
mod driver;
mod parts;
mod pytorch;
#[cfg(test)]
mod tests;

use std::fmt::Debug;

use crate::simulation::{DriverCosts, DriverLedger};
use crate::trace::TraceEvent;
use crate::trace::engine::{ReplayEngine, TraceAllocator};
use cuda_pool::CudaPool;
use driver::Driver;
use pytorch::PyTorch;

/// The unit that block sizes are multiples of.
const UNIT_BYTES: u64 = 512;
/// The bound on sizes and sums, as in all traces.
const RANGE_BYTES: u64 = 1 << 63;

/// The allocator of a device.
trait Model: Debug {
    /// Returns a block for a request of 1 byte or more. Returns `None` if the device has no memory
    /// for the block.
    fn allocate(&mut self, bytes: u64) -> Option<ModelBlock>;
    /// Takes a block back.
    fn free(&mut self, block: ModelBlock);
    /// Returns the bytes reserved from the device.
    fn reserved_bytes(&self) -> u64;
    /// Returns the driver that the model calls.
    fn driver(&self) -> &Driver;
    /// Returns the driver that the model calls.
    fn driver_mut(&mut self) -> &mut Driver;
    /// Checks the invariants, and returns the blocks in use.
    #[cfg(test)]
    fn check(&self) -> Vec<(u64, u64)>;
}

/// A block that is in use.
#[derive(Debug)]
struct ModelBlock {
    /// The number of the model's pool that the block is from.
    pool: usize,
    start: u64,
}

/// An allocator that is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModelKind {
    /// PyTorch's allocator of CUDA memory with segments of fixed sizes, its default.
    PyTorch,
    /// PyTorch's allocator of CUDA memory with `expandable_segments:True`.
    PyTorchExpandable,
    /// CUDA's stream-ordered pool.
    CudaPool,
}

impl ModelKind {
    /// The models.
    pub const ALL: [Self; 3] = [Self::PyTorch, Self::PyTorchExpandable, Self::CudaPool];

    /// Returns the name of the model.
    pub fn name(self) -> &'static str {
        match self {
            Self::PyTorch => "pytorch",
            Self::PyTorchExpandable => "pytorch-expandable",
            Self::CudaPool => "cuda-pool",
        }
    }

    /// Returns the text that describes the model in a table.
    pub fn description(self) -> &'static str {
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

/// A model that runs a trace batch by batch.
#[derive(Debug)]
pub struct ModelReplay {
    kind: ModelKind,
    engine: ReplayEngine<MeasuredModel>,
}

/// A model, and the peak of the bytes that it reserved.
#[derive(Debug)]
struct MeasuredModel {
    model: Box<dyn Model>,
    peak_reserved_bytes: u64,
}

impl TraceAllocator for MeasuredModel {
    type Block = ModelBlock;

    fn allocate(&mut self, bytes: u64) -> Option<(ModelBlock, u64)> {
        let block = self.model.allocate(bytes)?;
        self.peak_reserved_bytes = self.peak_reserved_bytes.max(self.model.reserved_bytes());
        let start = block.start;
        Some((block, start))
    }

    fn free(&mut self, block: ModelBlock) {
        self.model.free(block);
    }

    fn end_event(&mut self) {
        if let Some(ledger) = &mut self.model.driver_mut().ledger {
            ledger.advance();
        }
    }
}

/// The results of a model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ModelOutcome {
    /// The allocator that is modelled.
    pub kind: ModelKind,
    /// The number of allocations and frees, including failed ones.
    pub events: u64,
    /// The peak of the live bytes, as requested, without failed allocations.
    pub peak_live_bytes: u64,
    /// The peak of the bytes reserved from the device.
    pub peak_reserved_bytes: u64,
    /// The number of allocations that failed.
    pub failures: u64,
    /// The ledger of the driver's calls, if costs are computed.
    pub ledger: Option<DriverLedger>,
}

impl ModelOutcome {
    /// Returns peak reserved over peak live bytes; 1 if nothing was live.
    pub fn ratio(&self) -> f64 {
        match self.peak_live_bytes {
            0 => 1.0,
            peak_live_bytes => self.peak_reserved_bytes as f64 / peak_live_bytes as f64,
        }
    }
}

impl ModelReplay {
    /// Creates a model before the first event, for a device with `limit_bytes` bytes. Its calls
    /// have the costs of the table `costs`.
    pub fn new(kind: ModelKind, limit_bytes: Option<u64>, costs: Option<&DriverCosts>) -> Self {
        let ledger = costs.map(DriverLedger::new);
        let model = MeasuredModel {
            model: kind.build(limit_bytes, Driver { ledger }),
            peak_reserved_bytes: 0,
        };
        Self {
            kind,
            engine: ReplayEngine::new(model),
        }
    }

    /// Applies the next events. An allocation first frees the previous block of its slot.
    pub fn apply(&mut self, batch: &[TraceEvent]) {
        self.engine.apply(batch);
    }

    /// Returns the results so far.
    pub fn outcome(&self) -> ModelOutcome {
        let measured = &self.engine.allocator;
        ModelOutcome {
            kind: self.kind,
            events: self.engine.events,
            peak_live_bytes: self.engine.peak_live_bytes,
            peak_reserved_bytes: measured.peak_reserved_bytes,
            failures: self.engine.failures,
            ledger: measured.model.driver().ledger.clone(),
        }
    }
}
