//! Copies between elements of any strides.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::copy_nonoverlapping;
use std::slice::from_raw_parts_mut;

use super::launch::{Work, launch};
#[cfg(feature = "linalg")]
use super::memory::begun;
use super::memory::{Output, computed};
use crate::array::{AnyElement, Array, Shape, Walk};
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::error::Result;
use crate::ops::descriptors::{self, Copying};
use crate::ops::order::HostOrder;

/// The memory of an operand that a kernel reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadPtr<T>(*const T);

/// The memory of a new array that a kernel writes, in any order.
#[derive(Clone, Copy, Debug)]
pub(super) struct WritePtr<T>(*mut MaybeUninit<T>);

// SAFETY: an address of plain data; the code that reads there ensures that nobody writes meanwhile.
unsafe impl<T: Sync> Send for ReadPtr<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for ReadPtr<T> {}
// SAFETY: an address of plain data; the code that writes there ensures that nobody else does.
unsafe impl<T: Send> Send for WritePtr<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for WritePtr<T> {}

impl<T: AnyElement> ReadPtr<T> {
    pub(super) fn of(array: &Array<T>) -> Self {
        Self(host_pointer(DevicePtr(array.buffer().address())).cast())
    }

    /// Returns a pointer to the elements from `first` on.
    #[cfg(feature = "fft")]
    pub(super) fn over(first: *const T) -> Self {
        Self(first)
    }

    /// Returns the address of the element at `index`.
    #[inline(always)]
    pub(super) fn at(self, index: usize) -> *const T {
        self.0.wrapping_add(index)
    }
}

impl<T: AnyElement> WritePtr<T> {
    pub(super) fn of(output: &Output<T>) -> Self {
        // SAFETY: the output is new, so nobody else has a part of it, and this one is not used.
        Self(unsafe { output.part(0..output.count()) }.as_mut_ptr())
    }

    /// Returns a pointer to the elements from `first` on.
    #[cfg(feature = "fft")]
    pub(super) fn over(first: *mut MaybeUninit<T>) -> Self {
        Self(first)
    }

    /// Returns the address of the element at `index`.
    #[inline(always)]
    pub(super) fn at(self, index: usize) -> *mut MaybeUninit<T> {
        self.0.wrapping_add(index)
    }
}

/// Copies the elements of `array` that `copying` selects to a new array of `shape`.
#[track_caller]
pub(in crate::ops) fn copied<T: AnyElement>(
    order: HostOrder<'_>,
    array: &Array<T>,
    copying: Copying,
    shape: &Shape,
) -> Result<Array<T>> {
    let walk = copying.walk(array.layout());
    let write = |output: Output<T>| {
        assert_eq!(output.count(), walk.count(), "copied to another length");
        // SAFETY: the walk goes over the array and over the output, which has as many elements.
        unsafe { copy(order, ReadPtr::of(array), WritePtr::of(&output), &walk) };
    };
    // SAFETY: the walk is in row-major order of the output, and as long.
    unsafe { computed(order.device, shape, write) }
}

/// Like [`copied`] with [`Copying::All`], but also returns the memory of the new array, which later
/// launches on the stream may overwrite.
#[cfg(feature = "linalg")]
#[track_caller]
pub(super) fn copied_to_overwrite<T: AnyElement>(
    order: HostOrder<'_>,
    array: &Array<T>,
    shape: &Shape,
) -> Result<(Array<T>, Output<T>)> {
    let walk = Copying::All.walk(array.layout());
    // SAFETY: the walk is in row-major order of the output, and as long.
    let (copy_of, output) = unsafe { begun(order.device, shape) }?;
    assert_eq!(output.count(), walk.count(), "copied to another length");
    // SAFETY: the walk goes over the array and over the output, which has as many elements.
    unsafe { copy(order, ReadPtr::of(array), WritePtr::of(&output), &walk) };
    Ok((copy_of, output))
}

