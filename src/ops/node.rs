//! The nodes of expressions, and how functions are joined to them.
//!
//! There are three: the elements of an array, one value for all, and a function of other nodes. A
//! node is generic over its operands, so the same types serve for the tree of an expression, whose
//! leaves are arrays, and for a device's kernel, whose leaves are views of memory.

use std::marker::PhantomData;

use super::cuda::{Code, Value, bits_of};
use super::expr::sealed::Sealed;
use super::expr::{Expr, Lazy, Operand};
use super::host::{Frame, InMemory, Kernels, RunOf, RunsOf, View};
use crate::array::scalar::lane::Lane;
use crate::array::{Array, Element, Shape, broadcast_shapes};
use crate::error::Result;

/// A function of single elements, as a type without values; `Args` is the tuple of their types.
///
/// Its two forms stand side by side and compute the same: `apply` on the host, `CUDA` on a GPU.
pub trait Function<Args>: Copy + Send + Sync + 'static {
    /// What error messages call it.
    const NAME: &'static str;

    /// The function in CUDA C++: an expression of its arguments, which are called `a`, `b`, `c` and
    /// `d` in order. `R` stands for the type of the result; values of `f16` and `bf16` come as
    /// `float` and are rounded once, at the end.
    const CUDA: &'static str;

    /// Whether `apply` may note an element as rare; see [`Lane`].
    const RARE: bool = false;

    /// The type of the result.
    type Output: Element;

    /// The result for one element of each argument.
    fn apply<L: Lane>(lane: &mut L, args: Args) -> Self::Output;
}

/// The elements of an array.
#[derive(Clone)]
pub struct Leaf<T: Element>(pub(crate) Array<T>);

/// One value for every element.
#[derive(Clone, Copy, Debug)]
pub struct Scalar<T>(pub(crate) T);

/// The function `F` of the elements of other nodes, which are a tuple.
#[derive(Debug)]
pub struct Apply<F, X> {
    pub(crate) function: PhantomData<F>,
    pub(crate) operands: X,
}

impl<F, X> Apply<F, X> {
    #[inline(always)]
    pub(crate) fn new(operands: X) -> Self {
        Self {
            function: PhantomData,
            operands,
        }
    }
}

// Neither derived: that would ask the function for it too.
impl<F, X: Clone> Clone for Apply<F, X> {
    #[inline(always)]
    fn clone(&self) -> Self {
        Self::new(self.operands.clone())
    }
}

impl<F, X: Copy> Copy for Apply<F, X> {}

/// The expressions that a function is applied to: a tuple of one to four.
pub trait Operands: Sealed + Clone + Send + Sync + 'static {
    /// The types of the elements.
    type Items;

    /// What the host executes.
    type Kernels: Kernels<Items = Self::Items>;

    /// See [`Expr::operands`].
    fn operands<'a>(&'a self, visit: &mut dyn FnMut(Operand<'a>));

    /// See [`Expr::scalars`].
    fn scalars(&self, visit: &mut dyn FnMut(u64));

    /// See [`Expr::write`].
    fn write(code: &mut Code) -> Vec<Value>;

    /// The shape that all broadcast to; `operation` is whose operands they are.
    fn shape(&self, operation: &str) -> Result<Shape>;

    /// See [`Expr::dense`].
    fn dense(&self) -> RunsOf<Self>;

    /// See [`Expr::bind`].
    fn bind(&self, frame: &Frame) -> Self::Kernels;
}

