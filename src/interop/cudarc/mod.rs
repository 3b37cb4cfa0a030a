//! cudarc: its contexts and streams, made from this crate's own. Arrays are exported to cudarc's
//! kernels and copies, and cudarc's memory is imported.
//!
//! Architecture invariant: an exported array is never a `CudaSlice`, because the drop of a
//! `CudaSlice` frees its memory.

mod export;
mod import;

pub use export::{ExportedView, ExportedViewMut};

use crate::context::driver_error;
