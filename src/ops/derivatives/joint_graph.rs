//! An expression graph and the graph of its gradients, as nodes that own nothing: type-erased, and
//! valid before the memory of saved values exists.

use std::any::TypeId;

use smallvec::SmallVec;

use crate::array::{AnyElement, Bits, DType, bits_of};
use crate::ops::expression::elementwise::arithmetic::Added;
use crate::ops::expression::elementwise::cast::Cast;
use crate::ops::expression::elementwise::functions::{And, Not, Or};
use crate::ops::expression::elementwise::select::Select;
use crate::ops::expression::graph::{ExpressionGraph, NodeKind};
use crate::ops::expression::node::call_of;
use crate::ops::expression::tree::{Call, MOST_OPERANDS, Node, Operand, Tree};
use crate::ops::expression::written::terms::{TermKind, Terms};

/// A node of a graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct JointNode {
    pub(super) kind: JointNodeKind,
    pub(super) dtype: DType,
}

/// The kind of a node.
#[derive(Clone, Copy, Debug)]
pub(super) enum JointNodeKind {
    /// An operand of the expression graph, by its number there.
    Operand(usize),
    /// A saved value: an array that is available when gradients are computed.
    Saved(SavedValue),
    Scalar(Bits),
    Call(&'static Call, [u32; MOST_OPERANDS]),
}

/// A saved value of the step, by the number of the result: the result, or its gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SavedValue {
    Result(usize),
    Gradient(usize),
}

/// Nodes in an order in which they can be computed.
#[derive(Clone, Debug, Default)]
pub(super) struct JointGraph {
    pub(super) nodes: Vec<JointNode>,
    /// The conversions that [`converted`](Self::converted) appended: operand and result.
    conversions: Vec<(u32, u32)>,
}

/// The contributions to a gradient, one for each use of its node. Each has the truth value under
/// which it counts, or `None` if it always counts. A contribution that does not count, because
/// another branch was chosen, may have any value: infinite slopes occur in a branch as well as in
/// the nodes before it.
pub(super) type Contributions = SmallVec<[(u32, Option<u32>); 2]>;

impl JointGraph {
    /// Returns the joint graph of `graph`, and the number in it of each node of `graph`. A written
    /// function is replaced by its body.
    pub(super) fn of(graph: &ExpressionGraph<'_>) -> (Self, Vec<u32>) {
        let (mut joint, mut numbers) = (Self::default(), Vec::new());
        let mut operands = 0;
        for node in graph.nodes() {
            let number = match node.kind {
                NodeKind::Array(_) => {
                    operands += 1;
                    joint.push(JointNodeKind::Operand(operands - 1), node.dtype)
                }
                NodeKind::Scalar(bits) => joint.push(JointNodeKind::Scalar(bits), node.dtype),
                NodeKind::Call(call, operands) => {
                    let operands = operands[..call.arity].iter();
                    let operands: SmallVec<[u32; 4]> =
                        operands.map(|&own| numbers[own as usize]).collect();
                    joint.written(call, &operands)
                }
            };
            numbers.push(number);
        }
        (joint, numbers)
    }

    /// Adds a call, or the nodes of its body.
    fn written(&mut self, call: &'static Call, arguments: &[u32]) -> u32 {
        let mut body = Terms::default();
        let derive_body = call.body.filter(|_| call.partials.is_none());
        let Some(result) = derive_body.and_then(|derive_body| derive_body(&mut body)) else {
            return self.call(call, arguments);
        };
        let mut numbers: Vec<u32> = Vec::new();
        for own in body.own {
            let number = match own.kind {
                TermKind::Argument(argument) => arguments[argument],
                TermKind::Scalar(bits) => self.push(JointNodeKind::Scalar(bits), own.dtype),
                TermKind::Call(call, operands) => {
                    let operands = operands.iter().map(|&own| numbers[own as usize]);
                    let operands: SmallVec<[u32; 4]> = operands.collect();
                    self.written(call, &operands)
                }
            };
            numbers.push(number);
        }
        numbers[result as usize]
    }

    pub(super) fn push(&mut self, kind: JointNodeKind, dtype: DType) -> u32 {
        self.nodes.push(JointNode { kind, dtype });
        self.nodes.len() as u32 - 1
    }

    pub(super) fn call(&mut self, call: &'static Call, operands: &[u32]) -> u32 {
        let mut all = [0; MOST_OPERANDS];
        all[..operands.len()].copy_from_slice(operands);
        self.push(JointNodeKind::Call(call, all), call.output)
    }

    /// Converts a float or complex number to another type, at most once for each type.
    pub(super) fn converted(&mut self, node: u32, to: DType) -> u32 {
        let from = self.nodes[node as usize].dtype;
        if from == to {
            return node;
        }
        let is_done = |&&(operand, result): &&(u32, u32)| {
            operand == node && self.nodes[result as usize].dtype == to
        };
        if let Some(&(_, result)) = self.conversions.iter().find(is_done) {
            return result;
        }
        // A node that was widened from a type is converted back to it without loss.
        let is_source = |&&(operand, result): &&(u32, u32)| {
            result == node && self.nodes[operand as usize].dtype == to && computed_in(to) == from
        };
        if let Some(&(operand, _)) = self.conversions.iter().find(is_source) {
            return operand;
        }
        let result = self.call(cast(from, to).expect(DIFFERENTIABLE), &[node]);
        self.conversions.push((node, result));
        result
    }

