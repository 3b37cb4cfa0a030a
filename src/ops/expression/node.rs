//! The nodes of expressions, and the functions that they apply.
//!
//! There are three kinds of nodes: elements of an array, one value for all elements, and functions
//! of nodes. The type of a function node is generic over its operands. In the tree of an
//! expression, the leaves are arrays. In a device's kernel, the leaves are views of memory.

pub(crate) use cachescope_kernels::elementwise::function::Function;
pub use cachescope_kernels::elementwise::function::{Apply, Scalar};
use cachescope_kernels::elementwise::loops::Arguments;
use cachescope_kernels::elementwise::run::{InMemory, Runs};

use super::expr::sealed::Sealed;
use super::expr::{Expr, Lazy};
use super::not_yet::Expression;
use super::tree::{Node, Operand};
use crate::array::{AnyElement, Array, bits_of};
use crate::device::DevicePtr;
use crate::device::host::host_pointer;

/// The elements of an array.
#[derive(Clone)]
pub struct Leaf<T: AnyElement>(pub(crate) Array<T>);

/// The operands that a function is applied to: a tuple of one to four expressions.
pub trait Operands: Sealed + Clone + Send + Sync + 'static {
    /// The types of the elements.
    type Items: Arguments;

    /// The data that the fused loop reads.
    type Runs: Runs<Items = Self::Items>;

    /// True if all operands fuse. See [`Expr::FUSES`].
    const FUSE: bool;

    /// See [`Expr::walk`].
    fn walk<'a>(&'a self, see: &mut dyn FnMut(Node<Operand<'a>>));

    /// See [`Expr::dense`].
    fn dense(&self) -> Self::Runs;
}

macro_rules! operands {
    ($($operand:ident)+) => {
        impl<$($operand: Expr),+> Sealed for ($($operand,)+) {}

        #[expect(non_snake_case, reason = "an operand has the name of its type")]
        impl<$($operand: Expr),+> Operands for ($($operand,)+) {
            type Items = ($($operand::Item,)+);
            type Runs = ($($operand::Run,)+);

            const FUSE: bool = $($operand::FUSES)&&+;

            #[inline(always)]
            fn walk<'a>(&'a self, see: &mut dyn FnMut(Node<Operand<'a>>)) {
                let ($($operand,)+) = self;
                $($operand.walk(see);)+
            }

            #[inline(always)]
            fn dense(&self) -> Self::Runs {
                let ($($operand,)+) = self;
                ($($operand.dense(),)+)
            }
        }
    };
}

operands!(A);
operands!(A B);
operands!(A B C);
operands!(A B C D);

impl<F, X> Sealed for Apply<F, X> {}

impl<F: Function<X::Items>, X: Operands> Expr for Apply<F, X> {
    type Item = F::Output;
    type Run = Apply<F, X::Runs>;
    type Kind = Expression;

    const FUSES: bool = X::FUSE;

    #[inline(always)]
    fn walk<'a>(&'a self, see: &mut dyn FnMut(Node<Operand<'a>>)) {
        self.operands.walk(see);
        see(Node::Call(F::CALL));
    }

    #[inline(always)]
    fn dense(&self) -> Self::Run {
        Apply::new(self.operands.dense())
    }
}

impl<T: AnyElement> std::fmt::Debug for Leaf<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Leaf({} of {})", T::NAME, self.0.layout().shape())
    }
}

impl<T: AnyElement> Sealed for Leaf<T> {}

impl<T: AnyElement> Expr for Leaf<T> {
    type Item = T;
    type Run = InMemory<T>;
    type Kind = Expression;

    #[inline(always)]
    fn walk<'a>(&'a self, see: &mut dyn FnMut(Node<Operand<'a>>)) {
        see(Node::Array(Operand::from(&self.0)));
    }

    #[inline(always)]
    fn dense(&self) -> InMemory<T> {
        let base: *const T = host_pointer(DevicePtr(self.0.buffer().address())).cast();
        InMemory::at_address(base.wrapping_add(self.0.layout().offset()))
    }
}

impl<T: AnyElement> Sealed for Scalar<T> {}

impl<T: AnyElement> Expr for Scalar<T> {
    type Item = T;
    type Run = Self;
    type Kind = Expression;

    #[inline(always)]
    fn walk<'a>(&'a self, see: &mut dyn FnMut(Node<Operand<'a>>)) {
        see(Node::Scalar(T::DTYPE, bits_of(self.0)));
    }

    #[inline(always)]
    fn dense(&self) -> Self {
        *self
    }
}

/// Applies `F` to one expression.
#[inline(always)]
pub fn unary<F, A>(a: Lazy<A>) -> Lazy<Apply<F, (A,)>>
where
    A: Expr,
    F: Function<(A::Item,)>,
{
    Lazy {
        expr: Apply::new((a.expr,)),
    }
}

/// Applies `F` to two expressions.
#[inline(always)]
pub fn binary<F, A, B>(a: Lazy<A>, b: Lazy<B>) -> Lazy<Apply<F, (A, B)>>
where
    A: Expr,
    B: Expr,
    F: Function<(A::Item, B::Item)>,
{
    Lazy {
        expr: Apply::new((a.expr, b.expr)),
    }
}

/// Applies `F` to three expressions.
#[inline(always)]
pub fn ternary<F, A, B, C>(a: Lazy<A>, b: Lazy<B>, c: Lazy<C>) -> Lazy<Apply<F, (A, B, C)>>
where
    A: Expr,
    B: Expr,
    C: Expr,
    F: Function<(A::Item, B::Item, C::Item)>,
{
    Lazy {
        expr: Apply::new((a.expr, b.expr, c.expr)),
    }
}

/// Applies `F` to four expressions.
#[inline(always)]
pub fn quaternary<F, A, B, C, D>(
    a: Lazy<A>,
    b: Lazy<B>,
    c: Lazy<C>,
    d: Lazy<D>,
) -> Lazy<Apply<F, (A, B, C, D)>>
where
    A: Expr,
    B: Expr,
    C: Expr,
    D: Expr,
    F: Function<(A::Item, B::Item, C::Item, D::Item)>,
{
    Lazy {
        expr: Apply::new((a.expr, b.expr, c.expr, d.expr)),
    }
}
