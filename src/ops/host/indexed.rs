//! Gather, scatter-add, scatter and one-hot encoding by the indices of an array.
//!
//! The indices are checked before anything is launched. The kernels check them again, so that their
//! memory safety does not depend on what another part of the program saw.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use super::copy::{ReadPtr, SHORT_ROW, WritePtr, copy_run};
use super::launch::{Work, launch};
use super::memory::{Output, computed};
use super::threads::threads;
use crate::array::element::scalar::convert;
use crate::array::{AnyElement, Array, Integer, Number, Shape, Walk};
use crate::device::DevicePtr;
use crate::device::cuda::Indexing;
use crate::device::host::host_pointer;
use crate::error::Result;
use crate::ops::aliasing::Target;
use crate::ops::descriptors::{Axis, Picking, counted, reached};
use crate::ops::order::HostOrder;

impl Axis {
    /// Returns the distance of `index` from index 0 in memory.
    #[inline(always)]
    fn offset(self, index: i64) -> isize {
        match counted(index, self.length) {
            Some(index) => index as isize * self.step,
            None => never(index, self.length),
        }
    }
}

/// Out of line: inline, a loop would keep the length in memory to print it.
#[cold]
#[inline(never)]
fn never(index: i64, length: usize) -> ! {
    unreachable!("the index {index} of {length} was checked");
}

/// Returns the elements that `indices` pick along the axis `at` of `array`, in a new array of
/// `shape`.
#[track_caller]
pub(in crate::ops) fn picked<T: AnyElement>(
    order: HostOrder<'_>,
    array: &Array<T>,
    indices: &Array<i64>,
    picking: Picking,
    at: usize,
    shape: &Shape,
) -> Result<Array<T>> {
    let (axis, walk) = picking.walk(array.layout(), indices.layout(), at, shape)?;
    let pick = Pick {
        from: ReadPtr::of(array),
        indices: ReadPtr::of(indices),
        axis,
    };
    let (firsts, row) = walk.by_rows();
    let bytes = 2 * size_of::<T>();
    let write = |output: Output<T>| {
        assert_eq!(output.count(), walk.count(), "picked another number");
        let to = WritePtr::of(&output);
        if row.1[1] == 0 && row.0 <= SHORT_ROW {
            let work = Work::of_bytes(firsts.count(), row.0 * bytes);
            let body = |&(pick, firsts, row): &Rows<T>, to: &WritePtr<T>, range: Range<usize>| {
                // SAFETY: the memory is alive while a launch runs, and its ranges do not overlap.
                // The stream is ordered after the writes to the operands.
                unsafe { pick.write_rows(&firsts, row, range, *to) };
            };
            return launch(order, work, (&(pick, firsts, row), &to), body);
        }
        let work = Work::of_bytes(output.count(), bytes + size_of::<i64>());
        let body = |&(pick, walk): &(Pick<T>, Walk<2>), to: &WritePtr<T>, range: Range<usize>| {
            // SAFETY: as above.
            unsafe { pick.write(&walk, range, *to) };
        };
        launch(order, work, (&(pick, walk), &to), body);
    };
    // SAFETY: the ranges of a launch cover all elements or rows, and each of the two bodies writes
    // everything in its range.
    unsafe { computed(order.device, shape, write) }
}

/// The operands of [`picked`].
#[derive(Clone, Copy)]
struct Pick<T> {
    from: ReadPtr<T>,
    indices: ReadPtr<i64>,
    axis: Axis,
}

/// Rows that have one index each: their operands, the walk over their first elements, and their
/// length and steps.
type Rows<T> = (Pick<T>, Walk<2>, (usize, [isize; 2]));

impl<T: AnyElement> Pick<T> {
    /// Writes the rows of the numbers `range` to their positions in `to`.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write).
    unsafe fn write_rows(
        &self,
        firsts: &Walk<2>,
        (length, [step, _]): (usize, [isize; 2]),
        range: Range<usize>,
        to: WritePtr<T>,
    ) {
        let mut number = range.start * length;
        for [at, index_at] in firsts.each(range) {
            // SAFETY: as below, for a whole row.
            unsafe {
                let offset = self.axis.offset(self.indices.at(index_at).read());
                let from = self.from.at(at).wrapping_offset(offset);
                copy_run(from, to.at(number), length, [step, 1]);
            }
            number += length;
        }
    }

