//! The execution of expressions by the host device.
//!
//! The elements of an expression are numbered in row-major order of its [index
//! space](crate::ops::descriptors::IndexSpace). There are two evaluators with bitwise equal
//! results. The [fused](fused) evaluator is a loop that is compiled for one expression. It is for
//! dense operands of one shape, in builds without debug assertions. The [blocked](blocked)
//! evaluator is for all other expressions. It runs the library's loops, one for each function, over
//! blocks that stay in the first-level cache. Both evaluators implement
//! [`ElementSource`](element_source::ElementSource) for the code that writes elements. Reductions,
//! scans and softmax read blocks.
//!
//! Architecture invariant: [`launch`] runs every kernel. In an operation, only submodules of this
//! module read or write the elements of arrays. Except for the fused loop, no code is generic over
//! the type of an expression.
//!
//! A loop for each expression is fastest, but it takes long to compile, and is slow without
//! optimisation. So only optimised builds have a loop for each expression. The loop runs over dense
//! operands, or over gathered blocks of operands. Both evaluators inline one function for each
//! operation on an element.

mod blocked;
mod compact;
mod compare;
mod convolution;
mod copy;
mod counts;
mod element_source;
mod evaluate;
#[cfg(feature = "fft")]
mod fft;
mod fused;
mod fused_blocks;
mod generate;
mod indexed;
mod lanes;
mod launch;
#[cfg(feature = "linalg")]
mod linalg;
mod memory;
mod pointers;
mod products;
mod reduce;
mod regions;
mod search;
mod sort;
mod store;
mod threads;

pub(super) use blocked::{OperandBlocks, RUN};
pub(super) use cachescope_kernels::lanes::LaneLoops;
pub(super) use cachescope_kernels::scan::scan_loops_of;
pub(super) use cachescope_kernels::search::{SearchLoops, search_loops_of};
pub(super) use cachescope_kernels::softmax::softmax_loops_of;
pub(super) use cachescope_kernels::sort::loops::{SortLoops, float_sort_loops_of, sort_loops_of};
pub(super) use compact::{compacted, positions};
pub(super) use compare::{are_close, are_equal};
pub(super) use convolution::{convolved, convolved_transposed, correlated};
pub(super) use copy::{copied, joined};
pub(super) use counts::{binned, first_outside, occurrences};
pub(super) use evaluate::{evaluate, evaluate_blocks, evaluate_fused};
#[cfg(feature = "fft")]
pub(super) use fft::{reals_of, spectra_of, transformed, transformed_planes};
pub(super) use fused::{Fused, Fusing, Unfused};
pub(super) use generate::{Draw, TakeFill, TypedFill, generate};
pub(super) use indexed::{add_at, marked, picked, put_at};
pub(super) use lanes::{along_axis, normalized_contiguous};
#[cfg(feature = "linalg")]
pub(super) use linalg::{
    cholesky_factors, determinants, eigenvalues, inverted, qr_factors, singular_values, solved,
};
pub(super) use products::{add_stacks, multiply, multiply_into, multiply_stacks};
pub(super) use reduce::{reduce, reduce_contiguous};
pub(super) use regions::{on_diagonal, padded, triangular};
pub(super) use search::search;
pub(super) use sort::{firsts, neighbours, ranked, sorted};
pub(super) use store::{FusedStore, store};
