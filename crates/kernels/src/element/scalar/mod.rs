//! Arithmetic and conversions of single elements, for kernels.
//!
//! Architecture invariant: these traits are bounds of the sealed element traits. Therefore a
//! function that is generic over [`AnyElement`](crate::AnyElement) needs no other bounds.

mod convert;
pub mod math;
mod narrow;
mod order;
pub mod pass;

#[cfg(test)]
mod tests;

use half::{bf16, f16};
use num_complex::Complex;

use narrow::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};

pub use convert::{Convert, convert};
pub use math::{Powers, Real};
pub use order::{RadixDigits, SortKey};

/// Arithmetic that never panics. Integers wrap, and an integer division by zero returns 0.
pub trait Arithmetic: Copy {
    /// The type of the parts of a complex number. For a real number, the type is `Self`.
    type Real;

    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn over(self, other: Self) -> Self;
    fn negated(self) -> Self;
    /// Returns `self * factor + addend`. For `f32` and `f64`, the result is rounded once. For `f16`
    /// and `bf16`, the result is computed in `f32`.
    fn times_plus(self, factor: Self, addend: Self) -> Self;
    /// Returns the absolute value. The absolute value of the lowest integer is the integer itself.
    /// The sign of zero and NaN is cleared.
    fn magnitude(self) -> Self::Real;
    /// Returns the real part.
    fn re(self) -> Self::Real;
    /// Returns the imaginary part. For a real number, returns 0.
    fn im(self) -> Self::Real;
    /// Returns the complex conjugate.
    fn conjugate(self) -> Self;
}

/// The operations that only real numbers have.
pub trait Signed: Copy {
    /// Returns the remainder of truncating division, with the sign of `self`.
    fn modulo(self, other: Self) -> Self;
    /// Returns 1 for a value above 0, −1 for a value below 0, and 0 for 0. For NaN, returns NaN.
    fn sign(self) -> Self;
}

/// Implements the arithmetic of floats. Operands are widened, and results are rounded.
macro_rules! float_arithmetic {
    ($($type:ident: $wide:expr, $narrow:expr, $bits:ident;)+) => {
        $(
            impl Arithmetic for $type {
                type Real = Self;

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
                fn re(self) -> Self {
                    self
                }

                #[inline(always)]
                fn im(self) -> Self {
                    $narrow(0.0)
                }

                #[inline(always)]
                fn conjugate(self) -> Self {
                    self
                }
            }

            impl Signed for $type {
                #[inline(always)]
                fn modulo(self, other: Self) -> Self {
                    $narrow($wide(self) % $wide(other))
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

// Sums, products and quotients of `f16` and `bf16` are computed in `f32` and then rounded. The two
// roundings equal a single rounding, because the significand of `f32` has more than twice the
// digits (Figueroa, 1995).
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
                type Real = Self;

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
                fn re(self) -> Self {
                    self
                }

                #[inline(always)]
                fn im(self) -> Self {
                    0
                }

                #[inline(always)]
                fn conjugate(self) -> Self {
                    self
                }
            }

            impl Signed for $type {
                #[inline(always)]
                fn modulo(self, other: Self) -> Self {
                    if other == 0 { 0 } else { self.wrapping_rem(other) }
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

/// The bounds between which squares of a type need no scaling.
trait Squares {
    /// The upper bound of numbers whose squares are far within the type's range. The lower bound is
    /// the inverse of the upper bound.
    const LARGE: Self;

    /// The power of two that scales small numbers up, and whose inverse scales large numbers down.
    /// A scaled number is between the bounds.
    const FAR: Self;
}

impl Squares for f32 {
    const LARGE: Self = (1u64 << 50) as f32;
    const FAR: Self = Self::from_bits((127 + 100) << 23);
}

impl Squares for f64 {
    const LARGE: Self = Self::from_bits((1023 + 500) << 52);
    const FAR: Self = Self::from_bits((1023 + 600) << 52);
}

macro_rules! complex_arithmetic {
    ($($part:ident)+) => {
        $(
            impl Arithmetic for Complex<$part> {
                type Real = $part;

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

                /// Scales by the larger part of the divisor, so that no intermediate result
                /// overflows (Smith, "Algorithm 116: Complex division", 1962).
                #[inline(always)]
                fn over(self, other: Self) -> Self {
                    let is_flat = other.re.abs() >= other.im.abs();
                    let (large, small) = if is_flat { (other.re, other.im) } else { (other.im, other.re) };
                    // If the divisor is zero, both parts are divided by a real zero.
                    let ratio = if large == 0.0 { 0.0 } else { small / large };
                    let scale = if large == 0.0 { 0.0 } else { large + small * ratio };
                    let (re, im) = if is_flat {
                        (self.re + self.im * ratio, self.im - self.re * ratio)
                    } else {
                        (self.re * ratio + self.im, self.im * ratio - self.re)
                    };
                    Self::new(re / scale, im / scale)
                }

                #[inline(always)]
                fn negated(self) -> Self {
                    -self
                }

                #[inline(always)]
                fn times_plus(self, factor: Self, addend: Self) -> Self {
                    Self::new(
                        self.re.mul_add(factor.re, (-self.im).mul_add(factor.im, addend.re)),
                        self.re.mul_add(factor.im, self.im.mul_add(factor.re, addend.im)),
                    )
                }

                /// Computes the absolute value without intermediate overflow. If either part is
                /// infinite, the result is infinite.
                #[inline(always)]
                fn magnitude(self) -> $part {
                    let (re, im) = (self.re.abs(), self.im.abs());
                    let large = if re < im { im } else { re };
                    // A power of two scales both parts, so that the larger square neither overflows
                    // nor underflows. The absolute value is scaled back.
                    let (up, down) = (<$part>::FAR, 1.0 / <$part>::FAR);
                    let is_large = large > <$part>::LARGE;
                    let is_small = large < 1.0 / <$part>::LARGE;
                    let scale = if is_large { down } else { 1.0 };
                    let scale = if is_small { up } else { scale };
                    let back = if is_large { up } else { 1.0 };
                    let back = if is_small { down } else { back };
                    let (re, im) = (re * scale, im * scale);
                    let length = (re * re + im * im).sqrt() * back;
                    if re.is_infinite() | im.is_infinite() { <$part>::INFINITY } else { length }
                }

                #[inline(always)]
                fn re(self) -> $part {
                    self.re
                }

                #[inline(always)]
                fn im(self) -> $part {
                    self.im
                }

                #[inline(always)]
                fn conjugate(self) -> Self {
                    self.conj()
                }
            }
        )+
    };
}

complex_arithmetic!(f32 f64);
