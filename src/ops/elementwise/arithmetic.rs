//! Arithmetic: what the operators stand for, and powers.
//!
//! Integers wrap. The remainder has the sign of the left side, as Rust's `%` and C's `fmod`; NumPy's
//! has that of the right side.

use crate::array::scalar::lane::Lane;
use crate::array::scalar::math;
use crate::array::{Array, Float};
use crate::ops::declare::{binary, example, ternary, unary};
use crate::ops::expr::{Expr, IntoExpr, Lazy};
use crate::ops::host::{BlockLoop, Loops, Table, block_loop, table};
use crate::ops::node::{self, Apply, Function, Leaf};

unary! {
    /// The negative of each element; integers wrap.
    neg Neg number |_, x| x.negated(), "cs_neg(a)", i32 [1, -2] => [-1, 2];

    /// The absolute value of each element; of the lowest integer, itself. Of −0 that is 0.
    abs Abs number |_, x| x.magnitude(), "cs_abs(a)", i32 [3, -2] => [3, 2];

    /// 1 where an element is above 0, −1 where it is below, and 0 where it is 0 or −0; NaN stays.
    sign Sign number |_, x| x.sign(), "cs_sign(a)", f32 [-2.5, 3.0] => [-1.0, 1.0];

    /// The square of each element.
    square Square number |_, x| x.times(x), "cs_mul(a, a)", i32 [3, -2] => [9, 4];

    /// One divided by each element.
    recip Recip float |lane, x| math::recip(lane, x), "1 / a", f32 [2.0, -4.0] => [0.5, -0.25];
}

// What the operators stand for.
binary! {
    operator add Add number |_, a, b| a.plus(b), "cs_add(a, b)";
    operator sub Sub number |_, a, b| a.minus(b), "cs_sub(a, b)";
    operator mul Mul number |_, a, b| a.times(b), "cs_mul(a, b)";
    operator div Div number |_, a, b| a.over(b), "cs_div(a, b)";
    operator rem Rem number |_, a, b| a.modulo(b), "cs_rem(a, b)";
}

binary! {
    /// Each element to the power of the other one, as C's `pow`: NaN where a negative number has an
    /// exponent that is not whole, and 1 where the exponent is 0.
    powf Powf float |lane, a, b| math::powf(lane, a, b), "pow(a, b)",
        f32 [2.0, 9.0], [10.0, 0.5] => [1024.0, 3.0];
}

ternary! {
    /// Each element times the second one plus the third. It is rounded once, whatever the processor, and
    /// `f16` and `bf16` go by way of `f32`; integers wrap.
    mul_add MulAdd number |_, a, b, c| a.times_plus(b, c), "cs_mul_add(a, b, c)",
        f32 [2.0, 3.0], [4.0, 5.0], [0.5, 1.0] => [8.5, 16.0];
}

/// The function of `powi`.
#[derive(Clone, Copy, Debug)]
pub struct Powi;

impl Powi {
    const fn block_loop<T: Float>() -> Option<BlockLoop> {
        Some(block_loop::<Self, (T, i32)>)
    }
}

impl<T: Float> Function<(T, i32)> for Powi {
    const NAME: &'static str = "powi";
    const CUDA: &'static str = "cs_powi(a, b)";
    const LOOPS: Loops = {
        static LOOPS: Table = table!(float Powi);
        Loops::Table(&LOOPS, T::DTYPE)
    };
    type Output = T;

    #[inline(always)]
    fn apply<L: Lane>(lane: &mut L, (x, exponent): (T, i32)) -> T {
        let x: T::Accumulator = crate::array::scalar::convert(x);
        crate::array::scalar::convert(math::powi(lane, x, exponent))
    }
}

impl<T: Float> Array<T> {
    /// Each element to the power of an integer, or of those of an array of `i32`.
    #[doc = example!(
        f32 "2": "x" = [2.0, -10.0];
        "x.powi(3).eval()?.to_vec()?" => [8.0, -1000.0]
    )]
    #[expect(
        clippy::type_complexity,
        reason = "the type of an expression is its tree"
    )]
    pub fn powi<B: IntoExpr<i32>>(&self, exponent: B) -> Lazy<Apply<Powi, (Leaf<T>, B::Expr)>> {
        node::binary(self.lazy(), exponent.into_lazy())
    }
}

impl<E: Expr<Item: Float>> Lazy<E> {
    /// Each element to the power of an integer, or of those of an array of `i32`.
    #[doc = example!(
        f32 "2": "x" = [2.0, -10.0];
        "x.lazy().powi(3).eval()?.to_vec()?" => [8.0, -1000.0]
    )]
    pub fn powi<B: IntoExpr<i32>>(&self, exponent: B) -> Lazy<Apply<Powi, (E, B::Expr)>> {
        node::binary(self.clone(), exponent.into_lazy())
    }
}
