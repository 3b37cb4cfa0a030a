//! The types that an array can hold.
//!
//! Architecture invariant: the traits are sealed, so a kernel is written for a closed set of types,
//! and every one of them is plain bytes without padding.

use std::fmt::{Debug, Display};
use std::ops::{BitAnd, BitOr, BitXor, Neg, Not};

use half::{bf16, f16};
use num_traits::{Bounded, FloatConst, NumOps};

use super::dtype::DType;
use super::scalar::{Arithmetic, Convert, Ordered, Powers, Real};

/// A type that an array can hold: `f32`, `f64`, `f16`, `bf16`, the integers of 8 to 64 bits that
/// GPUs compute with, and `bool`.
///
/// # Examples
///
/// ```
/// use cachescope::Element;
///
/// fn describe<T: Element>() -> String {
///     format!("{} of {} bytes, {} to {}", T::NAME, size_of::<T>(), T::zero(), T::one())
/// }
/// assert_eq!(describe::<i16>(), "i16 of 2 bytes, 0 to 1");
/// assert_eq!(describe::<bool>(), "bool of 1 bytes, false to true");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no element type",
    label = "no array holds this",
    note = "arrays hold `f32`, `f64`, `f16`, `bf16`, `bool` and integers of 8 to 64 bits"
)]
pub trait Element:
    sealed::Plain
    + Convert
    + Ordered
    + Copy
    + Default
    + PartialEq
    + PartialOrd
    + Debug
    + Display
    + Send
    + Sync
    + 'static
{
    /// The type of sums: `i64` for signed integers and `bool`, `u64` for unsigned ones, else the
    /// type itself.
    type Sum: Numeric;

    /// The type of means: `f64` for integers and `bool`, else the type itself.
    type Mean: Float;

    /// What sums and functions of this type are computed in: `f32` for `f16` and `bf16`, else the
    /// type of sums.
    #[doc(hidden)]
    type Accumulator: Numeric + Powers;

    /// The type's name as Rust spells it.
    const NAME: &'static str;

    /// The type as a value.
    #[doc(hidden)]
    const DTYPE: DType;

    /// Zero, or `false`.
    fn zero() -> Self;

    /// One, or `true`.
    fn one() -> Self;

    /// The value nearest to `value`, converted as Rust's `as` does; for `bool`, whether it is not
    /// zero.
    fn from_f64(value: f64) -> Self;

    /// The value as an `f64`, rounded where a 64-bit integer has more digits.
    fn to_f64(self) -> f64;
}

/// An element that arithmetic works on: every one but `bool`.
///
/// Beside these bounds every numeric type has `num_traits::{Num, NumCast}`, and every [`Float`] has
/// `num_traits::Float`; generic code that needs more of single values adds them. (They are no
/// supertraits, because `zero`, `one`, `to_f64` and `epsilon` would then be ambiguous.) Operators on
/// single values are Rust's: only those of arrays wrap.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, Numeric, Result};
/// use num_traits::NumCast;
///
/// /// The middle of the type's upper half.
/// fn three_quarters<T: Numeric>() -> T {
///     let quarter = T::max_value() / (T::one() + T::one() + T::one() + T::one());
///     T::max_value() - quarter
/// }
/// fn scaled<T: Numeric + NumCast>(x: &Array<T>, factor: i32) -> Result<Array<T>> {
///     let factor: T = NumCast::from(factor).unwrap_or(T::max_value());
///     (x * factor).eval()
/// }
/// assert_eq!(three_quarters::<u8>(), 192);
/// assert_eq!(scaled(&Array::from_slice(&[1u8, 2], 2)?, 3)?.to_vec()?, [3, 6]);
/// # Ok::<(), cachescope::Error>(())
/// ```
pub trait Numeric: Element + Arithmetic + NumOps + Bounded + sealed::Progression {}

/// An integer element: of 8 to 64 bits, signed or not.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, Integer, Result};
///
/// fn evens<T: Integer>(count: T) -> Result<Vec<T>> {
///     Array::arange(T::zero(), count, T::from_f64(2.0))?.to_vec()
/// }
/// assert_eq!(evens(5u8)?, [0, 2, 4]);
/// # Ok::<(), cachescope::Error>(())
/// ```
pub trait Integer: Numeric + Eq + Ord + sealed::Whole {}

/// An element of which single bits can be combined: an integer or `bool`.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, Bitwise, Result};
///
/// fn common<T: Bitwise>(a: &Array<T>, b: &Array<T>) -> Result<Array<T>> {
///     a.and(b).eval()
/// }
/// let a = Array::from_slice(&[0b1100, 0b1010], 2)?;
/// assert_eq!(common(&a, &a.flip(0)?)?.to_vec()?, [0b1000, 0b1000]);
/// # Ok::<(), cachescope::Error>(())
/// ```
pub trait Bitwise:
    Element + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> + Not<Output = Self>
{
}

