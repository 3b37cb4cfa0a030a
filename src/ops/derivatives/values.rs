//! Nodes of floats and complex numbers, with the operators and functions that rules use.

use std::cell::RefCell;

use smallvec::SmallVec;

use crate::array::{DType, bits_of_number};
use crate::ops::expression::elementwise::cast::cast;
use crate::ops::expression::elementwise::complex::OfParts;
use crate::ops::expression::elementwise::select::Select;
use crate::ops::expression::graph::NodeKind;
use crate::ops::expression::template::{GraphTemplate, TemplateNode};
use crate::ops::expression::vocabulary::vocabulary;
use cachescope_kernels::elementwise::call::{Call, Calls, MOST_OPERANDS};

/// A node with the operators and functions that rules use. The operands of an operator have one
/// type.
#[derive(Clone, Copy, Debug)]
pub(super) struct JointValue<'g> {
    joint: &'g RefCell<GraphTemplate>,
    pub(super) node: u32,
}

impl<'g> JointValue<'g> {
    pub(super) fn new(joint: &'g RefCell<GraphTemplate>, node: u32) -> Self {
        Self { joint, node }
    }

    pub(super) fn dtype(self) -> DType {
        self.joint.borrow().nodes[self.node as usize].dtype
    }

    /// Returns the node that `append` adds.
    fn appended(self, append: impl FnOnce(&mut GraphTemplate) -> u32) -> Self {
        Self::new(self.joint, append(&mut self.joint.borrow_mut()))
    }

    /// Appends a constant of this node's type.
    pub(super) fn constant(self, value: f64) -> Self {
        let dtype = self.dtype();
        let bits = bits_of_number(dtype, value);
        self.appended(|joint| joint.push(NodeKind::Scalar(bits), dtype))
    }

    /// Appends a call of `calls` in this node's type. The operands are this value and `others`.
    pub(super) fn apply<const N: usize>(self, calls: &'static Calls, others: [Self; N]) -> Self {
        self.call(calls.at(self.dtype()), &others)
    }

    pub(super) fn call(self, call: &'static Call, others: &[Self]) -> Self {
        let mut operands: SmallVec<[u32; MOST_OPERANDS]> = SmallVec::from_iter([self.node]);
        operands.extend(others.iter().map(|own| own.node));
        self.appended(|joint| joint.call(call, &operands))
    }

    pub(super) fn cast(self, dtype: DType) -> Self {
        self.call(cast(self.dtype(), dtype), &[])
    }

    /// Returns this value where `mask` is true, and zero elsewhere.
    pub(super) fn only_where(self, mask: Self) -> Self {
        self.appended(|joint| joint.only_where(mask.node, self.node))
    }

    /// Returns `other` where `mask` is true, and this value elsewhere.
    pub(super) fn or_where(self, mask: Self, other: Self) -> Self {
        let select = Select::CALLS.at(self.dtype());
        mask.call(select, &[other, self])
    }

    /// Returns whether this value is a constant from which 1 can be subtracted without rounding.
    pub(super) fn is_exact_less_one(self) -> bool {
        let joint = self.joint.borrow();
        let is_exact = |value: f64| (value - 1.0) + 1.0 == value;
        match joint.nodes[self.node as usize] {
            TemplateNode {
                kind: NodeKind::Scalar(bits),
                dtype: DType::F32,
            } => {
                let value = f64::from(f32::from_bits(bits.low() as u32));
                f64::from((value - 1.0) as f32) == value - 1.0
            }
            TemplateNode {
                kind: NodeKind::Scalar(bits),
                dtype: DType::F64,
            } => is_exact(f64::from_bits(bits.low())),
            _ => false,
        }
    }

    /// Returns false if this value is a constant other than `value`. Otherwise, returns true.
    pub(super) fn may_be(self, value: i32) -> bool {
        let kind = self.joint.borrow().nodes[self.node as usize].kind;
        !matches!(kind, NodeKind::Scalar(bits) if bits.low() as i32 != value)
    }

    pub(super) fn not_equal(self, value: f64) -> Self {
        self.ne(self.constant(value))
    }

    /// Returns the complex number with the real part `self` and the imaginary part `im`.
    pub(super) fn with_imaginary(self, im: Self) -> Self {
        self.apply(OfParts::CALLS, [im])
    }
}

vocabulary! { ['g] JointValue<'g> }