    /// Converts a number to the type that its gradient is computed in.
    pub(super) fn widened(&mut self, node: u32) -> u32 {
        let dtype = self.nodes[node as usize].dtype;
        self.converted(node, computed_in(dtype))
    }

    /// Returns the sum of a gradient's contributions, with the truth value under which the sum is
    /// right. It is true if any contribution counts.
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
            Some(self.call(call_of::<Or, (bool, bool)>(), &[either, own]))
        });
        Some((self.sum(parts)?, counts))
    }

    /// Returns the sum of a gradient's contributions where they count.
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

    /// Returns the condition under which an operand of a call counts, if the call counts under
    /// `counts`. The branch that a choice did not take does not count.
    pub(super) fn counts(
        &mut self,
        call: &Call,
        operands: &[u32],
        (place, counts): (usize, Option<u32>),
    ) -> Option<u32> {
        if (call.id)() != TypeId::of::<Select>() {
            return counts;
        }
        let chosen = match place {
            1 => operands[0],
            _ => self.call(call_of::<Not, (bool,)>(), &operands[..1]),
        };
        let both = |counts| self.call(call_of::<And, (bool, bool)>(), &[counts, chosen]);
        Some(counts.map_or(chosen, both))
    }

    /// Returns a number where the truth value holds, and zero elsewhere.
    fn only_where(&mut self, holds: u32, value: u32) -> u32 {
        let dtype = self.nodes[value as usize].dtype;
        let (select, zero) = select_or_zero(dtype);
        let zero = self.push(JointNodeKind::Scalar(zero), dtype);
        self.call(select, &[holds, value, zero])
    }

    /// Adds the sum of two nodes of one type.
    fn add(&mut self, one: u32, other: u32) -> u32 {
        let call = sum_of(self.nodes[one as usize].dtype);
        self.call(call, &[one, other])
    }
}

/// Evaluates `$value` with `$T` as the float type of a dtype; `None` for other types.
macro_rules! by_float {
    ($dtype:expr, $T:ident => $value:expr) => {
        match $dtype {
            $crate::array::DType::F32 => {
                type $T = f32;
                Some($value)
            }
            $crate::array::DType::F64 => {
                type $T = f64;
                Some($value)
            }
            $crate::array::DType::F16 => {
                type $T = half::f16;
                Some($value)
            }
            $crate::array::DType::Bf16 => {
                type $T = half::bf16;
                Some($value)
            }
            _ => None,
        }
    };
}

/// Like `by_float`, for all types that gradients have: floats, and complex numbers of floats.
macro_rules! by_differentiable {
    ($dtype:expr, $T:ident => $value:expr) => {
        match $dtype {
            $crate::array::DType::C32 => {
                type $T = num_complex::Complex<f32>;
                Some($value)
            }
            $crate::array::DType::C64 => {
                type $T = num_complex::Complex<f64>;
                Some($value)
            }
            dtype => $crate::ops::derivatives::by_float!(dtype, $T => $value),
        }
    };
}

pub(in crate::ops) use by_differentiable;
pub(in crate::ops) use by_float;

/// Returns the addition of numbers of a type.
fn sum_of(dtype: DType) -> &'static Call {
    let call = by_differentiable!(dtype, T => call_of::<Added, (T, T)>());
    call.expect(DIFFERENTIABLE)
}

/// The message for a type that is not the type of any gradient.
pub(in crate::ops) const DIFFERENTIABLE: &str = "gradients are floats or complex numbers";

/// Returns whether gradients may have this type.
pub(in crate::ops) fn is_differentiable(dtype: DType) -> bool {
    is_float(dtype) || is_complex(dtype)
}

pub(super) fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64 | DType::F16 | DType::Bf16)
}

pub(in crate::ops) fn is_complex(dtype: DType) -> bool {
    matches!(dtype, DType::C32 | DType::C64)
}

/// Returns the type that gradients of a type are computed in before they are rounded once: `f32`
/// for `f16` and `bf16`, whose range and precision are too small for counts and small factors.
pub(in crate::ops) fn computed_in(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::Bf16 => DType::F32,
        other => other,
    }
}

/// Returns the conversion of numbers of one type to another.
pub(super) fn cast(from: DType, to: DType) -> Option<&'static Call> {
    by_differentiable!(from, F => by_differentiable!(to, T => call_of::<Cast<T>, (F,)>()))?
}

/// Returns the choice between numbers of a type, and their zero.
fn select_or_zero(dtype: DType) -> (&'static Call, Bits) {
    let both = by_differentiable!(dtype, T => {
        let zero = bits_of(<T as AnyElement>::from_f64(0.0));
        (call_of::<Select, (bool, T, T)>(), zero)
    });
    both.expect(DIFFERENTIABLE)
}

/// The sum of two arrays of one type, as an expression that borrows them.
pub(super) struct Adding<'a>(pub(super) Operand<'a>, pub(super) Operand<'a>);

impl Tree for Adding<'_> {
    fn walk<'a>(&'a self, see: &mut dyn FnMut(Node<'a>)) {
        see(Node::Array(self.0));
        see(Node::Array(self.1));
        see(Node::Call(sum_of(self.0.dtype)));
    }
}

/// The elements of an array in another type, as an expression that borrows them.
pub(super) struct Converting<'a>(pub(super) Operand<'a>, pub(super) DType);

impl Tree for Converting<'_> {
    fn walk<'a>(&'a self, see: &mut dyn FnMut(Node<'a>)) {
        see(Node::Array(self.0));
        see(Node::Call(
            cast(self.0.dtype, self.1).expect(DIFFERENTIABLE),
        ));
    }
}
