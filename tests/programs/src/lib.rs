//! Invented programs, for tests and examples of crates that do not depend on each other.

#![forbid(unsafe_code)]

mod training;

pub use training::training;
