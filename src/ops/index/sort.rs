//! Sorting.

use super::check_size;
use super::moves::copied;
use crate::array::{Array, DType, Element, Shape};
use crate::error::Result;
use crate::ops::cuda;
use crate::ops::derivatives::{AnyArray, constant, is_tracked};
use crate::ops::descriptors::{Copying, Direction};
use crate::ops::host;
use crate::ops::precompiled::precompiled;

/// The length from which on it is faster to copy elements that are far apart to contiguous memory,
/// sort them, and copy them back.
const APART: usize = 128;

impl<T: Element> Array<T> {
    /// Returns the elements along `axis` from the least to the greatest, and NaN after them, as in
    /// NumPy.
    ///
    /// The sort is stable: both zeros are equal, and so are all NaN, and equal elements stay in
    /// their order. The gradient of each passes to the position that [`argsort`](Self::argsort)
    /// returns.
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
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if there is no such axis, and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory); to sort an axis of more than 256 elements
    /// (on CUDA devices 2048) needs scratch memory in addition to the result.
    #[track_caller]
    pub fn sort(&self, axis: isize) -> Result<Self> {
        if is_tracked(self)? {
            return self.gather(&self.argsort(axis)?, axis);
        }
        let array = self;
        precompiled!(sort::<T>([array]; axis: isize))
    }

    /// Returns the indices along `axis` that [`sort`](Self::sort) takes the elements from:
    /// [`gather`](Self::gather) with them returns the sorted array. Equal elements stay in their
    /// order.
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
        let shape = self.layout().shape();
        let at = shape.axis("argsort", axis)?;
        check_size("argsort", shape, DType::I64)?;
        self.in_order(at, Direction::Ascending, shape)
    }

    /// Returns the positions along the axis `at` of the elements that are first in order, as many
    /// as this axis of `shape` has.
    #[track_caller]
    pub(super) fn in_order(
        &self,
        at: usize,
        direction: Direction,
        shape: &Shape,
    ) -> Result<Array<i64>> {
        // Positions have no gradient.
        let array = &constant(self);
        precompiled!(rank::<T>([array]; at: usize, direction: Direction, shape: &Shape) -> Array<i64>)
    }

    /// Returns whether the axis `at` is long and strided enough that copying its elements to
    /// contiguous memory first is faster.
    pub(super) fn is_apart(&self, at: usize) -> bool {
        let layout = self.layout();
        let others = layout.len() / layout.dims()[at].max(1);
        let is_inner = at + 1 == layout.ndim() || layout.strides()[at].unsigned_abs() <= 1;
        !is_inner && layout.dims()[at] > APART && others > 1
    }

    /// Returns a copy with the axis `at` and the last one exchanged.
    #[track_caller]
    pub(super) fn turned(&self, at: usize) -> Result<Self> {
        let turned = self.swap_axes(at as isize, -1)?;
        let shape = turned.layout().shape();
        Ok(copied(&AnyArray::of(&turned), Copying::All, shape)?.into_array())
    }
}

#[track_caller]
fn sort<T: Element>(array: &Array<T>, axis: isize) -> Result<Array<T>> {
    let at = array.layout().shape().axis("sort", axis)?;
    if array.is_apart(at) {
        let (turned, last) = (array.turned(at)?, array.ndim() - 1);
        return sorted(&turned, last)?.turned(at);
    }
    sorted(array, at)
}

/// Returns the elements in sorted order along the axis `at`.
#[track_caller]
fn sorted<T: Element>(array: &Array<T>, at: usize) -> Result<Array<T>> {
    on_device!(
        array.device(),
        touching array.buffer(),
        order => host::sorted(order, array, at),
        cuda::sorted(order, array.into(), at).map(AnyArray::into_array)
    )
}

/// See [`Array::in_order`].
#[track_caller]
fn rank<T: Element>(
    array: &Array<T>,
    at: usize,
    direction: Direction,
    shape: &Shape,
) -> Result<Array<i64>> {
    if array.is_apart(at) {
        let (turned, last) = (array.turned(at)?, array.ndim() - 1);
        let shape = turned.layout().shape().with(last, shape.dims()[at]);
        return ranked(&turned, last, direction, &shape)?.turned(at);
    }
    ranked(array, at, direction, shape)
}

/// Returns the first positions in sorted order along the axis `at`, as many as `shape` has.
#[track_caller]
fn ranked<T: Element>(
    array: &Array<T>,
    at: usize,
    direction: Direction,
    shape: &Shape,
) -> Result<Array<i64>> {
    on_device!(
        array.device(),
        touching array.buffer(),
        order => host::ranked(order, array, at, direction, shape),
        cuda::ranked(order, array.into(), at, direction, shape).map(AnyArray::into_array)
    )
}
