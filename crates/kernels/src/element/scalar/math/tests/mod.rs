//! Tests of the functions: errors in units in the last place, special values, and equal bits in all
//! passes.
//!
//! The sweeps test one `f32` in every `STRIDE`. With `--ignored`, they test every `f32`, which
//! needs minutes.

mod double;
mod powers;
mod single;
mod special;

use crate::element::scalar::pass::{Careful, Fast};

/// The distance between the bits of tested numbers. The distance is prime, so that all last digits
/// occur.
const STRIDE: usize = 4001;

/// Returns the distance of `actual` from `exact`, in units in the last place of an `f32`.
fn ulps(actual: f32, exact: f64) -> f64 {
    let nearest = exact as f32;
    if actual.is_nan() || exact.is_nan() || nearest.is_infinite() || actual.is_infinite() {
        let same = actual == nearest || (actual.is_nan() && exact.is_nan());
        // The unit in the last place of `f32::MAX` is 2^104.
        let edge = f64::from(f32::MAX) + 2f64.powi(104);
        let near = actual.is_infinite() && exact.abs() < edge && exact.abs() > f64::from(f32::MAX);
        return if same {
            0.0
        } else if near {
            1.0
        } else {
            f64::INFINITY
        };
    }
    (f64::from(actual) - exact).abs() / unit(exact, 23, -126)
}

/// Returns the unit in the last place of a number with `digits` binary digits after the first
/// digit.
fn unit(exact: f64, digits: i32, least_exponent: i32) -> f64 {
    let exponent = ((exact.abs().to_bits() >> 52) as i32 - 1023).max(least_exponent);
    let place = exponent - digits;
    // If the unit is subnormal, it is constructed from its bits.
    if place < -1022 {
        f64::from_bits(1 << (place + 1074))
    } else {
        2f64.powi(place)
    }
}

/// Evaluates a function in the careful pass, with and without a fused multiply-add. If no argument
/// is rare, also evaluates the function in the fast pass, with and without a fused multiply-add.
macro_rules! in_all_passes {
    ($name:ident, $($x:expr),+) => {{
        let (mut fused, mut plain) = (Fast::<true>::default(), Fast::<false>::default());
        let careful = [
            math::$name(&mut Careful::<true>, $($x),+),
            math::$name(&mut Careful::<false>, $($x),+),
        ];
        let fast = [math::$name(&mut fused, $($x),+), math::$name(&mut plain, $($x),+)];
        let rare = fused.met_rare() || plain.met_rare();
        (careful, if rare { careful } else { fast }, rare)
    }};
}

use in_all_passes;
