//! Conversion from and to arrays of other crates, import of foreign memory, and export to foreign
//! kernels.

#[cfg(feature = "cuda")]
pub(crate) mod cudarc;
pub(crate) mod dlpack;
#[cfg(any(feature = "npy", feature = "safetensors"))]
pub(crate) mod elements;
mod import;
mod ndarray;
#[cfg(feature = "npy")]
pub(crate) mod npy;
#[cfg(feature = "serde")]
mod serde;
