//! The elementwise operations: the rows of [`functions!`](crate::functions), the arithmetic
//! operators, and what has a signature of its own. [`declare`](super::declare) says what becomes of
//! a row.

pub(super) mod arithmetic;
pub(super) mod cast;
pub(super) mod complex;
pub(super) mod functions;
pub(super) mod select;

pub use complex::complex;
pub use select::select;
