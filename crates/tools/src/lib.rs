#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

// The layers, bottom up: each layer may name only the layers before it. The layers of the memory
// are in another crate.
use cachescope_memory::internal::{error, pool};

pub mod plan;

pub mod trace;

pub mod simulation;

#[cfg(feature = "models")]
pub mod models;

pub use cachescope_memory::{Error, ErrorKind, PoolKind, Result, record};
