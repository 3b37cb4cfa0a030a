//! The joint graph of a step: the template of its expression graph, and the nodes of the gradients.
//!
//! Derivatives are nodes, not types. Types of derivatives would at least double the number of
//! expression types. The user's crate would compile them for each training step. As nodes, the
//! gradients of all operands are one graph. Each device evaluates this graph in one pass, and equal
//! nodes once.

use smallvec::SmallVec;

use crate::array::{DType, bits_of_number};
use crate::ops::expression::elementwise::arithmetic::Added;
use crate::ops::expression::elementwise::cast::cast;
use crate::ops::expression::elementwise::functions::{And, Not, Or};
use crate::ops::expression::elementwise::select::Select;
use crate::ops::expression::graph::NodeKind;
use crate::ops::expression::template::{GraphTemplate, TemplateNode};
use cachescope_kernels::elementwise::call::Call;
use cachescope_kernels::elementwise::operation::Operation;

/// The contributions to a gradient, one for each use of its node. A contribution has a condition,
/// or `None` if it always counts. If a select chose its other branch, the contribution does not
/// count, and may have any value. Infinite slopes may occur in a branch itself, and in the nodes
/// that the branch reads.
pub(super) type Contributions = SmallVec<[(u32, Option<u32>); 2]>;

impl GraphTemplate {
    /// Converts a float or complex number to the type `to`. Appends each conversion at most once.
    pub(super) fn converted(&mut self, node: u32, to: DType) -> u32 {
        let TemplateNode { kind, dtype: from } = self.nodes[node as usize];
        if from == to {
            return node;
        }
        // If the node was widened from the type `to`, its operand has the lossless result.
        if let NodeKind::Call(call, [operand, ..]) = kind
            && (call.operation, to.computed_in()) == (Operation::Cast, from)
            && self.nodes[operand as usize].dtype == to
        {
            return operand;
        }
        let is_done = |own: &TemplateNode| match own.kind {
            NodeKind::Call(call, [operand, ..]) => {
                (call.operation, operand, own.dtype) == (Operation::Cast, node, to)
            }
            _ => false,
        };
        match self.nodes.iter().position(is_done) {
            Some(done) => done as u32,
            None => self.call(cast(from, to), &[node]),
        }
    }

    /// Converts a number to the type that its gradient is computed in.
    pub(super) fn widened(&mut self, node: u32) -> u32 {
        let dtype = self.nodes[node as usize].dtype;
        self.converted(node, dtype.computed_in())
    }

    /// Returns the sum of a gradient's contributions, and the condition of the sum. If any
    /// contribution counts, the sum counts.
    pub(super) fn sum_where_counted(
        &mut self,
        parts: &Contributions,
    ) -> Option<(u32, Option<u32>)> {
        let (&(first, counts), others) = parts.split_first()?;
        if others.iter().all(|&(_, own)| own == counts) {
            let sum = others
                .iter()
                .fold(first, |sum, &(own, _)| self.add(sum, own));
            return Some((sum, counts));
        }
        let counts = others.iter().fold(counts, |either, &(_, own)| {
            let (either, own) = (either?, own?);
            Some(self.call(Or::CALLS.at(DType::Bool), &[either, own]))
        });
        Some((self.sum(parts)?, counts))
    }

    /// Returns the sum of the contributions that count.
    pub(super) fn sum(&mut self, parts: &Contributions) -> Option<u32> {
        let parts = parts.iter().map(|&(own, counts)| match counts {
            None => own,
            Some(counts) => self.only_where(counts, own),
        });
        let parts: SmallVec<[u32; 2]> = parts.collect();
        let mut parts = parts.into_iter();
        let first = parts.next()?;
        Some(parts.fold(first, |sum, own| self.add(sum, own)))
    }

    /// Returns the condition under which an operand of a call counts. `counts` is the condition of
    /// the call. Only the chosen branch of a select counts.
    pub(super) fn counts(
        &mut self,
        call: &Call,
        operands: &[u32],
        (place, counts): (usize, Option<u32>),
    ) -> Option<u32> {
        if call.operation != Operation::Select {
            return counts;
        }
        let chosen = match place {
            1 => operands[0],
            _ => self.call(Not::CALLS.at(DType::Bool), &operands[..1]),
        };
        let both = |counts| self.call(And::CALLS.at(DType::Bool), &[counts, chosen]);
        Some(counts.map_or(chosen, both))
    }

    /// Returns `value` where the truth value `holds` is true, and zero elsewhere.
    pub(super) fn only_where(&mut self, holds: u32, value: u32) -> u32 {
        let dtype = self.nodes[value as usize].dtype;
        let zero = self.push(NodeKind::Scalar(bits_of_number(dtype, 0.0)), dtype);
        self.call(Select::CALLS.at(dtype), &[holds, value, zero])
    }

    /// Appends the sum of two nodes of one type.
    fn add(&mut self, one: u32, other: u32) -> u32 {
        let dtype = self.nodes[one as usize].dtype;
        self.call(Added::CALLS.at(dtype), &[one, other])
    }
}

/// Returns whether gradients may have this type.
pub(in crate::ops) fn is_differentiable(dtype: DType) -> bool {
    dtype.is_float() || dtype.is_complex()
}
