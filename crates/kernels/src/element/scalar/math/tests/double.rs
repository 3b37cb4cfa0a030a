//! Tests of `f64` functions against the standard library, and against values that are exact in all
//! digits.

use super::{Careful, Fast, in_all_passes, unit};
use crate::element::scalar::math;

/// Returns the distance of `actual` from `exact`, in units in the last place.
fn ulps(actual: f64, exact: f64) -> f64 {
    if actual == exact || (actual.is_nan() && exact.is_nan()) {
        return 0.0;
    }
    (actual - exact).abs() / unit(exact, 52, -1022)
}

/// Returns arguments of all magnitudes up to `limit`. Half of the arguments are near 1.
fn arguments(limit: f64) -> impl Iterator<Item = f64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    })
    .take(60_000)
    .enumerate()
    .map(move |(index, bits)| {
        let unit = (bits >> 11) as f64 / (1_u64 << 53) as f64;
        let sign = if bits & 1 == 0 { 1.0 } else { -1.0 };
        let size = match index % 4 {
            0 => limit * unit,
            1 => f64::from_bits(bits >> 1),
            2 => 2.0 * unit,
            _ => 1.0 + 0.01 * unit,
        };
        sign * size
    })
}

/// Compares each function of one argument with the standard library. The bounds include the
/// standard library's error. The macro is a callback of `functions!`.
macro_rules! compare {
    ($pass:ident $(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident $arguments:tt $kind:ident $(as $aliases:tt)? { $($body:tt)+ }
    )+) => {
        $(compare! { @row $kind $name $arguments $($body)+ })+
    };
    (
        @row float $name:ident ($x:ident)
        host: $single:expr, $double:expr; $(rare: $from:literal;)? cuda: $cuda:literal;
        example: $element:ident $($operand:tt),+ => $output:tt;
        exact: $exact:expr; ulps: f32 $ulps:literal, f64 $bound:literal up to $limit:literal, $($others:tt)+
    ) => {
        #[test]
        fn $name() {
            for $x in arguments($limit) {
                let exact: f64 = $exact;
                let (careful, fast, _) = in_all_passes!($name, $x);
                for (value, same) in careful.into_iter().zip(fast) {
                    let off = ulps(value, exact);
                    assert!(off <= $bound, "{}({:e}) = {value:e}, {off} ulp off", stringify!($name), $x);
                    assert!(value.to_bits() == same.to_bits() || (value.is_nan() && same.is_nan()));
                }
            }
        }
    };
    (@row $kind:ident $name:ident $($rest:tt)+) => {};
}

functions! { compare }

/// The expected values were computed with 90 digits. The standard library's forms of these
/// functions are less exact.
#[test]
#[expect(clippy::approx_constant, reason = "values like any others")]
fn values_known_to_all_digits() {
    macro_rules! check {
        ($($name:ident within $bound:literal: $(($x:expr, $exact:expr))+;)+) => {
            $($(
                let (careful, ..) = in_all_passes!($name, $x);
                for value in careful {
                    let off = ulps(value, $exact);
                    assert!(off <= $bound, "{}({:e}) = {value:e}, {off} ulp off", stringify!($name), $x);
                }
            )+)+
        };
    }
    check! {
        exp within 1.5:
            (0.1, 1.105_170_918_075_647_7) (1.0, 2.718_281_828_459_045)
            (-30.25, 7.287_724_095_819_692e-14) (709.5, 1.354_986_319_314_632_8e308)
            (-744.0, 1e-323);
        exp_m1 within 2.0:
            (1e-9, 1.000_000_000_500_000_1e-9) (0.3, 0.349_858_807_576_003_1)
            (-0.7, -0.503_414_696_208_590_5) (-20.0, -0.999_999_997_938_846_4)
            (700.0, 1.014_232_054_735_004_5e304);
        ln within 1.5:
            (1e-310, -713.801_378_828_154_2) (0.999_999, -1.000_000_500_029_089e-6)
            (1.000_000_1, 9.999_999_505_838_704e-8) (3.0, 1.098_612_288_668_109_8)
            (1e300, 690.775_527_898_213_7);
        log1p within 2.0:
            (1e-12, 9.999_999_999_995e-13) (-0.5, -0.693_147_180_559_945_3)
            (0.4, 0.336_472_236_621_212_95) (1e-300, 1e-300)
            (-0.999_999_9, -16.118_095_651_484_676);
        sin within 1.0:
            (91.106_186_954_104, -1.237_961_273_176_715_4e-18) (3.0, 0.141_120_008_059_867_2)
            (3.141_592_653_589_793, 1.224_646_799_147_353_2e-16) (355.0, -3.014_435_335_948_845e-5)
            (1e-8, 1e-8) (710.0, 6.028_870_669_158_526_5e-5)
            (103_993.0, -1.912_933_577_842_375_2e-5) (799_999.0, -0.959_733_318_536_612_5);
        cos within 1.0:
            (45.553_093_477_052, -6.189_806_365_883_577e-19)
            (1.570_796_326_794_896_6, 6.123_233_995_736_766e-17) (3.0, -0.989_992_496_600_445_4)
            (11.0, 0.004_425_697_988_050_785) (799_999.5, 0.706_644_769_254_422_2)
            (52_174.0, 5.507_508_792_203_807e-6);
        tan within 2.5:
            (45.553_093_477_052, -1.615_559_422_846_748_2e18) (0.5, 0.546_302_489_843_790_5)
            (1.570_796_326_794_896_6, 1.633_123_935_319_537e16) (22.0, 0.008_851_656_041_684_46)
            (103_993.0, -1.912_933_578_192_376_3e-5) (-2.0, 2.185_039_863_261_519);
        asinh within 2.0:
            (1e-5, 9.999_999_999_833_334e-6) (0.3, 0.295_673_047_563_422_44)
            (-2.0, -1.443_635_475_178_810_3) (1_000_000_000.0, 21.416_413_017_506_358)
            (1e200, 461.210_165_779_369_1);
        acosh within 2.5:
            (1.000_000_000_1, 1.414_213_620_867_586_2e-5) (1.3, 0.756_432_910_856_959_6)
            (10.0, 2.993_222_846_126_381) (1_000_000_000.0, 21.416_413_017_506_358)
            (1e200, 461.210_165_779_369_1);
        atanh within 2.0:
            (1e-9, 1e-9) (0.3, 0.309_519_604_203_111_7) (-0.6, -0.693_147_180_559_945_3)
            (0.999_999_9, 8.405_621_391_022_31);
        erf within 1.0:
            (1e-10, 1.128_379_167_095_512_6e-10) (0.3, 0.328_626_759_459_127_4)
            (-1.2, -0.910_313_978_229_635_3) (3.5, 0.999_999_256_901_627_6);
        gelu within 4.0:
            (1e-5, 5.000_039_894_228_039_6e-6) (-0.001, -0.000_499_601_057_786_089)
            (-1.0, -0.158_655_253_931_457_05) (2.5, 2.484_475_836_685_559_7)
            (-9.0, -1.015_729_565_358_456_6e-18) (-30.0, -1.472_014_178_144_456e-196)
            (-37.0, -2.118_461_352_334_093_5e-298);
        silu within 3.0:
            (1e-5, 5.000_025_000_000_000_5e-6) (-0.5, -0.188_770_334_399_072_73)
            (3.0, 2.857_722_380_467_299_8) (-40.0, -1.699_341_702_116_635_5e-16)
            (-700.0, -6.901_773_580_631_84e-302) (-744.0, -5.706e-321);
    }
}
