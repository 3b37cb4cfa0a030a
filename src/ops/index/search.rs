//! Binary search for the positions of values among sorted elements.

use super::{check_size, invalid};
use crate::array::{AnyArray, Array, DType, Element};
use crate::error::Result;
#[cfg(feature = "cuda")]
use crate::ops::cuda;
use crate::ops::descriptors::Side;
use crate::ops::dispatch::same_device;
use crate::ops::host::{self, SearchLoops, search_loops_of};

impl<T: Element> Array<T> {
    /// Returns the position of each of `values` in this array. The array must have one axis, and be
    /// sorted. The position is the number of elements that are less than the value. The result has
    /// the shape of `values`. This is NumPy's `searchsorted` on the left side.
    ///
    /// The order is the order of [`sort`](Self::sort): NaN is last, and is equal to itself. If the
    /// array is not sorted, the results are unspecified.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let bounds = Array::from_slice(&[10, 20, 20, 30], 4)?;
    /// let values = Array::from_slice(&[5, 20, 25, 99], [2, 2])?;
    /// assert_eq!(bounds.searchsorted(&values)?.to_vec()?, [0, 1, 3, 4]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if this array does not have one axis.
    /// [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch) if the values are on another device.
    /// [`InvalidShape`](crate::ErrorKind::InvalidShape) if the size overflows.
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) if the device has no memory.
    #[track_caller]
    pub fn searchsorted(&self, values: &Self) -> Result<Array<i64>> {
        // Positions have no gradient.
        let [sorted, values] = [self, values].map(|own| own.erased().share().untracked());
        let positions = places_of([&sorted, &values], search_loops_of::<T>())?;
        Ok(Array::from_erased(positions))
    }
}

#[track_caller]
fn places_of([sorted, values]: [&AnyArray; 2], loops: &'static SearchLoops) -> Result<AnyArray> {
    let shape = sorted.shape();
    if shape.ndim() != 1 {
        return Err(invalid(format!(
            "searchsorted: the sorted array has the shape {shape}, expected one axis"
        )));
    }
    same_device(
        "searchsorted",
        ("the sorted array", sorted),
        ("the values", values),
    )?;
    check_size("searchsorted", values.shape(), DType::I64)?;
    search([sorted, values], loops, Side::Left)
}

/// Returns the position of each of `values` in `array`. `array` has one axis, and is sorted. `side`
/// chooses the position among equal elements.
#[track_caller]
pub(super) fn search(
    [array, values]: [&AnyArray; 2],
    loops: &'static SearchLoops,
    side: Side,
) -> Result<AnyArray> {
    on_device!(
        array.device(),
        touching & [&array.buffer, &values.buffer],
        order => host::search(order, loops, [array, values], side),
        cuda::search(order, array.operand(), values.operand(), side)
    )
}
