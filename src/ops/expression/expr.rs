//! Expressions: trees of static types. The leaves own counted handles of arrays.

use std::fmt;

use super::graph::ExpressionGraph;
use super::node::{Leaf, Scalar};
use super::tree::{Node, Operand};
use crate::array::{AnyElement, Array, Shape};
use crate::error::Result;
use cachescope_kernels::elementwise::run::Run;

pub(crate) mod sealed {
    /// The supertrait that seals [`Expr`](super::Expr): only this crate implements it.
    pub trait Sealed {}
}

/// The type of a [`Lazy`] expression. In a signature, write `impl Expr<Item = f32>`.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, Expr, Lazy};
///
/// fn standardize(x: &Array<f32>, mean: f32, deviation: f32) -> Lazy<impl Expr<Item = f32>> {
///     (x - mean) / deviation
/// }
/// let x = Array::from_slice(&[1.0, 3.0], 2)?;
/// assert_eq!(standardize(&x, 2.0, 0.5).eval()?.to_vec()?, [-2.0, 2.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
pub trait Expr: sealed::Sealed + Clone + Send + Sync + 'static {
    /// The type of the elements.
    type Item: AnyElement;

    /// The data that the host's fused loop reads.
    #[doc(hidden)]
    type Run: Run<Item = Self::Item>;

    /// A marker type that does not implement [`IsArray`](super::not_yet::IsArray).
    #[doc(hidden)]
    type Kind;

    /// True if the expression has a fused loop. Otherwise, the library's loops evaluate the
    /// expression. Builds with debug assertions have no fused loops. In these builds, the library
    /// may be optimised although the user's crate is not. The library's loops are then faster.
    #[doc(hidden)]
    const FUSES: bool = !cfg!(debug_assertions);

    /// Visits every node after its operands. The operands are visited from left to right.
    #[doc(hidden)]
    fn walk<'a>(&'a self, see: &mut dyn FnMut(Node<Operand<'a>>));

    /// Returns the data that the fused loop reads. Every operand must be dense, and no operand may
    /// be broadcast.
    #[doc(hidden)]
    fn dense(&self) -> Self::Run;
}

/// An expression that has not been evaluated.
///
/// An expression owns counted handles of its arrays. It reads the values that the arrays had when
/// the expression was built. Building an expression neither fails nor allocates device memory. If
/// shapes do not broadcast, or arrays are on different devices, the evaluation returns an error.
///
/// The operators `+ - * / %` and the methods below compute like NumPy, with three exceptions.
/// Integer division by zero returns 0, and integer quotients are truncated, not floored. The
/// remainder has the sign of the dividend, like Rust's `%`. Casts saturate, like Rust's `as`.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
///
/// let x = Array::from_slice(&[1.0_f32, 2.0, 3.0], 3)?;
/// let column = x.unsqueeze(1)?;
/// let table = (&x * 2.0 + column).eval()?; // one pass, one allocation
/// assert_eq!(table.shape(), [3, 3]);
/// assert_eq!(table.to_vec()?, [3.0, 5.0, 7.0, 4.0, 6.0, 8.0, 5.0, 7.0, 9.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Compiler errors
///
/// The compiler error ``expected `Array<f32>`, found `Lazy<CallEval<Added, …>>` `` reports an
/// expression, here a sum, where an array is expected. Call `.eval()?` on the expression.
///
/// ```
/// use cachescope::{Array, Result};
///
/// fn total(x: &Array<f32>) -> Result<f32> {
///     x.sum()?.item()
/// }
/// let x = Array::from_slice(&[1.0, 2.0], 2)?;
/// assert_eq!(total(&(&x + 1.0).eval()?)?, 5.0); // and not `total(&(&x + 1.0))`
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "an expression computes nothing: call `.eval()?`, or pass it to `assign` or `update`"]
pub struct Lazy<E: Expr> {
    pub(crate) expr: E,
}