impl Bitwise for bool {}

/// A floating-point element: `f32`, `f64`, `f16` or `bf16`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no floating-point type",
    label = "this is for floats, and not for `{Self}`",
    note = "integers are converted: call `.cast::<f32>()`"
)]
pub trait Float:
    Numeric<Sum = Self, Mean = Self, Accumulator: Real>
    + Neg<Output = Self>
    + FloatConst
    + sealed::Ranked
{
    /// The binary digits of the significand, the hidden one included.
    const MANTISSA_DIGITS: u32;

    /// The distance from one to the next larger value.
    fn epsilon() -> Self;
}

pub(crate) mod sealed {
    pub(crate) use crate::array::storage::plain::Plain;

    /// Whole numbers modulo a power of two.
    pub trait Whole: Sized {
        /// How far `high` is above `low`; `None` where it is not above.
        fn distance(low: Self, high: Self) -> Option<u64>;

        /// The number that stands `steps` higher, around the end of the type where it comes to that.
        fn higher(self, steps: u64) -> Self;

        /// `self << count`, of the count's lowest bits.
        fn shifted_left(self, count: Self) -> Self;

        /// `self >> count`, of the count's lowest bits.
        fn shifted_right(self, count: Self) -> Self;

        /// `self << places`; 0 where there are not so many.
        fn left_shift(self, places: Self) -> Self;

        /// `self >> places`, with the sign; nothing but the sign where there are not so many.
        fn right_shift(self, places: Self) -> Self;

        /// The whole part of the power, modulo the type's range.
        fn power(self, exponent: Self) -> Self;
    }

    /// Values of which each has a next one.
    pub trait Ranked {
        /// The value's position in the order of its type: neighbours differ by one, both zeros are at 0. Of a
        /// NaN it is unspecified.
        fn ordinal(self) -> i64;
    }

    /// Values in equal steps.
    pub trait Progression: Sized {
        /// How many of `start`, `start + step`, … come before `stop`, `usize::MAX` standing for
        /// more; `None` where the step is zero or not a number.
        fn count(start: Self, stop: Self, step: Self) -> Option<usize>;

        /// `start + index * step`, which must come before the `stop` that `index` was counted to.
        fn nth(start: Self, step: Self, index: usize) -> Self;
    }
}

