//! Groups of ranks: what they compute, how they fail, and the memory that they use.

mod bodies;
mod calls;
#[cfg(feature = "npy")]
mod checkpoints;
mod failures;
mod many_streams;
mod memory;
mod shards;
mod training;
