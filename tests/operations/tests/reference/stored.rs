//! The element types of the reference files, and the distance between two elements.

use cachescope::{AnyElement, Complex};
use half::{bf16, f16};

use crate::reference::book::Elements;

/// An element type of the files.
pub(crate) trait Stored: AnyElement {
    /// The name of the type in the files.
    const IN_FILES: &'static str = Self::NAME;

    fn elements(all: &Elements) -> &[Self];

    /// Returns the distance in units in the last place. Between two NaN, and between two zeros, the
    /// distance is 0. Between NaN and a number, and between different values of an exact type, the
    /// distance is `u64::MAX`.
    fn apart(self, other: Self) -> u64;

    /// Returns the absolute difference.
    fn distance(self, other: Self) -> f64 {
        (self.to_f64() - other.to_f64()).abs()
    }

    /// Returns whether the value is negative or the negative zero. For a complex number, tests the
    /// real part.
    fn below_zero(self) -> bool;

    /// Converts a number of a case. For 64-bit integers, the cases only have numbers that `f64`
    /// represents exactly.
    fn of(number: f64) -> Self;
}

macro_rules! exact {
    ($($type:ident)+) => {
        $(
            impl Stored for $type {
                fn elements(all: &Elements) -> &[Self] {
                    &all.$type
                }

                fn apart(self, other: Self) -> u64 {
                    if self == other { 0 } else { u64::MAX }
                }

                fn below_zero(self) -> bool {
                    self < Self::zero()
                }

                fn of(number: f64) -> Self {
                    Self::from_f64(number)
                }
            }
        )+
    };
}

macro_rules! float {
    ($($type:ident $bits:ident;)+) => {
        $(
            impl Stored for $type {
                fn elements(all: &Elements) -> &[Self] {
                    &all.$type
                }

                fn apart(self, other: Self) -> u64 {
                    if self.is_nan() || other.is_nan() {
                        return if self.is_nan() && other.is_nan() { 0 } else { u64::MAX };
                    }
                    // Without the sign bit, the bits of adjacent magnitudes differ by 1.
                    let place = |value: Self| {
                        let magnitude = i128::from(value.to_bits() & ($bits::MAX >> 1));
                        if value.is_sign_negative() { -magnitude } else { magnitude }
                    };
                    (place(self) - place(other)).unsigned_abs() as u64
                }

                fn below_zero(self) -> bool {
                    self.is_sign_negative()
                }

                fn of(number: f64) -> Self {
                    Self::from_f64(number)
                }
            }
        )+
    };
}

exact!(i8 i16 i32 i64 u8 u16 u32 u64 bool);
float! {
    f32 u32;
    f64 u64;
    f16 u16;
    bf16 u16;
}

macro_rules! complex {
    ($($part:ident $name:ident;)+) => {
        $(
            impl Stored for Complex<$part> {
                const IN_FILES: &'static str = stringify!($name);

                fn elements(all: &Elements) -> &[Self] {
                    &all.$name
                }

                fn apart(self, other: Self) -> u64 {
                    self.re.apart(other.re).max(self.im.apart(other.im))
                }

                fn distance(self, other: Self) -> f64 {
                    self.re.distance(other.re).hypot(self.im.distance(other.im))
                }

                fn below_zero(self) -> bool {
                    self.re.is_sign_negative()
                }

                fn of(number: f64) -> Self {
                    Self::from_f64(number)
                }
            }
        )+
    };
}

complex! {
    f32 c32;
    f64 c64;
}
