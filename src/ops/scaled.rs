//! Products of arrays and numbers of the program.
//!
//! A number of the program, such as a factor or a decay, is an `f64`. It is never rounded to the
//! type of a narrow array, where it may be 0 or infinite. Code that multiplies by such a number
//! calls a function of this file.

use super::{narrowed, widened};
use crate::array::{AnyElement, Array, DType, Float};
use crate::error::Result;

/// Returns `x` times `factor`. It is computed in the accumulation type, or in `f64` if `factor` is
/// out of the range of that type, and rounded once.
#[track_caller]
pub(crate) fn scaled<T: Float>(x: &Array<T>, factor: f64) -> Result<Array<T>> {
    match Width::of::<T>(factor) {
        Width::Own => (x * <T as AnyElement>::from_f64(factor)).eval_unfused(),
        Width::Accumulation => scaled_in::<T, T::Computed, T>(x, factor),
        Width::Double => scaled_in::<T, f64, T>(x, factor),
    }
}

/// Like [`scaled`], but not rounded to the type of `x`.
#[track_caller]
pub(crate) fn scaled_wide<T: Float>(x: &Array<T>, factor: f64) -> Result<Array<T::Computed>> {
    match Width::of::<T>(factor) {
        Width::Double => scaled_in::<T, f64, T::Computed>(x, factor),
        _ => scaled_in::<T, T::Computed, T::Computed>(x, factor),
    }
}

/// Computes the product in `A`, and rounds it to `R`.
#[track_caller]
fn scaled_in<T: Float, A: Float, R: Float>(x: &Array<T>, factor: f64) -> Result<Array<R>> {
    narrowed(&(widened::<T, A>(x) * <A as AnyElement>::from_f64(factor)).boxed())
}

/// Adds `x` times `factor` to `own`, in place, computed like [`scaled`].
#[track_caller]
pub(crate) fn add_scaled<T: Float>(own: &mut Array<T>, x: &Array<T>, factor: f64) -> Result<()> {
    match Width::of::<T>(factor) {
        Width::Own => {
            let factor = <T as AnyElement>::from_f64(factor);
            own.update(|own| own + x * factor)
        }
        Width::Accumulation => add_scaled_in::<T, T::Computed>(own, x, factor),
        Width::Double => add_scaled_in::<T, f64>(own, x, factor),
    }
}

#[track_caller]
fn add_scaled_in<T: Float, A: Float>(own: &mut Array<T>, x: &Array<T>, factor: f64) -> Result<()> {
    let factor = <A as AnyElement>::from_f64(factor);
    own.update(|own| (own.cast::<A>() + x.cast::<A>() * factor).cast::<T>())
}

/// The type in which elements of a type are multiplied by a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    /// The type of the elements, which is their accumulation type.
    Own,
    /// The accumulation type of narrow elements.
    Accumulation,
    /// `f64`, for a factor that the accumulation type rounds to 0, to infinity or to few digits.
    Double,
}

impl Width {
    fn of<T: Float>(factor: f64) -> Self {
        let computed = <T::Computed as AnyElement>::DTYPE;
        match T::DTYPE == computed {
            _ if computed != DType::F64 && !fits(factor) => Self::Double,
            true => Self::Own,
            false => Self::Accumulation,
        }
    }
}

/// Returns true if `f32` has all of its digits for `factor`, or exactly this number.
fn fits(factor: f64) -> bool {
    let rounded = factor as f32;
    rounded.is_normal() || f64::from(rounded).to_bits() == factor.to_bits() || factor.is_nan()
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    #[test]
    fn factors_out_of_range_are_multiplied_in_f64() {
        for (factor, narrow, single) in [
            (0.0, Width::Accumulation, Width::Own),
            (1e-30, Width::Accumulation, Width::Own),
            (1e6, Width::Accumulation, Width::Own),
            (f64::INFINITY, Width::Accumulation, Width::Own),
            (f64::NAN, Width::Accumulation, Width::Own),
            (f64::powi(2.0, -127), Width::Accumulation, Width::Own),
            (1e-43, Width::Double, Width::Double),
            (1e-300, Width::Double, Width::Double),
            (1e39, Width::Double, Width::Double),
        ] {
            assert_eq!(Width::of::<f16>(factor), narrow, "{factor}");
            assert_eq!(Width::of::<bf16>(factor), narrow, "{factor}");
            assert_eq!(Width::of::<f32>(factor), single, "{factor}");
            assert_eq!(Width::of::<f64>(factor), Width::Own, "{factor}");
        }
    }
}
