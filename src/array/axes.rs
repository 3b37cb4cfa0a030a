//! The axes of a reduction.

use super::shape::{MAX_RANK, Shape};
use crate::error::{Error, ErrorCode, Result};

/// Axes of an array: one axis (`-1`), or several axes in any order (`[0, 2]`, `&[isize]`,
/// `Vec<isize>`). A negative axis counts from the end.
///
/// The conversion to `Axes` never fails. If the shape does not have an axis, or an axis is named
/// twice, the operation returns [`InvalidArgument`](crate::ErrorKind::InvalidArgument).
///
/// # Examples
///
/// ```
/// use cachescope::Array;
///
/// let x = Array::<f32>::ones([2, 3, 4])?;
/// assert_eq!(x.sum_axis(-1)?.shape(), [2, 3]);
/// assert_eq!(x.sum_axis([0, 2])?.to_vec()?, [8.0, 8.0, 8.0]);
/// assert_eq!(x.mean_keepdims([0, 2])?.shape(), [1, 3, 1]);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Axes {
    axes: [isize; MAX_RANK],
    // The number of axes. If the number is above MAX_RANK, `axes` holds the first MAX_RANK axes,
    // and every use returns an error.
    count: usize,
}

/// A set of axes of a shape: true at the index of each axis in the set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AxisSet([bool; MAX_RANK]);

impl AxisSet {
    /// Returns the set of the axes below `ndim` for which `is_one` returns true.
    pub(crate) fn of_each(ndim: usize, is_one: impl Fn(usize) -> bool) -> Self {
        Self(std::array::from_fn(|axis| axis < ndim && is_one(axis)))
    }

    pub(crate) fn contains(&self, axis: usize) -> bool {
        self.0[axis]
    }
}

impl Axes {
    /// Resolves the axes for an array of `shape`.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument), naming `operation`, if an axis is
    /// out of range or named twice.
    #[track_caller]
    pub(crate) fn of(&self, operation: &str, shape: &Shape) -> Result<AxisSet> {
        let mut set = [false; MAX_RANK];
        // If the list names more than `MAX_RANK` axes, one axis is out of range or named twice.
        for &axis in &self.axes[..self.count.min(MAX_RANK)] {
            let index = shape.axis(operation, axis)?;
            if std::mem::replace(&mut set[index], true) {
                return Err(twice(operation, axis, shape));
            }
        }
        if self.count > MAX_RANK {
            let (named, ndim) = (self.count, shape.ndim());
            let text = format!("{operation}: {named} axes are named, the shape {shape} has {ndim}");
            return Err(Error::new(ErrorCode::Axis, text));
        }
        Ok(AxisSet(set))
    }
}

#[cold]
#[track_caller]
fn twice(operation: &str, axis: isize, shape: &Shape) -> Error {
    let text = format!("{operation}: axis {axis} is named twice for the shape {shape}");
    Error::new(ErrorCode::Axis, text)
}

impl From<isize> for Axes {
    fn from(axis: isize) -> Self {
        [axis].into()
    }
}

impl<const N: usize> From<[isize; N]> for Axes {
    fn from(axes: [isize; N]) -> Self {
        axes.as_slice().into()
    }
}

impl<const N: usize> From<&[isize; N]> for Axes {
    fn from(axes: &[isize; N]) -> Self {
        axes.as_slice().into()
    }
}

impl From<&[isize]> for Axes {
    fn from(axes: &[isize]) -> Self {
        let mut first = [0; MAX_RANK];
        for (own, &axis) in first.iter_mut().zip(axes) {
            *own = axis;
        }
        Self {
            axes: first,
            count: axes.len(),
        }
    }
}

impl From<Vec<isize>> for Axes {
    fn from(axes: Vec<isize>) -> Self {
        axes.as_slice().into()
    }
}
