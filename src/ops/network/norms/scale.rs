//! The factors by which normalizations multiply rows.
//!
//! On the host, rows whose squares leave the range of the type are first scaled by a power of two.
//! Other rows are computed once, without scaling.

use crate::array::{AnyArray, DType};
use crate::error::Result;
use crate::ops::expression::any_lazy::AnyLazy;

/// Returns 1 / √(`variance` + `epsilon`), in the type of the variance.
pub(crate) fn scale_of(variance: &AnyLazy, epsilon: f64) -> AnyLazy {
    let dtype = variance.dtype();
    // The sum may be out of the range of `f32`, although its root is not.
    let wide = match epsilon > LARGE_EPSILON {
        true => DType::F64,
        false => dtype,
    };
    let sum = variance.clone().cast(wide) + epsilon_in(wide, epsilon);
    sum.rsqrt().cast(dtype)
}

/// The maximum epsilon with which no sum of `f32` rounds to infinity.
const LARGE_EPSILON: f64 = 1e30;

/// Returns the epsilon of a normalization that is computed in `dtype`: at least the smallest normal
/// number if `epsilon` is positive, and otherwise 0.
fn epsilon_in(dtype: DType, epsilon: f64) -> f64 {
    let least = match dtype {
        DType::F64 => f64::MIN_POSITIVE,
        _ => f32::MIN_POSITIVE.into(),
    };
    match epsilon > 0.0 {
        true => epsilon.max(least),
        false => 0.0,
    }
}

/// Returns the mean of each row, and the factor that `layer_norm` multiplies the row by.
#[track_caller]
pub(super) fn centre_and_scale(wide: &AnyLazy, epsilon: f64) -> Result<(AnyArray, AnyArray)> {
    let variance = wide.var_keepdims(-1)?;
    let mean = wide.mean_keepdims(-1)?;
    let least = least_variance(wide.dtype(), epsilon);
    let lowest = match wide.dtype() {
        DType::F64 => f64::MIN,
        _ => f32::MIN.into(),
    };
    let is_in_range = !variance.leaves_range(least..f64::INFINITY)?
        && !mean.leaves_range(lowest..f64::INFINITY)?;
    if is_in_range {
        return Ok((mean, scale_of(&variance.lazy(), epsilon).eval()?));
    }
    let scales = variance.range_scales(least, Some(&mean))?;
    let scaled = wide.clone() * scales.lazy();
    let again = scaled.var_keepdims(-1)?;
    let means = scaled.mean_keepdims(-1)?.lazy() / scales.lazy();
    let is_found = scales.lazy().eq(AnyLazy::number(wide.dtype(), 1.0));
    let mean = AnyLazy::select(is_found, mean.lazy(), means).eval()?;
    Ok((mean, scale_in_range([variance, again], &scales, epsilon)?))
}

/// Returns the factor that `rms_norm` multiplies each row by.
#[track_caller]
pub(super) fn root_mean_square_scale(wide: &AnyLazy, epsilon: f64) -> Result<AnyArray> {
    let squares = wide.clone().square().mean_keepdims(-1)?;
    scale_of_squares(wide, (squares, &[-1]), epsilon)?.eval()
}

/// Returns 1 / √(`squares` + `epsilon`). `squares` are the means of the squares of `x` along
/// `axes`. `range_scales` needs no means of `x`, because they are not larger than the roots of
/// `squares`.
#[track_caller]
pub(crate) fn scale_of_squares(
    x: &AnyLazy,
    (squares, axes): (AnyArray, &[isize]),
    epsilon: f64,
) -> Result<AnyLazy> {
    let least = least_variance(x.dtype(), epsilon);
    if !squares.leaves_range(least..f64::INFINITY)? {
        return Ok(scale_of(&squares.lazy(), epsilon));
    }
    let scales = squares.range_scales(least, None)?;
    let again = (x.clone() * scales.lazy()).square().mean_keepdims(axes)?;
    Ok(scale_in_range([squares, again], &scales, epsilon)?.lazy())
}

/// Returns the variance below which squares lose digits, or 0 if such squares are far below
/// `epsilon`.
fn least_variance(dtype: DType, epsilon: f64) -> f64 {
    let (least, precision) = match dtype {
        DType::F64 => (2.0_f64.powi(-960), 2.0_f64.powi(60)),
        _ => (2.0_f64.powi(-96), 2.0_f64.powi(30)),
    };
    match epsilon < least * precision {
        true => least,
        false => 0.0,
    }
}

/// Returns the factors of rows. `variance` has the variances of the rows, and `scaled` the
/// variances of the rows times `scales`. If the scale of a row is 1, `variance` is used.
#[track_caller]
fn scale_in_range(
    [variance, scaled]: [AnyArray; 2],
    scales: &AnyArray,
    epsilon: f64,
) -> Result<AnyArray> {
    let dtype = variance.dtype;
    let scales = scales.lazy();
    let wide = scales.clone().cast(DType::F64);
    let least = AnyLazy::number(
        DType::F64,
        epsilon_in(DType::F64, epsilon).min(f64::MIN_POSITIVE),
    );
    let epsilons = (wide.clone() * epsilon * wide.clone()).maximum(least);
    let factor = (scaled.lazy().cast(DType::F64) + epsilons).rsqrt() * wide;
    // If epsilon is positive, the factor is limited to a finite number. For a constant row, 0 times
    // an infinite factor would be NaN.
    let most = match (epsilon > 0.0, dtype) {
        (true, DType::F64) => f64::MAX,
        (true, _) => f32::MAX.into(),
        (false, _) => f64::INFINITY,
    };
    let factor = factor.minimum(AnyLazy::number(DType::F64, most));
    let is_found = scales.eq(AnyLazy::number(dtype, 1.0));
    AnyLazy::select(
        is_found,
        scale_of(&variance.lazy(), epsilon),
        factor.cast(dtype),
    )
    .eval()
}

/// Returns whether the squares of factors are far inside of the range of the type.
#[track_caller]
pub(super) fn is_square_in_range(scale: &AnyArray) -> Result<bool> {
    let most = match scale.dtype {
        DType::F64 => 2.0_f64.powi(300),
        _ => 2.0_f64.powi(30),
    };
    scale.leaves_range(most.recip()..most).map(|leaves| !leaves)
}