macro_rules! element {
    ($($type:ident $dtype:ident: $from:expr, $to:expr, $zero:expr, $one:expr, $sum:ty, $accumulator:ty, $mean:ty;)+) => {
        $(
            impl Element for $type {
                type Sum = $sum;
                type Accumulator = $accumulator;
                type Mean = $mean;

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
    ($($type:ident $dtype:ident = $zero:literal, $one:literal, $sum:ty, $mean:ty;)+) => {
        element! {
            $($type $dtype: |value| value as $type, |value| value as f64, $zero, $one, $sum, $sum, $mean;)+
        }
    };
}

primitive! {
    f32 F32 = 0.0, 1.0, f32, f32;
    f64 F64 = 0.0, 1.0, f64, f64;
    i8 I8 = 0, 1, i64, f64;
    i16 I16 = 0, 1, i64, f64;
    i32 I32 = 0, 1, i64, f64;
    i64 I64 = 0, 1, i64, f64;
    u8 U8 = 0, 1, u64, f64;
    u16 U16 = 0, 1, u64, f64;
    u32 U32 = 0, 1, u64, f64;
    u64 U64 = 0, 1, u64, f64;
}

element! {
    f16 F16: f16::convert_from, f16::into_f64, f16::ZERO, f16::ONE, f16, f32, f16;
    bf16 Bf16: bf16::convert_from, bf16::into_f64, bf16::ZERO, bf16::ONE, bf16, f32, bf16;
    bool Bool: |value| value != 0.0, |value: bool| f64::from(u8::from(value)), false, true, i64, i64, f64;
}

macro_rules! number {
    ($($type:ident)+) => {
        $(
            impl Numeric for $type {}
        )+
    };
}

number!(f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64);

macro_rules! integer {
    ($($type:ident)+) => {
        $(
            impl Integer for $type {}

            impl Bitwise for $type {}

            #[allow(clippy::cast_lossless, reason = "`From` does not exist for every type")]
            impl sealed::Whole for $type {
                #[inline]
                fn distance(low: Self, high: Self) -> Option<u64> {
                    let steps = u64::try_from(i128::from(high) - i128::from(low));
                    steps.ok().filter(|&steps| steps > 0)
                }

                #[inline(always)]
                fn higher(self, steps: u64) -> Self {
                    self.wrapping_add(steps as $type)
                }

                #[inline(always)]
                #[allow(clippy::cast_lossless, reason = "with loss for some of the types")]
                fn shifted_left(self, count: Self) -> Self {
                    self.wrapping_shl(count as u32)
                }

                #[inline(always)]
                #[allow(clippy::cast_lossless, reason = "with loss for some of the types")]
                fn shifted_right(self, count: Self) -> Self {
                    self.wrapping_shr(count as u32)
                }

                #[inline(always)]
                #[allow(clippy::cast_lossless, reason = "with loss for some of the types")]
                fn left_shift(self, places: Self) -> Self {
                    // A negative number is a large one here.
                    if (places as u64) < $type::BITS as u64 {
                        self.wrapping_shl(places as u32)
                    } else {
                        0
                    }
                }

                #[inline(always)]
                #[allow(clippy::cast_lossless, reason = "with loss for some of the types")]
                fn right_shift(self, places: Self) -> Self {
                    let most = $type::BITS as u64 - 1;
                    let shifted = self.wrapping_shr((places as u64).min(most) as u32);
                    // The last place of a signed number is its sign; what has none has nothing above.
                    if $type::MIN == 0 && places as u64 > most { 0 } else { shifted }
                }

                #[inline(always)]
                #[allow(unused_comparisons, reason = "half of the types have no sign")]
                #[allow(clippy::cast_lossless, reason = "`From` does not exist for every type")]
                fn power(self, exponent: Self) -> Self {
                    if exponent < 0 {
                        let is_unit = self == 1 || self.wrapping_add(1) == 0;
                        return if !is_unit {
                            0
                        } else if exponent & 1 == 0 {
                            1
                        } else {
                            self
                        };
                    }
                    let (mut rest, mut square, mut product) = (exponent, self, 1 as $type);
                    while rest != 0 {
                        product = product.wrapping_mul(if rest & 1 == 0 { 1 } else { square });
                        square = square.wrapping_mul(square);
                        rest >>= 1;
                    }
                    product
                }
            }

            impl sealed::Progression for $type {
                fn count(start: Self, stop: Self, step: Self) -> Option<usize> {
                    // Wide enough for the distance of any two 64-bit integers.
                    let (span, step) = (i128::from(stop) - i128::from(start), i128::from(step));
                    if step == 0 {
                        return None;
                    }
                    if span.signum() != step.signum() {
                        return Some(0);
                    }
                    let count = span.unsigned_abs().div_ceil(step.unsigned_abs());
                    Some(usize::try_from(count).unwrap_or(usize::MAX))
                }

                #[inline]
                fn nth(start: Self, step: Self, index: usize) -> Self {
                    // Every intermediate is exact modulo the type's range, which the result is in.
                    start.wrapping_add((index as $type).wrapping_mul(step))
                }
            }
        )+
    };
}

integer!(i8 i16 i32 i64 u8 u16 u32 u64);

macro_rules! float {
    ($($type:ident as $bits:ident: $digits:expr, $epsilon:expr;)+) => {
        $(
            impl sealed::Ranked for $type {
                #[inline]
                #[allow(clippy::cast_lossless, reason = "`From` does not exist for every type")]
                fn ordinal(self) -> i64 {
                    let bits = self.to_bits() as $bits;
                    // Magnitudes count downwards from the negative zero.
                    (if bits < 0 { $bits::MIN.wrapping_sub(bits) } else { bits }) as i64
                }
            }

            impl Float for $type {
                const MANTISSA_DIGITS: u32 = $digits;

                #[inline]
                fn epsilon() -> Self {
                    $epsilon
                }
            }

            impl sealed::Progression for $type {
                fn count(start: Self, stop: Self, step: Self) -> Option<usize> {
                    let steps = (stop.to_f64() - start.to_f64()) / step.to_f64();
                    // An `as` conversion takes what is below 0 to 0 and what is too large to MAX.
                    (step.to_f64() != 0.0 && !steps.is_nan()).then_some(steps.ceil() as usize)
                }

                #[inline]
                fn nth(start: Self, step: Self, index: usize) -> Self {
                    Self::from_f64(start.to_f64() + index as f64 * step.to_f64())
                }
            }
        )+
    };
}

float! {
    f32 as i32: f32::MANTISSA_DIGITS, f32::EPSILON;
    f64 as i64: f64::MANTISSA_DIGITS, f64::EPSILON;
    f16 as i16: f16::MANTISSA_DIGITS, f16::EPSILON;
    bf16 as i16: bf16::MANTISSA_DIGITS, bf16::EPSILON;
}
