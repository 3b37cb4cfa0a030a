//! Distinct elements.

use super::mask::compact;
use crate::array::{Array, DType, Element};
use crate::error::Result;
use crate::ops::derivatives::is_tracked;
use crate::ops::precompiled::precompiled;

impl<T: Element> Array<T> {
    /// Returns the distinct elements of the array, from the least to the greatest, along one axis:
    /// NumPy's `unique`.
    ///
    /// NaN is last, and occurs once. The two zeros are equal; it is unspecified which of them is
    /// kept. The shape depends on the elements, so the call waits for them. On a device without
    /// data ([`Device::meta`](crate::Device::meta)), all elements are taken to be distinct, or as
    /// many as [`MetaOptions::assumed_count`](crate::MetaOptions::assumed_count) says.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let x = Array::from_slice(&[3, 1, 3, 2, 1, 3], [2, 3])?;
    /// assert_eq!(x.unique()?.to_vec()?, [1, 2, 3]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`sort`](Self::sort); the call needs memory for the sorted elements and a flag for
    /// each (on CUDA devices 9 bytes for each).
    #[track_caller]
    pub fn unique(&self) -> Result<Self> {
        let array = self;
        precompiled!(unique::<T>([array]))
    }
}

#[track_caller]
fn unique<T: Element>(array: &Array<T>) -> Result<Array<T>> {
    let sorted = array.flatten()?.sort(0)?;
    let length = sorted.len();
    if length < 2 {
        return Ok(sorted);
    }
    let _device = array.device().enter();
    let (one, next) = (
        sorted.range_of(0, 0..length - 1)?,
        sorted.range_of(0, 1..length)?,
    );
    let mut flags = Array::full(length, true)?;
    let mut later = flags.slice_mut(ndarray::s![1..])?;
    let has_nan = const { (T::DTYPE as u8) <= DType::Bf16 as u8 };
    if has_nan {
        // NaN differs from itself, but all NaN are one element here.
        later.assign(next.ne(&one).and(one.eq(&one)))?;
    } else {
        later.assign(next.ne(&one))?;
    }
    if is_tracked(&sorted)? {
        return sorted.select_by(&flags);
    }
    compact(&sorted, &flags)
}
