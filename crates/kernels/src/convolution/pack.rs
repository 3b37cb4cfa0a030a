//! Copies of images into planes, with zeros around them.

use std::ops::Range;

use super::plan::ConvPlan;
use crate::AnyElement;
use crate::pointers::ReadPtr;

/// The memory of an array of four axes to pack: images, channels, rows and columns.
#[derive(Clone, Copy, Debug)]
pub struct PackedSource<T> {
    /// The address of the first element.
    pub from: ReadPtr<T>,
    strides: [isize; 4],
}

impl<T: AnyElement> PackedSource<T> {
    /// Returns the array whose first element is at `first`. The strides are in elements.
    pub fn new(first: *const T, strides: [isize; 4]) -> Self {
        Self {
            from: ReadPtr::over(first),
            strides,
        }
    }

    /// Returns the address of an element.
    #[inline(always)]
    pub fn at(&self, index: [usize; 4]) -> *const T {
        let offset = (0..4).map(|axis| index[axis] as isize * self.strides[axis]);
        self.from.at(0).wrapping_offset(offset.sum())
    }

    /// Returns the stride of an axis, in elements.
    #[inline(always)]
    pub fn stride(&self, axis: usize) -> isize {
        self.strides[axis]
    }
}

/// The number of elements after packed planes that may also be read and written.
pub const SLACK: usize = 64;

/// Writes the rows of a piece of some channels of an image to `to`, plane after plane. Writes zeros
/// to the slack after the planes. `phases` is scratch memory for the column phases of one row
/// phase, with slack.
///
/// # Safety
///
/// The image must have the channels, be alive and not be written to. `to` must be writable for the
/// planes of the channels.
#[inline(always)]
pub unsafe fn pack<T: AnyElement>(
    plan: &ConvPlan,
    source: &PackedSource<T>,
    (image, channels): (usize, Range<usize>),
    start: usize,
    (mut to, phases): (*mut T, *mut T),
) {
    let columns = &plan.axes[1];
    let (height, pitch) = (plan.plane_rows(), plan.pitch());
    for channel in channels {
        let first = source.at([image, channel, 0, 0]);
        for phase in 0..plan.axes[0].phases() {
            // SAFETY: the caller upholds this function's contract. If a copy extends beyond a row,
            // it overwrites the slack, or the start of the next row or plane. The next row and the
            // next plane are written later.
            unsafe {
                if columns.starts.is_empty() {
                    pack_phases(plan, source, first, (phase, start), to);
                    to = to.add(columns.phases() * height * pitch);
                    continue;
                }
                pack_phases(plan, source, first, (phase, start), phases);
                for &(phase, offset) in &columns.starts {
                    let from = phases.add(phase * height * columns.span() + offset);
                    for row in 0..height {
                        let from = from.add(row * columns.span());
                        for at in (0..pitch).step_by(PART) {
                            copy_part::<T, PART>(from.add(at), to.add(at), 0);
                        }
                        to = to.add(pitch);
                    }
                }
            }
        }
    }
    // SAFETY: by this function's contract, the slack is writable.
    unsafe { fill(to, SLACK) };
}

/// Writes the column phases of a channel for one phase of rows. The channel's elements begin at
/// `first`.
///
/// # Safety
///
/// The contract of [`pack`] must hold.
#[inline(always)]
unsafe fn pack_phases<T: AnyElement>(
    plan: &ConvPlan,
    source: &PackedSource<T>,
    first: *const T,
    (phase, start): (usize, usize),
    mut to: *mut T,
) {
    let [rows, columns] = &plan.axes;
    let (height, span) = (plan.plane_rows(), columns.span());
    let [down, step] = [source.stride(2), source.stride(3)];
    let (inside, top) = rows.within(phase, start, height);
    for column_phase in 0..columns.phases() {
        let (across, left) = columns.within(column_phase, 0, span);
        let column = left + (across.start * columns.step) as isize;
        for row in 0..height {
            // SAFETY: `within` returned the row and its elements `across`, so they are within the
            // image. By this function's contract, the image is readable and `to` is writable.
            unsafe {
                if inside.contains(&row) && !across.is_empty() {
                    let at = (top + (row * rows.step) as isize) * down + column * step;
                    let from = first.wrapping_offset(at);
                    fill(to, across.start);
                    let step = columns.step as isize * step;
                    copy_run(from, step, to.add(across.start), 1, across.len());
                    fill(to.add(across.end), span - across.end);
                } else {
                    fill(to, span);
                }
                to = to.add(span);
            }
        }
    }
}

