//! The types of expressions, by the names that compiler errors show for them.
//!
//! If no other visible type has the name of a public type, the compiler omits its path. The
//! compiler writes a long type to a file anyway. So a type that shares its name with a trait of the
//! standard library has another name here. If the compiler expects an array, the names are the only
//! hint to the programmer: it reports that it found a `Lazy<CallEval<…>>`.

pub use super::elementwise::arithmetic::*;
pub use super::elementwise::cast::Cast;
pub use super::elementwise::complex::OfParts;
pub use super::elementwise::functions::*;
pub use super::elementwise::select::Select;
pub use super::node::{Apply as CallEval, Leaf, Scalar};
