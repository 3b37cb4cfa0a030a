//! cudarc: its contexts and streams over a device's own, arrays lent to its kernels and copies, and its
//! memory taken in.
//!
//! Architecture invariant: what is lent is never a `CudaSlice`, whose drop would free it.

mod context;
mod lend;
mod slice;

pub use lend::{LentView, LentViewMut};

use cudarc::driver::DriverError;
use cudarc::nvrtc::CompileError;

use crate::error::{Error, ErrorKind};

impl From<DriverError> for Error {
    /// An error of kind [`Driver`](ErrorKind::Driver), so that `?` does for other people's calls too.
    fn from(error: DriverError) -> Self {
        Self::new(ErrorKind::Driver, error.to_string())
    }
}

impl From<CompileError> for Error {
    /// An error of kind [`Driver`](ErrorKind::Driver) with what the compiler said.
    fn from(error: CompileError) -> Self {
        let text = match &error {
            CompileError::CompileError { log, .. } => {
                format!(
                    "NVRTC cannot compile the kernel:\n{}",
                    log.to_string_lossy()
                )
            }
            other => other.to_string(),
        };
        Self::new(ErrorKind::Driver, text)
    }
}
