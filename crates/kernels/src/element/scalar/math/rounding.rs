//! Rounding to whole numbers.

use crate::element::scalar::pass::Pass;

macro_rules! rounding {
    ($($type:ident $whole:literal: $round:ident $floor:ident $ceil:ident $trunc:ident;)+) => {
        $(
            /// Rounds to a whole number. Processors with a fused multiply-add also have a rounding
            /// instruction. For other processors, the function adds and subtracts `WHOLE`. From
            /// `WHOLE` on, all numbers are whole, so the addition rounds.
            #[inline(always)]
            pub(in crate::element::scalar::math) fn $round<L: Pass>(_pass: &mut L, x: $type) -> $type {
                const WHOLE: $type = $whole;
                if L::FMA {
                    return x.round_ties_even();
                }
                let size = x.abs();
                let rounded = ((size + WHOLE) - WHOLE).copysign(x);
                if size < WHOLE { rounded } else { x }
            }

            #[inline(always)]
            pub(in crate::element::scalar::math) fn $floor<L: Pass>(pass: &mut L, x: $type) -> $type {
                if L::FMA {
                    return x.floor();
                }
                let near = $round(pass, x);
                let below = if near > x { near - 1.0 } else { near };
                below.copysign(x)
            }

            #[inline(always)]
            pub(in crate::element::scalar::math) fn $ceil<L: Pass>(pass: &mut L, x: $type) -> $type {
                if L::FMA {
                    return x.ceil();
                }
                let near = $round(pass, x);
                let above = if near < x { near + 1.0 } else { near };
                above.copysign(x)
            }

            #[inline(always)]
            pub(in crate::element::scalar::math) fn $trunc<L: Pass>(pass: &mut L, x: $type) -> $type {
                if L::FMA {
                    return x.trunc();
                }
                $floor(pass, x.abs()).copysign(x)
            }
        )+
    };
}

rounding! {
    f32 8_388_608.0: round_f32 floor_f32 ceil_f32 trunc_f32;
    f64 4_503_599_627_370_496.0: round_f64 floor_f64 ceil_f64 trunc_f64;
}
