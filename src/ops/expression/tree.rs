//! Type-erased view of an expression, for code that must not be monomorphised per expression type.
//!
//! Nothing in the library is generic over the type of an expression except [`Expr`] itself and the
//! one loop that it may become on the host, `host::Fusing::fused`.

use std::any::TypeId;
use std::fmt;

use super::body::Body;
use super::expr::Expr;
use super::loops::{Arguments, BlockLoop, Loops};
use super::node::Function;
use super::operation::Operation;
use crate::array::{AnyElement, Array, Bits, Buffer, DType, Layout};

/// A node of an expression, as it is visited: after its operands. Its array is given by an `A`.
#[derive(Clone, Copy, Debug)]
pub enum Node<A> {
    /// The elements of an array.
    Array(A),
    /// One value for every element.
    Scalar(DType, Bits),
    /// A function of the values that were visited last.
    Call(&'static Call),
}

impl<A> Node<A> {
    /// Returns the node with `other` of its array.
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

/// A function of single elements, of certain types.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The name in error messages.
    pub(crate) name: &'static str,
    /// The function in CUDA C++; see [`Function::CUDA`].
    #[cfg_attr(
        not(feature = "cuda"),
        allow(dead_code, reason = "kernels of CUDA devices use it")
    )]
    pub(crate) cuda: &'static str,
    /// The types of its operands.
    pub(crate) arguments: &'static [DType],
    /// The type of its value.
    pub(crate) output: DType,
    /// The function, for rules that depend on it.
    pub(crate) operation: Operation,
    /// The function's type. Together with the operands' types, it identifies the function.
    pub(crate) id: fn() -> TypeId,
    /// Its loops on the host.
    loops: Loops,
    /// The body of a written function as terms.
    pub(crate) body: Option<Body>,
    /// The functions that compute its partial derivatives, if they are written by hand.
    pub(crate) partials: Option<&'static [Option<&'static Call>]>,
}

impl Call {
    /// Returns the function `F` of elements of these types, whose loops are `loops`.
    pub(super) const fn of<F: Function<Args>, Args: Arguments>(
        operation: Operation,
        loops: Loops,
    ) -> Self {
        Self {
            name: F::NAME,
            cuda: F::CUDA,
            arguments: Args::DTYPES,
            output: <F::Output as AnyElement>::DTYPE,
            operation,
            id: TypeId::of::<F>,
            loops,
            body: F::BODY,
            partials: F::PARTIALS,
        }
    }

    /// Returns the number of its operands.
    pub(crate) const fn arity(&self) -> usize {
        self.arguments.len()
    }

    /// Returns its loop on the host, for this processor.
    pub(crate) fn run(&self) -> BlockLoop {
        self.loops.best()
    }
}

/// A function of the library for each type of elements that it is for, by the number of [`DType`].
///
/// Its loops are compiled with the library. A table is accessed by reference: a constant that
/// contains the address of a generic function would make the compiler compile that function in
/// each crate that uses the constant.
#[derive(Debug)]
pub(crate) struct Calls(pub(super) [Option<Call>; DType::COUNT]);

impl Calls {
    /// Returns the function for elements of `dtype`; `None` if it is not for them.
    pub(crate) const fn get(&'static self, dtype: DType) -> Option<&'static Call> {
        self.0[dtype as usize].as_ref()
    }

    /// Returns the function for elements of `dtype`, for which its bound holds.
    pub(crate) const fn at(&'static self, dtype: DType) -> &'static Call {
        match self.get(dtype) {
            Some(call) => call,
            None => panic!("the function's bound excludes the type"),
        }
    }
}

/// The most operands of a function.
pub(crate) const MOST_OPERANDS: usize = 4;

/// An expression of any type.
pub(crate) trait Tree: Send + Sync {
    /// Visits every node after its operands, these from left to right.
    fn walk<'a>(&'a self, see: &mut dyn FnMut(Node<Operand<'a>>));

    /// Returns the array, if the expression is known to be one array by itself.
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

/// An array by itself.
impl Tree for Operand<'_> {
    fn walk<'a>(&'a self, see: &mut dyn FnMut(Node<Operand<'a>>)) {
        see(Node::Array(*self));
    }

    fn as_operand(&self) -> Option<Operand<'_>> {
        Some(*self)
    }
}

/// An array or a scalar by itself.
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
