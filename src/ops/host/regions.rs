//! Arrays that copy an operand in one region, and have a constant value elsewhere.

use super::copy::{copy, fill};
use super::launch::{Work, launch};
use super::memory::{Untyped, computed_any};
use super::pointers::{bytes_of, bytes_written};
use crate::array::{AnyArray, Bits, Layout, Shape, Walk};
use crate::error::Result;
use crate::ops::descriptors::{Triangle, onto_diagonal, pairs};
use crate::ops::expression::tree::Operand;
use crate::ops::order::HostOrder;
use cachescope_kernels::moves::triangles::{MatrixRows, write_rows};

/// Returns a new array of `shape` with `array` from the coordinates `before` on, and `value`
/// elsewhere.
#[track_caller]
pub(in crate::ops) fn padded(
    order: HostOrder<'_>,
    array: Operand<'_>,
    before: &Shape,
    value: Bits,
    shape: &Shape,
) -> Result<AnyArray> {
    let (layout, bytes) = (array.layout, array.dtype.size_bytes());
    let whole = Layout::contiguous(shape)?;
    let (dims, before) = (layout.dims(), before.dims());
    let write = |output: Untyped| {
        let to = bytes_written(&output);
        let mut corner = 0;
        for axis in 0..layout.ndim() {
            let (stride, length) = (whole.strides()[axis].unsigned_abs(), shape.dims()[axis]);
            let end = before[axis] + dims[axis];
            assert!(end <= length, "the padded axis is longer than the result");
            // Each axis has two margins. Along earlier axes, a margin covers only the range of
            // `array`. Along later axes, a margin has the whole length.
            for margin in [0..before[axis], end..length] {
                let outer = dims[..axis].iter().copied();
                let inner = shape.dims()[axis + 1..].iter().copied();
                let lengths = outer.chain([margin.len()]).chain(inner);
                let axes = lengths.zip(whole.strides().iter().map(|&stride| [stride]));
                let walk = Walk::over([corner + margin.start * stride], axes);
                // SAFETY: the walk stays within the output, as the assertion checks. Margins do not
                // overlap.
                unsafe { fill(order, (value, bytes), to, &walk) };
            }
            corner += before[axis] * stride;
        }
        let walk = Walk::over([layout.offset(), corner], pairs(layout, &whole));
        // SAFETY: the walk visits the elements of `array`, and elements of the output that are in
        // no margin.
        unsafe { copy(order, bytes, bytes_of(array), to, &walk) };
    };
    // SAFETY: an element is in a margin, which is filled, or it is copied.
    unsafe { computed_any(order.device, shape, array.dtype, write) }
}

/// Returns the square matrix of `shape` with the vector `array` on its diagonal `k`, and zeros
/// elsewhere.
#[track_caller]
pub(in crate::ops) fn on_diagonal(
    order: HostOrder<'_>,
    array: Operand<'_>,
    k: isize,
    shape: &Shape,
) -> Result<AnyArray> {
    let bytes = array.dtype.size_bytes();
    let diagonal = onto_diagonal(array.layout, k, shape);
    let write = |output: Untyped| {
        let to = bytes_written(&output);
        let all = Walk::over([0], [(output.count(), [1])]);
        // SAFETY: the walk visits the elements of the output.
        unsafe { fill(order, (Bits::default(), bytes), to, &all) };
        // SAFETY: the walk visits the elements of `array`, and as many elements of a diagonal. The
        // stream is ordered after the fill.
        unsafe { copy(order, bytes, bytes_of(array), to, &diagonal) };
    };
    // SAFETY: the fill writes every element.
    unsafe { computed_any(order.device, shape, array.dtype, write) }
}

/// Returns a copy of `array` with zeros outside a triangle of its last two axes. The diagonal `k`
/// bounds the triangle. `array` has at least two axes.
#[track_caller]
pub(in crate::ops) fn triangular(
    order: HostOrder<'_>,
    array: Operand<'_>,
    triangle: Triangle,
    k: isize,
) -> Result<AnyArray> {
    let (layout, bytes) = (array.layout, array.dtype.size_bytes());
    let (outer, row) = layout.split_at(layout.ndim() - 1);
    let rows = MatrixRows {
        from: bytes_of(array),
        firsts: Layout::walk([&outer]),
        height: layout.dims()[layout.ndim() - 2],
        width: row.dims()[0],
        stride: row.strides()[0],
    };
    let write = |output: Untyped| {
        let count = rows.firsts.count();
        assert_eq!(output.count(), count * rows.width);
        let to = bytes_written(&output);
        let work = Work::of_bytes(count, 2 * rows.width * bytes);
        let reads = (rows, bytes, triangle, k);
        launch(order, work, (&reads, &to), |reads, &to, range| {
            let (rows, bytes, triangle, k) = *reads;
            // SAFETY: the memory is alive during a launch, and the ranges of a launch do not
            // overlap. The stream is ordered after the writes to the array. The output has all
            // rows, as the assertion checks.
            unsafe { write_rows(bytes, &rows, (triangle, k), range, to) };
        });
    };
    // SAFETY: the ranges of a launch cover all rows, and `write_rows` writes whole rows.
    unsafe { computed_any(order.device, layout.shape(), array.dtype, write) }
}
