//! cudarc: contexts and streams over a device's own, export of arrays to its kernels and copies, import of its
//! memory.
//!
//! Architecture invariant: an exported array is never a `CudaSlice`, whose drop would free it.

mod context;
mod export;
mod import;

pub use export::{ExportedView, ExportedViewMut};

use cudarc::driver::DriverError;

use crate::error::{Error, ErrorKind};

/// No `From`: with it the compiler could not infer the error type of closures that use `?`.
#[track_caller]
fn driver_error(error: DriverError) -> Error {
    Error::new(ErrorKind::Driver, error.to_string())
}
