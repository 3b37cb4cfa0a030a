//! The common shape of operands that broadcast.

use super::shape::{MAX_RANK, Shape};
use crate::error::{Error, ErrorCode, Result};

/// Returns the shape that all of `shapes` broadcast to, by NumPy's rules. Shapes are aligned at
/// their last axes, and an axis of length 1 repeats.
///
/// # Errors
///
/// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch), naming `operation` and the shapes, if the
/// shapes do not broadcast. [`InvalidShape`](crate::ErrorKind::InvalidShape) if the common shape
/// overflows.
#[track_caller]
pub(crate) fn broadcast_shapes(operation: &str, shapes: &[&Shape]) -> Result<Shape> {
    let mut common = Shape::SCALAR;
    for shape in shapes {
        shape.checked_len()?;
        let Some(both) = broadcast_pair(&common, shape) else {
            return Err(Error::new(
                ErrorCode::Broadcast,
                not_broadcast(operation, shapes),
            ));
        };
        common = both;
    }
    common.checked_len()?;
    Ok(common)
}

/// Returns the error message for shapes that do not broadcast. The message names the last axis at
/// which two lengths conflict.
#[cold]
fn not_broadcast(operation: &str, shapes: &[&Shape]) -> String {
    let from_end = |shape: &Shape, axis: usize| shape.dims().iter().rev().nth(axis).copied();
    let conflict = (0..MAX_RANK).find_map(|axis| {
        let lengths = shapes.iter().filter_map(|shape| from_end(shape, axis));
        let mut lengths = lengths.filter(|&length| length != 1);
        let first = lengths.next()?;
        let other = lengths.find(|&length| length != first)?;
        Some((axis + 1, first, other))
    });
    let (axis, first, other) = conflict.expect("an axis of the operands has two lengths");
    let named = shapes.iter().filter(|shape| shape.ndim > 0);
    let named: Vec<String> = named.map(ToString::to_string).collect();
    let (last, before) = named.split_last().expect("two shapes differ");
    format!(
        "{operation}: the shapes {} and {last} do not broadcast: axis -{axis} has the lengths {first} and \
         {other}, expected equal lengths or 1",
        before.join(", ")
    )
}

/// Returns the shape that two shapes broadcast to, or `None` if they do not broadcast. The size may
/// overflow.
pub(crate) fn broadcast_pair(left: &Shape, right: &Shape) -> Option<Shape> {
    let (longer, shorter) = if left.ndim >= right.ndim {
        (left, right)
    } else {
        (right, left)
    };
    let lead = longer.ndim - shorter.ndim;
    let mut common = *longer;
    for (axis, &length) in shorter.dims().iter().enumerate() {
        let target = &mut common.dims[lead + axis];
        *target = match (*target, length) {
            (one, other) if one == other => one,
            (1, other) => other,
            (one, 1) => one,
            _ => return None,
        };
    }
    Some(common)
}
