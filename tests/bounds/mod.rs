//! The memory for input from outside, and for programs of any length. The memory is bounded by the
//! size of the input, not by the claims of the input. The tests run on the host, where a device's
//! memory is also memory of the process.

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
