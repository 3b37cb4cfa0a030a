//! The table of element types. A row has a type, and the types of its sums and computations.

use half::{bf16, f16};
use num_complex::Complex;

use super::scalar::Convert;
use super::{AnyElement, Bitwise, Element, Number, Numeric};
use crate::DType;
use crate::element::plain::{Bits, bits_of};

macro_rules! element {
    ($($type:ident $dtype:ident: $from:expr, $to:expr, $zero:expr, $one:expr, $sum:ty, $accumulator:ty, $mean:ty, $wide:ty;)+) => {
        $(
            impl AnyElement for $type {
                type Total = $sum;
                type Wide = $wide;
                type Accumulator = $accumulator;
                type Average = $mean;

                const NAME: &'static str = DType::$dtype.name();
                const DTYPE: DType = DType::$dtype;

                #[inline]
                fn zero() -> Self {
                    $zero
                }

                #[inline]
                fn one() -> Self {
                    $one
                }

                #[inline]
                fn from_f64(value: f64) -> Self {
                    $from(value)
                }

                #[inline]
                #[allow(clippy::cast_lossless, reason = "`From` does not exist for every type")]
                fn to_f64(self) -> f64 {
                    $to(self)
                }
            }
        )+
    };
}

macro_rules! primitive {
    ($($type:ident $dtype:ident = $zero:literal, $one:literal, $sum:ty, $mean:ty, $wide:ty;)+) => {
        element! {
            $($type $dtype: |value| value as $type, |value| value as f64, $zero, $one, $sum, $sum, $mean, $wide;)+
        }
    };
}

primitive! {
    f32 F32 = 0.0, 1.0, f32, f32, f64;
    f64 F64 = 0.0, 1.0, f64, f64, f64;
    i8 I8 = 0, 1, i64, f64, i64;
    i16 I16 = 0, 1, i64, f64, i64;
    i32 I32 = 0, 1, i64, f64, i64;
    i64 I64 = 0, 1, i64, f64, i64;
    u8 U8 = 0, 1, u64, f64, u64;
    u16 U16 = 0, 1, u64, f64, u64;
    u32 U32 = 0, 1, u64, f64, u64;
    u64 U64 = 0, 1, u64, f64, u64;
}

element! {
    f16 F16: f16::convert_from, f16::into_f64, f16::ZERO, f16::ONE, f16, f32, f16, f64;
    bf16 Bf16: bf16::convert_from, bf16::into_f64, bf16::ZERO, bf16::ONE, bf16, f32, bf16, f64;
    bool Bool: |value| value != 0.0, |value: bool| f64::from(u8::from(value)), false, true, i64, i64, f64, i64;
}

macro_rules! number {
    ($($type:ident)+) => {
        $(
            impl Element for $type {
                type Sum = <Self as AnyElement>::Total;
                type Mean = <Self as AnyElement>::Average;
            }

            impl Number for $type {
                type Part = Self;
            }

            impl Numeric for $type {}
        )+
    };
}

number!(f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64);

impl Bitwise for bool {}

impl Element for bool {
    type Sum = i64;
    type Mean = f64;
}

macro_rules! complex {
    ($($part:ident $dtype:ident;)+) => {
        $(
            impl AnyElement for Complex<$part> {
                type Total = Self;
                type Wide = Complex<f64>;
                type Accumulator = Self;
                type Average = Self;

                const NAME: &'static str = DType::$dtype.name();
                const DTYPE: DType = DType::$dtype;

                #[inline]
                fn zero() -> Self {
                    Self::ZERO
                }

                #[inline]
                fn one() -> Self {
                    Self::ONE
                }

                #[inline]
                fn from_f64(value: f64) -> Self {
                    Self::new($part::from_f64(value), 0.0)
                }

                #[inline]
                fn to_f64(self) -> f64 {
                    self.re.to_f64()
                }
            }

            impl Number for Complex<$part> {
                type Part = $part;
            }
        )+
    };
}

complex! {
    f32 C32;
    f64 C64;
}

macro_rules! numbers {
    ($($dtype:ident $type:ty;)+) => {
        /// Returns the bytes of the element of `dtype` that is nearest to `value`.
        pub fn bits_of_number(dtype: DType, value: f64) -> Bits {
            match dtype {
                $(DType::$dtype => bits_of(<$type as AnyElement>::from_f64(value)),)+
            }
        }
    };
}

numbers! {
    F32 f32;
    F64 f64;
    F16 f16;
    Bf16 bf16;
    I8 i8;
    I16 i16;
    I32 i32;
    I64 i64;
    U8 u8;
    U16 u16;
    U32 u32;
    U64 u64;
    Bool bool;
    C32 Complex<f32>;
    C64 Complex<f64>;
}
