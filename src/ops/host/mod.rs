//! The host device's execution of expressions.
//!
//! The elements of an expression are numbered in row-major order of its frame. A kernel serves any
//! run of these numbers: each operand that stands in memory one element after another is read where
//! it stands, and every other one is first gathered into a small buffer that the first-level cache
//! holds. So the loop over a run is always contiguous, without a branch an element, and the
//! compiler makes vector code of it whatever the mix of operands.
//!
//! Architecture invariant: every kernel goes through [`launch`], and no module but those here
//! reads or writes the elements of arrays for an operation.

mod copy;
mod digits;
mod evaluate;
mod generate;
mod indexed;
mod kernel;
mod launch;
mod lines;
mod memory;
mod nodes;
mod products;
mod reduce;
mod regions;
mod scan;
mod softmax;
mod sort;
mod store;
mod tile;
mod vector;
mod view;

pub(super) use copy::{copied, joined};
pub(super) use evaluate::{evaluate, evaluate_dense};
pub(super) use generate::{Fill, generate};
pub(super) use indexed::{add_at, marked, picked};
pub(super) use kernel::RUN;
pub(crate) use kernel::{Kernel, RunOf};
pub(crate) use nodes::{Kernels, RunsOf};
pub(super) use products::{multiply, multiply_stacks};
pub(super) use reduce::fold;
pub(super) use regions::{on_diagonal, padded, triangular};
pub(super) use scan::running_sums;
pub(super) use softmax::normalized;
pub(super) use sort::{ranked, sorted};
pub(super) use store::store;
pub(crate) use view::{Frame, InMemory, View};
