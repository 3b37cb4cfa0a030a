//! Normal numbers in `f64` from uniform numbers (Box and Muller, 1958). [`single`](super::single)
//! computes normal numbers of narrower types.
//!
//! All operations in this file are additions, multiplications, divisions and square roots in `f64`.
//! Each is rounded as in IEEE 754, and none is contracted with another. Therefore every processor
//! and every GPU returns equal bits, unlike a library's logarithm and sine. The polynomials are
//! from FDLIBM (Sun Microsystems, 1993). Their error is below one unit in the last place.

use std::f64::consts::FRAC_PI_2;

/// Returns two independent standard normal numbers from two numbers between 0 and 1, excluding 0
/// and 1.
#[inline(always)]
pub(super) fn normals(first: f64, second: f64) -> [f64; 2] {
    let radius = (-2.0 * ln(first)).sqrt();
    let (sine, cosine) = turn(second);
    [radius * cosine, radius * sine]
}

/// Returns the natural logarithm of a positive, normal number.
#[inline(always)]
fn ln(x: f64) -> f64 {
    const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    const POLYNOMIAL: [f64; 7] = [
        6.666_666_666_666_735e-1,
        3.999_999_999_940_942e-1,
        2.857_142_874_366_239e-1,
        2.222_219_843_214_978_4e-1,
        1.818_357_216_161_805e-1,
        1.531_383_769_920_937_3e-1,
        1.479_819_860_511_658_6e-1,
    ];
    // x = 2^k (1 + f), where 1 + f is between √½ and √2. For this range, the bits of √½ are
    // subtracted before the exponent is read, and added afterwards.
    const ROOT_HALF: u64 = 0x3FE6_A09E_667F_3BCD;
    const ONE: u64 = 0x3FF0_0000_0000_0000;
    let shifted = x.to_bits() + (ONE - ROOT_HALF);
    let k = f64::from((shifted >> 52) as i32 - 1023);
    let f = f64::from_bits((shifted & 0x000F_FFFF_FFFF_FFFF) + ROOT_HALF) - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let w = z * z;
    let [p1, p2, p3, p4, p5, p6, p7] = POLYNOMIAL;
    let even = w * (p2 + w * (p4 + w * p6));
    let odd = z * (p1 + w * (p3 + w * (p5 + w * p7)));
    let half_square = 0.5 * f * f;
    let rest = s * (half_square + (odd + even));
    k * LN_2_HIGH - ((half_square - (rest + k * LN_2_LOW)) - f)
}

/// Returns the sine and the cosine of `x` turns, for `x` from 0 to 1.
#[inline(always)]
fn turn(x: f64) -> (f64, f64) {
    const SINE: [f64; 6] = [
        -1.666_666_666_666_663_2e-1,
        8.333_333_333_322_49e-3,
        -1.984_126_982_985_795e-4,
        2.755_731_370_707_006_8e-6,
        -2.505_076_025_340_686_3e-8,
        1.589_690_995_211_55e-10,
    ];
    const COSINE: [f64; 6] = [
        4.166_666_666_666_66e-2,
        -1.388_888_888_887_411e-3,
        2.480_158_728_947_673e-5,
        -2.755_731_435_139_066_3e-7,
        2.087_572_321_298_175e-9,
        -1.135_964_755_778_819_5e-11,
    ];
    // The quarter turns and the distance from the nearest quarter turn are exact.
    let quarters = 4.0 * x;
    let nearest = (quarters + 0.5) as i32;
    let angle = (quarters - f64::from(nearest)) * FRAC_PI_2;
    let z = angle * angle;
    let [s1, s2, s3, s4, s5, s6] = SINE;
    let odd = s2 + z * (s3 + z * (s4 + z * (s5 + z * s6)));
    let sine = angle + angle * z * (s1 + z * odd);
    let [c1, c2, c3, c4, c5, c6] = COSINE;
    let even = z * (c1 + z * (c2 + z * (c3 + z * (c4 + z * (c5 + z * c6)))));
    let half_square = 0.5 * z;
    let most = 1.0 - half_square;
    let cosine = most + (((1.0 - most) - half_square) + z * even);
    let is_odd = nearest & 1 != 0;
    let (first, second) = if is_odd {
        (cosine, sine)
    } else {
        (sine, cosine)
    };
    let sine = if nearest & 2 != 0 { -first } else { first };
    let cosine = if (nearest + 1) & 2 != 0 {
        -second
    } else {
        second
    };
    (sine, cosine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::TAU;

    /// Returns numbers between 0 and 1, including the numbers nearest to 0 and to 1.
    fn arguments() -> impl Iterator<Item = f64> {
        let inner = (0..200_000).map(|at| (f64::from(at) + 0.5) / 200_000.0);
        let small = (1..54).map(|power| 0.5f64.powi(power));
        let large = (1..53).map(|power| 1.0 - 0.5f64.powi(power));
        let eighths = (1..8).map(|at| f64::from(at) / 8.0);
        inner.chain(small).chain(large).chain(eighths)
    }

    #[test]
    fn logarithm_and_turn_are_right() {
        for x in arguments() {
            let (found, expected) = (ln(x), x.ln());
            assert!(
                // The bound is one unit in the last place for each of the two functions.
                (found - expected).abs() <= 2.0 * f64::EPSILON * expected.abs(),
                "ln {x}: {found}, not {expected}"
            );
            let (sine, cosine) = turn(x);
            // The argument of the library's functions is rounded. The functions amplify the
            // rounding error.
            let slack = 1e-15;
            assert!(
                (sine - (TAU * x).sin()).abs() <= slack,
                "sine of {x}: {sine}"
            );
            assert!(
                (cosine - (TAU * x).cos()).abs() <= slack,
                "cosine of {x}: {cosine}"
            );
        }
        assert_eq!(turn(0.25), (1.0, 0.0));
        assert_eq!(turn(0.5), (0.0, -1.0));
        assert_eq!(turn(0.75), (-1.0, 0.0));
    }

    /// Every device must return these bits.
    #[test]
    fn the_bits_are_fixed() {
        let bits = |first, second| normals(first, second).map(f64::to_bits);
        assert_eq!(bits(0.5, 0.125), BITS_OF_HALF);
        assert_eq!(bits(1e-9, 0.7), BITS_OF_SMALL);
    }

    const BITS_OF_HALF: [u64; 2] = [0x3FEA_A449_9161_CD47, 0x3FEA_A449_9161_CD48];
    const BITS_OF_SMALL: [u64; 2] = [0xBFFF_D4A9_F9E7_6615, 0xC018_7DC0_929E_2CAB];
}
