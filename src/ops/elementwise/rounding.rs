//! Rounding to whole numbers; the results keep their type, and −0 its sign.

use crate::array::scalar::math;
use crate::ops::declare::unary;

unary! {
    /// The largest whole number that is not above each element.
    floor Floor float |lane, x| math::floor(lane, x), "floor(a)", f32 [1.5, -1.5] => [1.0, -2.0];

    /// The smallest whole number that is not below each element.
    ceil Ceil float |lane, x| math::ceil(lane, x), "ceil(a)", f32 [1.5, -1.5] => [2.0, -1.0];

    /// The whole number nearest to each element, halves to the even one, as NumPy's `round`; Rust's
    /// rounds them away from 0.
    round Round float |lane, x| math::round(lane, x), "rint(a)", f32 [2.5, -1.5] => [2.0, -2.0];

    /// The whole part of each element.
    trunc Trunc float |lane, x| math::trunc(lane, x), "trunc(a)", f32 [1.5, -1.5] => [1.0, -1.0];
}
