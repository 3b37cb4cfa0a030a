//! Tests of each `f32` function of one argument, against the function in `f64`.

use super::{Careful, Fast, STRIDE, in_all_passes, ulps};
use crate::element::scalar::math;

/// Special arguments, which a sweep with a stride may miss.
const SPECIAL: [f32; 14] = [
    0.0,
    1.0,
    0.5,
    2.0,
    3.0,
    8.0,
    27.0,
    1e-45,
    f32::MIN_POSITIVE,
    f32::EPSILON,
    16_777_216.0,
    f32::MAX,
    f32::INFINITY,
    f32::NAN,
];

fn arguments(stride: usize) -> impl Iterator<Item = f32> {
    let special = SPECIAL.into_iter().flat_map(|x| [x, -x]);
    let others = (0..=u32::MAX).step_by(stride).map(f32::from_bits);
    special.chain(others)
}

/// Declares a sweep for each function of one argument. The macro is a callback of `functions!`.
macro_rules! sweeps {
    ($pass:ident $(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident $arguments:tt $kind:ident $(as $aliases:tt)? { $($body:tt)+ }
    )+) => {
        $(sweeps! { @row $kind $name $arguments $($body)+ })+
    };
    (
        @row float $name:ident ($x:ident)
        host: $single:expr, $double:expr; $(rare: $limit:literal;)? cuda: $cuda:literal;
        example: $element:ident $($operand:tt),+ => $output:tt;
        exact: $exact:expr; ulps: f32 $bound:literal, $($others:tt)+
    ) => {
        mod $name {
            use super::*;

            fn sweep(stride: usize) {
                for argument in arguments(stride) {
                    let $x = f64::from(argument);
                    let exact: f64 = $exact;
                    let (careful, fast, rare) = in_all_passes!($name, argument);
                    let what = stringify!($name);
                    for (value, same) in careful.into_iter().zip(fast) {
                        let off = ulps(value, exact);
                        assert!(off <= $bound, "{what}({argument:e}) = {value:e}, {off} ulp off");
                        let zero = exact == 0.0 && value == 0.0;
                        assert!(!zero || value.is_sign_negative() == exact.is_sign_negative(),
                            "{what}({argument:e}) = {value:e}");
                        let nan = value.is_nan() && same.is_nan();
                        assert!(nan || value.to_bits() == same.to_bits(),
                            "{what}({argument:e}) is {value:e} and {same:e}");
                    }
                    #[allow(unused_mut, unused_assignments, reason = "few functions have a limit")]
                    let mut may_be_rare = false;
                    $(may_be_rare = argument.abs() >= $limit;)?
                    assert_eq!(rare, may_be_rare, "{what}({argument:e})");
                }
            }

            #[test]
            fn strided() {
                sweep(STRIDE);
            }

            #[test]
            #[ignore = "takes minutes"]
            fn everywhere() {
                sweep(1);
            }
        }
    };
    // The macro declares no sweep for functions of two arguments or of other kinds.
    (@row $kind:ident $name:ident $($rest:tt)+) => {};
}

functions! { sweeps }
