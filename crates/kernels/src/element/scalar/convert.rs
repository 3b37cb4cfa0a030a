//! Conversions of single elements, between any two types.

#![expect(
    clippy::cast_lossless,
    reason = "one macro converts between all types, with and without loss"
)]

use half::{bf16, f16};
use num_complex::Complex;

use super::narrow::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, f64_to_odd_f32, sticky};

/// Conversion between any two element types, like Rust's `as`. Integers wrap, floats saturate, and
/// NaN becomes 0. A conversion to a float rounds once. Any value except zero converts to `true`. A
/// complex number is converted by its real part. A conversion to a complex type keeps the imaginary
/// part, and a conversion to `bool` uses both parts.
///
/// The trait has one function for each target type, because a conversion between two generic types
/// needs double dispatch.
pub trait Convert: Copy {
    fn into_f32(value: Self) -> f32;
    fn into_f64(value: Self) -> f64;
    fn into_f16(value: Self) -> f16;
    fn into_bf16(value: Self) -> bf16;
    fn into_i8(value: Self) -> i8;
    fn into_i16(value: Self) -> i16;
    fn into_i32(value: Self) -> i32;
    fn into_i64(value: Self) -> i64;
    fn into_u8(value: Self) -> u8;
    fn into_u16(value: Self) -> u16;
    fn into_u32(value: Self) -> u32;
    fn into_u64(value: Self) -> u64;
    fn into_bool(value: Self) -> bool;
    fn into_c32(value: Self) -> Complex<f32>;
    fn into_c64(value: Self) -> Complex<f64>;
    fn convert_from<T: Convert>(value: T) -> Self;
}

#[inline(always)]
pub fn convert<U: Convert, T: Convert>(value: T) -> U {
    U::convert_from(value)
}

/// Implements the conversions of one element type, through the widest primitive that holds its
/// values.
macro_rules! conversions {
    ($($type:ident by $entry:ident: $value:ident => $wide:expr, $half:expr, $brain:expr, $truth:expr;)+) => {
        $(
            impl Convert for $type {
                #[inline(always)]
                fn into_f32($value: Self) -> f32 {
                    $wide as f32
                }

                #[inline(always)]
                fn into_f64($value: Self) -> f64 {
                    $wide as f64
                }

                #[inline(always)]
                fn into_f16($value: Self) -> f16 {
                    $half
                }

                #[inline(always)]
                fn into_bf16($value: Self) -> bf16 {
                    $brain
                }

                conversions!(@whole $value, $wide;
                    into_i8 i8, into_i16 i16, into_i32 i32, into_i64 i64,
                    into_u8 u8, into_u16 u16, into_u32 u32, into_u64 u64);

                #[inline(always)]
                fn into_bool($value: Self) -> bool {
                    $truth
                }

                #[inline(always)]
                fn into_c32(value: Self) -> Complex<f32> {
                    Complex::new(Self::into_f32(value), 0.0)
                }

                #[inline(always)]
                fn into_c64(value: Self) -> Complex<f64> {
                    Complex::new(Self::into_f64(value), 0.0)
                }

                #[inline(always)]
                fn convert_from<T: Convert>(value: T) -> Self {
                    T::$entry(value)
                }
            }
        )+
    };
    (@whole $value:ident, $whole:expr; $($name:ident $target:ident),+) => {
        $(
            #[inline(always)]
            fn $name($value: Self) -> $target {
                $whole as $target
            }
        )+
    };
}

/// Implements the conversions of a primitive. `$exact` is an `f64` that rounds to narrower types
/// like the value. For 64-bit integers, it is the `sticky` form of the value. For other types, it
/// is the value itself.
macro_rules! primitive_conversions {
    ($($type:ident by $entry:ident: $value:ident => $exact:expr;)+) => {
        conversions! {
            $($type by $entry: $value => $value, f32_to_f16(f64_to_odd_f32($exact)),
                f32_to_bf16(f64_to_odd_f32($exact)), $value != (0 as $type);)+
        }
    };
}

primitive_conversions! {
    f64 by into_f64: value => value;
    i8 by into_i8: value => value as f64;
    i16 by into_i16: value => value as f64;
    i32 by into_i32: value => value as f64;
    i64 by into_i64: value => (sticky(value.unsigned_abs()) as f64).copysign(value as f64);
    u8 by into_u8: value => value as f64;
    u16 by into_u16: value => value as f64;
    u32 by into_u32: value => value as f64;
    u64 by into_u64: value => sticky(value) as f64;
}

conversions! {
    f32 by into_f32: value => value, f32_to_f16(value), f32_to_bf16(value), value != 0.0;
    f16 by into_f16: value => f16_to_f32(value), value, f32_to_bf16(f16_to_f32(value)),
        f16_to_f32(value) != 0.0;
    bf16 by into_bf16: value => bf16_to_f32(value), f32_to_f16(bf16_to_f32(value)), value,
        bf16_to_f32(value) != 0.0;
    bool by into_bool: value => u8::from(value), if value { f16::ONE } else { f16::ZERO },
        if value { bf16::ONE } else { bf16::ZERO }, value;
}

macro_rules! complex_conversions {
    ($($part:ident by $entry:ident;)+) => {
        $(
            impl Convert for Complex<$part> {
                complex_conversions!(@real
                    into_f32 f32, into_f64 f64, into_f16 f16, into_bf16 bf16,
                    into_i8 i8, into_i16 i16, into_i32 i32, into_i64 i64,
                    into_u8 u8, into_u16 u16, into_u32 u32, into_u64 u64);

                #[inline(always)]
                fn into_bool(value: Self) -> bool {
                    (value.re != 0.0) | (value.im != 0.0)
                }

                #[inline(always)]
                fn into_c32(value: Self) -> Complex<f32> {
                    Complex::new(convert(value.re), convert(value.im))
                }

                #[inline(always)]
                fn into_c64(value: Self) -> Complex<f64> {
                    Complex::new(convert(value.re), convert(value.im))
                }

                #[inline(always)]
                fn convert_from<T: Convert>(value: T) -> Self {
                    T::$entry(value)
                }
            }
        )+
    };
    (@real $($name:ident $target:ident),+) => {
        $(
            #[inline(always)]
            fn $name(value: Self) -> $target {
                convert(value.re)
            }
        )+
    };
}

complex_conversions! {
    f32 by into_c32;
    f64 by into_c64;
}
