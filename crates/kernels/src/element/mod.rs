//! The types that an array can hold.
//!
//! Architecture invariant: the traits are sealed, so the set of types that kernels support is
//! closed. Every type is plain bytes without padding.

mod floats;
mod integers;
pub mod plain;
mod progression;
pub mod scalar;
mod tables;

use std::fmt::{Debug, Display};
use std::ops::{BitAnd, BitOr, BitXor, Neg, Not};

use num_traits::{Bounded, FloatConst, NumOps};

use self::scalar::{Arithmetic, Convert, Powers, Real, Signed, SortKey};
pub use self::tables::bits_of_number;
use crate::DType;

/// Any type that an array can hold: an [`Element`], `Complex<f32>` or `Complex<f64>`.
///
/// # Examples
///
/// ```
/// use cachescope_kernels::{AnyElement, Complex};
///
/// fn describe<T: AnyElement>() -> String {
///     format!("{} of {} bytes, {} to {}", T::NAME, size_of::<T>(), T::zero(), T::one())
/// }
/// assert_eq!(describe::<i16>(), "i16 of 2 bytes, 0 to 1");
/// assert_eq!(describe::<bool>(), "bool of 1 bytes, false to true");
/// assert_eq!(describe::<Complex<f32>>(), "Complex<f32> of 8 bytes, 0+0i to 1+0i");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an element type",
    label = "arrays cannot contain this type",
    note = "the element types are `f32`, `f64`, `f16`, `bf16`, `bool`, integers of 8 to 64 bits, \
            `Complex<f32>` and `Complex<f64>`"
)]
pub trait AnyElement:
    private::Sealed
    + sealed::Plain
    + Convert
    + Copy
    + Default
    + PartialEq
    + Debug
    + Display
    + Send
    + Sync
    + 'static
{
    /// The type of sums: `i64` for signed integers and `bool`, `u64` for unsigned integers, and
    /// `Self` for other types.
    type Total: Number;

    /// The type of means: `f64` for integers and `bool`, and `Self` for other types.
    type Average: Number;

    /// The type in which sums and functions are computed: `f32` for `f16` and `bf16`, and the type
    /// of sums for other types.
    #[doc(hidden)]
    type Accumulator: Number;

    /// The type of running sums and products: `f64` for floats, `Complex<f64>` for complex numbers,
    /// and the type of sums for other types.
    #[doc(hidden)]
    type Wide: Number;

    /// The Rust name of the type.
    const NAME: &'static str;

    /// The type as a value.
    #[doc(hidden)]
    const DTYPE: DType;

    /// Returns zero, or `false`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope_kernels::AnyElement;
    ///
    /// assert_eq!((f32::zero(), bool::zero()), (0.0, false));
    /// ```
    fn zero() -> Self;

    /// Returns one, or `true`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope_kernels::AnyElement;
    ///
    /// assert_eq!((u8::one(), bool::one()), (1, true));
    /// ```
    fn one() -> Self;

    /// Converts `value` like Rust's `as`. For `bool`, returns whether `value` is not zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope_kernels::AnyElement;
    ///
    /// assert_eq!((i32::from_f64(-2.7), u8::from_f64(300.0)), (-2, 255));
    /// assert!(bool::from_f64(0.5));
    /// ```
    fn from_f64(value: f64) -> Self;

    /// Returns the value as an `f64`. A 64-bit integer with more digits than an `f64` is rounded.
    /// For a complex number, returns the real part.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope_kernels::{AnyElement, Complex};
    ///
    /// assert_eq!((true.to_f64(), (-3_i8).to_f64()), (1.0, -3.0));
    /// assert_eq!(Complex::new(1.5_f32, 2.0).to_f64(), 1.5);
    /// ```
    fn to_f64(self) -> f64;
}

