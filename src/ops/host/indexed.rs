//! Gather, scatter-add, scatter and one-hot encoding by the indices of an array.
//!
//! The indices are checked before anything is launched. The kernels check the indices again, so
//! that memory safety does not depend on the first check.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use num_complex::Complex;

use super::by_bytes;
use super::copy::{SHORT_ROW, copy_run};
use super::launch::{Work, launch};
use super::memory::{Untyped, computed_any};
use super::pointers::{ReadPtr, WritePtr, bytes_of, bytes_written};
use super::threads::threads;
use crate::array::{AnyArray, Bits, DType, Layout, Number, Shape, Walk};
use crate::device::DevicePtr;
use crate::device::cuda::Indexing;
use crate::device::host::host_pointer;
use crate::error::Result;
use crate::ops::descriptors::{Axis, Picking, counted, reached};
use crate::ops::expression::tree::Operand;
use crate::ops::order::HostOrder;
use crate::ops::order::aliasing::Target;

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

/// Reports an index that the first check let through. Out of line: inline, a loop would keep the
/// length in memory to print it.
#[cold]
#[inline(never)]
fn never(index: i64, length: usize) -> ! {
    unreachable!("the index {index} of {length} was checked");
}

/// Returns the elements that `indices` pick along the axis `at` of `array`, in a new array of
/// `shape`.
#[track_caller]
pub(in crate::ops) fn picked(
    order: HostOrder<'_>,
    array: Operand<'_>,
    indices: Operand<'_>,
    picking: Picking,
    at: usize,
    shape: &Shape,
) -> Result<AnyArray> {
    let (axis, walk) = picking.walk(array.layout, indices.layout, at, shape)?;
    let bytes = array.dtype.size_bytes();
    let pick = Pick {
        from: bytes_of(array),
        indices: indices_of(indices),
        axis,
    };
    let (firsts, row) = walk.by_rows();
    let write = |output: Untyped| {
        assert_eq!(output.count(), walk.count(), "picked another number");
        let to = bytes_written(&output);
        if row.1[1] == 0 && row.0 <= SHORT_ROW {
            let work = Work::of_bytes(firsts.count(), row.0 * 2 * bytes);
            let reads = (pick, bytes, firsts, row);
            return launch(order, work, (&reads, &to), |reads, &to, range| {
                let (pick, bytes, firsts, row) = reads;
                // SAFETY: the memory is alive while a launch runs, and its ranges do not overlap.
                // The stream is ordered after the writes to the operands.
                unsafe { by_bytes!(*bytes, pick_rows::<Word>(pick, firsts, *row, range, to)) };
            });
        }
        let work = Work::of_bytes(output.count(), 2 * bytes + size_of::<i64>());
        let reads = (pick, bytes, walk);
        launch(order, work, (&reads, &to), |reads, &to, range| {
            let (pick, bytes, walk) = reads;
            // SAFETY: as above.
            unsafe { by_bytes!(*bytes, pick_elements::<Word>(pick, walk, range, to)) };
        });
    };
    // SAFETY: the ranges of a launch cover all elements or rows. Each of the two bodies writes
    // everything in its range.
    unsafe { computed_any(order.device, shape, array.dtype, write) }
}

/// Returns the address of indices.
fn indices_of(indices: Operand<'_>) -> ReadPtr<i64> {
    assert_eq!(indices.dtype, DType::I64, "indices of another type");
    bytes_of(indices).cast()
}

/// The operands of [`picked`].
#[derive(Clone, Copy)]
struct Pick {
    from: ReadPtr<u8>,
    indices: ReadPtr<i64>,
    axis: Axis,
}

