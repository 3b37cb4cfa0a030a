#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

// The modules are ordered bottom-up: a module may use only the modules declared above it. The
// memory layers are in the crate `cachescope_memory`.
use cachescope_memory::internal::{error, pool};

pub mod plan;

pub mod trace;

pub mod simulation;

#[cfg(feature = "models")]
pub mod models;

pub use cachescope_memory::{Error, ErrorKind, PoolKind, Result, record};
