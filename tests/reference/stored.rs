//! How elements of each type are stored, and how far two of them are apart.

use cachescope::Element;
use half::{bf16, f16};

use crate::book::Elements;

/// An element type that the files hold.
pub(crate) trait Stored: Element {
    fn elements(all: &Elements) -> &[Self];

    /// How many units in the last place lie between two values: none between two NaN or two zeros.
    fn apart(self, other: Self) -> u64;

    /// Whether it is less than zero, or the zero that stands below the other.
    fn below_zero(self) -> bool;

    /// A plain number of a case; those of 64-bit integers are small.
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
                    // The bits without the sign count upwards from zero.
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
