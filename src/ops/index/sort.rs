//! Sorting.

use super::check_size;
use super::gather::gathered;
use super::moves::copied;
use crate::array::{AnyArray, Array, DType, Element, Shape};
use crate::error::Result;
#[cfg(feature = "cuda")]
use crate::ops::cuda;
use crate::ops::derivatives::is_any_tracked;
use crate::ops::descriptors::{Copying, Direction};
use crate::ops::host::{self, SortLoops, sort_loops_of};

/// The maximum length of a strided axis that is sorted without a copy. If the axis is longer, it is
/// faster to sort a contiguous copy and to copy the result back.
const APART: usize = 128;

impl<T: Element> Array<T> {
    /// Returns the elements sorted along `axis`, from the least to the greatest. NaN is last, as in
    /// NumPy.
    ///
    /// The sort is stable: equal elements keep their order. The two zeros are equal, and all NaN
    /// are equal. The gradient of each sorted element passes to the element at the index that
    /// [`argsort`](Self::argsort) returns.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::from_slice(&[3, 1, 2, 6, 4, 5], [2, 3])?;
    /// assert_eq!(array.sort(-1)?.to_vec()?, [1, 2, 3, 4, 5, 6]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `axis` is out of range, and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory). An axis of more than 256 elements (2048 on
    /// CUDA devices) needs scratch memory in addition to the result.
    #[track_caller]
    pub fn sort(&self, axis: isize) -> Result<Self> {
        let sorted = self.erased().sort(sort_loops_of::<T>(), axis);
        sorted.map(Self::from_erased)
    }

    /// Returns the indices that sort the array along `axis`. [`gather`](Self::gather) with these
    /// indices returns the sorted array. Equal elements keep their order.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::from_slice(&[0.5, f32::NAN, -1.0, 0.5], 4)?;
    /// assert_eq!(array.argsort(0)?.to_vec()?, [2, 0, 3, 1]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`sort`](Self::sort), and [`InvalidShape`](crate::ErrorKind::InvalidShape) if the
    /// size of the indices overflows.
    #[track_caller]
    pub fn argsort(&self, axis: isize) -> Result<Array<i64>> {
        let positions = self.erased().argsort(sort_loops_of::<T>(), axis);
        positions.map(Array::from_erased)
    }
}

/// Sorting. `loops` are the loops for the type of the elements.
impl AnyArray {
    /// See [`Array::sort`].
    #[track_caller]
    pub(super) fn sort(&self, loops: &'static SortLoops, axis: isize) -> Result<Self> {
        if is_any_tracked(&[self])? {
            let positions = Array::from_erased(self.argsort(loops, axis)?);
            return gathered(self, &positions, axis);
        }
        let at = self.shape().axis("sort", axis)?;
        if self.is_apart(at) {
            let (turned, last) = (self.turned(at)?, self.layout.ndim() - 1);
            return sorted(&turned, loops, last)?.turned(at);
        }
        sorted(self, loops, at)
    }

    /// See [`Array::argsort`].
    #[track_caller]
    fn argsort(&self, loops: &'static SortLoops, axis: isize) -> Result<Self> {
        let shape = self.shape();
        let at = shape.axis("argsort", axis)?;
        check_size("argsort", shape, DType::I64)?;
        self.in_order(loops, at, Direction::Ascending, shape)
    }

    /// Returns the indices of the first elements in sorted order along the axis `at`. The length of
    /// `shape` along `at` is the number of indices.
    #[track_caller]
    pub(super) fn in_order(
        &self,
        loops: &'static SortLoops,
        at: usize,
        direction: Direction,
        shape: &Shape,
    ) -> Result<Self> {
        // Positions have no gradient.
        let array = &self.share().untracked();
        if array.is_apart(at) {
            let (turned, last) = (array.turned(at)?, array.layout.ndim() - 1);
            let shape = turned.shape().with(last, shape.dims()[at]);
            return ranked((&turned, last), loops, direction, &shape)?.turned(at);
        }
        ranked((array, at), loops, direction, shape)
    }

    /// Returns whether a sort along the axis `at` is faster after a copy to contiguous memory. This
    /// is true for long strided axes.
    pub(super) fn is_apart(&self, at: usize) -> bool {
        let layout = &self.layout;
        let others = layout.len() / layout.dims()[at].max(1);
        let is_inner = at + 1 == layout.ndim() || layout.strides()[at].unsigned_abs() <= 1;
        !is_inner && layout.dims()[at] > APART && others > 1
    }

    /// Returns a copy with the axis `at` and the last axis exchanged.
    #[track_caller]
    pub(super) fn turned(&self, at: usize) -> Result<Self> {
        let turned = self.swap_axes(at as isize, -1)?;
        copied(&turned, Copying::All, turned.shape())
    }
}

#[track_caller]
fn sorted(array: &AnyArray, loops: &'static SortLoops, at: usize) -> Result<AnyArray> {
    on_device!(
        array.device(),
        touching & array.buffer,
        order => host::sorted(order, loops, array, at),
        cuda::sorted(order, array.operand(), at)
    )
}

/// Computes [`in_order`](AnyArray::in_order) without a copy of the array.
#[track_caller]
fn ranked(
    (array, at): (&AnyArray, usize),
    loops: &'static SortLoops,
    direction: Direction,
    shape: &Shape,
) -> Result<AnyArray> {
    on_device!(
        array.device(),
        touching & array.buffer,
        order => host::ranked(order, loops, (array, at), direction, shape),
        cuda::ranked(order, array.operand(), at, direction, shape)
    )
}
