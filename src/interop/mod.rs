//! Conversion from and to other crates' arrays; import of foreign memory, export to foreign
//! kernels.

#[cfg(feature = "cuda")]
pub(crate) mod cudarc;
#[cfg(any(feature = "npy", feature = "safetensors"))]
pub(crate) mod elements;
mod import;
mod ndarray;
#[cfg(feature = "npy")]
pub(crate) mod npy;
#[cfg(feature = "serde")]
mod serde;
