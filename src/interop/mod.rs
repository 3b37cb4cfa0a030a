//! Other crates' arrays, and other people's memory and kernels.

#[cfg(feature = "cuda")]
pub(crate) mod cudarc;
mod foreign;
mod ndarray;
#[cfg(feature = "npy")]
pub(crate) mod npy;
#[cfg(feature = "serde")]
mod serde;
