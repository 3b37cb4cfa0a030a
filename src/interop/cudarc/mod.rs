//! Interoperation with cudarc. cudarc's contexts and streams are made from this crate's contexts
//! and streams. Arrays are exported to cudarc's kernels and copies, and cudarc's memory is
//! imported.
//!
//! Architecture invariant: an exported array is never a `CudaSlice`, because the drop of a
//! `CudaSlice` frees its memory.

mod export;
mod import;

pub use export::{ExportedView, ExportedViewMut};

use crate::context::driver_error;
