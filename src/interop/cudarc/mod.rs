//! cudarc: contexts and streams over this crate's own, export of arrays to cudarc's kernels and
//! copies, import of cudarc's memory.
//!
//! Architecture invariant: an exported array is never a `CudaSlice`, whose drop would free it.

mod export;
mod import;

pub use export::{ExportedView, ExportedViewMut};

use crate::context::driver_error;
