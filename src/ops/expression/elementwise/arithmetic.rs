//! The arithmetic operators.

pub use cachescope_kernels::elementwise::arithmetic::*;
