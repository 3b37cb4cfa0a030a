//! Arrays that are copies in some regions and one value in the others.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::copy::{ReadPtr, WritePtr, copy, copy_run, fill};
use super::launch::{Work, launch};
use super::memory::{Output, computed};
use crate::array::{AnyElement, Array, Layout, Shape, Walk};
use crate::error::Result;
use crate::ops::descriptors::{Triangle, onto_diagonal, pairs};
use crate::ops::order::HostOrder;

/// Returns a new array of `shape` with `array` from the coordinates `before` on, and `value`
/// elsewhere.
#[track_caller]
pub(in crate::ops) fn padded<T: AnyElement>(
    order: HostOrder<'_>,
    array: &Array<T>,
    before: &Shape,
    value: T,
    shape: &Shape,
) -> Result<Array<T>> {
    let layout = array.layout();
    let whole = Layout::contiguous(shape)?;
    let (dims, before) = (layout.dims(), before.dims());
    let write = |output: Output<T>| {
        let to = WritePtr::of(&output);
        let mut corner = 0;
        for axis in 0..layout.ndim() {
            let (stride, length) = (whole.strides()[axis].unsigned_abs(), shape.dims()[axis]);
            let end = before[axis] + dims[axis];
            assert!(end <= length, "padded to less than the length");
            // The margins of this axis. Along the axes before, they lie inside the margins; along
            // the axes behind, they have the whole length.
            for margin in [0..before[axis], end..length] {
                let outer = dims[..axis].iter().copied();
                let inner = shape.dims()[axis + 1..].iter().copied();
                let lengths = outer.chain([margin.len()]).chain(inner);
                let axes = lengths.zip(whole.strides().iter().map(|&stride| [stride]));
                let walk = Walk::over([corner + margin.start * stride], axes);
                // SAFETY: along each axis, the walk reaches elements that the output has, and no
                // margin overlaps another.
                unsafe { fill(order, value, to, &walk) };
            }
            corner += before[axis] * stride;
        }
        let walk = Walk::over([layout.offset(), corner], pairs(layout, &whole));
        // SAFETY: the walk goes over the array, and over elements of the output that are in no
        // margin.
        unsafe { copy(order, ReadPtr::of(array), to, &walk) };
    };
    // SAFETY: an element that is in no margin of any axis is copied.
    unsafe { computed(order.device, shape, write) }
}

/// Returns the square matrix of `shape` with the vector `array` on its diagonal `k`, and zeros
/// elsewhere.
#[track_caller]
pub(in crate::ops) fn on_diagonal<T: AnyElement>(
    order: HostOrder<'_>,
    array: &Array<T>,
    k: isize,
    shape: &Shape,
) -> Result<Array<T>> {
    let layout = array.layout();
    let diagonal = onto_diagonal(layout, k, shape);
    let write = |output: Output<T>| {
        let to = WritePtr::of(&output);
        let all = Walk::over([0], [(output.count(), [1])]);
        // SAFETY: the walk goes over the output.
        unsafe { fill(order, T::zero(), to, &all) };
        // SAFETY: the walk goes over the array, and over a diagonal of as many elements.
        unsafe { copy(order, ReadPtr::of(array), to, &diagonal) };
    };
    // SAFETY: every element is written by the first launch.
    unsafe { computed(order.device, shape, write) }
}

/// Returns `array` with zeros in its last two axes outside the triangle that the diagonal `k`
/// bounds. It has two axes or more.
#[track_caller]
pub(in crate::ops) fn triangular<T: AnyElement>(
    order: HostOrder<'_>,
    array: &Array<T>,
    triangle: Triangle,
    k: isize,
) -> Result<Array<T>> {
    let layout = array.layout();
    let (outer, row) = layout.split_at(layout.ndim() - 1);
    let rows = RegionRows {
        from: ReadPtr::of(array),
        firsts: Walk::new([&outer]),
        height: layout.dims()[layout.ndim() - 2],
        width: row.dims()[0],
        stride: row.strides()[0],
    };
    let write = |output: Output<T>| {
        let count = rows.firsts.count();
        assert_eq!(output.count(), count * rows.width);
        let reads = (rows, triangle, k);
        let body =
            |&(rows, triangle, k): &(RegionRows<T>, Triangle, isize), output: &Output<T>, range| {
                // SAFETY: the memory is alive while a launch runs, and its ranges do not overlap.
                // The stream is ordered after the writes to the array.
                unsafe { rows.write(triangle, k, range, output) };
            };
        let work = Work::of_bytes(count, 2 * rows.width * size_of::<T>());
        launch(order, work, (&reads, &output), body);
    };
    // SAFETY: the ranges of a launch cover all rows, and `RegionRows::write` writes the whole of
    // each.
    unsafe { computed(order.device, layout.shape(), write) }
}

/// The rows of matrices.
#[derive(Clone, Copy)]
struct RegionRows<T> {
    from: ReadPtr<T>,
    /// Goes over the first elements of all rows.
    firsts: Walk<1>,
    /// The number of rows of a matrix.
    height: usize,
    /// The number of elements of a row, and the step between them.
    width: usize,
    stride: isize,
}

impl<T: AnyElement> RegionRows<T> {
    /// Writes the rows of the numbers `range`, with zeros outside the triangle.
    ///
    /// # Safety
    ///
    /// The array must be alive and not written to, and these rows of `output` must be the caller's
    /// alone.
    unsafe fn write(&self, triangle: Triangle, k: isize, range: Range<usize>, output: &Output<T>) {
        let (_, [step]) = self.firsts.row();
        let mut number = range.start;
        for ([at], count) in self.firsts.runs(range) {
            for index in 0..count as isize {
                // SAFETY: by this function's contract.
                let out = unsafe { output.part(number * self.width..(number + 1) * self.width) };
                let first = at.wrapping_add_signed(index * step);
                let diagonal = (number % self.height) as isize;
                let kept = match triangle {
                    Triangle::Lower => {
                        0..self.bounded(diagonal.saturating_add(k).saturating_add(1))
                    }
                    Triangle::Upper => self.bounded(diagonal.saturating_add(k))..self.width,
                };
                out[..kept.start].fill(MaybeUninit::new(T::zero()));
                out[kept.end..].fill(MaybeUninit::new(T::zero()));
                let from = first.wrapping_add_signed(kept.start as isize * self.stride);
                let target = out[kept.clone()].as_mut_ptr();
                // SAFETY: the row has the elements that are kept, and `out` as many.
                unsafe { copy_run(self.from.at(from), target, kept.len(), [self.stride, 1]) };
                number += 1;
            }
        }
    }

    /// Returns `column` if the row has it, otherwise the nearer end.
    fn bounded(&self, column: isize) -> usize {
        usize::try_from(column).unwrap_or(0).min(self.width)
    }
}
