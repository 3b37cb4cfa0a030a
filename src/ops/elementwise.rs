//! The table of elementwise operations: an operation is declared here and nowhere else.
//!
//! A row gives the method's name, the function's type, the kind of elements it is for, its host and
//! its CUDA form side by side, and an example; [`declare`](super::declare) says what the kinds are.

use std::marker::PhantomData;

use num_traits::Float as _;

use super::declare::{binary, unary};
use super::expr::{Expr, IntoExpr, Lazy};
use super::node::{Apply, Function, Leaf, ternary, unary};
use crate::array::scalar::convert;
use crate::array::scalar::lane::Lane;
use crate::array::{Array, Element};

unary! {
    /// The negative of each element; integers wrap.
    neg Neg number |_, x| x.negated(), "cs_neg(a)", i32 [1, -2] => [-1, 2];

    /// The absolute value of each element; of the lowest integer, itself.
    abs Abs number |_, x| if x < T::zero() { x.negated() } else { x }, "cs_abs(a)",
        i32 [3, -2] => [3, 2];

    /// The square of each element.
    square Square number |_, x| x.times(x), "cs_mul(a, a)", i32 [3, -2] => [9, 4];

    /// Each element where it is above 0, and 0 elsewhere; NaN stays.
    relu Relu number |_, x| if x < T::zero() { T::zero() } else { x }, "a < 0 ? 0 : a",
        f32 [-1.5, 2.0] => [0.0, 2.0];

    /// One divided by each element.
    recip Recip float |_, x| x.recip(), "1 / a", f32 [2.0, -4.0] => [0.5, -0.25];

    /// The square root of each element; NaN below 0.
    sqrt Sqrt float |_, x| x.sqrt(), "sqrt(a)", f32 [4.0, 2.25] => [2.0, 1.5];

    /// *e* to the power of each element.
    exp Exp float |_, x| x.exp(), "exp(a)", f32 [0.0, f32::NEG_INFINITY] => [1.0, 0.0];

    /// The natural logarithm of each element; NaN below 0.
    ln Ln float |_, x| x.ln(), "log(a)", f32 [1.0, 0.0] => [0.0, f32::NEG_INFINITY];

    /// The sine of each element, in radians.
    sin Sin float |_, x| x.sin(), "sin(a)", f32 [0.0, std::f32::consts::FRAC_PI_2] => [0.0, 1.0];

    /// The cosine of each element, in radians.
    cos Cos float |_, x| x.cos(), "cos(a)", f32 [0.0, std::f32::consts::PI] => [1.0, -1.0];

    /// The hyperbolic tangent of each element.
    tanh Tanh float |_, x| x.tanh(), "tanh(a)", f32 [0.0, f32::INFINITY] => [0.0, 1.0];

    /// The logistic function 1 / (1 + exp(−x)) of each element, without overflow on either side.
    sigmoid Sigmoid float |_, x| logistic(x), "cs_sigmoid(a)",
        f32 [0.0, f32::NEG_INFINITY] => [0.5, 0.0];
}

binary! {
    /// The larger of each pair of elements; NaN where either is NaN.
    maximum Maximum number |_, a, b| if a >= b || is_nan(a) { a } else { b },
        "(a >= b || a != a) ? a : b", f32 [1.0, 5.0], [4.0, 2.0] => [4.0, 5.0];

    /// The smaller of each pair of elements; NaN where either is NaN.
    minimum Minimum number |_, a, b| if a <= b || is_nan(a) { a } else { b },
        "(a <= b || a != a) ? a : b", f32 [1.0, 5.0], [4.0, 2.0] => [1.0, 2.0];

    /// Whether the elements of each pair are equal; `==` between arrays gives one `bool` instead.
    eq Equal compare |_, a, b| a == b, "a == b", f32 [1.0, 5.0], [4.0, 5.0] => [false, true];

    /// Whether the elements of each pair differ.
    ne NotEqual compare |_, a, b| a != b, "a != b", f32 [1.0, 5.0], [4.0, 5.0] => [true, false];

    /// Whether the left element of each pair is less.
    lt Less compare |_, a, b| a < b, "a < b", f32 [1.0, 5.0], [4.0, 5.0] => [true, false];

    /// Whether the left element of each pair is less, or both are equal.
    le LessEqual compare |_, a, b| a <= b, "a <= b", f32 [1.0, 5.0], [4.0, 5.0] => [true, true];

    /// Whether the left element of each pair is greater.
    gt Greater compare |_, a, b| a > b, "a > b", f32 [1.0, 5.0], [4.0, 5.0] => [false, false];

    /// Whether the left element of each pair is greater, or both are equal.
    ge GreaterEqual compare |_, a, b| a >= b, "a >= b", f32 [1.0, 5.0], [4.0, 5.0] => [false, true];
}

// What the operators stand for.
binary! {
    operator add Add number |_, a, b| a.plus(b), "cs_add(a, b)";
    operator sub Sub number |_, a, b| a.minus(b), "cs_sub(a, b)";
    operator mul Mul number |_, a, b| a.times(b), "cs_mul(a, b)";
    operator div Div number |_, a, b| a.over(b), "cs_div(a, b)";
    operator rem Rem number |_, a, b| a.modulo(b), "cs_rem(a, b)";
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

/// The conversion to `U`, as Rust's `as` does it.
#[derive(Clone, Copy, Debug)]
pub struct Cast<U>(PhantomData<U>);

impl<T: Element, U: Element> Function<(T,)> for Cast<U> {
    const NAME: &'static str = "cast";
    const CUDA: &'static str = "cs_cast<R>(a)";
    type Output = U;

    #[inline(always)]
    fn apply<L: Lane>(_lane: &mut L, (x,): (T,)) -> U {
        convert(x)
    }
}

/// The choice between two values.
#[derive(Clone, Copy, Debug)]
pub struct Select;

impl<T: Element> Function<(bool, T, T)> for Select {
    const NAME: &'static str = "select";
    const CUDA: &'static str = "a ? b : c";
    type Output = T;

    #[inline(always)]
    fn apply<L: Lane>(_lane: &mut L, (mask, yes, no): (bool, T, T)) -> T {
        if mask { yes } else { no }
    }
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
    pub fn cast<U: Element>(&self) -> Lazy<Apply<Cast<U>, (Leaf<T>,)>> {
        unary(self.lazy())
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
    pub fn cast<U: Element>(self) -> Lazy<Apply<Cast<U>, (E,)>> {
        unary(self)
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
pub fn select<T, M, A, B>(
    mask: M,
    yes: A,
    no: B,
) -> Lazy<Apply<Select, (M::Expr, A::Expr, B::Expr)>>
where
    T: Element,
    M: IntoExpr<bool>,
    A: IntoExpr<T>,
    B: IntoExpr<T>,
{
    ternary(mask.into_lazy(), yes.into_lazy(), no.into_lazy())
}
