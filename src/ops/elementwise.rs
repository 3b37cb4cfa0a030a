//! The table of elementwise operations: an operation is declared here and nowhere else.
//!
//! A row gives the method's name, the operation's type, the kind of elements it is for, what it
//! computes, and an example. `float` rows are computed in `f32` for `f16` and `bf16`, with one
//! rounding at the end, and in the elements' own type otherwise; `number` rows in the elements' own
//! type; `compare` rows give `bool`.

use num_traits::Float as _;

use super::declare::{binary, unary};
use super::expr::{Expr, IntoExpr, Lazy};
use super::node::{Cast, Leaf, Select, common_shape};
use crate::array::scalar::convert;
use crate::array::{Array, Element};

unary! {
    /// The negative of each element; integers wrap.
    neg Neg number |x| x.negated(), i32 [1, -2] => [-1, 2];

    /// The absolute value of each element; of the lowest integer, itself.
    abs Abs number |x| if x < T::zero() { x.negated() } else { x }, i32 [3, -2] => [3, 2];

    /// The square of each element.
    square Square number |x| x.times(x), i32 [3, -2] => [9, 4];

    /// Each element where it is above 0, and 0 elsewhere; NaN stays.
    relu Relu number |x| if x < T::zero() { T::zero() } else { x }, f32 [-1.5, 2.0] => [0.0, 2.0];

    /// One divided by each element.
    recip Recip float |x| x.recip(), f32 [2.0, -4.0] => [0.5, -0.25];

    /// The square root of each element; NaN below 0.
    sqrt Sqrt float |x| x.sqrt(), f32 [4.0, 2.25] => [2.0, 1.5];

    /// *e* to the power of each element.
    exp Exp float |x| x.exp(), f32 [0.0, f32::NEG_INFINITY] => [1.0, 0.0];

    /// The natural logarithm of each element; NaN below 0.
    ln Ln float |x| x.ln(), f32 [1.0, 0.0] => [0.0, f32::NEG_INFINITY];

    /// The sine of each element, in radians.
    sin Sin float |x| x.sin(), f32 [0.0, std::f32::consts::FRAC_PI_2] => [0.0, 1.0];

    /// The cosine of each element, in radians.
    cos Cos float |x| x.cos(), f32 [0.0, std::f32::consts::PI] => [1.0, -1.0];

    /// The hyperbolic tangent of each element.
    tanh Tanh float |x| x.tanh(), f32 [0.0, f32::INFINITY] => [0.0, 1.0];

    /// The logistic function 1 / (1 + exp(−x)) of each element, without overflow on either side.
    sigmoid Sigmoid float |x| logistic(x), f32 [0.0, f32::NEG_INFINITY] => [0.5, 0.0];
}

binary! {
    /// The larger of each pair of elements; NaN where either is NaN.
    maximum Maximum number |a, b| if a >= b || is_nan(a) { a } else { b },
        f32 [1.0, 5.0], [4.0, 2.0] => [4.0, 5.0];

    /// The smaller of each pair of elements; NaN where either is NaN.
    minimum Minimum number |a, b| if a <= b || is_nan(a) { a } else { b },
        f32 [1.0, 5.0], [4.0, 2.0] => [1.0, 2.0];

    /// Whether the elements of each pair are equal; `==` between arrays gives one `bool` instead.
    eq Equal compare |a, b| a == b, f32 [1.0, 5.0], [4.0, 5.0] => [false, true];

    /// Whether the elements of each pair differ.
    ne NotEqual compare |a, b| a != b, f32 [1.0, 5.0], [4.0, 5.0] => [true, false];

    /// Whether the left element of each pair is less.
    lt Less compare |a, b| a < b, f32 [1.0, 5.0], [4.0, 5.0] => [true, false];

    /// Whether the left element of each pair is less, or both are equal.
    le LessEqual compare |a, b| a <= b, f32 [1.0, 5.0], [4.0, 5.0] => [true, true];

    /// Whether the left element of each pair is greater.
    gt Greater compare |a, b| a > b, f32 [1.0, 5.0], [4.0, 5.0] => [false, false];

    /// Whether the left element of each pair is greater, or both are equal.
    ge GreaterEqual compare |a, b| a >= b, f32 [1.0, 5.0], [4.0, 5.0] => [false, true];
}

// What the operators stand for.
binary! {
    operator add Add number |a, b| a.plus(b);
    operator sub Sub number |a, b| a.minus(b);
    operator mul Mul number |a, b| a.times(b);
    operator div Div number |a, b| a.over(b);
    operator rem Rem number |a, b| a.modulo(b);
}

/// The logistic function; of the two forms the one whose exponential does not overflow.
#[inline(always)]
fn logistic<A: num_traits::Float>(x: A) -> A {
    let small = (-x.abs()).exp();
    let numerator = if x < A::zero() { small } else { A::one() };
    numerator / (A::one() + small)
}

#[inline(always)]
#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
fn is_nan<T: PartialEq + Copy>(x: T) -> bool {
    x != x
}

impl<T: Element> Array<T> {
    /// Each element as a `U`, converted as Rust's `as` does: integers wrap, floats saturate, NaN
    /// becomes 0, and anything but zero becomes `true`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let x = Array::from_slice(&[1.9_f32, -1.0, 300.0], 3)?;
    /// assert_eq!(x.cast::<u8>().eval()?.to_vec()?, [1, 0, 255]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn cast<U: Element>(&self) -> Lazy<Cast<U, Leaf<T>>> {
        self.lazy().converted()
    }
}

impl<E: Expr> Lazy<E> {
    /// Each element as a `U`, as [`Array::cast`] converts it.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let x = Array::from_slice(&[1, 2, 3], 3)?;
    /// let odd = (&x % 2).cast::<bool>().eval()?;
    /// assert_eq!(odd.to_vec()?, [true, false, true]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn cast<U: Element>(self) -> Lazy<Cast<U, E>> {
        self.converted()
    }
}

/// The element of `yes` where `mask` holds, and that of `no` elsewhere; all three broadcast.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, select};
///
/// let x = Array::from_slice(&[-2.0_f32, 3.0], 2)?;
/// let y = select(x.lt(0.0), &x * 0.1, &x).eval()?;
/// assert_eq!(y.to_vec()?, [-0.2, 3.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
pub fn select<T, M, A, B>(mask: M, yes: A, no: B) -> Lazy<Select<M::Expr, A::Expr, B::Expr>>
where
    T: Element,
    M: IntoExpr<bool>,
    A: IntoExpr<T>,
    B: IntoExpr<T>,
{
    let (mask, yes, no) = (mask.into_lazy(), yes.into_lazy(), no.into_lazy());
    let values = common_shape("select", yes.shape, no.shape);
    Lazy {
        expr: Select {
            mask: mask.expr,
            yes: yes.expr,
            no: no.expr,
        },
        shape: common_shape("select", mask.shape, values),
    }
}