/// An element with an order: `f32`, `f64`, `f16`, `bf16`, the integers of 8 to 64 bits, and `bool`.
/// There are no wider integers, because GPUs do not compute with them. Complex numbers implement
/// only [`AnyElement`], because no order is compatible with their arithmetic.
///
/// # Examples
///
/// ```
/// use cachescope_kernels::Element;
///
/// fn range<T: Element>(values: &[T]) -> Option<(T, T)> {
///     let least = |a, b| if b < a { b } else { a };
///     let largest = |a, b| if b > a { b } else { a };
///     let values = values.iter().copied();
///     Some((values.clone().reduce(least)?, values.reduce(largest)?))
/// }
/// assert_eq!(range(&[3, 1, 2]), Some((1, 3)));
/// ```
///
/// ```compile_fail,E0277
/// use cachescope_kernels::{Complex, Element};
///
/// fn largest<T: Element>(values: &[T]) {}
/// largest(&[Complex::new(0.0_f32, 1.0)]); // error: complex numbers have no order
/// ```
#[diagnostic::on_unimplemented(
    message = "elements of `{Self}` have no order",
    label = "expected elements with an order, found `{Self}`",
    note = "to compare complex numbers, call `.abs()`, `.re()` or `.im()` first"
)]
pub trait Element:
    AnyElement<Total = <Self as Element>::Sum, Average = <Self as Element>::Mean> + SortKey + PartialOrd
{
    /// The type of sums; see [`AnyElement::Total`].
    type Sum: Numeric;

    /// The type of means; see [`AnyElement::Average`].
    type Mean: Float;
}

/// An element that can be added and multiplied, real or complex: every element type except `bool`.
///
/// # Examples
///
/// ```
/// use cachescope_kernels::{Complex, Number};
///
/// fn square<T: Number>(x: T) -> T {
///     x * x
/// }
/// assert_eq!(square(3), 9);
/// assert_eq!(square(Complex::new(0.0, 1.0)), -Complex::ONE);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a number type",
    label = "expected a number type, found `{Self}`",
    note = "to convert truth values, call `.cast::<i32>()`"
)]
pub trait Number: AnyElement + Arithmetic<Real = <Self as Number>::Part> + NumOps {
    /// The type of real parts and absolute values: `f32` or `f64` for complex numbers, and `Self`
    /// for other types.
    type Part: Numeric;
}

/// A real number: every element type except `bool` and the complex numbers. [`Number`] also
/// includes complex numbers.
///
/// Every numeric type also implements `num_traits::{Num, NumCast}`, and every [`Float`] implements
/// `num_traits::Float`. Generic code that needs more operations on single values adds these bounds.
/// (The traits of `num_traits` are not supertraits, because they would make `zero`, `one`, `to_f64`
/// and `epsilon` ambiguous.) Operators on single values have Rust's semantics. Only operators on
/// arrays wrap around.
///
/// # Examples
///
/// ```
/// use cachescope_kernels::Numeric;
/// use num_traits::NumCast;
///
/// /// The middle of the type's upper half.
/// fn three_quarters<T: Numeric>() -> T {
///     let quarter = T::max_value() / (T::one() + T::one() + T::one() + T::one());
///     T::max_value() - quarter
/// }
/// fn scaled<T: Numeric + NumCast>(x: T, factor: i32) -> T {
///     x * NumCast::from(factor).unwrap_or(T::max_value())
/// }
/// assert_eq!(three_quarters::<u8>(), 192);
/// assert_eq!(scaled(2u8, 3), 6);
/// ```
pub trait Numeric:
    Number<Part = Self, Accumulator: Powers> + Element + Signed + Bounded + sealed::Progression
{
}

/// An integer element of 8 to 64 bits, signed or unsigned.
///
/// # Examples
///
/// ```
/// use cachescope_kernels::Integer;
///
/// fn is_even<T: Integer>(x: T) -> bool {
///     x % T::from_f64(2.0) == T::zero()
/// }
/// assert!(is_even(4u8) && !is_even(-3_i64));
/// ```
pub trait Integer: Numeric + Eq + Ord + sealed::Whole {}

