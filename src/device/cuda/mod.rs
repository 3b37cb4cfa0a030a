//! The CUDA device. This version finds out whether there is a driver, and says what is missing;
//! memory and kernels of the device are not there yet.

#[cfg(not(feature = "cuda"))]
mod disabled;
#[cfg(feature = "cuda")]
mod enabled;

#[cfg(not(feature = "cuda"))]
pub(crate) use disabled::probe;
#[cfg(feature = "cuda")]
pub(crate) use enabled::probe;
