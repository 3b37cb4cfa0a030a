//! What functions that users write are made of: [`elementwise!`](crate::elementwise) expands to calls
//! of these.
//!
//! Each of the functions of single elements hands over to a row of the table of elementwise operations.
//! So what is written gives the bits that the same composition of built-in operations gives, for `f16`
//! and `bf16` too: there every function, and every operator, rounds its result.

pub mod text;

pub use super::node::{binary as apply2, quaternary as apply4, ternary as apply3, unary as apply1};

/// Declares functions of elements in the module `element`, beside their texts for a GPU and whether
/// they may meet rare elements.
macro_rules! functions {
    ($($name:ident: $file:ident::$row:ident ($bound:ident, $($argument:ident: $type:ident),+) -> $output:ident;)+) => {
        /// The functions of single elements. The lane comes last, because it is lent to the arguments before.
        pub mod element {
            use crate::array::scalar::lane::Lane;
            use crate::array::{Element, Float, Numeric};
            use crate::ops::elementwise as rows;
            use crate::ops::node::Function;

            pub use super::operators::*;

            $(
                #[doc = concat!("What `", stringify!($name), "` computes.")]
                #[inline(always)]
                pub fn $name<T: $bound, L: Lane>($($argument: $type,)+ lane: &mut L) -> $output {
                    <rows::$file::$row as Function<($($type,)+)>>::apply(lane, ($($argument,)+))
                }
            )+

            /// The functions' forms for a GPU, over `a`, `b` and `c`.
            #[allow(non_upper_case_globals, reason = "each is called as its function is")]
            pub mod cuda {
                use super::{Function, rows};

                // As good as any type that the rows are for.
                type T = f32;

                $(
                    #[doc = concat!("That of `", stringify!($name), "`.")]
                    pub const $name: &str = <rows::$file::$row as Function<($($type,)+)>>::CUDA;
                )+
            }

            /// Whether the functions may meet rare elements.
            #[allow(non_upper_case_globals, reason = "each is called as its function is")]
            pub mod rare {
                use super::{Function, rows};

                type T = f32;

                $(
                    #[doc = concat!("Whether `", stringify!($name), "` may.")]
                    pub const $name: bool = <rows::$file::$row as Function<($($type,)+)>>::RARE;
                )+
            }
        }
    };
}

/// What operators compute. Written out, because errors in written functions quote them.
mod operators {
    use crate::array::scalar::convert;
    use crate::array::{Element, Integer, Numeric};

    /// `left + right`
    #[inline(always)]
    pub fn add<T: Numeric>(left: T, right: T) -> T {
        left.plus(right)
    }

    /// `left - right`
    #[inline(always)]
    pub fn sub<T: Numeric>(left: T, right: T) -> T {
        left.minus(right)
    }

    /// `left * right`
    #[inline(always)]
    pub fn mul<T: Numeric>(left: T, right: T) -> T {
        left.times(right)
    }

    /// `left / right`
    #[inline(always)]
    pub fn div<T: Numeric>(left: T, right: T) -> T {
        left.over(right)
    }

    /// `left % right`
    #[inline(always)]
    pub fn rem<T: Numeric>(left: T, right: T) -> T {
        left.modulo(right)
    }

    /// `-x`
    #[inline(always)]
    pub fn neg<T: Numeric>(x: T) -> T {
        x.negated()
    }

    /// `x << count`, of the count's lowest bits.
    #[inline(always)]
    pub fn shl<T: Integer>(x: T, count: T) -> T {
        x.shifted_left(count)
    }

    /// `x >> count`, of the count's lowest bits; of signed integers with the sign.
    #[inline(always)]
    pub fn shr<T: Integer>(x: T, count: T) -> T {
        x.shifted_right(count)
    }

    /// `x as U`
    #[inline(always)]
    pub fn cast<U: Element, T: Element>(x: T) -> U {
        convert(x)
    }
}

functions! {
    abs: arithmetic::Abs(Numeric, x: T) -> T;
    acos: functions::Acos(Float, x: T) -> T;
    acosh: functions::Acosh(Float, x: T) -> T;
    asin: functions::Asin(Float, x: T) -> T;
    asinh: functions::Asinh(Float, x: T) -> T;
    atan: functions::Atan(Float, x: T) -> T;
    atan2: functions::Atan2(Float, x: T, y: T) -> T;
    atanh: functions::Atanh(Float, x: T) -> T;
    ceil: rounding::Ceil(Float, x: T) -> T;
    clamp: choice::Clamp(Numeric, x: T, low: T, high: T) -> T;
    cos: functions::Cos(Float, x: T) -> T;
    cosh: functions::Cosh(Float, x: T) -> T;
    erf: functions::Erf(Float, x: T) -> T;
    exp: functions::Exp(Float, x: T) -> T;
    exp_m1: functions::ExpM1(Float, x: T) -> T;
    floor: rounding::Floor(Float, x: T) -> T;
    gelu: functions::Gelu(Float, x: T) -> T;
    is_nan: logic::IsNan(Float, x: T) -> bool;
    ln: functions::Ln(Float, x: T) -> T;
    log10: functions::Log10(Float, x: T) -> T;
    log1p: functions::Log1p(Float, x: T) -> T;
    log2: functions::Log2(Float, x: T) -> T;
    maximum: choice::Maximum(Element, x: T, y: T) -> T;
    minimum: choice::Minimum(Element, x: T, y: T) -> T;
    mul_add: arithmetic::MulAdd(Numeric, x: T, y: T, z: T) -> T;
    powf: arithmetic::Powf(Float, x: T, y: T) -> T;
    powi: arithmetic::Powi(Float, x: T, exponent: i32) -> T;
    recip: arithmetic::Recip(Float, x: T) -> T;
    relu: functions::Relu(Numeric, x: T) -> T;
    round: rounding::Round(Float, x: T) -> T;
    rsqrt: functions::Rsqrt(Float, x: T) -> T;
    sigmoid: functions::Sigmoid(Float, x: T) -> T;
    sign: arithmetic::Sign(Numeric, x: T) -> T;
    silu: functions::Silu(Float, x: T) -> T;
    sin: functions::Sin(Float, x: T) -> T;
    sinh: functions::Sinh(Float, x: T) -> T;
    sqrt: functions::Sqrt(Float, x: T) -> T;
    square: arithmetic::Square(Numeric, x: T) -> T;
    tan: functions::Tan(Float, x: T) -> T;
    tanh: functions::Tanh(Float, x: T) -> T;
    trunc: rounding::Trunc(Float, x: T) -> T;
}
