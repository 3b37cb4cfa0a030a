//! The types of expressions, under the names that compiler errors show.
//!
//! Compiler errors omit the path of a public type if no other visible type has its name. So a type
//! with the name of a standard trait has another name in this module. If a program passes an
//! expression where an array is expected, the error names a `Lazy<CallEval<…>>`. The names in this
//! type are then the programmer's only hint.

pub use super::elementwise::arithmetic::*;
pub use super::elementwise::cast::Cast;
pub use super::elementwise::complex::OfParts;
pub use super::elementwise::functions::*;
pub use super::elementwise::select::Select;
pub use super::node::{Apply as CallEval, Leaf, Scalar};
