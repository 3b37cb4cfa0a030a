//! Source text that is concatenated when the user's crate is compiled.

use crate::element::plain::{Bits, bits_of};
use crate::{AnyElement, DType};

/// Returns the total length of `parts` in bytes.
pub const fn length(parts: &[&str]) -> usize {
    let (mut length, mut part) = (0, 0);
    while part < parts.len() {
        length += parts[part].len();
        part += 1;
    }
    length
}

/// Concatenates `parts`. `N` must be their [`length`].
pub const fn joined<const N: usize>(parts: &[&str]) -> [u8; N] {
    let mut bytes = [0; N];
    let (mut at, mut part) = (0, 0);
    while part < parts.len() {
        let from = parts[part].as_bytes();
        let mut index = 0;
        while index < from.len() {
            bytes[at] = from[index];
            at += 1;
            index += 1;
        }
        part += 1;
    }
    bytes
}

/// Returns `bytes` as a string.
pub const fn of(bytes: &'static [u8]) -> &'static str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => panic!("the joined text is not UTF-8"),
    }
}

/// A constant value and its C++ source.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    pub(super) value: (DType, Bits),
    bytes: [u8; Self::MOST],
    length: usize,
}

impl Constant {
    /// A bound on the length of a value's source. The source of an `f64` is
    /// `cs_bits<f64>(0x400921fb54442d18ull)`, for example.
    const MOST: usize = 40;

    const fn and(mut self, text: &str) -> Self {
        let mut index = 0;
        while index < text.len() {
            self.bytes[self.length] = text.as_bytes()[index];
            self.length += 1;
            index += 1;
        }
        self
    }

    /// Appends the lowest `count` hexadecimal digits of `bits`.
    const fn and_digits(mut self, bits: u64, mut count: u32) -> Self {
        while count > 0 {
            count -= 1;
            self.bytes[self.length] = b"0123456789abcdef"[(bits >> (4 * count) & 0xf) as usize];
            self.length += 1;
        }
        self
    }
}

/// Returns `value` and its C++ source. The source has the bits of the value, because a decimal
/// would not guarantee exactness.
pub const fn constant<T: AnyElement>(value: T) -> Constant {
    let own = bits_of(value);
    let bits = own.low();
    let empty = Constant {
        value: (T::DTYPE, own),
        bytes: [0; Constant::MOST],
        length: 0,
    };
    match T::DTYPE {
        DType::Bool if bits == 0 => empty.and("false"),
        DType::Bool => empty.and("true"),
        DType::F16 => empty.and("cs_f16_of_bits(0x").and_digits(bits, 4).and("u)"),
        DType::Bf16 => empty
            .and("cs_bf16_of_bits(0x")
            .and_digits(bits, 4)
            .and("u)"),
        DType::F32 => empty.and("cs_bits<f32>(0x").and_digits(bits, 8).and("u)"),
        DType::F64 => empty
            .and("cs_bits<f64>(0x")
            .and_digits(bits, 16)
            .and("ull)"),
        // The cast wraps. Therefore it converts the unsigned bits of a negative number back to the
        // negative number.
        _ => empty
            .and("cs_cast<")
            .and(T::DTYPE.in_cuda())
            .and(">(0x")
            .and_digits(bits, 2 * size_of::<T>() as u32)
            .and("ull)"),
    }
}

/// Returns the source of `constant`.
pub const fn of_constant(constant: &'static Constant) -> &'static str {
    of(constant.bytes.split_at(constant.length).0)
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::{constant, of_constant};

    macro_rules! texts {
        ($($value:expr),+ $(,)?) => {
            [$(of_constant(&const { constant($value) })),+]
        };
    }

    #[test]
    fn a_constant_is_its_bits() {
        let texts = texts![
            std::f32::consts::PI,
            -0.0_f32,
            f32::NAN,
            std::f64::consts::PI,
            f64::NEG_INFINITY,
            f16::PI,
            bf16::NEG_ONE,
            f16::MIN_POSITIVE_SUBNORMAL,
        ];
        let expected = [
            "cs_bits<f32>(0x40490fdbu)",
            "cs_bits<f32>(0x80000000u)",
            "cs_bits<f32>(0x7fc00000u)",
            "cs_bits<f64>(0x400921fb54442d18ull)",
            "cs_bits<f64>(0xfff0000000000000ull)",
            "cs_f16_of_bits(0x4248u)",
            "cs_bf16_of_bits(0xbf80u)",
            "cs_f16_of_bits(0x0001u)",
        ];
        assert_eq!(texts, expected);
        let texts = texts![
            -7_i8,
            i16::MAX,
            -1_i32,
            i64::MIN,
            255_u8,
            0_u16,
            u32::MAX,
            u64::MAX
        ];
        let expected = [
            "cs_cast<i8>(0xf9ull)",
            "cs_cast<i16>(0x7fffull)",
            "cs_cast<i32>(0xffffffffull)",
            "cs_cast<i64>(0x8000000000000000ull)",
            "cs_cast<u8>(0xffull)",
            "cs_cast<u16>(0x0000ull)",
            "cs_cast<u32>(0xffffffffull)",
            "cs_cast<u64>(0xffffffffffffffffull)",
        ];
        assert_eq!(texts, expected);
        assert_eq!(texts![true, false], ["true", "false"]);
    }
}
