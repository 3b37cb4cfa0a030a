//! Expression graphs that outlive the arrays that they were built over.

use smallvec::SmallVec;

use super::recompute::{Operand, Source};
use super::work_of;
use crate::array::{Bits, DType, Shape};
use crate::context::Device;
use crate::error::Result;
use crate::ops::derivatives::AnyArray;
use crate::ops::expression::graph::{ExpressionGraph, NodeKind};
use crate::ops::expression::tree::{Call, MOST_OPERANDS};

/// The nodes of an expression graph, with arrays by their number.
struct GraphOfOperands {
    nodes: Vec<(OwnedNode, DType)>,
    results: SmallVec<[usize; 1]>,
}

#[derive(Clone, Copy)]
enum OwnedNode {
    Array(usize),
    Scalar(Bits),
    Call(&'static Call, [u32; MOST_OPERANDS]),
}

impl GraphOfOperands {
    fn new(graph: &ExpressionGraph<'_>) -> Self {
        let mut arrays = 0..;
        let nodes = graph.nodes().iter().map(|node| {
            let own = match node.kind {
                NodeKind::Array(_) => OwnedNode::Array(arrays.next().expect("without end")),
                NodeKind::Scalar(bits) => OwnedNode::Scalar(bits),
                NodeKind::Call(call, operands) => OwnedNode::Call(call, operands),
            };
            (own, node.dtype)
        });
        Self {
            nodes: nodes.collect(),
            results: graph.results().into(),
        }
    }

    /// Returns the expression graph over other arrays of the same shapes.
    fn over<'a>(&self, operands: &'a [AnyArray]) -> Result<ExpressionGraph<'a>> {
        let mut graph = ExpressionGraph::empty();
        let mut numbers: Vec<u32> = Vec::with_capacity(self.nodes.len());
        for &(node, dtype) in &self.nodes {
            let number = match node {
                OwnedNode::Array(number) => graph.append_array(operands[number].operand()),
                OwnedNode::Scalar(bits) => graph.append_scalar(dtype, bits),
                OwnedNode::Call(call, operands) => {
                    let operands = operands[..call.arity].iter();
                    let operands: SmallVec<[u32; MOST_OPERANDS]> =
                        operands.map(|&own| numbers[own as usize]).collect();
                    graph.append_call(call, &operands)?
                }
            };
            numbers.push(number);
        }
        graph.set_results(self.results.iter().map(|&own| numbers[own] as usize));
        Ok(graph)
    }
}

/// The floating-point operations of a function of one element. Most take few.
const FLOPS_A_CALL: usize = 4;

/// Returns the source of the results that `run` computes from `graph` over a shape; `None` if the
/// tape has no budget. `flops_each` are the floating-point operations for an element, without the
/// functions of the graph.
#[track_caller]
pub(in crate::ops::derivatives) fn source_of_graph(
    graph: &ExpressionGraph<'_>,
    (shape, flops_each): (&Shape, usize),
    run: impl Fn(&ExpressionGraph<'_>, &Device, &Shape) -> Result<SmallVec<[AnyArray; 1]>> + 'static,
) -> Option<Source> {
    let device = graph.operands().next()?.buffer.device().clone();
    let store = super::store(&device)?;
    let operands = graph.operands();
    let operands = operands.map(|own| Operand::new(&store, own.buffer, (own.layout, own.dtype)));
    let calls = graph
        .nodes()
        .iter()
        .filter(|node| matches!(node.kind, NodeKind::Call(..)));
    let elements = work_of(shape.dims()) as usize;
    let flops = work_of(&[calls.count() * FLOPS_A_CALL + flops_each, elements]);
    let (own, shape) = (GraphOfOperands::new(graph), *shape);
    Some(Source::new(operands, flops, move |operands| {
        run(&own.over(operands)?, &device, &shape)
    }))
}
