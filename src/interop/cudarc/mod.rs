//! cudarc: contexts and streams over a device's own, export of arrays to its kernels and copies,
//! import of its memory.
//!
//! Architecture invariant: an exported array is never a `CudaSlice`, whose drop would free it.

mod export;
mod import;

pub use export::{ExportedView, ExportedViewMut};

use crate::context::driver_error;
