//! The sources of values that expression graphs compute.

use smallvec::SmallVec;

use super::recompute::{Operand, Source};
use super::work_of;
use crate::array::{AnyArray, Shape};
use crate::context::Device;
use crate::error::Result;
use crate::ops::expression::graph::{ExpressionGraph, NodeKind};
use crate::ops::expression::template::{GraphTemplate, Placeholder};

/// The estimated floating-point operations of a call per element.
const FLOPS_A_CALL: usize = 4;

/// Returns the source of the results that `run` computes from `graph` over a shape. Returns `None`
/// if the tape has no store, or `graph` reads no array. `flops_each` is the number of
/// floating-point operations per element, in addition to the calls of the graph.
#[track_caller]
pub(in crate::ops::derivatives) fn source_of_graph(
    graph: &ExpressionGraph<'_>,
    (shape, flops_each): (&Shape, usize),
    run: impl Fn(&ExpressionGraph<'_>, &Device, &Shape) -> Result<SmallVec<[AnyArray; 1]>> + 'static,
) -> Option<Source> {
    let device = graph.operands().next()?.buffer.device();
    let store = super::store(device)?;
    let device = device.clone();
    let operands = graph.operands();
    let operands = operands.map(|own| Operand::new(&store, own.buffer, (own.layout, own.dtype)));
    let calls = graph
        .nodes()
        .iter()
        .filter(|node| matches!(node.kind, NodeKind::Call(..)));
    let elements = work_of(shape.dims()) as usize;
    let flops = work_of(&[calls.count() * FLOPS_A_CALL + flops_each, elements]);
    let (template, numbers) = GraphTemplate::of(graph, GraphTemplate::call);
    let results = graph.results().iter().map(|&own| numbers[own]);
    let (results, shape): (SmallVec<[u32; 1]>, _) = (results.collect(), *shape);
    let run = move |operands: &[AnyArray]| {
        let array_of = |placeholder| match placeholder {
            Placeholder::Operand(number) => operands[number].operand(),
            _ => unreachable!("the placeholders of an expression graph are operands"),
        };
        run(&template.filled(&array_of, &results)?, &device, &shape)
    };
    Some(Source::new(operands.collect(), flops, Box::new(run)))
}
