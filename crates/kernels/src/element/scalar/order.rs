//! The order of elements, as unsigned sort keys.

use half::{bf16, f16};

/// The total order of NumPy's sort: NaN is last, and both zeros are equal.
pub trait SortKey: Copy {
    /// The unsigned integer type with the size of the value.
    type Key: RadixDigits + Into<u64>;

    /// Returns the sort key. The keys have the order of the values.
    fn key(self) -> Self::Key;

    /// Returns the value whose sort key is `key`.
    fn from_key(key: Self::Key) -> Self;

    /// Returns whether the conversion to a key and [back](Self::from_key) changes the bits of the
    /// value. This is the case for −0 and NaN.
    fn is_merged(self) -> bool;
}

/// An unsigned integer that a radix sort divides into digits.
pub trait RadixDigits: Copy + Ord + 'static {
    /// Returns the number with the bits below `shift` cleared.
    fn without_below(self, shift: u32) -> Self;

    /// Returns `(self − least) >> shift`.
    fn digits(self, least: Self, shift: u32) -> usize;

    /// Returns the number of significant bits of `self − least`.
    fn bits_above(self, least: Self) -> u32;
}

macro_rules! digits {
    ($($type:ident)+) => {
        $(
            impl RadixDigits for $type {
                #[inline(always)]
                fn without_below(self, shift: u32) -> Self {
                    self >> shift << shift
                }

                #[inline(always)]
                fn digits(self, least: Self, shift: u32) -> usize {
                    (self.wrapping_sub(least) >> shift) as usize
                }

                #[inline(always)]
                fn bits_above(self, least: Self) -> u32 {
                    $type::BITS - self.wrapping_sub(least).leading_zeros()
                }
            }
        )+
    };
}

digits!(u8 u16 u32 u64 u128);

macro_rules! exact {
    ($($type:ident as $key:ident: |$value:ident| $to:expr, |$number:ident| $from:expr;)+) => {
        $(
            impl SortKey for $type {
                type Key = $key;

                #[inline(always)]
                fn key(self) -> $key {
                    let $value = self;
                    $to
                }

                #[inline(always)]
                fn from_key($number: $key) -> Self {
                    $from
                }

                #[inline(always)]
                fn is_merged(self) -> bool {
                    false
                }
            }
        )+
    };
}

// The sign bit is flipped, so that negative numbers precede positive numbers.
exact! {
    bool as u8: |value| u8::from(value), |key| key != 0;
    u8 as u8: |value| value, |key| key;
    u16 as u16: |value| value, |key| key;
    u32 as u32: |value| value, |key| key;
    u64 as u64: |value| value, |key| key;
    i8 as u8: |value| value as u8 ^ (1 << 7), |key| (key ^ (1 << 7)) as i8;
    i16 as u16: |value| value as u16 ^ (1 << 15), |key| (key ^ (1 << 15)) as i16;
    i32 as u32: |value| value as u32 ^ (1 << 31), |key| (key ^ (1 << 31)) as i32;
    i64 as u64: |value| value as u64 ^ (1 << 63), |key| (key ^ (1 << 63)) as i64;
}

macro_rules! floats {
    ($($type:ident as $key:ident;)+) => {
        $(
            impl SortKey for $type {
                type Key = $key;

                // Magnitudes rise with their bits, so the bits of negative values are flipped. The
                // function has no branches, because the signs of values cannot be predicted.
                #[inline(always)]
                fn key(self) -> $key {
                    const SIGN: $key = 1 << ($key::BITS - 1);
                    let bits = self.to_bits();
                    let is_negative = $key::from(bits > SIGN);
                    let flipped = bits ^ is_negative.wrapping_neg();
                    let ordered = flipped | (1 - is_negative) << ($key::BITS - 1);
                    let is_nan = $key::from(bits & !SIGN > $type::INFINITY.to_bits());
                    ordered | is_nan.wrapping_neg()
                }

                #[inline(always)]
                fn from_key(key: $key) -> Self {
                    const SIGN: $key = 1 << ($key::BITS - 1);
                    $type::from_bits(if key < SIGN { !key } else { key & !SIGN })
                }

                #[inline(always)]
                fn is_merged(self) -> bool {
                    const SIGN: $key = 1 << ($key::BITS - 1);
                    let bits = self.to_bits();
                    bits == SIGN || bits & !SIGN > $type::INFINITY.to_bits()
                }
            }
        )+
    };
}

floats! {
    f32 as u32;
    f64 as u64;
    f16 as u16;
    bf16 as u16;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the keys of the ascending `values` ascend, and that each key converts back to
    /// its value.
    fn check<T: SortKey + PartialEq + std::fmt::Debug>(values: &[T]) {
        assert!(values.is_sorted_by(|one, next| one.key() < next.key()));
        for &value in values {
            assert!(!value.is_merged());
            assert_eq!(T::from_key(value.key()), value);
        }
    }

    #[test]
    fn keys_rise_with_values() {
        check(&[false, true]);
        check(&[i8::MIN, -1, 0, 1, i8::MAX]);
        check(&[i16::MIN, -1, 0, 1, i16::MAX]);
        check(&[i32::MIN, -1, 0, 1, i32::MAX]);
        check(&[i64::MIN, -1, 0, 1, i64::MAX]);
        check(&[0, 1, u64::MAX]);
        let tiny = f32::from_bits(1);
        check(&[
            f32::NEG_INFINITY,
            f32::MIN,
            -1.0,
            -tiny,
            0.0,
            tiny,
            1.5,
            f32::MAX,
            f32::INFINITY,
        ]);
        check(&[
            f64::NEG_INFINITY,
            -2.0,
            -1.0,
            0.0,
            1.0,
            f64::MAX,
            f64::INFINITY,
        ]);
        check(&[-1.0, 0.0, 0.5, 1.0].map(f16::from_f32));
        check(&[-1.0, 0.0, 0.5, 1.0].map(bf16::from_f32));
    }

    #[test]
    fn zeros_are_equal_and_every_nan_is_last() {
        assert_eq!((-0.0f32).key(), 0.0f32.key());
        assert!((-0.0f32).is_merged());
        for nan in [
            f32::NAN,
            -f32::NAN,
            f32::from_bits(0xff80_0001),
            f32::from_bits(u32::MAX),
        ] {
            assert!(nan.is_merged() && nan.key() > f32::INFINITY.key());
            assert_eq!(nan.key(), f32::NAN.key());
        }
        assert_eq!(f16::NEG_ZERO.key(), f16::ZERO.key());
        assert!((-bf16::NAN).key() > bf16::INFINITY.key());
    }
}
