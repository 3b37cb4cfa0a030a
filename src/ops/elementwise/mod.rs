//! The table of elementwise operations: an operation is declared here and nowhere else.
//!
//! A row gives the method's name, the function's type, the kind of elements it is for, its host and
//! its CUDA form side by side, and an example; [`declare`](super::declare) says what the kinds are.
//! The files are families of operations.

pub(super) mod arithmetic;
pub(super) mod cast;
pub(super) mod choice;
pub(super) mod functions;
pub(super) mod logic;
pub(super) mod rounding;

pub(super) use arithmetic::{Add, Div, Mul, Neg, Rem, Sub};
pub use choice::select;
pub(super) use logic::{And, Not, Or};
