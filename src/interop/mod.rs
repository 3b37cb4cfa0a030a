//! Other crates' arrays.

mod ndarray;
#[cfg(feature = "npy")]
pub(crate) mod npy;
#[cfg(feature = "serde")]
mod serde;
