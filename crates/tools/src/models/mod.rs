//! Models of other allocators: their documented rules, computed over a trace. No memory is
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

/// The allocation granularity: block sizes are multiples of this unit.
const UNIT_BYTES: u64 = 512;
/// The upper bound on sizes and address ranges, as for all traces.
const RANGE_BYTES: u64 = 1 << 63;

/// A model of a device's allocator.
trait Model: Debug {
    /// Returns a block for a request of 1 byte or more. Returns `None` if the device has no memory
    /// for the block.
    fn allocate(&mut self, bytes: u64) -> Option<ModelBlock>;
    fn free(&mut self, block: ModelBlock);
    fn reserved_bytes(&self) -> u64;
    fn driver(&self) -> &Driver;
    fn driver_mut(&mut self) -> &mut Driver;
    /// Checks the invariants. Returns the start and the size of each block in use.
    #[cfg(test)]
    fn check(&self) -> Vec<(u64, u64)>;
}

#[derive(Debug)]
struct ModelBlock {
    /// The index of the block's pool in the model.
    pool: usize,
    start: u64,
}

/// The kind of a modelled allocator.
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
    /// All modelled allocators.
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
            Self::CudaPool => "model of CUDA's stream-ordered pool, which retains freed memory",
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

/// A model to which a trace is applied in batches.
#[derive(Debug)]
pub struct ModelReplay {
    kind: ModelKind,
    engine: ReplayEngine<MeasuredModel>,
}

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
    /// The modelled allocator.
    pub kind: ModelKind,
    /// The number of allocations and frees, including failed ones.
    pub events: u64,
    /// The peak of the requested live bytes, without failed allocations.
    pub peak_live_bytes: u64,
    /// The peak of the bytes reserved from the device.
    pub peak_reserved_bytes: u64,
    /// The number of allocations that failed.
    pub failures: u64,
    /// The ledger of the driver's calls; `None` without costs.
    pub ledger: Option<DriverLedger>,
}

impl ModelOutcome {
    /// Returns the ratio of peak reserved bytes to peak live bytes; 1 if no bytes were live.
    pub fn ratio(&self) -> f64 {
        match self.peak_live_bytes {
            0 => 1.0,
            peak_live_bytes => self.peak_reserved_bytes as f64 / peak_live_bytes as f64,
        }
    }
}

impl ModelReplay {
    /// Creates a model for a device with `limit_bytes` bytes. The driver calls of the model have
    /// the costs of the table `costs`.
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

    /// Returns the results up to the last applied event.
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