/// Writes the rows of a piece of one channel of the result to `to`, with the pitch of the planes.
/// Writes zeros after each row, up to `length` elements in total.
///
/// # Safety
///
/// The contract of [`pack`] must hold.
#[inline(always)]
pub unsafe fn pack_result<T: AnyElement>(
    plan: &ConvPlan,
    source: &PackedSource<T>,
    (image, channel): (usize, usize),
    rows: Range<usize>,
    (to, length): (*mut T, usize),
) {
    let (pitch, width) = (plan.pitch(), plan.length(1));
    if pitch == width && source.stride(2) == width as isize && source.stride(3) == 1 {
        let from = source.at([image, channel, rows.start, 0]);
        let at = rows.len() * width;
        // SAFETY: the rows are contiguous. By this function's contract, they are readable and `to`
        // is writable.
        unsafe {
            copy_run(from, 1, to, 1, at);
            fill(to.add(at), length - at);
        }
        return;
    }
    let mut at = 0;
    for row in rows {
        // SAFETY: the result has the row. By this function's contract, the row is readable and `to`
        // is writable.
        unsafe {
            let from = source.at([image, channel, row, 0]);
            copy_run(from, source.stride(3), to.add(at), 1, width);
            // The last row may end before a full pitch.
            let end = length.min(at + pitch);
            fill(to.add(at + width), end - at - width);
            at = end;
        }
    }
    // SAFETY: by this function's contract, `to` is writable for `length` elements.
    unsafe { fill(to.add(at), length - at) };
}

/// The number of elements that a long run copies at once.
const PART: usize = 16;

/// The number of additional elements of scratch memory that allow an aligned start.
pub const ALIGNMENT: usize = 16;

/// Returns the first address in the scratch memory that begins a cache line. If a vector is in two
/// cache lines, its load takes twice the time.
pub fn aligned<T>(scratch: &mut Vec<T>) -> *mut T {
    let first = scratch.as_mut_ptr();
    first.wrapping_add(first.align_offset(64).min(ALIGNMENT))
}

/// Sets `count` elements to zero.
///
/// # Safety
///
/// The elements must be writable.
#[inline(always)]
pub unsafe fn fill<T: AnyElement>(to: *mut T, count: usize) {
    for index in 0..count {
        // SAFETY: the caller upholds this function's contract.
        unsafe { to.add(index).write(T::zero()) };
    }
}

/// Copies `count` elements. `step` and `step_to` are the strides of source and target, in elements.
///
/// # Safety
///
/// The elements must be readable and writable, and must not overlap.
#[inline(always)]
pub unsafe fn copy_run<T: Copy>(
    from: *const T,
    step: isize,
    to: *mut T,
    step_to: usize,
    count: usize,
) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        match (step, step_to) {
            (1, 1) => copy_adjacent(from, to, count),
            (2, 1) => {
                for index in 0..count {
                    to.add(index).write(from.add(2 * index).read());
                }
            }
            (1, 2) => {
                for index in 0..count {
                    to.add(2 * index).write(from.add(index).read());
                }
            }
            _ => {
                for index in 0..count {
                    let value = from.wrapping_offset(index as isize * step).read();
                    to.add(index * step_to).write(value);
                }
            }
        }
    }
}

/// Copies a contiguous run. Most runs are short, so a call of `memcpy` would take longer than the
/// copy.
///
/// # Safety
///
/// The contract of [`copy_run`] must hold.
#[inline(always)]
unsafe fn copy_adjacent<T: Copy>(from: *const T, to: *mut T, count: usize) {
    // SAFETY: the copied parts are within the run.
    unsafe {
        match count {
            16.. => {
                for at in (0..count - 15).step_by(16) {
                    copy_part::<T, 16>(from, to, at);
                }
                copy_part::<T, 16>(from, to, count - 16);
            }
            8.. => {
                copy_part::<T, 8>(from, to, 0);
                copy_part::<T, 8>(from, to, count - 8);
            }
            4.. => {
                copy_part::<T, 4>(from, to, 0);
                copy_part::<T, 4>(from, to, count - 4);
            }
            _ => {
                for at in 0..count {
                    copy_part::<T, 1>(from, to, at);
                }
            }
        }
    }
}

/// # Safety
///
/// The contract of [`copy_run`] must hold.
#[inline(always)]
unsafe fn copy_part<T: Copy, const N: usize>(from: *const T, to: *mut T, at: usize) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        let part = from.add(at).cast::<[T; N]>().read_unaligned();
        to.add(at).cast::<[T; N]>().write_unaligned(part);
    }
}