    /// Writes the elements of the numbers `range` to their positions in `to`.
    ///
    /// # Safety
    ///
    /// The walk must be the one that [`picked`] makes. The operands must be alive and not written
    /// to, and these elements of `to` must be the caller's alone.
    unsafe fn write(&self, walk: &Walk<2>, range: Range<usize>, to: WritePtr<T>) {
        let (_, [step, index_step]) = walk.row();
        let axis = self.axis;
        let mut number = range.start;
        for ([at, index_at], count) in walk.runs(range) {
            let (from, indices, out) = (self.from.at(at), self.indices.at(index_at), to.at(number));
            // SAFETY: the walk stays within the indices, and within the elements at index 0 of the
            // array's axis; `offset` leads from there to an index that the axis has. Only elements
            // of the range are written.
            unsafe {
                match (step, index_step) {
                    (_, 0) => {
                        let from = from.wrapping_offset(axis.offset(indices.read()));
                        copy_run(from, out, count, [step, 1]);
                    }
                    (0, 1) => {
                        let indices = from_raw_parts(indices, count);
                        for (slot, &index) in from_raw_parts_mut(out, count).iter_mut().zip(indices)
                        {
                            slot.write(from.wrapping_offset(axis.offset(index)).read());
                        }
                    }
                    _ => {
                        for part in 0..count as isize {
                            let index = indices.wrapping_offset(part * index_step).read();
                            let from = from.wrapping_offset(part * step + axis.offset(index));
                            out.wrapping_offset(part)
                                .write(MaybeUninit::new(from.read()));
                        }
                    }
                }
            }
            number += count;
        }
    }
}

/// The size of a cache line. Two threads that write to one line wait for each other.
const LINE_BYTES: usize = 64;

/// Adds each element of `values` to the element of `target` that its index picks along the axis
/// `at`, in order. Does so for each element of `shape`, which is not empty. Along the other axes,
/// all three arrays broadcast to `shape`.
#[track_caller]
pub(in crate::ops) fn add_at<T: Number>(
    order: HostOrder<'_>,
    target: Target<'_>,
    indices: &Array<i64>,
    values: &Array<T>,
    (at, operation): (usize, Indexing),
    shape: &Shape,
) -> Result<()> {
    scatter::<T, Adding>(order, target, indices, values, (at, operation), shape)
}

/// Like [`add_at`], but writes instead of adding. If several values have the same index, the last
/// one stays.
#[track_caller]
pub(in crate::ops) fn put_at<T: AnyElement>(
    order: HostOrder<'_>,
    target: Target<'_>,
    indices: &Array<i64>,
    values: &Array<T>,
    (at, operation): (usize, Indexing),
    shape: &Shape,
) -> Result<()> {
    scatter::<T, Writing>(order, target, indices, values, (at, operation), shape)
}

/// An update of an element that an index picks.
trait Scatter<T>: Copy + Send + Sync + 'static {
    fn with(old: T, value: T) -> T;
}

#[derive(Clone, Copy)]
struct Adding;

#[derive(Clone, Copy)]
struct Writing;

impl<T: Number> Scatter<T> for Adding {
    #[inline(always)]
    fn with(old: T, value: T) -> T {
        old.plus(value)
    }
}

impl<T: AnyElement> Scatter<T> for Writing {
    #[inline(always)]
    fn with(_old: T, value: T) -> T {
        value
    }
}

/// See [`add_at`].
#[track_caller]
fn scatter<T: AnyElement, S: Scatter<T>>(
    order: HostOrder<'_>,
    target: Target<'_>,
    indices: &Array<i64>,
    values: &Array<T>,
    (at, operation): (usize, Indexing),
    shape: &Shape,
) -> Result<()> {
    let walk = reached(&target, indices, values, at, shape)?;
    // Along an axis on which the target has a stride, different positions are different elements of
    // the target, for any indices. So such an axis may be divided among threads.
    let steps = walk.axes().enumerate();
    let steps = steps.filter(|(_, (_, [step, ..]))| *step != 0);
    let (divided, length) = steps
        .map(|(position, (length, _))| (position, length))
        .max_by_key(|&(_, length)| length)
        .unzip();
    let length = length.unwrap_or(1);
    // Each thread walks over all indices, so there are no more blocks than threads. Each block has
    // whole cache lines.
    let block = length.div_ceil(threads());
    let block = block.max(LINE_BYTES / size_of::<T>());
    let scattered = Scattered {
        indices: ReadPtr::of(indices),
        values: ReadPtr::of(values),
        axis: Axis::of(target.layout(), at, operation),
        walk,
        divided,
        block,
    };
    let blocks = length.div_ceil(block);
    let bytes = walk
        .count()
        .saturating_mul(2 * size_of::<T>() + size_of::<i64>());
    let work = Work::of_bytes(blocks, bytes / blocks);
    let to = TargetPtr(host_pointer(DevicePtr(target.buffer().address())).cast::<T>());
    launch(order, work, (&scattered, &to), |scattered, to, range| {
        // SAFETY: the memory is alive while a launch runs, and the stream is ordered after its
        // other users. Nobody else has the target's memory (checked), so neither operand lies in
        // it. The target reaches none of its elements twice (checked), so different ranges have
        // different elements.
        unsafe { scattered.run::<S>(range, *to) };
    });
    Ok(())
}

