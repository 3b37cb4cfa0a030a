//! Operations.

mod compare;
mod index;
mod print;
mod random;

pub use index::concat;
pub use random::{Generator, manual_seed};
