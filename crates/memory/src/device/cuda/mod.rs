//! CUDA devices, through the driver, which is loaded at run time.
//!
//! Architecture invariant: this module compiles with and without the feature `cuda`, with the same
//! signatures. Without the feature, a [`Cuda`] cannot exist. So the layers above need no `cfg`.

#[cfg(not(feature = "cuda"))]
mod disabled;
#[cfg(feature = "cuda")]
mod enabled;
#[cfg(feature = "fft")]
pub(crate) mod fft;
mod gemm;
mod launch;
pub(crate) mod nccl;
#[cfg(feature = "linalg")]
pub(crate) mod solver;

#[cfg(not(feature = "cuda"))]
pub use disabled::Communicator;
#[cfg(not(feature = "cuda"))]
pub(crate) use disabled::OrderedPool;
#[cfg(not(feature = "cuda"))]
pub use disabled::compile_for_all;
#[cfg(not(feature = "cuda"))]
pub use disabled::{Cuda, CurrentContext, Executable, SharedLaunchGuard};
#[cfg(feature = "cuda")]
pub use enabled::Communicator;
#[cfg(feature = "cuda")]
pub(crate) use enabled::OrderedPool;
#[cfg(feature = "cuda")]
pub use enabled::{Cuda, CurrentContext, Executable, SharedLaunchGuard};
#[cfg(feature = "cuda")]
pub use enabled::{KernelResources, compile_for_all, headers, ptx_of, resources_of};
pub use gemm::{Gemm, GemmOperand, GemmType};
pub use launch::{Arguments, Grid, Indexing, KernelKey, KernelSource, RowFault};
