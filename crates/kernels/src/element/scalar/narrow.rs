//! The conversions between `f32`, `f16` and `bf16`, by arithmetic on bits.
//!
//! The conversions of the `half` crate detect the processor's features for every element, so loops
//! over them do not vectorise. The conversions here return the same bits. Architecture invariant:
//! no function here branches.

use half::{bf16, f16};

/// The bits of the exponent of infinity and NaN in an `f16`, shifted to the exponent of an `f32`.
const F16_INFINITE: u32 = 0x7c00 << 13;
/// The bit that makes a NaN quiet.
const QUIET: u32 = 1 << 22;

/// Returns the value as an `f32`, without rounding.
#[inline(always)]
pub(in crate::element::scalar) fn f16_to_f32(value: f16) -> f32 {
    const REBIASED: u32 = (127 - 15) << 23;
    /// The lowest bit of the exponent. Smaller magnitudes are subnormal, without an implicit
    /// leading one.
    const ONE: u32 = 1 << 23;
    let bits = u32::from(value.to_bits());
    let size = (bits & 0x7fff) << 13;
    let normal = size + REBIASED;
    let infinite = (normal + REBIASED) | if size > F16_INFINITE { QUIET } else { 0 };
    let subnormal = f32::from_bits(normal + ONE) - f32::from_bits(REBIASED + ONE);
    let wide = if size < ONE {
        subnormal.to_bits()
    } else {
        normal
    };
    let wide = if size >= F16_INFINITE { infinite } else { wide };
    f32::from_bits(wide | ((bits & 0x8000) << 16))
}

/// Returns the nearest `f16`. Ties round to even.
#[inline(always)]
pub(in crate::element::scalar) fn f32_to_f16(value: f32) -> f16 {
    const INFINITY: u32 = f32::INFINITY.to_bits();
    /// 2^16, which exceeds all numbers that are rounded to a finite value.
    const TOO_LARGE: u32 = (127 + 16) << 23;
    /// 2^−14, the least normal value.
    const LEAST_NORMAL: u32 = (127 - 14) << 23;
    /// A number whose last bit has the value of the least positive `f16`.
    const ALIGNED: u32 = (127 - 1) << 23;
    let bits = value.to_bits();
    let size = bits & 0x7fff_ffff;
    let odd = (size >> 13) & 1;
    let normal = size
        .wrapping_sub((127 - 15) << 23)
        .wrapping_add(0xfff + odd)
        >> 13;
    let aligned = f32::from_bits(size) + f32::from_bits(ALIGNED);
    let subnormal = aligned.to_bits().wrapping_sub(ALIGNED);
    let nan = 0x7e00 | ((size >> 13) & 0x03ff);
    let narrow = if size < LEAST_NORMAL {
        subnormal
    } else {
        normal
    };
    let narrow = if size >= TOO_LARGE { 0x7c00 } else { narrow };
    let narrow = if size > INFINITY { nan } else { narrow };
    f16::from_bits((narrow | ((bits >> 16) & 0x8000)) as u16)
}

/// Returns the value as an `f32`, without rounding.
#[inline(always)]
pub(in crate::element::scalar) fn bf16_to_f32(value: bf16) -> f32 {
    let wide = u32::from(value.to_bits()) << 16;
    let quiet = if wide & 0x7fff_ffff > f32::INFINITY.to_bits() {
        QUIET
    } else {
        0
    };
    f32::from_bits(wide | quiet)
}

/// Returns the nearest `bf16`. Ties round to even.
#[inline(always)]
pub(in crate::element::scalar) fn f32_to_bf16(value: f32) -> bf16 {
    let bits = value.to_bits();
    let odd = (bits >> 16) & 1;
    let rounded = bits.wrapping_add(0x7fff + odd);
    let nan = bits & 0x7fff_ffff > f32::INFINITY.to_bits();
    bf16::from_bits((if nan { bits | QUIET } else { rounded } >> 16) as u16)
}

/// Returns the value as an `f32`. An inexact value is rounded to the neighbour whose last bit is 1
/// (round to odd). A further rounding to half the bits or fewer then equals a single rounding of
/// the value (Boldo and Melquiond, 2008).
#[inline(always)]
pub(in crate::element::scalar) fn f64_to_odd_f32(value: f64) -> f32 {
    let near = value as f32;
    let back = f64::from(near);
    let beyond = back.abs() > value.abs();
    let inside = near.to_bits().wrapping_sub(u32::from(beyond));
    // All comparisons with NaN are false, so NaN counts as exact.
    let inexact = beyond | (back.abs() < value.abs());
    f32::from_bits(inside | u32::from(inexact))
}

/// Returns `value` if it is below 2^48. Otherwise, clears the lowest 16 bits. If any of the cleared
/// bits was set, sets the bit above them. An `f64` represents the result exactly. A rounding of the
/// result to 24 bits or fewer equals the rounding of `value`.
#[inline(always)]
pub(in crate::element::scalar) fn sticky(value: u64) -> u64 {
    let lost = u64::from(value & 0xffff != 0) << 16;
    let short = (value & !0xffff) | lost;
    if value < 1 << 48 { value } else { short }
}
