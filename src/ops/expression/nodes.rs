//! The types of expressions, by the names that compiler errors show for them.
//!
//! The compiler omits the path of a public type if no other visible type has its name; it writes a
//! long type to a file anyway. So a type that shares its name with a trait of the standard library
//! has another name here. If the compiler expects an array, the names are the only hint to the
//! programmer: it reports that it found a `Lazy<CallEval<…>>`.

pub use super::elementwise::arithmetic::*;
pub use super::elementwise::cast::Cast;
pub use super::elementwise::complex::OfParts;
pub use super::elementwise::functions::*;
pub use super::elementwise::select::Select;
pub use super::node::{Apply as CallEval, Leaf, Scalar};