/// Concatenates `arrays` along the axis `at` into a new array of `shape`. Each has this shape
/// except for the length of the axis.
#[track_caller]
pub(in crate::ops) fn joined<T: AnyElement>(
    order: HostOrder<'_>,
    arrays: &[&Array<T>],
    at: usize,
    shape: &Shape,
) -> Result<Array<T>> {
    let parts = descriptors::joined(arrays, at, shape)?;
    let write = |output: Output<T>| {
        let to = WritePtr::of(&output);
        for (array, walk) in parts {
            // SAFETY: the walk goes over the array, and over elements of the output that no other
            // walk reaches.
            unsafe { copy(order, ReadPtr::of(array), to, &walk) };
        }
    };
    // SAFETY: the walks together reach every element of the output.
    unsafe { computed(order.device, shape, write) }
}

/// Launches the copy of the elements of `from` that `walk` reaches to the elements of `to` that it
/// reaches.
///
/// # Safety
///
/// The walk must stay within the memory of both, and reach no element of `to` twice. Nobody else
/// may be about to write there. The stream of `order` must be ordered after the writes to `from`.
pub(super) unsafe fn copy<T: AnyElement>(
    order: HostOrder<'_>,
    from: ReadPtr<T>,
    to: WritePtr<T>,
    walk: &Walk<2>,
) {
    if let Some(tiles) = Tiles::of(walk) {
        let body = |&(from, tiles): &(ReadPtr<T>, Tiles), to: &WritePtr<T>, range: Range<usize>| {
            // SAFETY: the memory is alive while a launch runs, its ranges do not overlap, and the
            // caller keeps the rest.
            unsafe { tiles.copy(range, from, *to) };
        };
        let work = Work::of_bytes(tiles.count(), 2 * size_of::<T>() * tiles.elements_each());
        return launch(order, work, (&(from, tiles), &to), body);
    }
    let (firsts, row) = walk.by_rows();
    if row.0 <= SHORT_ROW {
        let body = |&(from, firsts, row): &Rows<T>, to: &WritePtr<T>, range: Range<usize>| {
            // SAFETY: the memory is alive while a launch runs, its ranges do not overlap, and the
            // caller keeps the rest.
            unsafe { copy_rows(&firsts, row, range, from, *to) };
        };
        let work = Work::of_bytes(firsts.count(), 2 * size_of::<T>() * row.0);
        return launch(order, work, (&(from, firsts, row), &to), body);
    }
    let body = |&(from, walk): &(ReadPtr<T>, Walk<2>), to: &WritePtr<T>, range: Range<usize>| {
        let (_, strides) = walk.row();
        for ([at, target], count) in walk.runs(range) {
            // SAFETY: the memory is alive while a launch runs, its ranges do not overlap, and the
            // caller keeps the rest.
            unsafe { copy_run(from.at(at), to.at(target), count, strides) };
        }
    };
    let work = Work::of_bytes(walk.count(), 2 * size_of::<T>());
    launch(order, work, (&(from, *walk), &to), body);
}

/// Copies the elements of `from` that `walk` reaches to the elements of `to` that it reaches. Runs
/// on this thread, within a launch.
///
/// # Safety
///
/// As for [`copy`], while its launch runs.
#[cfg(feature = "fft")]
pub(super) unsafe fn copy_here<T: AnyElement>(from: ReadPtr<T>, to: WritePtr<T>, walk: &Walk<2>) {
    if let Some(tiles) = Tiles::of(walk) {
        // SAFETY: by this function's contract.
        return unsafe { tiles.copy(0..tiles.count(), from, to) };
    }
    let (_, strides) = walk.row();
    for ([at, target], count) in walk.runs(0..walk.count()) {
        // SAFETY: by this function's contract.
        unsafe { copy_run(from.at(at), to.at(target), count, strides) };
    }
}

/// Rows up to this length are copied as they are; longer ones may be divided among threads.
pub(super) const SHORT_ROW: usize = 1 << 12;

/// The memory that rows are read from, the walk over their first elements, and their length and
/// steps.
type Rows<T> = (ReadPtr<T>, Walk<2>, (usize, [isize; 2]));

/// Copies the rows of the numbers `range`.
///
/// # Safety
///
/// As for [`copy`], while its launch runs.
unsafe fn copy_rows<T: AnyElement>(
    firsts: &Walk<2>,
    (length, strides): (usize, [isize; 2]),
    range: Range<usize>,
    from: ReadPtr<T>,
    to: WritePtr<T>,
) {
    // SAFETY: in each case the rows have this length and are the caller's.
    unsafe {
        match length {
            2 => copy_few::<T, 2>(firsts, strides, range, from, to),
            3 => copy_few::<T, 3>(firsts, strides, range, from, to),
            4 => copy_few::<T, 4>(firsts, strides, range, from, to),
            _ => {
                for [at, target] in firsts.each(range) {
                    copy_run(from.at(at), to.at(target), length, strides);
                }
            }
        }
    }
}

