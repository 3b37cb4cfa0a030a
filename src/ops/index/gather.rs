//! Selection of one element for each index along an axis.

use super::moves::picked;
use super::{check_indices, check_size};
use crate::array::{AnyArray, AnyElement, Array, Shape, broadcast_shapes};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::derivatives::RuledOperation;
use crate::ops::descriptors::Picking;
use crate::ops::dispatch::same_device;

impl<T: AnyElement> Array<T> {
    /// Returns the element at each index along `axis`. Along the other axes, the element has the
    /// position of the index. This is NumPy's `take_along_axis`.
    ///
    /// The array and `indices` must have equal ranks. They broadcast to each other along all axes
    /// except `axis`. Along `axis`, the result has the length of `indices`. A negative index counts
    /// from the axis's end.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let scores = Array::from_vec(vec![1.0, 7.0, 3.0, 9.0, 5.0, 6.0], [2, 3])?;
    /// let labels = Array::from_vec(vec![1, -1], [2, 1])?;
    /// assert_eq!(scores.gather(&labels, 1)?.to_vec()?, [7.0, 6.0]);
    ///
    /// let order = scores.argsort(1)?;
    /// assert_eq!(scores.gather(&order, 1)?, scores.sort(1)?);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if `axis` is out of range or an index is
    /// outside of the axis. [`ShapeMismatch`](ErrorKind::ShapeMismatch) if the ranks differ, or if
    /// an axis other than `axis` does not broadcast. [`InvalidShape`](ErrorKind::InvalidShape) if
    /// the size overflows. [`DeviceMismatch`](ErrorKind::DeviceMismatch) and
    /// [`OutOfMemory`](ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn gather(&self, indices: &Array<i64>, axis: isize) -> Result<Self> {
        gathered(self.erased(), indices, axis).map(Self::from_erased)
    }
}

/// See [`Array::gather`].
#[track_caller]
pub(in crate::ops) fn gathered(
    array: &AnyArray,
    indices: &Array<i64>,
    axis: isize,
) -> Result<AnyArray> {
    let at = array.shape().axis("gather", axis)?;
    same_device(
        "gather",
        ("the array", array),
        ("the indices", indices.erased()),
    )?;
    let shape = along("gather", array.shape(), indices.layout().shape(), at)?;
    check_size("gather", &shape, array.dtype)?;
    check_indices("gather", array, at, indices)?;
    let (places, whole) = (indices.clone(), shape);
    let step = RuledOperation::begin("gather", &[array])?.computed_by(0, move |operands| {
        picked(&operands[0], &places, Picking::Elements, at, &whole)
    });
    let picked = picked(array, indices, Picking::Elements, at, &shape)?;
    let own = *array.layout.shape();
    Ok(step.finish(picked, |saved| {
        scattered_back(own, saved.save_typed(indices), at)
    }))
}

/// Returns the rule of a gather from an array of shape `own` along the axis `at`. The gradient of
/// each result is added to the gradient of its source element.
pub(super) fn scattered_back(
    own: Shape,
    indices: Array<i64>,
    at: usize,
) -> impl FnOnce(AnyArray) -> Result<Vec<AnyArray>> + Clone {
    move |gradient| {
        let dtype = gradient.dtype;
        // An index may repeat so often that the sum exceeds the precision of narrow floats.
        let gradient = gradient.converted(dtype.computed_in())?;
        let mut sum = gradient.zeros(&own)?;
        sum.scatter_add(&indices, &gradient, at as isize)?;
        Ok(vec![sum.converted(dtype)?])
    }
}

/// Returns the shape that the array and the indices broadcast to. Along the axis `at`, it has the
/// length of the indices.
///
/// # Errors
///
/// [`ShapeMismatch`](ErrorKind::ShapeMismatch), naming the two shapes, if they do not broadcast.
#[track_caller]
pub(super) fn along(operation: &str, array: &Shape, indices: &Shape, at: usize) -> Result<Shape> {
    let common = if array.ndim() == indices.ndim() {
        broadcast_shapes(operation, &[&array.with(at, 1), indices])
    } else {
        Ok(Shape::SCALAR)
    };
    match common {
        Ok(shape) if shape.ndim() == array.ndim() => Ok(shape),
        Err(error) if error.kind() != ErrorKind::ShapeMismatch => Err(error),
        _ => Err(Error::new(
            ErrorKind::ShapeMismatch,
            format!(
                "{operation}: the indices {indices} do not fit the array {array}: expected the same rank, and lengths that \
                 broadcast along all axes except {at}"
            ),
        )),
    }
}
