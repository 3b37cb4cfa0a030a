//! Groups of ranks that are threads: results, failures and memory. `mpi.rs` is a separate test
//! target, with the modules `launch` and `ranks`.

mod bodies;
mod calls;
#[cfg(feature = "npy")]
mod checkpoints;
mod failures;
mod many_streams;
mod memory;
mod shards;
mod training;