/// Like [`copy_rows`], for a length that the compiler knows. In short rows, the overhead of a loop
/// would be most of the work.
///
/// # Safety
///
/// As for [`copy_rows`].
unsafe fn copy_few<T: AnyElement, const LENGTH: usize>(
    firsts: &Walk<2>,
    strides: [isize; 2],
    range: Range<usize>,
    from: ReadPtr<T>,
    to: WritePtr<T>,
) {
    for [at, target] in firsts.each(range) {
        // SAFETY: by this function's contract.
        unsafe { strided(from.at(at), to.at(target), LENGTH, strides) };
    }
}

/// Launches writes of `value` to the elements of `to` that `walk` reaches.
///
/// # Safety
///
/// As for [`copy`].
pub(super) unsafe fn fill<T: AnyElement>(
    order: HostOrder<'_>,
    value: T,
    to: WritePtr<T>,
    walk: &Walk<1>,
) {
    let body = |&(value, walk): &(T, Walk<1>), to: &WritePtr<T>, range: Range<usize>| {
        let (_, [stride]) = walk.row();
        for ([at], count) in walk.runs(range) {
            // SAFETY: the memory is alive while a launch runs, its ranges do not overlap, and the
            // caller keeps the rest; `value` is on this thread's stack.
            unsafe { copy_run(&raw const value, to.at(at), count, [0, stride]) };
        }
    };
    let work = Work::of_bytes(walk.count(), size_of::<T>());
    launch(order, work, (&(value, *walk), &to), body);
}

/// Copies `count` elements. `strides` are the distances between elements of the source and of the
/// target.
///
/// # Safety
///
/// The memory that is read must hold elements, and the memory that is written must be the caller's
/// alone; the two must not overlap.
#[inline]
pub(super) unsafe fn copy_run<T: Copy>(
    from: *const T,
    to: *mut MaybeUninit<T>,
    count: usize,
    strides: [isize; 2],
) {
    // SAFETY: in each case only elements of the run are accessed, which are the caller's to read
    // and to write.
    unsafe {
        match strides {
            [1, 1] => copy_dense(from, to, count),
            [0, 1] if count > 0 => {
                from_raw_parts_mut(to, count).fill(MaybeUninit::new(from.read()));
            }
            // If the compiler knows the step, it makes vector code.
            [-1, 1] => strided(from, to, count, [-1, 1]),
            [2, 1] => strided(from, to, count, [2, 1]),
            [stride, 1] => strided(from, to, count, [stride, 1]),
            strides => strided(from, to, count, strides),
        }
    }
}

/// If the target of a copy is further into its page than the source by fewer bytes than this, the
/// processor mistakes the two for overlapping.
const NEAR_BYTES: usize = 64;

/// The processor compares addresses modulo this to detect overlap.
const PAGE_BYTES: usize = 4096;

/// The pieces in which such a run is copied: too small for the instruction that copies whole runs.
const PIECE_BYTES: usize = 512;

/// Like [`copy_run`], but neither the source nor the target has gaps.
///
/// # Safety
///
/// As for [`copy_run`].
#[inline]
unsafe fn copy_dense<T: Copy>(from: *const T, to: *mut MaybeUninit<T>, count: usize) {
    let further = to.addr().wrapping_sub(from.addr()) % PAGE_BYTES;
    let each = PIECE_BYTES / size_of::<T>();
    if further == 0 || further >= NEAR_BYTES || count <= each {
        // SAFETY: by this function's contract.
        return unsafe { copy_nonoverlapping(from, to.cast(), count) };
    }
    // The C library copies long runs by `rep movsb`, which would copy byte by byte here and take
    // ten times as long.
    for start in (0..count).step_by(each) {
        let piece = each.min(count - start);
        // SAFETY: the piece is part of the run.
        unsafe { copy_nonoverlapping(from.add(start), to.add(start).cast(), piece) };
    }
}

