//! Concatenation and stacking of arrays.

use smallvec::SmallVec;

use super::moves::joined;
use super::{check_size, invalid};
use crate::array::{AnyArray, AnyElement, Array, Shape};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::derivatives::RuledOperation;
use crate::ops::dispatch::same_device;

/// Returns the concatenation of the arrays along `axis`. Along all other axes, the arrays must have
/// equal lengths.
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
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if `arrays` is empty or `axis` is out of range.
/// [`ShapeMismatch`](ErrorKind::ShapeMismatch) if the arrays have different ranks, or different
/// lengths along another axis. [`DeviceMismatch`](ErrorKind::DeviceMismatch) if the arrays are on
/// several devices. [`InvalidShape`](ErrorKind::InvalidShape) if the size overflows.
/// [`OutOfMemory`](ErrorKind::OutOfMemory) if the device has no memory.
#[track_caller]
pub fn concat<T: AnyElement>(arrays: &[&Array<T>], axis: isize) -> Result<Array<T>> {
    concatenated(&erased(arrays), axis).map(Array::from_erased)
}

/// See [`concat`].
#[track_caller]
pub(in crate::ops) fn concatenated(arrays: &[AnyArray], axis: isize) -> Result<AnyArray> {
    let (first, rest) = on_one_device("concat", arrays)?;
    let shape = first.shape();
    let at = shape.axis("concat", axis)?;
    let mut length = shape.dims()[at];
    for (number, array) in (1..).zip(rest) {
        let other = array.shape();
        if other.ndim() != shape.ndim() || other.without(at) != shape.without(at) {
            return Err(Error::new(
                ErrorKind::ShapeMismatch,
                format!(
                    "concat: array {number} has the shape {other}, array 0 has {shape}: expected equal lengths along \
                     all axes except {at}"
                ),
            ));
        }
        // `check_size` rejects a length that saturates.
        length = length.saturating_add(other.dims()[at]);
    }
    let shape = shape.with(at, length);
    check_size("concat", &shape, first.dtype)?;
    whole_of("concat", arrays, at, &shape)
}

/// Returns the arrays stacked along a new axis. The new axis is axis `axis` of the result. All
/// arrays must have equal shapes.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, stack};
///
/// let (x, y) = (Array::from_slice(&[1, 2], 2)?, Array::from_slice(&[3, 4], 2)?);
/// assert_eq!(stack(&[&x, &y], 0)?.to_vec()?, [1, 2, 3, 4]);
/// assert_eq!(stack(&[&x, &y], -1)?.to_vec()?, [1, 3, 2, 4]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if `arrays` is empty or `axis` is out of range
/// for the result. [`ShapeMismatch`](ErrorKind::ShapeMismatch) if the shapes differ.
/// [`DeviceMismatch`](ErrorKind::DeviceMismatch) if the arrays are on several devices.
/// [`InvalidShape`](ErrorKind::InvalidShape) if the result's rank is above 8 or its size overflows.
/// [`OutOfMemory`](ErrorKind::OutOfMemory) if the device has no memory.
#[track_caller]
pub fn stack<T: AnyElement>(arrays: &[&Array<T>], axis: isize) -> Result<Array<T>> {
    stacked(&erased(arrays), axis).map(Array::from_erased)
}

#[track_caller]
fn stacked(arrays: &[AnyArray], axis: isize) -> Result<AnyArray> {
    let (first, rest) = on_one_device("stack", arrays)?;
    let own = first.shape();
    let widened: Shape = own.dims().iter().copied().chain([1]).collect();
    let Ok(at) = widened.axis("stack", axis) else {
        return Err(own.no_new_axis("stack", axis));
    };
    let mut numbered = (1..).zip(rest);
    if let Some((number, array)) = numbered.find(|(_, array)| array.shape() != own) {
        let other = array.shape();
        return Err(Error::new(
            ErrorKind::ShapeMismatch,
            format!(
                "stack: array {number} has the shape {other}, array 0 has {own}: expected equal shapes"
            ),
        ));
    }
    let (before, after) = own.dims().split_at(at);
    let count = arrays.len();
    let shape: Shape = before.iter().chain([&count]).chain(after).collect();
    check_size("stack", &shape, first.dtype)?;
    let widened = arrays.iter().map(|array| array.unsqueeze(at as isize));
    whole_of("stack", &widened.collect::<Result<Vec<_>>>()?, at, &shape)
}

#[track_caller]
fn erased<T: AnyElement>(arrays: &[&Array<T>]) -> SmallVec<[AnyArray; 4]> {
    arrays.iter().map(|array| array.erased().share()).collect()
}

#[track_caller]
fn whole_of(
    operation: &'static str,
    arrays: &[AnyArray],
    at: usize,
    shape: &Shape,
) -> Result<AnyArray> {
    let own = *shape;
    let step = RuledOperation::begin(operation, &arrays.iter().collect::<Vec<_>>())?
        .computed_by(0, move |operands| joined(operands, at, &own));
    let whole = joined(arrays, at, shape)?;
    Ok(step.finish(whole, |_| parted_back(arrays, at)))
}

/// Returns the rule of a concatenation along the axis `at`. Each array gets its part of the
/// gradient.
fn parted_back(
    arrays: &[AnyArray],
    at: usize,
) -> impl FnOnce(AnyArray) -> Result<Vec<AnyArray>> + Clone + use<> {
    let lengths: Vec<usize> = arrays.iter().map(|array| array.layout.dims()[at]).collect();
    move |gradient| {
        let mut first = 0;
        let parts = lengths.into_iter().map(|length| {
            let part = gradient.layout.part(at, first..first + length, 1)?;
            first += length;
            Ok(AnyArray {
                layout: part,
                ..gradient.share()
            })
        });
        parts.collect()
    }
}

/// Returns the first array, and the other arrays.
///
/// # Errors
///
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if there are no arrays,
/// [`DeviceMismatch`](ErrorKind::DeviceMismatch) if the arrays are on several devices.
#[track_caller]
fn on_one_device<'a>(
    operation: &str,
    arrays: &'a [AnyArray],
) -> Result<(&'a AnyArray, &'a [AnyArray])> {
    let Some((first, rest)) = arrays.split_first() else {
        let text = format!("{operation}: the list of arrays is empty, expected at least one");
        return Err(invalid(text));
    };
    for (number, array) in (1..).zip(rest) {
        if array.device() != first.device() {
            let name = format!("array {number}");
            same_device(operation, ("array 0", first), (&name, array))?;
        }
    }
    Ok((first, rest))
}
