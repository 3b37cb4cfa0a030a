//! What kernels compute with: the arithmetic and the conversions of single elements.
//!
//! Architecture invariant: these are bounds of the sealed element traits, so that a function which
//! is generic over [`Element`](super::Element) needs no bounds beside it.

mod convert;
pub mod lane;
pub mod math;
mod real;

use half::{bf16, f16};

pub(crate) use convert::{Convert, convert};
pub(crate) use real::Real;

/// Arithmetic that never panics: integers wrap, and their division by zero gives 0.
pub trait Arithmetic: Copy {
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn over(self, other: Self) -> Self;
    fn modulo(self, other: Self) -> Self;
    fn negated(self) -> Self;
}

macro_rules! float_arithmetic {
    ($($type:ident)+) => {
        $(
            impl Arithmetic for $type {
                #[inline(always)]
                fn plus(self, other: Self) -> Self {
                    self + other
                }

                #[inline(always)]
                fn minus(self, other: Self) -> Self {
                    self - other
                }

                #[inline(always)]
                fn times(self, other: Self) -> Self {
                    self * other
                }

                #[inline(always)]
                fn over(self, other: Self) -> Self {
                    self / other
                }

                #[inline(always)]
                fn modulo(self, other: Self) -> Self {
                    self % other
                }

                #[inline(always)]
                fn negated(self) -> Self {
                    -self
                }
            }
        )+
    };
}

float_arithmetic!(f32 f64 f16 bf16);

macro_rules! integer_arithmetic {
    ($($type:ident)+) => {
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
            }
        )+
    };
}

integer_arithmetic!(i8 i16 i32 i64 u8 u16 u32 u64);