/// Like [`copy_run`], for any strides.
///
/// # Safety
///
/// As for [`copy_run`].
#[inline(always)]
unsafe fn strided<T: Copy>(
    from: *const T,
    to: *mut MaybeUninit<T>,
    count: usize,
    [read, write]: [isize; 2],
) {
    for index in 0..count as isize {
        let slot = to.wrapping_offset(index * write);
        // SAFETY: by this function's contract.
        unsafe {
            let element = from.wrapping_offset(index * read);
            slot.write(element.cast::<MaybeUninit<T>>().read());
        };
    }
}

/// The number of elements along each side of a tile. The elements that a tile reads and those that
/// it writes fit the first-level cache together.
const TILE: usize = 32;

/// A walk by tiles of two axes: along one axis the target has no gaps, along the other the source
/// has none.
#[derive(Clone, Copy)]
struct Tiles {
    /// Goes over the first elements of all strips. A strip has up to [`TILE`] elements of the
    /// divided axis, and all of the other axis.
    strips: Walk<2>,
    /// The number of strips along the axis that they divide.
    in_axis: usize,
    /// The axis that the strips divide: its length, and its steps.
    across: (usize, [isize; 2]),
    /// The axis along a strip.
    along: (usize, [isize; 2]),
}

impl Tiles {
    /// Returns the tiles of `walk` if a copy by rows would use only a little of every cache line
    /// that it reads.
    fn of(walk: &Walk<2>) -> Option<Self> {
        let along = walk.row();
        let (length, [read, _]) = along;
        let inner = walk.axes().len() - 1;
        if read.unsigned_abs() < 2 || length < TILE / 4 || walk.count() == 0 {
            return None;
        }
        let dense = |(length, [read, _]): (usize, [isize; 2])| {
            read.unsigned_abs() == 1 && length >= TILE / 4
        };
        let divided = walk.axes().take(inner).position(dense)?;
        let across = walk.axes().nth(divided)?;
        let (length, strides) = across;
        let in_axis = length.div_ceil(TILE);
        let others = walk.axes().take(inner).enumerate();
        let others = others.filter(|&(axis, _)| axis != divided);
        let strip = (in_axis, strides.map(|stride| stride * TILE as isize));
        let axes = others.map(|(_, axis)| axis).chain([strip]);
        Some(Self {
            strips: Walk::over(walk.first(), axes),
            in_axis,
            across,
            along,
        })
    }

    fn count(&self) -> usize {
        self.strips.count()
    }

    fn elements_each(&self) -> usize {
        self.along.0 * self.across.0.min(TILE)
    }

    /// Copies the strips of the numbers `range`.
    ///
    /// # Safety
    ///
    /// As for [`copy`], whose walk this is, while its launch runs.
    unsafe fn copy<T: AnyElement>(&self, range: Range<usize>, from: ReadPtr<T>, to: WritePtr<T>) {
        let (_, [read, write]) = self.strips.row();
        let mut number = range.start;
        for ([at, target], count) in self.strips.runs(range) {
            for step in 0..count as isize {
                let wide = self.across.0 - number % self.in_axis * TILE;
                let (from, to) = (from.at(at), to.at(target));
                let from = from.wrapping_offset(step * read);
                let to = to.wrapping_offset(step * write);
                // SAFETY: the strip is the caller's, and as wide as the axis has elements left.
                unsafe { self.copy_strip(from, to, wide.min(TILE)) };
                number += 1;
            }
        }
    }

    /// Copies one strip, tile by tile, in rows without gaps in the target.
    ///
    /// # Safety
    ///
    /// The strip from these elements on must be the caller's to read and to write.
    unsafe fn copy_strip<T: Copy>(&self, from: *const T, to: *mut MaybeUninit<T>, wide: usize) {
        let (length, strides @ [read, write]) = self.along;
        let (_, [read_across, write_across]) = self.across;
        for start in (0..length).step_by(TILE) {
            let from = from.wrapping_offset(start as isize * read);
            let to = to.wrapping_offset(start as isize * write);
            for row in 0..wide as isize {
                let from = from.wrapping_offset(row * read_across);
                let to = to.wrapping_offset(row * write_across);
                // SAFETY: a row of a tile of the strip.
                unsafe { copy_run(from, to, TILE.min(length - start), strides) };
            }
        }
    }
}
