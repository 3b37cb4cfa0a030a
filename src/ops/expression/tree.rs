//! Type-erased view of an expression, for code that must not be monomorphised per expression type.
//!
//! In the library, only [`Expr`] and the host's loop `host::Fusing::fused` are generic over the
//! type of an expression.

use std::fmt;

use cachescope_kernels::elementwise::call::Call;

use super::expr::Expr;
use crate::array::{AnyElement, Array, Bits, Buffer, DType, Layout};

/// A node of an expression, visited after its operands. `A` is the type that represents an array.
#[derive(Clone, Copy, Debug)]
pub enum Node<A> {
    /// The elements of an array.
    Array(A),
    /// One value for every element.
    Scalar(DType, Bits),
    /// A function. Its operands are the values that were visited last.
    Call(&'static Call),
}

impl<A> Node<A> {
    /// Returns the node with its array `array` replaced by `other(array)`.
    pub(super) fn map<'a, B>(&'a self, other: impl FnOnce(&'a A) -> B) -> Node<B> {
        match self {
            Self::Array(array) => Node::Array(other(array)),
            Self::Scalar(dtype, bits) => Node::Scalar(*dtype, *bits),
            Self::Call(call) => Node::Call(call),
        }
    }
}

/// A type-erased array that an expression reads.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    pub(crate) buffer: &'a Buffer,
    pub(crate) layout: &'a Layout,
    pub(crate) dtype: DType,
}

/// An expression of any type.
pub(crate) trait Tree: Send + Sync {
    /// Visits every node after its operands. The operands are visited from left to right.
    fn walk<'a>(&'a self, see: &mut dyn FnMut(Node<Operand<'a>>));

    /// Returns the array, if the expression is known to be a single array.
    fn as_operand(&self) -> Option<Operand<'_>> {
        None
    }
}

impl fmt::Debug for dyn Tree + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tree")
    }
}

impl<E: Expr> Tree for E {
    fn walk<'a>(&'a self, see: &mut dyn FnMut(Node<Operand<'a>>)) {
        Expr::walk(self, see);
    }
}

/// An expression that is a single array.
impl Tree for Operand<'_> {
    fn walk<'a>(&'a self, see: &mut dyn FnMut(Node<Operand<'a>>)) {
        see(Node::Array(*self));
    }

    fn as_operand(&self) -> Option<Operand<'_>> {
        Some(*self)
    }
}

/// An expression that is a single array or a single value.
impl Tree for Node<Operand<'_>> {
    fn walk<'a>(&'a self, see: &mut dyn FnMut(Node<Operand<'a>>)) {
        see(*self);
    }
}

impl<'a, T: AnyElement> From<&'a Array<T>> for Operand<'a> {
    #[inline(always)]
    fn from(array: &'a Array<T>) -> Self {
        Self {
            buffer: array.buffer(),
            layout: array.layout(),
            dtype: T::DTYPE,
        }
    }
}

/// Visits the arrays that `tree` reads.
#[inline]
pub(crate) fn operands<'a>(tree: &'a dyn Tree, see: &mut dyn FnMut(Operand<'a>)) {
    tree.walk(&mut |node| {
        if let Node::Array(operand) = node {
            see(operand);
        }
    });
}