/// An element whose bits can be combined: an integer or `bool`.
///
/// # Examples
///
/// ```
/// use cachescope_kernels::Bitwise;
///
/// fn without<T: Bitwise>(a: T, mask: T) -> T {
///     a & !mask
/// }
/// assert_eq!(without(0b1110, 0b0100), 0b1010);
/// assert!(without(true, false));
/// ```
pub trait Bitwise:
    Element + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> + Not<Output = Self>
{
}

/// A floating-point element: `f32`, `f64`, `f16` or `bf16`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a floating-point type",
    label = "expected a floating-point type, found `{Self}`",
    note = "to convert integers, call `.cast::<f32>()`"
)]
pub trait Float:
    Numeric<Sum = Self, Mean = Self, Accumulator = <Self as Float>::Computed>
    + Neg<Output = Self>
    + FloatConst
    + sealed::Ranked
{
    /// The accumulation type: `f32` for `f16` and `bf16`, and `Self` for other types. Functions of
    /// elements are computed in the accumulation type, and states of optimizers are stored in it.
    type Computed: Float + Real;

    /// The number of binary digits of the significand, including the hidden digit.
    const MANTISSA_DIGITS: u32;

    /// Returns the distance from one to the next larger value.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope_kernels::Float;
    ///
    /// assert_eq!(<f32 as Float>::epsilon(), f32::EPSILON);
    /// ```
    fn epsilon() -> Self;
}

#[doc(hidden)]
pub mod sealed {
    pub use crate::element::plain::Plain;

    /// Whole numbers modulo a power of two.
    pub trait Whole: Sized {
        /// Returns `high - low`, or `None` if `high` is not greater than `low`.
        fn distance(low: Self, high: Self) -> Option<u64>;

        /// Returns the number that is `steps` higher, wrapping around at the end of the type.
        fn higher(self, steps: u64) -> Self;

        /// Returns `self << count`. `count` is reduced modulo the number of bits.
        fn shifted_left(self, count: Self) -> Self;

        /// Returns `self >> count`. `count` is reduced modulo the number of bits.
        fn shifted_right(self, count: Self) -> Self;

        /// Returns `self << places`. If `places` is negative or at least the number of bits,
        /// returns 0.
        fn left_shift(self, places: Self) -> Self;

        /// Returns `self >> places`, with the sign extended. If `places` is negative or at least
        /// the number of bits, returns −1 for a negative `self`, otherwise 0.
        fn right_shift(self, places: Self) -> Self;

        /// Returns the integer part of the power, modulo the type's range.
        fn power(self, exponent: Self) -> Self;
    }

    /// Values with an ordinal in the order of their type.
    pub trait Ranked {
        /// Returns the value's ordinal in the order of its type. The ordinals of neighbours differ
        /// by one, and both zeros have ordinal 0. The ordinal of a NaN is unspecified.
        fn ordinal(self) -> i64;
    }

    /// Values of an arithmetic progression.
    pub trait Progression: Sized {
        /// The start and the step, in the form that [`nth`](Self::nth) computes values from.
        type Steps: Copy;

        /// Returns the steps, and the number of values `start`, `start + step`, … before `stop`.
        /// The number is at most `usize::MAX`. If the step is zero or NaN, or a bound is not
        /// finite, returns `None`.
        fn steps(start: Self, stop: Self, step: Self) -> Option<(Self::Steps, usize)>;

        /// Returns `start + index * step`. The index must be below the number of values.
        fn nth(steps: &Self::Steps, index: usize) -> Self;
    }
}

mod private {
    use half::{bf16, f16};
    use num_complex::Complex;

    /// The seal of [`AnyElement`](super::AnyElement). Only this crate implements the seal, so each
    /// [`DType`](crate::DType) has exactly one Rust type.
    pub trait Sealed {}

    macro_rules! seal {
        ($($type:ty)+) => { $(impl Sealed for $type {})+ };
    }

    seal!(f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool Complex<f32> Complex<f64>);
}
