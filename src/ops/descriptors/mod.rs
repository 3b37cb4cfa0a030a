//! Descriptions of operations for the kernels of the host and of CUDA devices. The descriptions are
//! plain data over shapes and layouts, such as the lanes of a reduction.

mod attention;
mod copies;
#[cfg(feature = "linalg")]
mod factorizations;
mod index_space;
mod lanes;
mod matrices;
mod picks;
mod reduction;
#[cfg(feature = "fft")]
mod spectra;

pub(super) use attention::AttentionSizes;
pub(super) use cachescope_kernels::convolution::ConvLengths;
pub(super) use cachescope_kernels::lanes::Lanes;
pub(super) use cachescope_kernels::sort::{Direction, Side};
pub(super) use copies::{Copying, joined_parts, onto_diagonal, pairs};
#[cfg(feature = "linalg")]
pub(super) use factorizations::{OUT_OF_MEMORY, SpectralValues};
pub(super) use index_space::IndexSpace;
pub(super) use lanes::lanes_along_all;
pub(super) use matrices::{Triangle, as_matrices, length_of, start_of};
pub(super) use picks::{Axis, Picking, reached};
pub(super) use reduction::{ReductionPlan, outputs_of};
#[cfg(feature = "fft")]
pub(super) use spectra::{part_of, spectrum_of};
