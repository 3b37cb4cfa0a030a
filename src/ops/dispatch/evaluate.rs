//! Evaluation of expression graphs into new memory, and into the memory of arrays.

use smallvec::SmallVec;

use super::Hoisted;
use crate::array::{Buffer, Shape};
use crate::context::Device;
use crate::error::Result;
use crate::ops::expression::graph::{ExpressionGraph, Results};
use crate::ops::order::aliasing::{Overwritable, Target};
use crate::ops::order::{ReadOperands, UpdateTargets};

/// Returns the single result of `graph`, broadcast to `shape`. The caller must have checked the
/// length of `shape`.
#[track_caller]
pub(in crate::ops) fn evaluate(
    graph: &ExpressionGraph<'_>,
    device: &Device,
    shape: &Shape,
) -> Result<Buffer> {
    let mut results = evaluate_all(graph, device, shape)?;
    Ok(results.pop().expect("the graph has one result"))
}

/// Returns all results of `graph`, broadcast to `shape`, from one pass.
#[track_caller]
pub(in crate::ops) fn evaluate_all(
    graph: &ExpressionGraph<'_>,
    device: &Device,
    shape: &Shape,
) -> Result<Results> {
    let hoisted = Hoisted::of(graph, device, shape)?;
    let graph = &hoisted.apply(graph);
    on_device!(
        device,
        touching & ReadOperands(&**graph),
        evaluate(graph, shape)
    )
}

/// Writes each result of `graph` to its target. The targets are on one device and have one shape.
/// The results broadcast to this shape.
#[track_caller]
pub(in crate::ops) fn store(graph: &ExpressionGraph<'_>, targets: Overwritable<'_>) -> Result<()> {
    let buffers: SmallVec<[&Buffer; 1]> = targets.targets().iter().map(Target::buffer).collect();
    let updating = UpdateTargets {
        targets: &buffers,
        reading: ReadOperands(graph),
    };
    let device = targets.targets()[0].device();
    on_device!(device, touching & updating, store(graph, targets))
}
