//! Groups of ranks that are threads: results, failures and memory. `mpi.rs`, with `launch` and
//! `ranks`, is a separate target.

mod bodies;
mod calls;
#[cfg(feature = "npy")]
mod checkpoints;
mod failures;
mod many_streams;
mod memory;
mod shards;
mod training;
