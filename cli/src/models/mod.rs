//! Models of other allocators: their documented rules as arithmetic over a trace. No memory is reserved.

mod pytorch;

use cachescope::trace::TraceEvent;
use serde::Serialize;

use pytorch::{Block, PyTorch};

/// A model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelKind {
    /// PyTorch's allocator of CUDA memory with segments of fixed sizes, its default.
    PyTorch,
    /// The same with `expandable_segments:True`.
    PyTorchExpandable,
}

impl ModelKind {
    const ALL: [Self; 2] = [Self::PyTorch, Self::PyTorchExpandable];

    /// Its name as an option.
    fn name(self) -> &'static str {
        match self {
            Self::PyTorch => "pytorch",
            Self::PyTorchExpandable => "pytorch-expandable",
        }
    }

    /// What the figures are of.
    fn description(self) -> &'static str {
        match self {
            Self::PyTorch => "model of PyTorch's allocator",
            Self::PyTorchExpandable => "model of PyTorch's allocator, expandable segments",
        }
    }

    fn is_expandable(self) -> bool {
        self == Self::PyTorchExpandable
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
    model: PyTorch,
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
    name: &'static str,
    description: &'static str,
    events: u64,
    peak_live_bytes: u64,
    peak_reserved_bytes: u64,
    ratio: f64,
    failures: u64,
}

impl ModelRun {
    /// A model before the first event, of a device with so many bytes.
    pub(crate) fn new(kind: ModelKind, limit_bytes: Option<u64>) -> Self {
        Self {
            model: PyTorch::new(kind.is_expandable(), limit_bytes),
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
            }
        }
    }

    fn allocate(&mut self, slot: usize, bytes: u64) {
        if slot >= self.live.len() {
            self.live.resize_with(slot + 1, || None);
        }
        // PyTorch answers these with a null pointer.
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
