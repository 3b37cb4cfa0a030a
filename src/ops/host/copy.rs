//! Launches of copies, joins and fills.

use super::launch::{Work, launch};
use super::memory::{Untyped, computed_any};
use super::pointers::{ReadPtr, WritePtr, bytes_of, bytes_written};
use crate::array::{AnyArray, Bits, Shape, Walk};
use crate::error::Result;
use crate::ops::descriptors::{Copying, joined_parts};
use crate::ops::expression::tree::Operand;
use crate::ops::order::HostOrder;
use cachescope_kernels::moves::copies::{CopyParts, copy_parts, fill_runs};

/// Copies the elements of `array` that `copying` selects to a new array of `shape`.
#[track_caller]
pub(in crate::ops) fn copied(
    order: HostOrder<'_>,
    array: Operand<'_>,
    copying: Copying,
    shape: &Shape,
) -> Result<AnyArray> {
    let walk = copying.walk(array.layout);
    let bytes = array.dtype.size_bytes();
    let write = |output: Untyped| {
        assert_eq!(
            output.count(),
            walk.count(),
            "the source and the target differ in length"
        );
        let (from, to) = (bytes_of(array), bytes_written(&output));
        // SAFETY: the walk visits the elements of `array` and all elements of the new output, as
        // the assertion checks.
        unsafe { copy(order, bytes, from, to, &walk) };
    };
    // SAFETY: the walk is in row-major order of the output, and has the length of the output.
    unsafe { computed_any(order.device, shape, array.dtype, write) }
}

/// Concatenates `arrays`, of one type, along the axis `at` into a new array of `shape`. Each array
/// has the lengths of `shape`, except along this axis.
#[track_caller]
pub(in crate::ops) fn joined(
    order: HostOrder<'_>,
    arrays: &[AnyArray],
    at: usize,
    shape: &Shape,
) -> Result<AnyArray> {
    let dtype = arrays[0].dtype;
    let walks = joined_parts(arrays.iter().map(|array| &array.layout), at, shape)?;
    let write = |output: Untyped| {
        let to = bytes_written(&output);
        for (array, walk) in arrays.iter().zip(walks) {
            assert_eq!(array.dtype, dtype, "the joined arrays differ in type");
            let from = bytes_of(array.operand());
            // SAFETY: the walk visits the elements of the array, and elements of the output that no
            // other array's walk visits.
            unsafe { copy(order, dtype.size_bytes(), from, to, &walk) };
        }
    };
    // SAFETY: the walks together visit every element of the output.
    unsafe { computed_any(order.device, shape, dtype, write) }
}

/// Launches a copy from `from` to `to`. `walk` visits the elements to read and the elements to
/// write. Each element has `bytes` bytes.
///
/// # Safety
///
/// The walk must stay within the memory of both arrays, and visit each element of `to` at most
/// once. No other pending work may write the visited elements of `to`. The stream of `order` must
/// be ordered after the writes to `from`.
pub(super) unsafe fn copy(
    order: HostOrder<'_>,
    bytes: usize,
    from: ReadPtr<u8>,
    to: WritePtr<u8>,
    walk: &Walk<2>,
) {
    let parts = CopyParts::of(walk);
    let work = Work::of_bytes(parts.count(), 2 * bytes * parts.elements_each());
    let reads = (from, bytes, parts);
    launch(
        order,
        work,
        (&reads, &to),
        |&(from, bytes, ref parts), &to, range| {
            // SAFETY: the memory is alive during a launch, and the ranges of a launch do not
            // overlap. This function's contract covers the walk.
            unsafe { copy_parts(bytes, parts, range, from, to) };
        },
    );
}

/// Launches writes of `value` to the elements of `to` that `walk` visits. `value` has `bytes`
/// bytes.
///
/// # Safety
///
/// The contract of [`copy`] applies.
pub(super) unsafe fn fill(
    order: HostOrder<'_>,
    (value, bytes): (Bits, usize),
    to: WritePtr<u8>,
    walk: &Walk<1>,
) {
    let work = Work::of_bytes(walk.count(), bytes);
    let reads = (value, bytes, *walk);
    launch(
        order,
        work,
        (&reads, &to),
        |&(value, bytes, ref walk), &to, range| {
            // SAFETY: the memory is alive during a launch, and the ranges of a launch do not
            // overlap. This function's contract covers the walk.
            unsafe { fill_runs((value, bytes), walk, range, to) };
        },
    );
}
