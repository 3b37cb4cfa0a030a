//! What comes from outside, or goes on without end, takes memory by what it is, not by what it
//! claims. Counted on the host, where the memory of a device is the process's too.

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
