//! Arithmetic and conversions of single elements, for kernels.
//!
//! Architecture invariant: these are bounds of the sealed element traits, so that a function which
//! is generic over [`Element`](super::Element) needs no bounds beside it.

mod convert;
pub mod math;
mod narrow;
mod order;
pub mod pass;

#[cfg(test)]
mod tests;

use half::{bf16, f16};

use narrow::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};

pub(crate) use convert::{Convert, convert};
pub(crate) use math::{Powers, Real};
pub(crate) use order::{Digits, Ordered};

/// Arithmetic that never panics: integers wrap, and their division by zero gives 0.
pub trait Arithmetic: Copy {
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn over(self, other: Self) -> Self;
    /// The remainder of truncating division, with the sign of `self`.
    fn modulo(self, other: Self) -> Self;
    fn negated(self) -> Self;
    /// `self * factor + addend`; with one rounding for `f32` and `f64`, through `f32` for `f16` and `bf16`.
    fn times_plus(self, factor: Self, addend: Self) -> Self;
    /// The absolute value; the lowest integer is its own. Zero and NaN lose their sign too.
    fn magnitude(self) -> Self;
    /// 1, 0 or −1 where the value is above, at or below 0; NaN for NaN.
    fn sign(self) -> Self;
}

/// For types whose operands are widened and whose results are rounded.
macro_rules! float_arithmetic {
    ($($type:ident: $wide:expr, $narrow:expr, $bits:ident;)+) => {
        $(
            impl Arithmetic for $type {
                #[inline(always)]
                fn plus(self, other: Self) -> Self {
                    $narrow($wide(self) + $wide(other))
                }

                #[inline(always)]
                fn minus(self, other: Self) -> Self {
                    $narrow($wide(self) - $wide(other))
                }

                #[inline(always)]
                fn times(self, other: Self) -> Self {
                    $narrow($wide(self) * $wide(other))
                }

                #[inline(always)]
                fn over(self, other: Self) -> Self {
                    $narrow($wide(self) / $wide(other))
                }

                #[inline(always)]
                fn modulo(self, other: Self) -> Self {
                    $narrow($wide(self) % $wide(other))
                }

                #[inline(always)]
                fn negated(self) -> Self {
                    -self
                }

                #[inline(always)]
                fn times_plus(self, factor: Self, addend: Self) -> Self {
                    $narrow($wide(self).mul_add($wide(factor), $wide(addend)))
                }

                #[inline(always)]
                fn magnitude(self) -> Self {
                    $type::from_bits(self.to_bits() & ($bits::MAX >> 1))
                }

                #[inline(always)]
                fn sign(self) -> Self {
                    let wide = $wide(self);
                    let side = if wide > 0.0 { 1.0 } else { 0.0 };
                    let side = if wide < 0.0 { -1.0 } else { side };
                    if wide.is_nan() { self } else { $narrow(side) }
                }
            }
        )+
    };
}

#[inline(always)]
fn same<T>(value: T) -> T {
    value
}

// A sum, a product or a quotient of halves is the same with and without a rounding to `f32` on the
// way, whose significand has more than twice their digits (Figueroa, 1995).
float_arithmetic! {
    f32: same, same, u32;
    f64: same, same, u64;
    f16: f16_to_f32, f32_to_f16, u16;
    bf16: bf16_to_f32, f32_to_bf16, u16;
}

macro_rules! integer_arithmetic {
    ($($type:ident: $magnitude:ident, $sign:ident;)+) => {
        $(
            impl Arithmetic for $type {
                #[inline(always)]
                fn plus(self, other: Self) -> Self {
                    self.wrapping_add(other)
                }

                #[inline(always)]
                fn minus(self, other: Self) -> Self {
                    self.wrapping_sub(other)
                }

                #[inline(always)]
                fn times(self, other: Self) -> Self {
                    self.wrapping_mul(other)
                }

                #[inline(always)]
                fn over(self, other: Self) -> Self {
                    if other == 0 { 0 } else { self.wrapping_div(other) }
                }

                #[inline(always)]
                fn modulo(self, other: Self) -> Self {
                    if other == 0 { 0 } else { self.wrapping_rem(other) }
                }

                #[inline(always)]
                fn negated(self) -> Self {
                    self.wrapping_neg()
                }

                #[inline(always)]
                fn times_plus(self, factor: Self, addend: Self) -> Self {
                    self.wrapping_mul(factor).wrapping_add(addend)
                }

                #[inline(always)]
                fn magnitude(self) -> Self {
                    integer_arithmetic!(@$magnitude self)
                }

                #[inline(always)]
                fn sign(self) -> Self {
                    integer_arithmetic!(@$sign self)
                }
            }
        )+
    };
    (@same $value:ident) => { $value };
    (@wrapping $value:ident) => { $value.wrapping_abs() };
    (@any $value:ident) => { if $value == 0 { 0 } else { 1 } };
    (@either $value:ident) => { $value.signum() };
}

integer_arithmetic! {
    i8: wrapping, either;
    i16: wrapping, either;
    i32: wrapping, either;
    i64: wrapping, either;
    u8: same, any;
    u16: same, any;
    u32: same, any;
    u64: same, any;
}
