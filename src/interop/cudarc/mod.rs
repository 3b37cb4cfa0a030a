//! cudarc: its contexts and streams over a device's own, arrays lent to its kernels and copies, and its
//! memory taken in.
//!
//! Architecture invariant: what is lent is never a `CudaSlice`, whose drop would free it.

mod context;
mod lend;
mod slice;

pub use lend::{LentView, LentViewMut};

use cudarc::driver::DriverError;

use crate::error::{Error, ErrorKind};

/// No `From`: that would leave the type of errors open in closures that answer with `?`, where it is plain
/// without.
#[track_caller]
fn driver_error(error: DriverError) -> Error {
    Error::new(ErrorKind::Driver, error.to_string())
}
