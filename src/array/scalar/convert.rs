//! Conversions of single elements, between any two types.

#![expect(
    clippy::cast_lossless,
    reason = "one macro converts between all types, with and without loss"
)]

use half::{bf16, f16};

/// Conversion between any two elements, as Rust's `as` does it: integers wrap, floats saturate, and
/// NaN becomes 0. Anything but zero is `true`.
///
/// One function for each target, because two generic parameters need a double dispatch.
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
    fn convert_from<T: Convert>(value: T) -> Self;
}

/// `value` as a `U`.
#[inline(always)]
pub(crate) fn convert<U: Convert, T: Convert>(value: T) -> U {
    U::convert_from(value)
}

/// The conversions of one element type, each by way of the widest primitive that holds its values.
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

macro_rules! primitive_conversions {
    ($($type:ident by $entry:ident)+) => {
        // A double holds every integer that does not overflow an `f16`; a `bf16` of a larger one may
        // be off by half a unit where the first rounding meets a tie.
        conversions! {
            $($type by $entry: value => value, f16::from_f64(value as f64),
                bf16::from_f64(value as f64), value != (0 as $type);)+
        }
    };
}

primitive_conversions! {
    f64 by into_f64
    i8 by into_i8
    i16 by into_i16
    i32 by into_i32
    i64 by into_i64
    u8 by into_u8
    u16 by into_u16
    u32 by into_u32
    u64 by into_u64
}

conversions! {
    f32 by into_f32: value => value, f16::from_f32(value), bf16::from_f32(value), value != 0.0;
    f16 by into_f16: value => value.to_f32(), value, bf16::from_f32(value.to_f32()), value.to_f32() != 0.0;
    bf16 by into_bf16: value => value.to_f32(), f16::from_f32(value.to_f32()), value, value.to_f32() != 0.0;
    bool by into_bool: value => u8::from(value), if value { f16::ONE } else { f16::ZERO },
        if value { bf16::ONE } else { bf16::ZERO }, value;
}
