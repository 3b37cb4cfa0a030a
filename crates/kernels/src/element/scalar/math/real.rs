//! The functions of a real number, generic over the [`Pass`] that computes them. They are the host
//! forms of the rows of `functions!` of kind `float` and `power`.

use super::{erf, exp, hyperbolic, inverse, log, power, rounding, trig};
use crate::element::scalar::Arithmetic;
use crate::element::scalar::pass::Pass;

/// Declares the trait and its implementations for `f32` and `f64`. Also declares a free function
/// for each function of kind `float`.
macro_rules! real {
    ($pass:ident $(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident $arguments:tt $kind:ident $(as $aliases:tt)? { $($body:tt)+ }
    )+) => {
        /// The type in which elementwise functions compute: `f32` or `f64`.
        ///
        /// The functions are not methods, because the pass is their first argument:
        /// `math::exp(pass, x)`. In every pass, the error is within the bound of the function's
        /// row. The bound holds for every argument, including NaN, infinities and subnormal
        /// numbers.
        pub trait Real: num_traits::Float + Arithmetic + Send + Sync + 'static {
            $(real! { @declare $kind $pass $name $arguments [$($doc)+] })+
        }

        impl Real for f32 {
            $(real! { @single $kind $pass $name $arguments $($body)+ })+
        }

        impl Real for f64 {
            $(real! { @double $kind $pass $name $arguments $($body)+ })+
        }

        /// The functions of [`Real`] as `math::exp(pass, x)`, and functions without a pass.
        pub(in crate::element::scalar::math) mod free {
            use super::Pass;
            use super::Real;

            $(real! { @free $kind $pass $name $arguments [$($doc)+] })+

            /// Returns the larger number, or NaN if either is NaN.
            #[inline(always)]
            pub fn maximum<A: Copy + PartialOrd>(a: A, b: A) -> A {
                if (a >= b) | (a != a) { a } else { b }
            }

            /// Returns the smaller number, or NaN if either is NaN.
            #[inline(always)]
            pub fn minimum<A: Copy + PartialOrd>(a: A, b: A) -> A {
                if (a <= b) | (a != a) { a } else { b }
            }
        }
    };
    (
        @declare float $pass:ident $name:ident ($($x:ident $(: $type:ident)?),+) [$($doc:literal)+]
    ) => {
        $(#[doc = $doc])+
        fn $name<L: Pass>($pass: &mut L, $($x: real!(@type Self $($type)?)),+) -> Self;
    };
    (
        @single float $pass:ident $name:ident ($($x:ident $(: $type:ident)?),+)
        host: $single:expr, $double:expr; $($rest:tt)+
    ) => {
        #[inline(always)]
        fn $name<L: Pass>($pass: &mut L, $($x: real!(@type Self $($type)?)),+) -> Self {
            let _ = &$pass;
            $single
        }
    };
    (
        @double float $pass:ident $name:ident ($($x:ident $(: $type:ident)?),+)
        host: $single:expr, $double:expr; $($rest:tt)+
    ) => {
        #[inline(always)]
        fn $name<L: Pass>($pass: &mut L, $($x: real!(@type Self $($type)?)),+) -> Self {
            let _ = &$pass;
            $double
        }
    };
    (
        @free float $pass:ident $name:ident ($($x:ident $(: $type:ident)?),+) [$($doc:literal)+]
    ) => {
        $(#[doc = $doc])+
        #[inline(always)]
        pub fn $name<L: Pass, A: Real>($pass: &mut L, $($x: real!(@type A $($type)?)),+) -> A {
            <A as Real>::$name($pass, $($x),+)
        }
    };
    // Powers also exist for integers, so their free function is [`power::powi`].
    (@free power $pass:ident $name:ident $arguments:tt $docs:tt) => {};
    (@$what:ident power $($rest:tt)+) => { real! { @$what float $($rest)+ } };
    (@type $own:ident) => { $own };
    (@type $own:ident $type:ident) => { $type };
    // Rows of other kinds also apply to other types, so they have no function of [`Real`].
    (@$what:ident $kind:ident $($rest:tt)+) => {};
}

functions! { real }
