//! The types of expressions by the names that errors of the compiler have for them.
//!
//! The compiler leaves out the path of a type that is public if nothing else that it sees is called
//! so; it writes a type that is long all the same to a file. So what shares its name with a trait
//! of the standard library has another here. And where it expects an array, names are all that it
//! can be told by: it finds a `Lazy<CallEval<…>>`.

pub use super::elementwise::arithmetic::*;
pub use super::elementwise::cast::Cast;
pub use super::elementwise::complex::OfParts;
pub use super::elementwise::functions::*;
pub use super::elementwise::select::Select;
pub use super::node::{Apply as CallEval, Leaf, Scalar};
