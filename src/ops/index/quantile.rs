//! Medians and quantiles.

use super::{check_size, invalid};
use crate::array::{AnyArray, Array, DType, Float, Shape};
use crate::context::Timed;
use crate::error::Result;
use crate::ops::derivatives::is_any_tracked;
use crate::ops::expression::any_lazy::AnyLazy;
use crate::ops::host::{self, SortLoops, float_sort_loops_of};
use crate::ops::index::interpolate::{Arms, interpolated};
use crate::ops::order::{HostOrder, check_untracked};

impl<T: Float> Array<T> {
    /// Returns the median of the elements along `axis`. The result does not have this axis. The
    /// median is the element in the middle of the sorted elements. If the number of elements is
    /// even, the median is the mean of the two elements in the middle. A negative axis counts from
    /// the end.
    ///
    /// If an element is NaN, the result is NaN, as in NumPy. The gradient passes to the elements
    /// that [`sort`](Self::sort) puts in the middle. For the median of all elements, write
    /// `x.flatten()?.median(0)`. On the host, the method does not sort the elements, but reads them
    /// a few times.
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
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `axis` is out of range or has no
    /// elements, and [`OutOfMemory`](crate::ErrorKind::OutOfMemory). For an axis of more than 256
    /// elements, the method needs memory for a copy of the elements. On CUDA devices, it needs the
    /// memory of [`sort`](Self::sort).
    #[track_caller]
    pub fn median(&self, axis: isize) -> Result<Self> {
        median(self.erased(), float_sort_loops_of::<T>(), axis).map(Self::from_erased)
    }

    /// Returns the `q` quantile of the elements along `axis`, below which the fraction `q` of the
    /// elements lies. If `q` is 0, the quantile is the least element. If `q` is 1, the quantile is
    /// the greatest element. The result does not have `axis`. A negative axis counts from the end.
    ///
    /// The sorted elements have the positions 0, 1, …, n − 1. The quantile has the position q · (n
    /// − 1). It is interpolated linearly between the two neighbours of this position, in `f64`.
    /// This is NumPy's `quantile`. If the neighbours are equal, the quantile equals them, even if
    /// they are infinite. If only one neighbour is infinite, the quantile is infinite. If an
    /// element is NaN, the quantile is NaN. For the quantile of all elements, write
    /// `x.flatten()?.quantile(q, 0)`.
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
        let loops = float_sort_loops_of::<T>();
        quantile(self.erased(), loops, q, axis).map(Self::from_erased)
    }
}

/// Selection of elements. `loops` are the loops for the type of the elements.
impl AnyArray {
    /// Returns the index and the length of `axis`, along which `operation` chooses an element.
    #[track_caller]
    fn chosen_from(&self, operation: &str, axis: isize) -> Result<(usize, usize)> {
        let shape = self.shape();
        let at = shape.axis(operation, axis)?;
        match shape.dims()[at] {
            0 => Err(invalid(format!(
                "{operation}: axis {axis} of the shape {shape} has no elements to choose from"
            ))),
            length => Ok((at, length)),
        }
    }

    /// Returns the element at the position `nth` of the sorted elements along the axis `at`, and
    /// the next element. If `nth` is the last position, returns the last element twice. If an
    /// element is NaN, returns NaN twice.
    #[track_caller]
    fn neighbours(&self, loops: &'static SortLoops, at: usize, nth: usize) -> Result<[Self; 2]> {
        if self.device().backend().cuda().is_some() || is_any_tracked(&[self])? {
            return self.sorted_neighbours(loops, at, nth);
        }
        if self.is_apart(at) {
            let last = self.layout.ndim() - 1;
            let ends = self
                .turned(at)?
                .chosen(loops, last, nth)?
                .swap_axes(at as isize, -1)?;
            return Ok([ends.at_index(at, 0)?, ends.at_index(at, 1)?]);
        }
        let ends = self.chosen(loops, at, nth)?;
        Ok([ends.at_index(at, 0)?, ends.at_index(at, 1)?])
    }

    /// Returns an array of the two neighbours along the axis `at`. The host finds these neighbours.
    #[track_caller]
    fn chosen(&self, loops: &'static SortLoops, at: usize, nth: usize) -> Result<Self> {
        let shape: Shape = self.shape().with(at, 2);
        check_size("quantile", &shape, self.dtype)?;
        check_untracked(&self.buffer)?;
        let _timed = Timed::begin(self.device());
        let order = HostOrder::new(self.device(), &self.buffer)?;
        host::neighbours(order, loops, (self, at), nth, &shape)
    }

    /// Returns the two neighbours, found by sorting.
    #[track_caller]
    fn sorted_neighbours(
        &self,
        loops: &'static SortLoops,
        at: usize,
        nth: usize,
    ) -> Result<[Self; 2]> {
        let last = self.dims()[at] - 1;
        let sorted = self.sort(loops, at as isize)?;
        let greatest = sorted.at_index(at, last)?.lazy();
        let one = |index| {
            let value = sorted.at_index(at, index)?.lazy();
            AnyLazy::select(greatest.clone().is_nan(), greatest.clone(), value).eval()
        };
        Ok([one(nth)?, one(last.min(nth + 1))?])
    }
}

#[track_caller]
fn median(array: &AnyArray, loops: &'static SortLoops, axis: isize) -> Result<AnyArray> {
    let (at, length) = array.chosen_from("median", axis)?;
    let fraction = if length.is_multiple_of(2) { 0.5 } else { 0.0 };
    between((array, loops), at, (length - 1) / 2, fraction)
}

#[track_caller]
fn quantile(array: &AnyArray, loops: &'static SortLoops, q: f64, axis: isize) -> Result<AnyArray> {
    if !(0.0..=1.0).contains(&q) {
        return Err(invalid(format!(
            "quantile: q is {q}, expected a number from 0 to 1"
        )));
    }
    let (at, length) = array.chosen_from("quantile", axis)?;
    let place = q * (length - 1) as f64;
    let nth = (place.floor() as usize).min(length - 1);
    between((array, loops), at, nth, place - nth as f64)
}

/// Returns the value at the position `nth + fraction` of the sorted elements along the axis `at`,
/// interpolated in `f64`.
#[track_caller]
fn between(
    (array, loops): (&AnyArray, &'static SortLoops),
    at: usize,
    nth: usize,
    fraction: f64,
) -> Result<AnyArray> {
    let arms = Arms::at(nth, fraction);
    let neighbours = array.neighbours(loops, at, nth)?;
    let [near, far] = [arms.near, arms.far].map(|place| &neighbours[place - nth]);
    interpolated(near, far, &AnyLazy::number(DType::F64, arms.share))
}
