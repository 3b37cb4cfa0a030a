//! Linear interpolation: one function for every operation that interpolates.
//!
//! Rule: a neighbour of weight 0 is ignored, even if it is infinite or NaN. The result is computed
//! in the accumulation type or a wider type, and rounded once. If both neighbours are finite, the
//! result is finite. If both neighbours are equal, the result equals them.

use crate::array::{AnyArray, DType};
use crate::error::Result;
use crate::ops::expression::any_lazy::AnyLazy;

/// The indices and the weights of the two neighbours of a position, between which elements are
/// interpolated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Arms {
    /// The nearer element.
    pub(crate) near: usize,
    /// The farther element. If an element is exactly at the position, `far` equals `near`.
    pub(crate) far: usize,
    /// The weight of the farther element, above 0 and at most 1/2.
    pub(crate) share: f64,
}

impl Arms {
    /// Returns the elements beside the position `before + fraction`. The fraction is at least 0 and
    /// below 1.
    pub(crate) fn at(before: usize, fraction: f64) -> Self {
        let (near, far, share) = if fraction > 0.5 {
            (before + 1, before, 1.0 - fraction)
        } else if fraction > 0.0 {
            (before, before + 1, fraction)
        } else {
            (before, before, 0.5)
        };
        Self { near, far, share }
    }
}

/// Returns `near · (1 − share) + far · share`, computed in the type of `share`. The elements and
/// the shares are those that [`Arms`] selects.
///
/// For finite elements, the result is `near + (far − near) · share`. This form is exact for equal
/// elements, and rounds like NumPy's `quantile`. If an element is infinite or the difference
/// overflows, the result is the sum of the two products. The derivatives of both forms are 1 −
/// `share` and `share`.
#[track_caller]
pub(crate) fn interpolated(near: &AnyArray, far: &AnyArray, share: &AnyLazy) -> Result<AnyArray> {
    let (dtype, wide) = (near.dtype, share.dtype());
    let (near_arm, far_arm) = (near.lazy().cast(wide), far.lazy().cast(wide));
    let (near, far, share) = (|| near_arm.clone(), || far_arm.clone(), || share.clone());
    let value = near() + (far() - near()) * share();
    let products = near() * (-share() + 1.0) + far() * share();
    let most = match wide {
        DType::F32 => f32::MAX.into(),
        _ => f64::MAX,
    };
    let is_finite = value.clone().abs().le(AnyLazy::number(wide, most));
    AnyLazy::select(is_finite, value, products)
        .cast(dtype)
        .eval()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_of_weight_0_is_the_other_one() {
        let arms = |near, far, share| Arms { near, far, share };
        assert_eq!(Arms::at(3, 0.0), arms(3, 3, 0.5));
        assert_eq!(Arms::at(3, 0.25), arms(3, 4, 0.25));
        assert_eq!(Arms::at(3, 0.5), arms(3, 4, 0.5));
        assert_eq!(Arms::at(3, 0.75), arms(4, 3, 0.25));
    }
}
