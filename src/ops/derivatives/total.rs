//! Sums over several arrays.

use crate::array::{AnyArray, Array, DType};
use crate::context::scope::enter_uncached;
use crate::error::Result;

/// A sum over arrays in `f64`, on the device of the first one.
#[derive(Default)]
pub(crate) struct Total(Option<Array<f64>>);

impl Total {
    /// Adds a sum of rank 0.
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

    /// Adds the sum of the squares of the elements.
    #[track_caller]
    pub(crate) fn add_squares(&mut self, array: &AnyArray) -> Result<()> {
        let sum = array.lazy().cast(DType::F64).square().sum()?;
        self.add(Array::from_erased(sum))
    }

    /// Returns the sum, an array of rank 0.
    #[track_caller]
    pub(crate) fn into_array(self) -> Result<Array<f64>> {
        match self.0 {
            Some(total) => Ok(total),
            None => Array::zeros([]),
        }
    }

    /// Returns the square root of the sum, outside of every cache: an optimizer may keep it.
    #[track_caller]
    pub(crate) fn root(self) -> Result<Array<f64>> {
        let _outside = enter_uncached();
        self.into_array()?.sqrt().eval_unfused()
    }

    /// Reads the sum.
    #[track_caller]
    pub(crate) fn item(&self) -> Result<f64> {
        match &self.0 {
            Some(total) => total.item(),
            None => Ok(0.0),
        }
    }

    /// Returns true if the sum is on a device without data.
    pub(crate) fn is_unknown(&self) -> bool {
        let total = self.0.as_ref();
        total.is_some_and(|total| total.device().backend().is_meta())
    }
}
