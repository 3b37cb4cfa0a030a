//! The execution of expressions by CUDA devices.
//!
//! The source of a kernel is CUDA C++ with three parts. The first part is the prelude. The second
//! part computes the expression at an element index ([`Program`](program::Program)). The third part
//! is the operation on the elements. A kernel is compiled before its first launch.
//!
//! Architecture invariant: [`launch`](launch::launch) launches every kernel, and only submodules of
//! this module call it.
//!
//! Architecture invariant: no function here is generic over an element type, so that each function
//! is compiled once. Operands are [`Operand`](crate::ops::expression::tree::Operand)s, and new
//! arrays are [`AnyArray`](crate::array::AnyArray)s. If the source of a kernel depends on the
//! element type, the kernel's key contains this type. Only the constructors of `ReductionKernels`
//! and `FillKernels` are generic. These constructors are evaluated at compile time.

mod add;
mod attention;
mod code;
mod compact;
mod copy;
mod evaluate;
#[cfg(feature = "fft")]
mod fft;
mod generate;
mod indexed;
mod launch;
#[cfg(feature = "linalg")]
mod linalg;
mod memory;
mod norms;
mod prelude;
mod products;
mod program;
mod reduce;
mod regions;
mod scan;
mod search;
mod softmax;
mod sort;
mod store;
#[cfg(test)]
mod tests;
mod walk;
mod workspace;

pub(super) use add::{add_at, put_at};
pub(super) use attention::{attended, gradients_of_attention};
pub(super) use compact::{compacted, positions};
pub(super) use copy::{copied, joined};
pub(super) use evaluate::evaluate;
#[cfg(feature = "fft")]
pub(super) use fft::{reals_of, spectra_of, transformed, transformed_planes};
pub(super) use generate::{FillKernels, generate};
pub(super) use indexed::{marked, picked, reported};
#[cfg(feature = "linalg")]
pub(super) use linalg::{
    cholesky_factors, eigenvalues, inverted, lu_factors, qr_factors, singular_values, solved,
};
pub(super) use norms::{gradients_of_norm, norm_of_rows};
pub(super) use products::{
    add_stacks, multiply, multiply_into, multiply_stacks, multiply_with_bias,
};
pub(super) use reduce::{ReductionKernels, reduce};
pub(super) use regions::{on_diagonal, padded, triangular};
pub(super) use scan::running;
pub(super) use search::search;
pub(super) use softmax::normalized;
pub(super) use sort::{ranked, sorted};
pub(super) use store::store;
