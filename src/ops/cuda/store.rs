//! Evaluation of expressions into the memory of existing arrays.

use smallvec::SmallVec;

use super::evaluate::{write, write_all};
use super::memory::{Output, address_of};
use super::program::Program;
use crate::error::Result;
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::expression::tree::Operand;
use crate::ops::order::CudaOrder;
use crate::ops::order::aliasing::Overwritable;

/// Overwrites the elements of `target` with the elements of `graph`. The shapes must be equal.
/// Nothing else may use the memory of `target`. Each thread reads all operands at an index before
/// it writes at this index.
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

/// Overwrites the elements of each target with the elements of a result of `graph`. The targets
/// have one shape, to which the results broadcast. Each thread reads all operands at an index
/// before it writes at this index.
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
