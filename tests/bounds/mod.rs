//! Memory for input from outside, and for programs of any length. It is bounded by the input's
//! size, not by what the input claims. The tests run on the host, where a device's memory is the
//! process's, too.

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
