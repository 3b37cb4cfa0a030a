//! Copies by index along an axis: `take` and `concat`.

use crate::array::{Array, Element, Elements, Shape, Writer};
use crate::error::{Error, ErrorKind, Result};

impl<T: Element> Array<T> {
    /// The elements at `indices` along `axis`, as NumPy's `take` copies them: in the result, the
    /// axes of `indices` stand where `axis` stood. A negative index counts from the axis's end.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::arange(0, 6, 1)?.reshape([3, 2])?;
    /// let rows = array.take(&Array::from_vec(vec![2, 0, -1], 3)?, 0)?;
    /// assert_eq!(rows.to_vec()?, [4, 5, 0, 1, 4, 5]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) where there is no such axis or an index lies
    /// outside it, [`InvalidShape`](ErrorKind::InvalidShape) where the result's rank is above 8 or
    /// its size overflows, [`DeviceMismatch`](ErrorKind::DeviceMismatch) where `indices` is on
    /// another device, [`OutOfMemory`](ErrorKind::OutOfMemory) where the device has no room.
    #[track_caller]
    pub fn take(&self, indices: &Array<i64>, axis: isize) -> Result<Self> {
        let at = self.layout().shape().axis("take", axis)?;
        same_device("take", self, indices)?;
        let (before, after) = (&self.shape()[..at], &self.shape()[at + 1..]);
        let shape: Shape = before.iter().chain(indices.shape()).chain(after).collect();
        shape.size_bytes::<T>()?;
        let indices = checked_indices(indices, self.shape()[at], axis)?;

        let elements = Elements::of(self)?;
        let (outer, from_axis) = elements.layout().split_at(at);
        let inner = from_axis.split_at(1).1.coalesced();
        let stride = from_axis.strides()[0];
        let mut writer = Writer::new(self.device(), &shape)?;
        let scalar = inner.ndim() == 0;
        for start in outer.indices() {
            if scalar {
                let taken = indices
                    .iter()
                    .map(|&index| elements.at(start.wrapping_add_signed(index as isize * stride)));
                writer.extend(taken)?;
                continue;
            }
            for &index in &indices {
                let first = start.wrapping_add_signed(index as isize * stride);
                writer.extend_from(&elements, &inner.starting_at(first))?;
            }
        }
        writer.finish()
    }
}

/// The indices of an axis of `length`, none of them negative any more.
fn checked_indices(indices: &Array<i64>, length: usize, axis: isize) -> Result<Vec<usize>> {
    let mut checked = Vec::with_capacity(indices.len());
    for index in indices.to_vec()? {
        // Lengths are at most `isize::MAX`, so the sum cannot overflow.
        let counted = if index < 0 {
            index + length as i64
        } else {
            index
        };
        match usize::try_from(counted)
            .ok()
            .filter(|&index| index < length)
        {
            Some(index) => checked.push(index),
            None => {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    format!(
                        "take: the index {index} is out of range for axis {axis} of length {length}"
                    ),
                ));
            }
        }
    }
    Ok(checked)
}

/// The arrays one after another along `axis`; their other axes must have the same lengths.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, concat};
///
/// let left = Array::<i32>::zeros([2, 1])?;
/// let right = Array::<i32>::ones([2, 2])?;
/// assert_eq!(concat(&[&left, &right], 1)?.to_vec()?, [0, 1, 1, 0, 1, 1]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](ErrorKind::InvalidArgument) where there are no arrays or no such axis,
/// [`ShapeMismatch`](ErrorKind::ShapeMismatch) where other axes differ,
/// [`DeviceMismatch`](ErrorKind::DeviceMismatch) where the arrays are on several devices,
/// [`InvalidShape`](ErrorKind::InvalidShape) where the size overflows, and
/// [`OutOfMemory`](ErrorKind::OutOfMemory) where the device has no room.
#[track_caller]
pub fn concat<T: Element>(arrays: &[&Array<T>], axis: isize) -> Result<Array<T>> {
    let Some((&first, rest)) = arrays.split_first() else {
        let text = "concat: there are no arrays";
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    };
    let at = first.layout().shape().axis("concat", axis)?;
    for &array in rest {
        same_device("concat", first, array)?;
    }
    let shape = concatenated_shape(arrays, first.layout().shape(), at)?;
    shape.size_bytes::<T>()?;

    let parts: Vec<Elements<'_, T>> = arrays
        .iter()
        .map(|array| Elements::of(array))
        .collect::<Result<_>>()?;
    let mut blocks: Vec<_> = parts
        .iter()
        .map(|elements| {
            let (outer, inner) = elements.layout().split_at(at);
            (elements, outer.indices(), inner.coalesced())
        })
        .collect();
    let mut writer = Writer::new(first.device(), &shape)?;
    let outer_len: usize = shape.dims()[..at].iter().product();
    for _ in 0..outer_len {
        for (elements, starts, inner) in &mut blocks {
            if let Some(start) = starts.next() {
                writer.extend_from(elements, &inner.starting_at(start))?;
            }
        }
    }
    writer.finish()
}

/// The shape of `arrays` one after another along the axis `at`.
fn concatenated_shape<T: Element>(arrays: &[&Array<T>], first: &Shape, at: usize) -> Result<Shape> {
    let mut length = 0usize;
    for array in arrays {
        let shape = array.layout().shape();
        if shape.ndim() != first.ndim() || shape.without(at) != first.without(at) {
            return Err(Error::new(
                ErrorKind::ShapeMismatch,
                format!("concat: the shapes {first} and {shape} differ outside axis {at}"),
            ));
        }
        // What saturates here is beyond every size that a shape may have.
        length = length.saturating_add(shape.dims()[at]);
    }
    Ok(first.with(at, length))
}

/// # Errors
///
/// [`DeviceMismatch`](ErrorKind::DeviceMismatch), naming `operation` and both devices.
fn same_device<T: Element, U: Element>(
    operation: &str,
    left: &Array<T>,
    right: &Array<U>,
) -> Result<()> {
    if left.device() == right.device() {
        return Ok(());
    }
    let (left, right) = (left.device(), right.device());
    Err(Error::new(
        ErrorKind::DeviceMismatch,
        format!("{operation}: the arrays are on two devices, {left} and {right}"),
    ))
}
