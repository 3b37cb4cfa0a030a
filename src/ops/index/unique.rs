//! The distinct elements of an array.

use ndarray::s;

use super::mask::select_by;
use super::moves::compacted;
use crate::array::{AnyArray, Array, Element};
use crate::context::Timed;
use crate::error::Result;
use crate::ops::derivatives::is_any_tracked;
use crate::ops::host::{self, SortLoops, sort_loops_of};
use crate::ops::order::HostOrder;

impl<T: Element> Array<T> {
    /// Returns the distinct elements of the array, from the least to the greatest, as an array of
    /// one axis. This is NumPy's `unique`.
    ///
    /// NaN is last, and occurs once. The two zeros are equal, and either is returned. The shape of
    /// the result depends on the elements, so the method waits for them. On a device without data
    /// ([`Device::meta`](crate::Device::meta)), the method assumes that all elements are distinct.
    /// [`MetaOptions::assumed_count`](crate::MetaOptions::assumed_count) sets another number of
    /// distinct elements.
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
    /// The errors of [`sort`](Self::sort). The method needs memory for the sorted elements, and 1
    /// byte for each element (9 bytes on CUDA devices).
    #[track_caller]
    pub fn unique(&self) -> Result<Self> {
        unique(self.erased(), sort_loops_of::<T>()).map(Self::from_erased)
    }
}

#[track_caller]
fn unique(array: &AnyArray, loops: &'static SortLoops) -> Result<AnyArray> {
    let sorted = array.reshape(&array.len().into())?.sort(loops, 0)?;
    let length = sorted.len();
    if length < 2 {
        return Ok(sorted);
    }
    let flags = Array::from_erased(firsts(&sorted.share().untracked(), loops)?);
    match is_any_tracked(&[&sorted])? {
        true => select_by(&sorted, &flags),
        false => compacted(&sorted, &flags),
    }
}

/// Returns a flag for each sorted element. The flag is true for the first of equal elements.
#[track_caller]
fn firsts(sorted: &AnyArray, loops: &'static SortLoops) -> Result<AnyArray> {
    if sorted.device().backend().cuda().is_none() {
        let _timed = Timed::begin(sorted.device());
        let order = HostOrder::new(sorted.device(), &sorted.buffer)?;
        return host::firsts(order, loops, sorted);
    }
    let _device = sorted.device().enter();
    let length = sorted.len();
    let one = sorted.range_of(0, 0..length - 1)?.lazy();
    let next = sorted.range_of(0, 1..length)?.lazy();
    let mut flags = Array::full(length, true)?.into_erased();
    let is_other = next.ne(one.clone());
    let is_other = match sorted.dtype.is_float() {
        // NaN differs from itself, but `unique` counts all NaN as one element.
        true => is_other.and(one.clone().eq(one)),
        false => is_other,
    };
    flags.slice_mut(s![1..].as_ref())?.assign(&is_other)?;
    Ok(flags)
}
