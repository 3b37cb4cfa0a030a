//! Functions of real numbers, written so that a loop over many elements becomes vector code.

pub use super::real::free::*;
