//! The memory use of hostile input and of long programs. The size of the input bounds the memory,
//! not the claims in the input. The tests run on the host, where device memory is process memory.

#[cfg(feature = "npy")]
mod archives;
mod densest;
#[cfg(feature = "npy")]
mod files;
mod fuzz;
mod heap;
#[cfg(feature = "npy")]
mod loads;
mod pickles;
mod recordings;
mod snapshots;
mod tables;