/// The memory of an array that is scattered to.
#[derive(Clone, Copy)]
struct TargetPtr<T>(*mut T);

// SAFETY: an address of plain data; the code that writes there ensures that nobody else uses the
// memory meanwhile.
unsafe impl<T: Send> Send for TargetPtr<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for TargetPtr<T> {}

/// The operands of [`scatter`]. Invariant: the walk stays within the target's elements at index 0
/// of the axis, within the indices, and within the values.
#[derive(Clone, Copy)]
struct Scattered<T> {
    indices: ReadPtr<i64>,
    values: ReadPtr<T>,
    axis: Axis,
    walk: Walk<3>,
    /// The axis of the walk that the launch divides into blocks. `None` makes one block of
    /// everything.
    divided: Option<usize>,
    /// The number of positions of a block.
    block: usize,
}

impl<T: AnyElement> Scattered<T> {
    /// Adds or writes the elements of the blocks of `range`, in the order of the walk.
    ///
    /// # Safety
    ///
    /// The operands must be alive and not written to, and the elements of `to` at the positions of
    /// these blocks must be the caller's alone.
    unsafe fn run<S: Scatter<T>>(&self, range: Range<usize>, to: TargetPtr<T>) {
        let walk = match self.divided {
            Some(axis) => {
                let (start, end) = (range.start * self.block, range.end * self.block);
                self.walk
                    .narrowed(axis, start..end.min(self.walk.length(axis)))
            }
            None => self.walk,
        };
        let (_, strides @ [step, index_step, value_step]) = walk.row();
        // A copy: the compiler knows that no write changes it.
        let axis = self.axis;
        for ([at, index_at, value_at], count) in walk.runs(0..walk.count()) {
            let (to, indices) = (to.0.wrapping_add(at), self.indices.at(index_at));
            let values = self.values.at(value_at);
            // SAFETY: the walk stays within the indices, the values, and the target's elements at
            // index 0 of the axis; `offset` leads from there to an index that the axis has.
            unsafe {
                match strides {
                    [1, 0, 1] => {
                        let to = to.wrapping_offset(axis.offset(indices.read()));
                        let values = from_raw_parts(values, count);
                        for (slot, &value) in from_raw_parts_mut(to, count).iter_mut().zip(values) {
                            *slot = S::with(*slot, value);
                        }
                    }
                    [0, 1, 1] => {
                        let indices = from_raw_parts(indices, count);
                        let values = from_raw_parts(values, count);
                        for (&index, &value) in indices.iter().zip(values) {
                            let to = to.wrapping_offset(axis.offset(index));
                            to.write(S::with(to.read(), value));
                        }
                    }
                    _ => {
                        for part in 0..count as isize {
                            let index = indices.wrapping_offset(part * index_step).read();
                            let to = to.wrapping_offset(part * step + axis.offset(index));
                            let value = values.wrapping_offset(part * value_step).read();
                            to.write(S::with(to.read(), value));
                        }
                    }
                }
            }
        }
    }
}

/// Returns a row for each class in `array`, in a new array of `shape`: a one at the position of the
/// class, and zeros elsewhere. The last axis of `shape` has one position for each of the `classes`.
#[track_caller]
pub(in crate::ops) fn marked<T: Integer, U: AnyElement>(
    order: HostOrder<'_>,
    array: &Array<T>,
    classes: usize,
    shape: &Shape,
) -> Result<Array<U>> {
    let walk = Walk::new([array.layout()]);
    let write = |output: Output<U>| {
        let count = walk.count();
        assert_eq!(output.count(), count * classes);
        let reads = (ReadPtr::of(array), walk, classes);
        let work = Work::of_bytes(count, size_of::<T>() + classes * size_of::<U>());
        launch(order, work, (&reads, &output), |reads, output, range| {
            let &(from, walk, classes) = reads;
            // SAFETY: the memory is alive while a launch runs, and its ranges do not overlap.
            let out = unsafe { output.part(range.start * classes..range.end * classes) };
            out.fill(MaybeUninit::new(U::zero()));
            let mut rows = out.chunks_exact_mut(classes);
            let (_, [step]) = walk.row();
            for ([at], count) in walk.runs(range) {
                for (part, row) in (0..count as isize).zip(&mut rows) {
                    // SAFETY: the walk goes over the array, which nobody writes to meanwhile.
                    let class = unsafe { from.at(at).wrapping_offset(part * step).read() };
                    row[convert::<u64, T>(class) as usize] = MaybeUninit::new(U::one());
                }
            }
        });
    };
    // SAFETY: the ranges of a launch cover all rows, and each is filled.
    unsafe { computed(order.device, shape, write) }
}
