//! Normal numbers in `f32` (Box and Muller, 1958), for elements of 24 binary digits or fewer.
//!
//! As in [`normal`](super::normal), every operation has one possible result. The operations are
//! additions, multiplications, square roots, and explicitly fused multiply-adds. No product is an
//! operand of a plain sum, so the compiler contracts no other operation. On a consumer GPU, `f64`
//! would need 32 or 64 times as long.
//!
//! Two quantities are computed as integers, because `f32` would lose their bits. These are the
//! distance of a number to one, and an angle within an eighth of a turn. Therefore all results,
//! including the smallest and the largest, have a relative error below 2^-21. The magnitudes of the
//! results are at most 6.76. The polynomials are from Cephes (Moshier, 1992).

use std::f32::consts::LN_2;

/// Returns two independent standard normal numbers from two random words.
#[inline(always)]
pub(super) fn normals([first, second]: [u32; 2]) -> [f32; 2] {
    let radius = (2.0 * minus_ln(first)).sqrt();
    let (sine, cosine) = turn(second);
    [radius * cosine, radius * sine]
}

/// Returns `-ln((word + 1/2) / 2^32)`.
#[inline(always)]
fn minus_ln(word: u32) -> f32 {
    /// ln 2 minus `LN_2`.
    const LN_2_REST: f32 = -1.904_654_3e-9;
    const POLYNOMIAL: [f32; 9] = [
        7.037_683_6e-2,
        -1.151_461e-1,
        1.167_699_9e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_4e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ];
    // The number is 2^-n (1 + f), where 1 + f is between √½ and √2. For this range, the bits of √½
    // are subtracted before the exponent is read, and added afterwards.
    const ROOT_HALF: u32 = 0x3F35_04F3;
    const ONE: u32 = 0x3F80_0000;
    let shifted = (word as f32 + 0.5).to_bits() + (ONE - ROOT_HALF);
    let n = 127 + 32 - (shifted >> 23) as i32;
    let f = f32::from_bits((shifted & 0x007F_FFFF) + ROOT_HALF) - 1.0;
    // Above √½, f is the negative distance to one. `shifted` has lost the last bits of this
    // distance.
    let is_near = word >= 0xB504_F334;
    let missing = ((!word << 1) | 1) as f32 * 0.5f32.powi(33);
    let (n, f) = if is_near { (0, -missing) } else { (n, f) };
    let n = n as f32;
    let [first, rest @ ..] = POLYNOMIAL;
    let mut sum = first;
    for coefficient in rest {
        sum = sum.mul_add(f, coefficient);
    }
    let square = f * f;
    let beyond = square.mul_add(-0.5, (f * square) * sum);
    n.mul_add(LN_2, -f) + n.mul_add(LN_2_REST, -beyond)
}

