//! The derivatives of an expression graph, as nodes.

use std::cell::RefCell;

use smallvec::SmallVec;

use super::Tracked;
use super::joint_graph::{Contributions, is_differentiable};
use super::rules::partials;
use super::tape::note_constants;
use crate::array::DType;
use crate::error::Result;
use crate::ops::expression::graph::{ExpressionGraph, NodeKind};
use crate::ops::expression::template::{GraphTemplate, Placeholder, TemplateNode};

/// A tracked operand of an expression graph, and the nodes of its gradient.
#[derive(Clone, Copy, Debug)]
pub(super) struct Derived {
    pub(super) tracked: Tracked,
    /// The gradient in the operand's type.
    pub(super) gradient: u32,
    /// The gradient in the type in which gradients are computed and summed.
    pub(super) wide: u32,
}

/// Pairs of a node and the node of its gradient.
pub(super) type NodeSeeds = SmallVec<[(usize, u32); 2]>;

/// An expression graph with tracked operands, without its arrays.
#[derive(Clone, Debug)]
pub(super) struct Forward {
    joint: GraphTemplate,
    /// The nodes of the expression graph's results.
    pub(super) results: Vec<usize>,
    tracked: Vec<(u32, Tracked)>,
}

#[track_caller]
pub(super) fn tracked_nodes(graph: &ExpressionGraph<'_>) -> Result<Vec<(u32, Tracked)>> {
    let mut all = Vec::new();
    for (number, node) in (0..).zip(graph.nodes()) {
        if let NodeKind::Array(operand) = &node.kind
            && let Some(tracked) = Tracked::of(operand.buffer, operand.layout)?
        {
            all.push((number, tracked));
        }
    }
    Ok(all)
}

impl Forward {
    pub(super) fn of(graph: &ExpressionGraph<'_>, tracked: Vec<(u32, Tracked)>) -> Self {
        let (joint, numbers) = GraphTemplate::of(graph, GraphTemplate::call_or_body);
        let results = graph.results().iter();
        let tracked = tracked.into_iter();
        Self {
            joint,
            results: results.map(|&own| numbers[own] as usize).collect(),
            tracked: tracked
                .map(|(node, tracked)| (numbers[node as usize], tracked))
                .collect(),
        }
    }

    /// Returns, for each node, whether it is computed from a tracked operand.
    fn leads(&self) -> SmallVec<[bool; 32]> {
        let mut leads: SmallVec<[bool; 32]> = SmallVec::from_elem(false, self.joint.nodes.len());
        for (node, _) in &self.tracked {
            leads[*node as usize] = true;
        }
        for (number, node) in self.joint.nodes.iter().enumerate() {
            let operands = node.kind.operands();
            let own = operands.iter().any(|&operand| leads[operand as usize]);
            leads[number] |= own;
        }
        leads
    }

    /// Returns the joint graph with the gradients of the tracked operands. `seeds` appends the
    /// gradients of some nodes, and returns pairs of a node and the node of its gradient. Gradients
    /// are computed in the type of [`DType::computed_in`](crate::array::DType::computed_in).
    /// Finally, each gradient is converted to the type of its operand.
    #[track_caller]
    pub(super) fn derive(
        &self,
        seeds: impl FnOnce(&RefCell<GraphTemplate>) -> Result<NodeSeeds>,
    ) -> Result<(GraphTemplate, Vec<Derived>)> {
        let nodes = &self.joint.nodes;
        let joint = RefCell::new(self.joint.with_room());
        let leads = self.leads();
        let mut contributions: SmallVec<[Contributions; 8]> =
            nodes.iter().map(|_| Contributions::new()).collect();
        let mut has_slope_zero = false;
        for (node, gradient) in seeds(&joint)? {
            contributions[node].push((gradient, None));
        }
        for number in (0..nodes.len()).rev().filter(|&number| leads[number]) {
            let NodeKind::Call(call, _) = nodes[number].kind else {
                continue;
            };
            let own = &contributions[number];
            let Some((gradient, counts)) = joint.borrow_mut().sum_where_counted(own) else {
                continue;
            };
            let operands = nodes[number].kind.operands();
            let partials = partials(&joint, call, operands, [number as u32, gradient])?;
            for (place, (&operand, partial)) in operands.iter().zip(partials).enumerate() {
                let operand = operand as usize;
                let is_tracked = leads[operand] && is_differentiable(nodes[operand].dtype);
                let Some(partial) = partial else {
                    has_slope_zero |= is_tracked;
                    continue;
                };
                if is_tracked {
                    let counts = joint.borrow_mut().counts(call, operands, (place, counts));
                    contributions[operand].push((partial, counts));
                }
            }
        }
        let derived = self.tracked.iter().filter_map(|&(node, tracked)| {
            let mut joint = joint.borrow_mut();
            let sum = joint.sum(&contributions[node as usize])?;
            Some(Derived {
                tracked,
                gradient: joint.converted(sum, nodes[node as usize].dtype),
                wide: sum,
            })
        });
        let derived: Vec<Derived> = derived.collect();
        if has_slope_zero && derived.is_empty() {
            note_constants();
        }
        Ok((joint.into_inner(), derived))
    }

    /// Like [`derive`](Self::derive), but begins with the gradients of the results. `gradient_of`
    /// returns the type of a result's gradient, or `None` for a result without a gradient.
    #[track_caller]
    pub(super) fn derive_results(
        &self,
        gradient_of: impl Fn(usize) -> Option<DType>,
    ) -> Result<(GraphTemplate, Vec<Derived>)> {
        self.derive(|joint| {
            let mut joint = joint.borrow_mut();
            let mut seeds = NodeSeeds::new();
            for (number, &result) in self.results.iter().enumerate() {
                let TemplateNode { kind, dtype } = self.joint.nodes[result];
                if matches!(kind, NodeKind::Call(..)) {
                    joint.nodes[result].kind = NodeKind::Array(Placeholder::Result(number));
                }
                if is_differentiable(dtype)
                    && let Some(own) = gradient_of(number)
                {
                    let gradient = joint.push(NodeKind::Array(Placeholder::Gradient(number)), own);
                    seeds.push((result, joint.widened(gradient)));
                }
            }
            Ok(seeds)
        })
    }
}