macro_rules! operands {
    ($first:ident $($rest:ident)*) => {
        impl<$first: Expr, $($rest: Expr),*> Sealed for ($first, $($rest,)*) {}

        #[expect(non_snake_case, reason = "an operand is called as its type is")]
        impl<$first: Expr, $($rest: Expr),*> Operands for ($first, $($rest,)*) {
            type Items = ($first::Item, $($rest::Item,)*);
            type Kernels = ($first::Kernel, $($rest::Kernel,)*);

            #[inline(always)]
            fn operands<'a>(&'a self, visit: &mut dyn FnMut(Operand<'a>)) {
                let ($first, $($rest,)*) = self;
                $first.operands(visit);
                $($rest.operands(visit);)*
            }

            fn scalars(&self, visit: &mut dyn FnMut(u64)) {
                let ($first, $($rest,)*) = self;
                $first.scalars(visit);
                $($rest.scalars(visit);)*
            }

            fn write(code: &mut Code) -> Vec<Value> {
                vec![$first::write(code), $($rest::write(code)),*]
            }

            #[inline(always)]
            #[allow(unused_variables, reason = "one operand agrees with itself")]
            fn shape(&self, operation: &str) -> Result<Shape> {
                let ($first, $($rest,)*) = self;
                let shape = $first.shape()?;
                $(let shape = common_shape(operation, shape, $rest.shape()?)?;)*
                Ok(shape)
            }

            #[inline(always)]
            fn dense(&self) -> RunsOf<Self> {
                let ($first, $($rest,)*) = self;
                ($first.dense(), $($rest.dense(),)*)
            }

            #[inline(always)]
            fn bind(&self, frame: &Frame) -> Self::Kernels {
                let ($first, $($rest,)*) = self;
                ($first.bind(frame), $($rest.bind(frame),)*)
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
    type Kernel = Apply<F, X::Kernels>;

    #[inline(always)]
    fn operands<'a>(&'a self, visit: &mut dyn FnMut(Operand<'a>)) {
        self.operands.operands(visit);
    }

    fn scalars(&self, visit: &mut dyn FnMut(u64)) {
        self.operands.scalars(visit);
    }

    fn write(code: &mut Code) -> Value {
        let operands = X::write(code);
        code.apply(F::NAME, F::CUDA, F::Output::NAME, &operands)
    }

    #[inline(always)]
    fn shape(&self) -> Result<Shape> {
        self.operands.shape(F::NAME)
    }

    #[inline(always)]
    fn dense(&self) -> RunOf<Self> {
        Apply::new(self.operands.dense())
    }

    #[inline(always)]
    fn bind(&self, frame: &Frame) -> Self::Kernel {
        Apply::new(self.operands.bind(frame))
    }
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

    #[inline(always)]
    fn operands<'a>(&'a self, visit: &mut dyn FnMut(Operand<'a>)) {
        visit(Operand {
            buffer: self.0.buffer(),
            layout: self.0.layout(),
            element_bytes: size_of::<T>(),
        });
    }

    fn scalars(&self, _visit: &mut dyn FnMut(u64)) {}

    fn write(code: &mut Code) -> Value {
        code.array(T::NAME)
    }

    #[inline(always)]
    fn shape(&self) -> Result<Shape> {
        Ok(*self.0.layout().shape())
    }

    #[inline(always)]
    fn dense(&self) -> InMemory<T> {
        InMemory::new(&self.0)
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

    #[inline(always)]
    fn operands<'a>(&'a self, _visit: &mut dyn FnMut(Operand<'a>)) {}

    fn scalars(&self, visit: &mut dyn FnMut(u64)) {
        visit(bits_of(self.0));
    }

    fn write(code: &mut Code) -> Value {
        code.scalar(T::NAME)
    }

    #[inline(always)]
    fn shape(&self) -> Result<Shape> {
        Ok(Shape::SCALAR)
    }

    #[inline(always)]
    fn dense(&self) -> Self {
        *self
    }

    #[inline(always)]
    fn bind(&self, _frame: &Frame) -> Self {
        *self
    }
}

/// `F` of one expression.
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

/// `F` of two expressions.
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

/// `F` of three expressions.
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

/// `F` of four expressions.
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

/// What two shapes broadcast to.
#[inline]
fn common_shape(operation: &str, left: Shape, right: Shape) -> Result<Shape> {
    if left == right || right == Shape::SCALAR {
        return Ok(left);
    }
    broadcast_shapes(operation, &[&left, &right])
}
