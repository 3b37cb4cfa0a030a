//! Templates: expression graphs with placeholders in place of arrays. A template owns no arrays,
//! and is valid before the arrays exist.
//!
//! Derivatives are built on a template, and results are recomputed from a template. A function of
//! `elementwise!` appends its body to a template. [`GraphTemplate::filled`] returns the expression
//! graph for the evaluators.

use cachescope_kernels::elementwise::body::{Graph, Terms};
use cachescope_kernels::elementwise::call::{Call, MOST_OPERANDS};
use smallvec::SmallVec;

use super::graph::{ExpressionGraph, NodeKind, wanted};
use super::tree::Operand;
use crate::array::{Bits, DType};
use crate::error::Result;

/// A placeholder for an array, with the array's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum Placeholder {
    /// An operand of the expression graph.
    Operand(usize),
    /// A result of the tape's step.
    Result(usize),
    /// The gradient of a result.
    Gradient(usize),
}

#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct TemplateNode {
    pub(in crate::ops) kind: NodeKind<Placeholder>,
    pub(in crate::ops) dtype: DType,
}

/// Nodes in an order in which they can be computed.
#[derive(Clone, Debug, Default)]
pub(in crate::ops) struct GraphTemplate {
    pub(in crate::ops) nodes: Vec<TemplateNode>,
}

impl GraphTemplate {
    /// Returns the template of `graph`, and the index in the template of each node of `graph`.
    /// `append` is [`call`](Self::call), or a function that appends other nodes instead of the
    /// call.
    pub(in crate::ops) fn of(
        graph: &ExpressionGraph<'_>,
        append: impl Fn(&mut Self, &'static Call, &[u32]) -> u32,
    ) -> (Self, Vec<u32>) {
        let mut template = Self::default();
        template.nodes.reserve(graph.nodes().len());
        let mut numbers = Vec::with_capacity(graph.nodes().len());
        let mut arrays = 0..;
        for node in graph.nodes() {
            let number = match node.kind {
                NodeKind::Array(_) => {
                    let number = arrays.next().expect("the range of numbers is unbounded");
                    template.push(NodeKind::Array(Placeholder::Operand(number)), node.dtype)
                }
                NodeKind::Scalar(bits) => template.push(NodeKind::Scalar(bits), node.dtype),
                NodeKind::Call(call, _) => {
                    append(&mut template, call, &renumbered(node.operands(), &numbers))
                }
            };
            numbers.push(number);
        }
        (template, numbers)
    }

    /// Returns a copy with reserved capacity for the nodes of gradients.
    pub(in crate::ops) fn with_room(&self) -> Self {
        let mut nodes = Vec::with_capacity(4 * self.nodes.len() + 4);
        nodes.extend_from_slice(&self.nodes);
        Self { nodes }
    }

    pub(in crate::ops) fn push(&mut self, kind: NodeKind<Placeholder>, dtype: DType) -> u32 {
        self.nodes.push(TemplateNode { kind, dtype });
        self.nodes.len() as u32 - 1
    }

    pub(in crate::ops) fn call(&mut self, call: &'static Call, operands: &[u32]) -> u32 {
        Graph::call(self, call, operands)
    }

    /// Appends the body of a function of `elementwise!` that has no hand-written partial
    /// derivatives. For other functions, and if the body returns `None`, appends the call.
    pub(in crate::ops) fn call_or_body(&mut self, call: &'static Call, operands: &[u32]) -> u32 {
        if let (Some(add_body), None) = (call.body, call.partials)
            && let Some(result) = add_body(&mut Terms::new(self, operands))
        {
            return result;
        }
        self.call(call, operands)
    }

    /// Returns a flag for each node: true for `results`, and for the nodes from which `results` are
    /// computed.
    pub(in crate::ops) fn wanted(&self, results: impl Iterator<Item = u32>) -> SmallVec<[bool; 8]> {
        let kinds = self.nodes.iter().map(|node| &node.kind);
        wanted(kinds, results.map(|result| result as usize), |_| false)
    }

    /// Returns the expression graph of the nodes `results`, over the arrays that `array_of` returns
    /// for the placeholders.
    ///
    /// # Errors
    ///
    /// Fails if the shapes of the arrays do not broadcast.
    #[track_caller]
    pub(in crate::ops) fn filled<'a>(
        &self,
        array_of: &dyn Fn(Placeholder) -> Operand<'a>,
        results: &[u32],
    ) -> Result<ExpressionGraph<'a>> {
        let wanted = self.wanted(results.iter().copied());
        let mut graph = ExpressionGraph::empty();
        let mut numbers: SmallVec<[u32; 32]> = SmallVec::from_elem(0, self.nodes.len());
        for (number, node) in self.nodes.iter().enumerate() {
            if wanted[number] {
                numbers[number] = match node.kind {
                    NodeKind::Array(placeholder) => graph.append_array(array_of(placeholder)),
                    NodeKind::Scalar(bits) => graph.append_scalar(node.dtype, bits),
                    NodeKind::Call(call, _) => {
                        graph.append_call(call, &renumbered(node.kind.operands(), &numbers))?
                    }
                };
            }
        }
        let results = results.iter().map(|&own| numbers[own as usize] as usize);
        graph.set_results(results);
        Ok(graph)
    }
}

impl Graph for GraphTemplate {
    fn scalar(&mut self, dtype: DType, bits: Bits) -> u32 {
        self.push(NodeKind::Scalar(bits), dtype)
    }

    fn call(&mut self, call: &'static Call, operands: &[u32]) -> u32 {
        self.push(NodeKind::call(call, operands), call.output)
    }

    fn dtype(&self, node: u32) -> DType {
        self.nodes[node as usize].dtype
    }
}

fn renumbered(operands: &[u32], numbers: &[u32]) -> SmallVec<[u32; MOST_OPERANDS]> {
    operands.iter().map(|&own| numbers[own as usize]).collect()
}
