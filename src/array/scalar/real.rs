//! The functions of a real number, each told by which [`Lane`] it is computed.

use super::Arithmetic;
use super::lane::Lane;

/// Declares the trait, and beside it a free function for each of its functions.
macro_rules! functions {
    ($(
        $(#[$doc:meta])+
        $name:ident($($argument:ident: $type:ident),+);
    )+) => {
        /// What elementwise functions compute in: `f32` or `f64`.
        ///
        /// The functions take the lane first, so they are not methods: `math::exp(lane, x)`.
        /// They are right for every argument, NaN, infinities and subnormal numbers included: in
        /// `f32` exp, ln, sin, cos and tanh within 2 units in the last place and the others
        /// within 4, whichever the lane.
        pub trait Real: num_traits::Float + Arithmetic + Send + Sync + 'static {
            $(
                $(#[$doc])+
                fn $name<L: Lane>(lane: &mut L, $($argument: functions!(@type $type)),+) -> Self;
            )+
        }

        /// The functions of [`Real`], called as `math::exp(lane, x)`.
        pub(super) mod free {
            use super::super::Arithmetic;
            use super::{Lane, Real};

            $(
                $(#[$doc])+
                #[inline(always)]
                pub fn $name<L: Lane, A: Real>(
                    lane: &mut L,
                    $($argument: functions!(@free $type)),+
                ) -> A {
                    <A as Real>::$name(lane, $($argument),+)
                }
            )+

            /// The absolute value: of −0 that is 0, and of NaN a positive NaN. Never rare.
            #[inline(always)]
            pub fn abs<L: Lane, A: Arithmetic>(_lane: &mut L, x: A) -> A {
                x.magnitude()
            }

            /// 1 above 0, −1 below, 0 at ±0, and NaN for NaN. Never rare.
            #[inline(always)]
            pub fn sign<L: Lane, A: Arithmetic>(_lane: &mut L, x: A) -> A {
                x.sign()
            }

            /// The larger; NaN where either is NaN. Never rare.
            #[inline(always)]
            pub fn maximum<L: Lane, A: Copy + PartialOrd>(_lane: &mut L, a: A, b: A) -> A {
                if (a >= b) | (a != a) { a } else { b }
            }

            /// The smaller; NaN where either is NaN. Never rare.
            #[inline(always)]
            pub fn minimum<L: Lane, A: Copy + PartialOrd>(_lane: &mut L, a: A, b: A) -> A {
                if (a <= b) | (a != a) { a } else { b }
            }
        }
    };
    (@type x) => { Self };
    (@type i32) => { i32 };
    (@free x) => { A };
    (@free i32) => { i32 };
}

functions! {
    /// The square root; NaN below 0. Never rare.
    sqrt(x: x);
    /// 1 / √x. Never rare.
    rsqrt(x: x);
    /// 1 / x. Never rare.
    recip(x: x);

    /// *e* to the power of x. Never rare.
    exp(x: x);
    /// *e* to the power of x, less 1, without loss where x is small. Never rare.
    exp_m1(x: x);

    /// The natural logarithm; NaN below 0. Never rare.
    ln(x: x);
    /// The natural logarithm of 1 + x, without loss where x is small. Never rare.
    log1p(x: x);
    /// The logarithm to base 2. Never rare.
    log2(x: x);
    /// The logarithm to base 10. Never rare.
    log10(x: x);

    /// x to the power of an integer. Never rare.
    powi(x: x, exponent: i32);
    /// x to the power of another real number. Never rare.
    powf(x: x, exponent: x);

    /// The sine of radians. Rare: huge x.
    sin(x: x);
    /// The cosine of radians. Rare: huge x.
    cos(x: x);
    /// The tangent of radians. Rare: huge x.
    tan(x: x);

    /// The angle whose sine is x, from −π/2 to π/2. Never rare.
    asin(x: x);
    /// The angle whose cosine is x, from 0 to π. Never rare.
    acos(x: x);
    /// The angle whose tangent is x, from −π/2 to π/2. Never rare.
    atan(x: x);
    /// The angle of the point (x, y) from the axis of x, from −π to π. Never rare.
    atan2(y: x, x: x);

    /// The hyperbolic sine. Never rare.
    sinh(x: x);
    /// The hyperbolic cosine. Never rare.
    cosh(x: x);
    /// The hyperbolic tangent. Never rare.
    tanh(x: x);
    /// The inverse of the hyperbolic sine. Never rare.
    asinh(x: x);
    /// The inverse of the hyperbolic cosine; NaN below 1. Never rare.
    acosh(x: x);
    /// The inverse of the hyperbolic tangent; NaN beyond ±1. Never rare.
    atanh(x: x);

    /// The largest whole number that is not above x. Never rare.
    floor(x: x);
    /// The smallest whole number that is not below x. Never rare.
    ceil(x: x);
    /// The nearest whole number; of two that are equally near, the even one. Never rare.
    round(x: x);
    /// The whole part of x. Never rare.
    trunc(x: x);

    /// The error function. Never rare.
    erf(x: x);
    /// The logistic function 1 / (1 + exp(−x)). Never rare.
    sigmoid(x: x);
    /// x · (1 + erf(x / √2)) / 2, without loss where x is far below 0. Never rare.
    gelu(x: x);
    /// x / (1 + exp(−x)). Never rare.
    silu(x: x);

    /// a · b + c, rounded once. Never rare.
    mul_add(a: x, b: x, c: x);
}
