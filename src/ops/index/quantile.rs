//! Medians and quantiles.

use super::{check_size, invalid};
use crate::array::{Array, DType, Float, Shape};
use crate::context::Timed;
use crate::error::Result;
use crate::ops::derivatives::is_tracked;
use crate::ops::expression::any_lazy::AnyLazy;
use crate::ops::expression::elementwise::select;
use crate::ops::host;
use crate::ops::interpolate::{Arms, interpolated};
use crate::ops::order::{HostOrder, check_untracked};
use crate::ops::precompiled::precompiled;

impl<T: Float> Array<T> {
    /// Returns the element in the middle of the sorted elements along `axis`, which the result does
    /// not have; the mean of the two in the middle if their number is even. A negative axis counts
    /// from the end.
    ///
    /// If an element is NaN, the result is NaN, as in NumPy. The gradient passes to the elements
    /// that [`sort`](Self::sort) puts in the middle. For the median of all elements, write
    /// `x.flatten()?.median(0)`. On the host, the elements are not sorted: the call reads them a
    /// few times.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let x = Array::from_slice(&[7.0, 1.0, 4.0, 2.0, 9.0, 3.0], [2, 3])?;
    /// assert_eq!(x.median(1)?.to_vec()?, [4.0, 3.0]);
    /// assert_eq!(x.median(0)?.to_vec()?, [4.5, 5.0, 3.5]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if there is no such axis, or it has
    /// no elements, and [`OutOfMemory`](crate::ErrorKind::OutOfMemory); an axis of more than 256
    /// elements needs memory for a copy of it (on CUDA devices, as much as [`sort`](Self::sort)).
    #[track_caller]
    pub fn median(&self, axis: isize) -> Result<Self> {
        let array = self;
        precompiled!(median::<T>([array]; axis: isize))
    }

    /// Returns the value below which the fraction `q` of the elements along `axis` lies, which the
    /// result does not have: for a `q` of 0 the least element, for 1 the greatest. A negative axis
    /// counts from the end.
    ///
    /// The sorted elements have the positions 0, 1, …, n − 1, and the value is interpolated at q ·
    /// (n − 1) between its two neighbours, linearly and in `f64`: NumPy's `quantile`. If the two
    /// are equal, the value equals them, also if they are infinite. Beside one infinite neighbour,
    /// the value is infinite. If an element is NaN, the result is NaN. For the quantile of all
    /// elements, write `x.flatten()?.quantile(q, 0)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let x = Array::from_slice(&[40.0, 10.0, 30.0, 20.0], 4)?;
    /// assert_eq!(x.quantile(0.5, 0)?.item()?, 25.0);
    /// assert_eq!(x.quantile(0.25, 0)?.item()?, 17.5);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `q` is not from 0 to 1, and the
    /// errors of [`median`](Self::median).
    ///
    /// # Source
    ///
    /// Definition 7 of Hyndman and Fan, "Sample quantiles in statistical packages" (1996).
    #[track_caller]
    pub fn quantile(&self, q: f64, axis: isize) -> Result<Self> {
        let array = self;
        precompiled!(quantile::<T>([array]; q: f64, axis: isize))
    }

    /// Returns the axis from which `operation` chooses an element, and its length.
    #[track_caller]
    fn chosen_from(&self, operation: &str, axis: isize) -> Result<(usize, usize)> {
        let shape = self.layout().shape();
        let at = shape.axis(operation, axis)?;
        match shape.dims()[at] {
            0 => Err(invalid(format!(
                "{operation}: nothing to choose from along axis {axis} of length 0 of the shape {shape}"
            ))),
            length => Ok((at, length)),
        }
    }

    /// Returns the element at `nth` of the sorted elements along the axis `at`, and the next one;
    /// for the last element, itself again. If an element is NaN, both are NaN.
    #[track_caller]
    fn neighbours(&self, at: usize, nth: usize) -> Result<[Self; 2]> {
        if self.device().backend().cuda().is_some() || is_tracked(self)? {
            return self.sorted_neighbours(at, nth);
        }
        if self.is_apart(at) {
            let last = self.ndim() - 1;
            let ends = self
                .turned(at)?
                .chosen(last, nth)?
                .swap_axes(at as isize, -1)?;
            return Ok([ends.at_index(at, 0)?, ends.at_index(at, 1)?]);
        }
        let ends = self.chosen(at, nth)?;
        Ok([ends.at_index(at, 0)?, ends.at_index(at, 1)?])
    }

    /// Finds both neighbours on the host, along the axis `at`.
    #[track_caller]
    fn chosen(&self, at: usize, nth: usize) -> Result<Self> {
        let shape: Shape = self.layout().shape().with(at, 2);
        check_size("quantile", &shape, T::DTYPE)?;
        check_untracked(self.buffer())?;
        let _timed = Timed::begin(self.device());
        let order = HostOrder::new(self.device(), self.buffer())?;
        host::neighbours(order, self, at, nth, &shape)
    }

    /// Finds both neighbours by sorting.
    #[track_caller]
    fn sorted_neighbours(&self, at: usize, nth: usize) -> Result<[Self; 2]> {
        let last = self.shape()[at] - 1;
        let sorted = self.sort(at as isize)?;
        let greatest = sorted.at_index(at, last)?;
        let one = |index| {
            let value = sorted.at_index(at, index)?;
            select(greatest.is_nan(), &greatest, &value).eval_unfused()
        };
        Ok([one(nth)?, one(last.min(nth + 1))?])
    }
}

#[track_caller]
fn median<T: Float>(array: &Array<T>, axis: isize) -> Result<Array<T>> {
    let (at, length) = array.chosen_from("median", axis)?;
    let fraction = if length.is_multiple_of(2) { 0.5 } else { 0.0 };
    between(array, at, (length - 1) / 2, fraction)
}

#[track_caller]
fn quantile<T: Float>(array: &Array<T>, q: f64, axis: isize) -> Result<Array<T>> {
    if !(0.0..=1.0).contains(&q) {
        return Err(invalid(format!(
            "quantile: q is {q}, expected a number from 0 to 1"
        )));
    }
    let (at, length) = array.chosen_from("quantile", axis)?;
    let place = q * (length - 1) as f64;
    let nth = (place.floor() as usize).min(length - 1);
    between(array, at, nth, place - nth as f64)
}

/// Returns the value at the position `nth + fraction` of the sorted elements along the axis `at`,
/// interpolated in `f64`.
#[track_caller]
fn between<T: Float>(array: &Array<T>, at: usize, nth: usize, fraction: f64) -> Result<Array<T>> {
    let arms = Arms::at(nth, fraction);
    let neighbours = array.neighbours(at, nth)?;
    let [near, far] = [arms.near, arms.far].map(|place| &neighbours[place - nth]);
    let share = AnyLazy::number(DType::F64, arms.share);
    interpolated(near.erased(), far.erased(), &share).map(Array::from_erased)
}
