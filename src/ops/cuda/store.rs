//! Evaluating expressions into the memory of arrays.

use smallvec::SmallVec;

use super::evaluate::{write, write_all};
use super::memory::{Output, address_of};
use super::program::Program;
use crate::error::Result;
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::expression::tree::Operand;
use crate::ops::order::CudaOrder;
use crate::ops::order::aliasing::Overwritable;

/// Writes the elements of `graph` over the elements of `target`. The target has the shape of the
/// graph, and memory that nothing else uses. Each thread reads all elements at an index before it
/// writes at this index.
#[cfg(any(feature = "fft", feature = "linalg"))]
#[track_caller]
pub(super) fn store_onto(
    order: CudaOrder<'_>,
    graph: &ExpressionGraph<'_>,
    target: Operand<'_>,
) -> Result<()> {
    let output = Output {
        address: address_of(target),
        count: target.layout.len(),
    };
    write(order, &Program::onto(graph, target), output)
}

/// Writes the elements of each result of `graph` over the elements of its target. The targets have
/// one shape, to which the results broadcast. Each thread reads all elements at an index before it
/// writes at this index.
#[track_caller]
pub(in crate::ops) fn store(
    order: CudaOrder<'_>,
    graph: &ExpressionGraph<'_>,
    targets: Overwritable<'_>,
) -> Result<()> {
    let targets = targets.targets();
    let layout = targets[0].layout();
    let count = layout.len();
    if count == 0 {
        return Ok(());
    }
    let operands: SmallVec<[Operand<'_>; 1]> = targets.iter().map(Operand::from).collect();
    let [target] = operands[..] else {
        return write_all(order, &Program::onto_all(graph, &operands), count);
    };
    let address = address_of(target);
    let is_dense = layout.is_contiguous()
        && (graph.operands()).all(|operand| {
            operand.layout.is_contiguous() && operand.layout.shape() == layout.shape()
        });
    let program = if is_dense && address.0.is_multiple_of(16) {
        Program::row_major(graph, layout.shape())
    } else {
        Program::onto(graph, target)
    };
    write(order, &program, Output { address, count })
}
