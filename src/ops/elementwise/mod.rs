//! The elementwise operations: the rows of [`functions!`](crate::functions), the arithmetic
//! operators, and operations with a signature of their own. The macros of
//! [`declare`](super::declare) expand the rows.

pub(super) mod arithmetic;
pub(super) mod cast;
pub(super) mod complex;
pub(super) mod functions;
pub(super) mod select;

pub use complex::complex;
pub use select::select;