impl<E: Expr> Lazy<E> {
    /// Returns the shape that the expression evaluates to.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let (row, column) = (Array::<f32>::zeros(3)?, Array::<f32>::zeros([2, 1])?);
    /// assert_eq!((row + column).shape()?.dims(), [2, 3]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) if operands do not broadcast, and
    /// [`InvalidShape`](crate::ErrorKind::InvalidShape) if the common shape overflows.
    #[track_caller]
    pub fn shape(&self) -> Result<Shape> {
        Ok(*ExpressionGraph::of(&self.expr)?.shape())
    }
}

impl<E: Expr> fmt::Debug for Lazy<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shape() {
            Ok(shape) => write!(f, "Lazy({} of {shape})", E::Item::NAME),
            Err(error) => write!(f, "Lazy({error:?})"),
        }
    }
}

impl<T: AnyElement> Array<T> {
    /// Returns this array as an expression.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let x = Array::from_slice(&[1, 2], 2)?;
    /// let copy = x.lazy().eval()?;
    /// assert_ne!(copy.address(), x.address());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn lazy(&self) -> Lazy<Leaf<T>> {
        self.clone().into_lazy()
    }
}

/// An operand for elements of `T` in an expression: an array or an expression, owned or borrowed,
/// or a single value.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, Expr, IntoExpr, Lazy};
///
/// fn hinge(x: &Array<f32>, margin: impl IntoExpr<f32>) -> Lazy<impl Expr<Item = f32>> {
///     (margin.into_lazy() - x).relu()
/// }
/// let x = Array::from_slice(&[0.0, 3.0], 2)?;
/// assert_eq!(hinge(&x, 1.0).eval()?.to_vec()?, [1.0, 0.0]);
/// assert_eq!(hinge(&x, &x * 2.0).eval()?.to_vec()?, [0.0, 3.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an operand for elements of `{T}`",
    label = "expected `{T}`, or an array or expression of `{T}`",
    note = "to convert a number of another type, write `as {T}` after it; for `f16` and `bf16`, call `from_f64`",
    note = "a float literal needs a decimal point: write `2.0`, not `2`",
    note = "to convert an array or expression of another type, call `.cast::<{T}>()`",
    note = "to use the value of a `Result`, write `?` after it"
)]
pub trait IntoExpr<T: AnyElement> {
    /// The type of the expression.
    type Expr: Expr<Item = T>;

    /// Converts the operand to an expression.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, IntoExpr};
    ///
    /// fn doubled(x: impl IntoExpr<f32>) -> cachescope::Result<Array<f32>> {
    ///     (x.into_lazy() * 2.0).eval()
    /// }
    ///
    /// let x = Array::from_slice(&[1.0, 2.0], 2)?;
    /// assert_eq!(doubled(&x)?.to_vec()?, [2.0, 4.0]);
    /// assert_eq!(doubled(&x + 1.0)?.to_vec()?, [4.0, 6.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[track_caller]
    fn into_lazy(self) -> Lazy<Self::Expr>;
}

// Without this attribute, compiler errors would list all types that implement the trait.
#[diagnostic::do_not_recommend]
impl<T: AnyElement> IntoExpr<T> for T {
    type Expr = Scalar<T>;

    #[inline(always)]
    fn into_lazy(self) -> Lazy<Scalar<T>> {
        Lazy { expr: Scalar(self) }
    }
}

#[diagnostic::do_not_recommend]
impl<T: AnyElement> IntoExpr<T> for Array<T> {
    type Expr = Leaf<T>;

    #[inline(always)]
    fn into_lazy(self) -> Lazy<Leaf<T>> {
        Lazy { expr: Leaf(self) }
    }
}

#[diagnostic::do_not_recommend]
impl<T: AnyElement> IntoExpr<T> for &Array<T> {
    type Expr = Leaf<T>;

    #[inline(always)]
    fn into_lazy(self) -> Lazy<Leaf<T>> {
        self.clone().into_lazy()
    }
}

#[diagnostic::do_not_recommend]
impl<T: AnyElement, E: Expr<Item = T>> IntoExpr<T> for Lazy<E> {
    type Expr = E;

    #[inline(always)]
    fn into_lazy(self) -> Self {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<T: AnyElement, E: Expr<Item = T>> IntoExpr<T> for &Lazy<E> {
    type Expr = E;

    #[inline(always)]
    fn into_lazy(self) -> Lazy<E> {
        self.clone()
    }
}
