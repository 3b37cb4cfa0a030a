//! The types of expressions, under the names that compiler errors show.
//!
//! Compiler errors omit the path of a public type, unless another visible type or trait has its
//! name. So the types of the arithmetic operators are `Added`, `Times` and so on, not `Add` and
//! `Mul` like the traits. If a program passes an expression where an array is expected, the error
//! names a `Lazy<CallEval<…>>`. The names in this type are then the programmer's only hint.

pub use super::elementwise::arithmetic::*;
pub use super::elementwise::cast::Cast;
pub use super::elementwise::complex::OfParts;
pub use super::elementwise::functions::*;
pub use super::elementwise::select::Select;
pub use super::node::{Apply as CallEval, Leaf, Scalar};
