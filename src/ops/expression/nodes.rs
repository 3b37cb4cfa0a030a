//! The types of expressions, by the names that compiler errors show for them.
//!
//! The compiler omits the path of a public type if no other visible type has the type's name. It
//! writes a long type to a file in any case. So a type has another name here if its own name is the
//! name of a trait of the standard library. If the compiler expects an array, these names are the
//! only hint to the programmer, because it reports that it found a `Lazy<CallEval<…>>`.

pub use super::elementwise::arithmetic::*;
pub use super::elementwise::cast::Cast;
pub use super::elementwise::complex::OfParts;
pub use super::elementwise::functions::*;
pub use super::elementwise::select::Select;
pub use super::node::{Apply as CallEval, Leaf, Scalar};
