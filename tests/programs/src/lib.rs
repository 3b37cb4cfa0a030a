//! Synthetic programs, for tests and examples of crates that do not depend on each other.

#![forbid(unsafe_code)]

mod random_allocations;
mod training;

pub use random_allocations::{next, random_allocations};
pub use training::training;