/// Writes the rows of the numbers `range`, of elements of `T`, to their positions in `to`. Each row
/// has one index. `firsts` goes over the first elements of the rows.
///
/// # Safety
///
/// As for [`pick_elements`].
unsafe fn pick_rows<T: Copy>(
    pick: &Pick,
    firsts: &Walk<2>,
    (length, [step, _]): (usize, [isize; 2]),
    range: Range<usize>,
    to: WritePtr<u8>,
) {
    let (from, to) = (pick.from.cast::<T>(), to.cast::<T>());
    let mut number = range.start * length;
    for [at, index_at] in firsts.each(range) {
        // SAFETY: as below, for a whole row.
        unsafe {
            let offset = pick.axis.offset(pick.indices.at(index_at).read());
            let from = from.at(at).wrapping_offset(offset);
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
unsafe fn pick_elements<T: Copy>(
    pick: &Pick,
    walk: &Walk<2>,
    range: Range<usize>,
    to: WritePtr<u8>,
) {
    let (elements, to) = (pick.from.cast::<T>(), to.cast::<T>());
    let (_, [step, index_step]) = walk.row();
    let axis = pick.axis;
    let mut number = range.start;
    for ([at, index_at], count) in walk.runs(range) {
        let (from, indices, out) = (elements.at(at), pick.indices.at(index_at), to.at(number));
        // SAFETY: the walk stays within the indices, and within the elements at index 0 of the
        // array's axis. From index 0, `offset` leads to an index that the axis has. Only elements
        // of the range are written.
        unsafe {
            match (step, index_step) {
                (_, 0) => {
                    let from = from.wrapping_offset(axis.offset(indices.read()));
                    copy_run(from, out, count, [step, 1]);
                }
                (0, 1) => {
                    let indices = from_raw_parts(indices, count);
                    for (slot, &index) in from_raw_parts_mut(out, count).iter_mut().zip(indices) {
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

/// The size of a cache line. Two threads that write to one line wait for each other.
const LINE_BYTES: usize = 64;

/// Adds each element of `values` to the element of `target` that its index picks along the axis
/// `at`, in order. There is one addition for each element of `shape`, which is not empty. Along the
/// other axes, all three arrays broadcast to `shape`.
#[track_caller]
pub(in crate::ops) fn add_at(
    order: HostOrder<'_>,
    target: Target<'_>,
    indices: Operand<'_>,
    values: Operand<'_>,
    along: (usize, Indexing),
    shape: &Shape,
) -> Result<()> {
    assert_eq!(
        target.dtype(),
        values.dtype,
        "added elements of another type"
    );
    let run = adding_loop(values.dtype);
    scatter(order, target, indices, values, along, (shape, run))
}

/// Returns the loop that adds elements of `dtype`. Integers wrap, so signed and unsigned integers
/// share loops.
fn adding_loop(dtype: DType) -> ScatterLoop {
    match dtype {
        DType::F32 => scatter_blocks::<f32, Adding>,
        DType::F64 => scatter_blocks::<f64, Adding>,
        DType::I8 | DType::U8 => scatter_blocks::<u8, Adding>,
        DType::I16 | DType::U16 => scatter_blocks::<u16, Adding>,
        DType::I32 | DType::U32 => scatter_blocks::<u32, Adding>,
        DType::I64 | DType::U64 => scatter_blocks::<u64, Adding>,
        DType::C32 => scatter_blocks::<Complex<f32>, Adding>,
        DType::C64 => scatter_blocks::<Complex<f64>, Adding>,
        _ => unreachable!("elements of {dtype} are added in another type"),
    }
}

/// Like [`add_at`], but writes instead of adding. If several values have the same index, the last
/// one is kept.
#[track_caller]
pub(in crate::ops) fn put_at(
    order: HostOrder<'_>,
    target: Target<'_>,
    indices: Operand<'_>,
    values: Operand<'_>,
    along: (usize, Indexing),
    shape: &Shape,
) -> Result<()> {
    assert_eq!(
        target.dtype(),
        values.dtype,
        "wrote elements of another type"
    );
    let run = by_bytes!(values.dtype.size_bytes(), writing_loop::<Word>());
    scatter(order, target, indices, values, along, (shape, run))
}

fn writing_loop<T: Copy + Send + Sync + 'static>() -> ScatterLoop {
    scatter_blocks::<T, Writing>
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

impl<T: Copy> Scatter<T> for Writing {
    #[inline(always)]
    fn with(_old: T, value: T) -> T {
        value
    }
}

/// See [`add_at`].
#[track_caller]
fn scatter(
    order: HostOrder<'_>,
    target: Target<'_>,
    indices: Operand<'_>,
    values: Operand<'_>,
    (at, operation): (usize, Indexing),
    (shape, run): (&Shape, ScatterLoop),
) -> Result<()> {
    let element_bytes = values.dtype.size_bytes();
    let walk = reached(&target, [indices.layout, values.layout], at, shape)?;
    // If the target has a stride along an axis, different positions are different elements of the
    // target, for any indices. So this axis may be divided among threads.
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
    let block = block.max(LINE_BYTES / element_bytes);
    let scattered = Scattered {
        indices: indices_of(indices),
        values: bytes_of(values),
        axis: Axis::of(target.layout(), at, operation),
        walk,
        divided,
        block,
    };
    let blocks = length.div_ceil(block);
    let bytes = walk
        .count()
        .saturating_mul(2 * element_bytes + size_of::<i64>());
    let work = Work::of_bytes(blocks, bytes / blocks);
    let to = TargetPtr(host_pointer(DevicePtr(target.buffer().address())));
    let reads = (scattered, run);
    launch(order, work, (&reads, &to), |(scattered, run), to, range| {
        // SAFETY: the memory is alive while a launch runs. The stream is ordered after other users
        // of the memory. Nobody else has the target's memory (checked), so neither operand lies in
        // it. The target reaches none of its elements twice (checked), so different ranges have
        // different elements. The loop is for elements of the values' size or type.
        unsafe { run(scattered, range, *to) };
    });
    Ok(())
}

/// A loop that adds or writes the elements of blocks, in the order of the walk.
type ScatterLoop = unsafe fn(&Scattered, Range<usize>, TargetPtr);

/// The memory of an array that is scattered to.
#[derive(Clone, Copy)]
struct TargetPtr(*mut u8);

// SAFETY: an address of plain data. The code that writes to it ensures that nobody else uses the
// memory meanwhile.
unsafe impl Send for TargetPtr {}
// SAFETY: as above.
unsafe impl Sync for TargetPtr {}

/// The operands of [`scatter`]. Invariant: the walk stays within the indices, the values, and the
/// target's elements at index 0 of the axis.
#[derive(Clone, Copy)]
struct Scattered {
    indices: ReadPtr<i64>,
    values: ReadPtr<u8>,
    axis: Axis,
    walk: Walk<3>,
    /// The axis of the walk that the launch divides into blocks. If it is `None`, everything is one
    /// block.
    divided: Option<usize>,
    /// The number of positions of a block.
    block: usize,
}

/// Adds or writes the elements of the blocks of `range`, of type `T`, in the order of the walk.
///
/// # Safety
///
/// The operands must be alive and not written to. The elements of `to` at the positions of these
/// blocks must be the caller's alone.
unsafe fn scatter_blocks<T: Copy, S: Scatter<T>>(
    scattered: &Scattered,
    range: Range<usize>,
    to: TargetPtr,
) {
    let (elements, first) = (scattered.values.cast::<T>(), to.0.cast::<T>());
    let walk = match scattered.divided {
        Some(axis) => {
            let (start, end) = (range.start * scattered.block, range.end * scattered.block);
            scattered
                .walk
                .narrowed(axis, start..end.min(scattered.walk.length(axis)))
        }
        None => scattered.walk,
    };
    let (_, strides @ [step, index_step, value_step]) = walk.row();
    // A copy: the compiler knows that no write changes it.
    let axis = scattered.axis;
    for ([at, index_at, value_at], count) in walk.runs(0..walk.count()) {
        let (to, indices) = (first.wrapping_add(at), scattered.indices.at(index_at));
        let values = elements.at(value_at);
        // SAFETY: the walk stays within the indices, the values, and the target's elements at index
        // 0 of the axis. From index 0, `offset` leads to an index that the axis has.
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

/// Writes the bytes of one element to `to`.
///
/// # Safety
///
/// `to` must have room for the element, and be aligned.
#[inline(always)]
unsafe fn put<T>(to: *mut u8, element: &[u8]) {
    assert_eq!(element.len(), size_of::<T>());
    // SAFETY: by this function's contract.
    unsafe { to.copy_from_nonoverlapping(element.as_ptr(), size_of::<T>()) };
}

/// Returns a row for each class in `array`, of `i64`, in a new array of `shape`: `one` at the
/// position of the class, and zeros elsewhere. The last axis of `shape` has one position for each
/// of the `classes`.
#[track_caller]
pub(in crate::ops) fn marked(
    order: HostOrder<'_>,
    array: Operand<'_>,
    classes: usize,
    (dtype, one): (DType, Bits),
    shape: &Shape,
) -> Result<AnyArray> {
    assert_eq!(array.dtype, DType::I64, "classes of another type");
    let walk = Layout::walk([array.layout]);
    let size_bytes = dtype.size_bytes();
    let write = |output: Untyped| {
        let count = walk.count();
        assert_eq!(output.count(), count * classes);
        let reads = (bytes_of(array).cast(), walk, classes, one);
        let work = Work::of_bytes(count, size_of::<i64>() + classes * size_bytes);
        launch(
            order,
            work,
            (&reads, &output),
            move |reads, output, range| {
                let &(from, walk, classes, one) = reads;
                let row_bytes = classes * size_bytes;
                let mut row = output.part(dtype, range.start * classes);
                // SAFETY: the memory is alive while a launch runs, and its ranges do not overlap. A
                // number of zero bytes is zero.
                unsafe { row.write_bytes(0, range.len() * row_bytes) };
                let (_, [step]) = walk.row();
                for ([at], count) in walk.runs(range) {
                    for part in 0..count as isize {
                        let from: *const i64 = ReadPtr::at(from, at);
                        // SAFETY: the walk goes over the array, which nobody writes to meanwhile.
                        let class = unsafe { from.wrapping_offset(part * step).read() } as usize;
                        assert!(class < classes, "the class {class} is out of range");
                        let to = row.wrapping_add(class * size_bytes);
                        let one = one.bytes(size_bytes);
                        // SAFETY: the row has an element for each class.
                        unsafe { by_bytes!(size_bytes, put::<Word>(to, one)) };
                        row = row.wrapping_add(row_bytes);
                    }
                }
            },
        );
    };
    // SAFETY: the ranges of a launch cover all rows, and each is filled.
    unsafe { computed_any(order.device, shape, dtype, write) }
}
