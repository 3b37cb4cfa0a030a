//! Products of arrays and numbers of the program.
//!
//! A number of the program, such as a factor or a decay, is an `f64`. The number is never rounded
//! to the type of a narrow array, in which it may be 0 or infinite. Code that multiplies by such a
//! number calls a function of this file.

use crate::array::{AnyArray, Array, DType, Float};
use crate::error::Result;

/// Returns `x` times `factor`. The product is computed in the accumulation type. If `factor` is out
/// of the range of this type, the product is computed in `f64`. The product is rounded once.
#[track_caller]
pub(crate) fn scaled<T: Float>(x: &Array<T>, factor: f64) -> Result<Array<T>> {
    product(x.erased(), factor, T::DTYPE).map(Array::from_erased)
}

/// Like [`scaled`], but the product is not rounded to the type of `x`.
#[track_caller]
pub(crate) fn scaled_wide<T: Float>(x: &Array<T>, factor: f64) -> Result<Array<T::Computed>> {
    let wide = T::DTYPE.computed_in();
    product(x.erased(), factor, wide).map(Array::from_erased)
}

#[track_caller]
fn product(x: &AnyArray, factor: f64, dtype: DType) -> Result<AnyArray> {
    let wide = x.lazy().cast(computed_in(x.dtype, factor));
    (wide * factor).cast(dtype).eval()
}

/// Adds `x` times `factor` to `own`, in place. The product and the sum are computed like in
/// [`scaled`].
#[track_caller]
pub(crate) fn add_scaled<T: Float>(own: &mut Array<T>, x: &Array<T>, factor: f64) -> Result<()> {
    let wide = computed_in(T::DTYPE, factor);
    let [sum, x] = [own.erased(), x.erased()].map(|array| array.lazy().cast(wide));
    let sum = (sum + x * factor).cast(T::DTYPE);
    own.erased_mut().assign(&sum)
}

/// Returns the type in which elements of `dtype` are multiplied by `factor`. If their accumulation
/// type rounds `factor` to 0, infinity or few digits, the type is `f64`.
fn computed_in(dtype: DType, factor: f64) -> DType {
    match fits(factor) {
        true => dtype.computed_in(),
        false => DType::F64,
    }
}

/// Returns true if `factor` rounds to a normal `f32`, is exactly an `f32`, or is NaN.
fn fits(factor: f64) -> bool {
    let rounded = factor as f32;
    rounded.is_normal() || f64::from(rounded).to_bits() == factor.to_bits() || factor.is_nan()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_out_of_range_are_multiplied_in_f64() {
        for (factor, single) in [
            (0.0, DType::F32),
            (1e-30, DType::F32),
            (1e6, DType::F32),
            (f64::INFINITY, DType::F32),
            (f64::NAN, DType::F32),
            (f64::powi(2.0, -127), DType::F32),
            (1e-43, DType::F64),
            (1e-300, DType::F64),
            (1e39, DType::F64),
        ] {
            for dtype in [DType::F16, DType::Bf16, DType::F32] {
                assert_eq!(computed_in(dtype, factor), single, "{factor}");
            }
            assert_eq!(computed_in(DType::F64, factor), DType::F64, "{factor}");
        }
    }
}
