//! Groups of ranks: results, failures and memory.

mod bodies;
mod calls;
#[cfg(feature = "npy")]
mod checkpoints;
mod failures;
mod many_streams;
mod memory;
mod shards;
mod training;