/// Returns the sine and the cosine of `(word + 1/2) / 2^32` turns. Neither of them is ever 0.
#[inline(always)]
fn turn(word: u32) -> (f32, f32) {
    const STEP: f32 = (std::f64::consts::PI / (1u64 << 32) as f64) as f32;
    // `quarter` is the index of the nearest quarter turn. `steps` is the distance to it in units of
    // `STEP`, an odd integer.
    let quarter = word.wrapping_add(1 << 29) >> 30;
    let steps = (word.wrapping_sub(quarter << 30) << 1 | 1) as i32;
    let angle = steps as f32 * STEP;
    let square = angle * angle;
    let odd = (-1.951_529_6e-4f32)
        .mul_add(square, 8.332_161e-3)
        .mul_add(square, -1.666_665_5e-1);
    let sine = (angle * square).mul_add(odd, angle);
    let even = 2.443_315_7e-5f32
        .mul_add(square, -1.388_731_6e-3)
        .mul_add(square, 4.166_664_6e-2);
    let cosine = (square * square).mul_add(even, square.mul_add(-0.5, 1.0));
    let (first, second) = if quarter & 1 != 0 {
        (cosine, sine)
    } else {
        (sine, cosine)
    };
    // Bit 1 of a quarter is the sign.
    let signed = |value: f32, quarter: u32| f32::from_bits(value.to_bits() ^ (quarter & 2) << 30);
    (signed(first, quarter), signed(second, quarter + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::PI;

    /// Returns the normal numbers, computed in `f64`. An `f64` represents the words exactly.
    fn exact([first, second]: [u32; 2]) -> [f64; 2] {
        let scale = 0.5f64.powi(32);
        let logarithm = if first >> 31 == 0 {
            ((f64::from(first) + 0.5) * scale).ln()
        } else {
            (-(f64::from(!first) + 0.5) * scale).ln_1p()
        };
        let radius = (-2.0 * logarithm).sqrt();
        let quarter = second.wrapping_add(1 << 29) >> 30;
        let rest = second.wrapping_sub(quarter << 30) as i32;
        let (sine, cosine) = ((f64::from(rest) + 0.5) * (2.0 * PI * scale)).sin_cos();
        let [cosine, sine] = match quarter {
            1 => [-sine, cosine],
            2 => [-cosine, -sine],
            3 => [sine, -cosine],
            _ => [cosine, sine],
        };
        [radius * cosine, radius * sine]
    }

    /// Returns words of all magnitudes. Many of them are near the smallest and largest words, and
    /// near words at which the computation changes.
    fn words() -> impl Iterator<Item = u32> {
        let middles = (0..31).map(|power| 1 << power);
        let bounds = [0, 0xB504_F334, 1 << 31, 3 << 30, 3 << 29, 5 << 29, 7 << 29];
        let near = middles.chain(bounds).flat_map(|word: u32| {
            (0..400).map(move |more| word.wrapping_sub(200).wrapping_add(more))
        });
        near.chain((0..400_000).map(|at: u32| at.wrapping_mul(0x9E37_79B9)))
    }

    #[test]
    fn the_numbers_are_right_to_their_last_digits() {
        let mut worst = 0.0f64;
        for word in words() {
            for pair in [[word, word.rotate_left(16) ^ 0x55], [!word, word]] {
                for (found, expected) in normals(pair).into_iter().zip(exact(pair)) {
                    let error = ((f64::from(found) - expected) / expected).abs();
                    assert!(
                        error < 0.5f64.powi(21),
                        "{pair:x?}: {found}, not {expected}"
                    );
                    worst = worst.max(error);
                }
            }
        }
        // If the errors fall below 2^-23, the bound above should be tightened.
        assert!(worst > 0.5f64.powi(23), "{worst}");
    }

    /// The extreme words return the largest and the smallest radius, in all quarters.
    #[test]
    fn the_tails_end_where_the_words_do() {
        let eighth = (1 << 29) - (1 << 28);
        for (word, radius) in [(0, 6.763_705_6), (1, 6.599_3), (u32::MAX, 1.525_878_9e-5)] {
            for quarter in 0..4u32 {
                let [x, y] = normals([word, (quarter << 30) + eighth]);
                let found = x.hypot(y);
                assert!((found / radius - 1.0).abs() < 1e-5, "{word}: {found}");
                assert_eq!(
                    x < 0.0,
                    quarter == 1 || quarter == 2,
                    "of quarter {quarter}"
                );
                assert_eq!(y < 0.0, quarter >= 2, "of quarter {quarter}");
            }
        }
    }

    /// Every device must return these bits.
    #[test]
    fn the_bits_are_fixed() {
        let bits = |words| normals(words).map(f32::to_bits);
        let found = [
            [0, 0],
            [1 << 31, 1 << 29],
            [0xB504_F334, 0xB504_F333],
            [u32::MAX; 2],
        ];
        assert_eq!(found.map(bits), BITS);
    }

    const BITS: [[u32; 2]; 4] = [
        [0x40D8_7047, 0x31A9_FD8F],
        [0x3F55_224C, 0x3F55_224B],
        [0xBE62_FE06, 0xBF4D_70BD],
        [0x3780_0000, 0xA849_0FDB],
    ];
}
