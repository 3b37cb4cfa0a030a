//! Loop-invariant code motion: computes a node once if broadcasting would compute it again for each
//! output element.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::evaluate::evaluate;
use crate::array::{AnyArray, Shape};
use crate::context::Device;
use crate::error::Result;
use crate::ops::expression::graph::{ExpressionGraph, NodeKind, wanted};
use crate::ops::expression::tree::Operand;

/// Nodes that are computed into their own memory before the expression graph is evaluated.
#[derive(Debug)]
pub(in crate::ops) struct Hoisted(Vec<(usize, AnyArray)>);

/// The minimum number of function evaluations that hoisting a node must save, on the host and on a
/// GPU. Hoisting requires memory and a pass. This pass takes as long as some thousand evaluations.
/// On a GPU, a launch takes as long as some million evaluations.
const LEAST_SAVED: [usize; 2] = [1 << 13, 1 << 22];

impl Hoisted {
    /// Computes the nodes that `graph` would evaluate repeatedly in a broadcast to `shape`.
    /// Allocates memory in the thread's scope.
    #[track_caller]
    pub(in crate::ops) fn of(
        graph: &ExpressionGraph<'_>,
        device: &Device,
        shape: &Shape,
    ) -> Result<Self> {
        let mut hoisted = Vec::new();
        let on_gpu = device.backend().cuda().is_some();
        for node in repeated(
            graph,
            shape.checked_len()?,
            LEAST_SAVED[usize::from(on_gpu)],
        ) {
            let part = graph.rebuilt(&[node], &[]);
            let buffer = evaluate(&part, device, part.shape())?;
            let value = AnyArray::of_shape(buffer, part.shape(), part.first().dtype);
            hoisted.push((node, value));
        }
        Ok(Self(hoisted))
    }

    /// Returns `graph` with arrays in place of the computed nodes.
    pub(in crate::ops) fn apply<'a, 'b>(
        &'b self,
        graph: &'a ExpressionGraph<'b>,
    ) -> Cow<'a, ExpressionGraph<'b>> {
        if self.0.is_empty() {
            return Cow::Borrowed(graph);
        }
        let known = self.0.iter().map(|(node, array)| (*node, array.operand()));
        let known: SmallVec<[(usize, Operand<'b>); 1]> = known.collect();
        Cow::Owned(graph.rebuilt(graph.results(), &known))
    }
}

/// Returns the largest nodes that a broadcast to `count` elements evaluates repeatedly. Hoisting
/// each node saves at least `least_saved` function evaluations.
fn repeated(graph: &ExpressionGraph<'_>, count: usize, least_saved: usize) -> SmallVec<[usize; 1]> {
    let mut found = SmallVec::new();
    if count < least_saved / 16 {
        return found;
    }
    let nodes = graph.nodes();
    let is_whole = |number: usize| graph.shape_of(number).dims().iter().product::<usize>() >= count;
    let is_call = |number: &usize| matches!(nodes[*number].kind, NodeKind::Call(..));
    if (0..nodes.len()).filter(is_call).all(is_whole) {
        return found;
    }
    // The number of elements for which each node is read. The number is the maximum over the
    // readers of the node. The readers are later nodes.
    let mut read_for: SmallVec<[usize; 8]> = SmallVec::from_elem(0, nodes.len());
    for &result in graph.results() {
        read_for[result] = count;
    }
    for (number, node) in nodes.iter().enumerate().rev() {
        let NodeKind::Call(..) = node.kind else {
            continue;
        };
        let Ok(own) = graph.shape_of(number).checked_len() else {
            continue;
        };
        let repeats = own > 0 && own.saturating_mul(2) <= read_for[number];
        if repeats {
            let saved = calls_of(graph, number).saturating_mul(read_for[number] - own);
            if saved >= least_saved {
                found.push(number);
                continue;
            }
        }
        // If a node is not hoisted, its operands are read as often as the node.
        for &operand in node.operands() {
            let operand = operand as usize;
            read_for[operand] = read_for[operand].max(read_for[number]);
        }
    }
    found
}

/// Returns the number of function nodes that the node `number` is computed from, including itself.
fn calls_of(graph: &ExpressionGraph<'_>, number: usize) -> usize {
    let kinds = graph.nodes().iter().map(|node| &node.kind);
    let wanted = wanted(kinds.clone(), std::iter::once(number), |_| false);
    let wanted = kinds.zip(wanted).filter(|(_, wanted)| *wanted);
    wanted
        .filter(|(kind, _)| matches!(kind, NodeKind::Call(..)))
        .count()
}
