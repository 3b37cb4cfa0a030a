//! The elementwise operations: the rows of [`functions!`](cachescope_kernels::functions), the
//! arithmetic operators, and operations with a signature of their own. The macros of
//! [`declare`](super::declare) expand the rows.

pub(in crate::ops) mod arithmetic;
pub(in crate::ops) mod cast;
pub(in crate::ops) mod complex;
pub(in crate::ops) mod functions;
pub(in crate::ops) mod select;

pub use complex::complex;
pub use select::select;
