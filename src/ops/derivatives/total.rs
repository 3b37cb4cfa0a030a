//! Sums and norms over several arrays.

use crate::array::{AnyArray, Array, DType};
use crate::context::scope::enter_uncached;
use crate::error::Result;
use crate::ops::expression::any_lazy::AnyLazy;

/// A sum over arrays in `f64`, on the device of the first array.
#[derive(Default)]
pub(crate) struct Total(Option<Array<f64>>);

impl Total {
    /// Adds `sum`, an array of rank 0.
    #[track_caller]
    pub(crate) fn add(&mut self, sum: Array<f64>) -> Result<()> {
        match &mut self.0 {
            Some(total) => {
                let sum = sum.to_device(total.device())?;
                total.update(|total| total + sum)
            }
            None => {
                self.0 = Some(sum);
                Ok(())
            }
        }
    }

    /// Returns the sum as a number. The sum of no arrays is 0.
    #[track_caller]
    pub(crate) fn item(&self) -> Result<f64> {
        match &self.0 {
            Some(total) => total.item(),
            None => Ok(0.0),
        }
    }
}

/// The Euclidean norm of the elements of all arrays in `f64`, on the device of the first array. If
/// the norm does not overflow, no intermediate result overflows.
#[derive(Default)]
pub(crate) struct GlobalNorm(Option<Array<f64>>);

impl GlobalNorm {
    #[track_caller]
    pub(crate) fn add(&mut self, array: &AnyArray) -> Result<()> {
        let norm = Array::from_erased(array.lazy().cast(DType::F64).norm()?);
        self.0 = Some(match &self.0 {
            Some(total) => {
                let norm = norm.to_device(total.device())?;
                let [total, norm] = [total, &norm].map(|norm| norm.erased().lazy());
                Array::from_erased(hypot(total, norm).eval()?)
            }
            None => norm,
        });
        Ok(())
    }

    /// Returns the norm, an array of rank 0.
    #[track_caller]
    pub(crate) fn into_array(self) -> Result<Array<f64>> {
        match self.0 {
            Some(total) => Ok(total),
            None => Array::zeros([]),
        }
    }

    /// Returns the norm in memory outside all caches, so that an optimizer may store the norm.
    #[track_caller]
    pub(crate) fn into_kept(self) -> Result<Array<f64>> {
        let _outside = enter_uncached();
        let copy = self.into_array()?.erased().lazy().eval()?;
        Ok(Array::from_erased(copy))
    }

    /// Returns the norm as a number. The norm of no arrays is 0.
    #[track_caller]
    pub(crate) fn item(&self) -> Result<f64> {
        match &self.0 {
            Some(total) => total.item(),
            None => Ok(0.0),
        }
    }

    /// Returns whether the norm is on a device without data.
    pub(crate) fn is_unknown(&self) -> bool {
        let total = self.0.as_ref();
        total.is_some_and(|total| total.device().backend().is_meta())
    }
}

/// Returns √(x² + y²) of nonnegative numbers.
fn hypot(x: AnyLazy, y: AnyLazy) -> AnyLazy {
    let [least, most] = [f64::MIN_POSITIVE, f64::MAX].map(|size| AnyLazy::number(DType::F64, size));
    let size = x.clone().maximum(y.clone()).clamp(least, most);
    let squares = (x / size.clone()).square() + (y / size.clone()).square();
    squares.sqrt() * size
}
