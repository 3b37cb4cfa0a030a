//! Type-erased operations that only move elements. The host's loops are compiled for each size of
//! an element.

use crate::array::{AnyArray, Array, Bits, Shape};
use crate::device::cuda::Indexing;
use crate::error::Result;
use crate::ops::descriptors::{Copying, Picking, Triangle};
use crate::ops::order::UpdateTargets;
use crate::ops::order::aliasing::Target;

/// Returns the elements of `array` that `copying` selects, in a new array of `shape`.
#[track_caller]
pub(in crate::ops) fn copied(
    array: &AnyArray,
    copying: Copying,
    shape: &Shape,
) -> Result<AnyArray> {
    on_device!(
        array.device(),
        touching & array.buffer,
        copied(array.operand(), copying, shape)
    )
}

/// Returns the concatenation of arrays of one type along the axis `at`, as a new array of `shape`.
#[track_caller]
pub(super) fn joined(arrays: &[AnyArray], at: usize, shape: &Shape) -> Result<AnyArray> {
    on_device!(
        arrays[0].device(),
        touching & arrays,
        joined(arrays, at, shape)
    )
}

/// Returns the elements that `indices` select along the axis `at` of `array`, in a new array of
/// `shape`. The caller must have checked the indices.
#[track_caller]
pub(super) fn picked(
    array: &AnyArray,
    indices: &Array<i64>,
    picking: Picking,
    at: usize,
    shape: &Shape,
) -> Result<AnyArray> {
    on_device!(
        array.device(),
        touching & [&array.buffer, indices.buffer()],
        picked(array.operand(), indices.into(), picking, at, shape)
    )
}

/// Writes each of `values` to the element of `target` that the value's index selects along the axis
/// `at`. The three arrays broadcast to `shape`, except `target` along this axis. The caller must
/// have checked the indices.
#[track_caller]
pub(super) fn put(
    target: Target<'_>,
    indices: &Array<i64>,
    values: &AnyArray,
    at: usize,
    shape: &Shape,
) -> Result<()> {
    let updating = UpdateTargets {
        targets: &[target.buffer()],
        reading: [indices.buffer(), &values.buffer],
    };
    let along = (at, Indexing::Scatter);
    on_device!(
        target.device(),
        touching & updating,
        put_at(target, indices.into(), values.operand(), along, shape)
    )
}

#[track_caller]
pub(super) fn padded(
    array: &AnyArray,
    before: &Shape,
    value: Bits,
    shape: &Shape,
) -> Result<AnyArray> {
    on_device!(
        array.device(),
        touching & array.buffer,
        padded(array.operand(), before, value, shape)
    )
}

/// Returns the square matrix of `shape` with the vector `array` on its diagonal `k`, and zeros
/// elsewhere.
#[track_caller]
pub(super) fn on_diagonal(array: &AnyArray, k: isize, shape: &Shape) -> Result<AnyArray> {
    on_device!(
        array.device(),
        touching & array.buffer,
        on_diagonal(array.operand(), k, shape)
    )
}

/// Returns `array` with zeros outside a triangle of its last two axes. Diagonal `k` bounds the
/// triangle.
#[track_caller]
pub(super) fn triangular(array: &AnyArray, triangle: Triangle, k: isize) -> Result<AnyArray> {
    on_device!(
        array.device(),
        touching & array.buffer,
        triangular(array.operand(), triangle, k)
    )
}

/// Returns the elements of `array` at which `flags` are true. Both arrays are contiguous and have
/// equal lengths.
#[track_caller]
pub(super) fn compacted(array: &AnyArray, flags: &Array<bool>) -> Result<AnyArray> {
    on_device!(
        array.device(),
        touching & [&array.buffer, flags.buffer()],
        compacted(array.operand(), flags.into())
    )
}
