//! cachescope

#[macro_use]
mod naming;

mod error;
mod size;
mod sync;

mod array;
mod context;
mod device;
mod interop;
mod ops;
mod pool;
mod source;

pub use array::{Array, Buffer, Element, Float, Numeric, Shape};
pub use context::Device;
pub use error::{Error, ErrorKind, Result};
pub use ndarray;
pub use pool::PoolKind;
pub use source::fault::FaultPlan;
