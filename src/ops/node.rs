//! The nodes of expressions, and how operations are joined to them.
//!
//! A node is generic over its children, so the same types serve for the tree of an expression,
//! whose leaves are arrays, and for a device's kernel, whose leaves are views of memory.

use std::marker::PhantomData;

use super::expr::sealed::Sealed;
use super::expr::{Expr, Lazy, Operand};
use super::host::{Frame, View};
use crate::array::{Array, Element, Shape, broadcast_shapes};
use crate::error::Result;

/// An operation, as a type without values.
pub trait Operation: Copy + Send + Sync + 'static {
    /// What error messages call it.
    const NAME: &'static str;
}

/// An operation on one element.
pub trait UnaryOp<T: Element>: Operation {
    /// The type of the result.
    type Output: Element;

    /// The result for one element.
    fn apply(x: T) -> Self::Output;
}

/// An operation on two elements of one type.
pub trait BinaryOp<T: Element>: Operation {
    /// The type of the result.
    type Output: Element;

    /// The result for one pair of elements.
    fn apply(left: T, right: T) -> Self::Output;
}

/// The elements of an array.
#[derive(Clone)]
pub struct Leaf<T: Element>(pub(crate) Array<T>);

/// One value for every element.
#[derive(Clone, Copy, Debug)]
pub struct Scalar<T>(pub(crate) T);

/// `Op` of each element.
#[derive(Clone, Copy, Debug)]
pub struct Unary<Op, X> {
    pub(crate) op: PhantomData<Op>,
    pub(crate) x: X,
}

/// `Op` of each pair of elements.
#[derive(Clone, Copy, Debug)]
pub struct Binary<Op, A, B> {
    pub(crate) op: PhantomData<Op>,
    pub(crate) left: A,
    pub(crate) right: B,
}

/// The element of `yes` where `mask` holds, that of `no` elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Select<M, A, B> {
    pub(crate) mask: M,
    pub(crate) yes: A,
    pub(crate) no: B,
}

/// Each element as a `U`.
#[derive(Clone, Copy, Debug)]
pub struct Cast<U, X> {
    pub(crate) target: PhantomData<U>,
    pub(crate) x: X,
}

impl<T: Element> std::fmt::Debug for Leaf<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Leaf({} of {})", T::NAME, self.0.layout().shape())
    }
}

impl<T: Element> Sealed for Leaf<T> {}

impl<T: Element> Expr for Leaf<T> {
    type Item = T;
    type Kernel = View<T>;

    fn operands<'a>(&'a self, visit: &mut dyn FnMut(Operand<'a>)) {
        visit(Operand {
            buffer: self.0.buffer(),
            layout: self.0.layout(),
            element_bytes: size_of::<T>(),
        });
    }

    #[inline(always)]
    fn bind(&self, frame: &Frame) -> View<T> {
        View::new(&self.0, frame)
    }
}

impl<T: Element> Sealed for Scalar<T> {}

impl<T: Element> Expr for Scalar<T> {
    type Item = T;
    type Kernel = Self;

    fn operands<'a>(&'a self, _visit: &mut dyn FnMut(Operand<'a>)) {}

    #[inline(always)]
    fn bind(&self, _frame: &Frame) -> Self {
        *self
    }
}

impl<Op, X> Sealed for Unary<Op, X> {}

impl<X: Expr, Op: UnaryOp<X::Item>> Expr for Unary<Op, X> {
    type Item = Op::Output;
    type Kernel = Unary<Op, X::Kernel>;

    fn operands<'a>(&'a self, visit: &mut dyn FnMut(Operand<'a>)) {
        self.x.operands(visit);
    }

    #[inline(always)]
    fn bind(&self, frame: &Frame) -> Self::Kernel {
        Unary {
            op: PhantomData,
            x: self.x.bind(frame),
        }
    }
}

impl<Op, A, B> Sealed for Binary<Op, A, B> {}

impl<A, B, Op> Expr for Binary<Op, A, B>
where
    A: Expr,
    B: Expr<Item = A::Item>,
    Op: BinaryOp<A::Item>,
{
    type Item = Op::Output;
    type Kernel = Binary<Op, A::Kernel, B::Kernel>;

    fn operands<'a>(&'a self, visit: &mut dyn FnMut(Operand<'a>)) {
        self.left.operands(visit);
        self.right.operands(visit);
    }

    #[inline(always)]
    fn bind(&self, frame: &Frame) -> Self::Kernel {
        Binary {
            op: PhantomData,
            left: self.left.bind(frame),
            right: self.right.bind(frame),
        }
    }
}

impl<M, A, B> Sealed for Select<M, A, B> {}

impl<M, A, B> Expr for Select<M, A, B>
where
    M: Expr<Item = bool>,
    A: Expr,
    B: Expr<Item = A::Item>,
{
    type Item = A::Item;
    type Kernel = Select<M::Kernel, A::Kernel, B::Kernel>;

    fn operands<'a>(&'a self, visit: &mut dyn FnMut(Operand<'a>)) {
        self.mask.operands(visit);
        self.yes.operands(visit);
        self.no.operands(visit);
    }

    #[inline(always)]
    fn bind(&self, frame: &Frame) -> Self::Kernel {
        Select {
            mask: self.mask.bind(frame),
            yes: self.yes.bind(frame),
            no: self.no.bind(frame),
        }
    }
}

impl<U, X> Sealed for Cast<U, X> {}

impl<U: Element, X: Expr> Expr for Cast<U, X> {
    type Item = U;
    type Kernel = Cast<U, X::Kernel>;

    fn operands<'a>(&'a self, visit: &mut dyn FnMut(Operand<'a>)) {
        self.x.operands(visit);
    }

    #[inline(always)]
    fn bind(&self, frame: &Frame) -> Self::Kernel {
        Cast {
            target: PhantomData,
            x: self.x.bind(frame),
        }
    }
}

impl<E: Expr> Lazy<E> {
    pub(super) fn unary<Op: UnaryOp<E::Item>>(self) -> Lazy<Unary<Op, E>> {
        Lazy {
            expr: Unary {
                op: PhantomData,
                x: self.expr,
            },
            shape: self.shape,
        }
    }

    pub(super) fn binary<Op, B>(self, right: Lazy<B>) -> Lazy<Binary<Op, E, B>>
    where
        Op: BinaryOp<E::Item>,
        B: Expr<Item = E::Item>,
    {
        Lazy {
            expr: Binary {
                op: PhantomData,
                left: self.expr,
                right: right.expr,
            },
            shape: common_shape(Op::NAME, self.shape, right.shape),
        }
    }

    pub(super) fn converted<U: Element>(self) -> Lazy<Cast<U, E>> {
        Lazy {
            expr: Cast {
                target: PhantomData,
                x: self.expr,
            },
            shape: self.shape,
        }
    }
}

/// What two shapes broadcast to, unless something went wrong before.
pub(super) fn common_shape(
    operation: &str,
    left: Result<Shape>,
    right: Result<Shape>,
) -> Result<Shape> {
    let (left, right) = (left?, right?);
    if left == right || right == Shape::SCALAR {
        return Ok(left);
    }
    broadcast_shapes(operation, &[&left, &right])
}
