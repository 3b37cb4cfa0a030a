//! Gathers of elements that are not contiguous, in the order of a walk.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::copy_nonoverlapping;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use crate::vector::{Loop, vectorised};
use crate::walk::Walk;

/// The elements that a walk reaches in an array's memory.
///
/// Invariant: the elements have been written.
#[derive(Clone, Copy, Debug)]
pub struct ViewedElements<'a> {
    /// The address of the memory.
    pub base: *const u8,
    /// The size of an element.
    pub bytes: usize,
    pub walk: &'a Walk<1>,
    /// `true` if no code writes to the memory between the elements while they are read.
    pub reads_between: bool,
}

/// The size of a tile.
#[derive(Clone, Copy, Debug)]
pub struct Tile {
    pub rows: usize,
    pub columns: usize,
}

/// The size of all tiles. 16 elements of `f32` fill a cache line. 64 columns are enough to amortise
/// the overhead of a run.
pub const TILE: Tile = Tile {
    rows: 16,
    columns: 64,
};

impl Tile {
    pub const fn elements(self) -> usize {
        self.rows * self.columns
    }
}

/// Copies the elements of row-major index `range` to the memory from `to` on. `range` must not be
/// empty.
///
/// # Safety
///
/// The elements must be alive and not written to. Only the caller may access the memory at `to`,
/// which must be aligned.
pub unsafe fn gather(view: ViewedElements<'_>, range: Range<usize>, to: *mut u8) {
    let (start, count) = (range.start, range.len());
    // SAFETY: the caller upholds this function's contract.
    unsafe { by_bytes!(view.bytes, gather_of::<Word>(&view, start, to, count)) };
}

/// # Safety
///
/// The contract of [`gather`] must hold. The size of `T` must be the size of the elements.
unsafe fn gather_of<T: Copy>(view: &ViewedElements<'_>, start: usize, out: *mut u8, count: usize) {
    // SAFETY: the caller upholds this function's contract.
    let out: &mut [MaybeUninit<T>] = unsafe { from_raw_parts_mut(out.cast(), count) };
    let (base, (_, [stride])) = (view.base.cast::<T>(), view.walk.row());
    let mut rest = &mut *out;
    for ([at], count) in view.walk.runs(start..start + rest.len()) {
        let (from, part) = (base.wrapping_add(at), rest.split_off_mut(..count));
        let part = part.expect("the runs are as long as `out`");
        // SAFETY: by the invariant of the view, the run's elements have been written. If
        // `reads_between` is `true`, no code writes to the memory between them, so
        // `copy_every_second` may read it.
        unsafe {
            match stride {
                2 if view.reads_between => copy_every_second(from, part),
                _ => copy_row(from, stride, part),
            }
        }
    }
}

/// Copies elements with stride `stride` from `from` on to all of `to`.
///
/// # Safety
///
/// `from` and the elements after it, `stride` apart, must be readable and outside `to`, for the
/// length of `to`.
#[inline]
unsafe fn copy_row<T: Copy>(from: *const T, stride: isize, to: &mut [MaybeUninit<T>]) {
    match stride {
        // SAFETY: the caller upholds this function's contract.
        1 => unsafe { copy_nonoverlapping(from, to.as_mut_ptr().cast(), to.len()) },
        // SAFETY: the caller upholds this function's contract.
        0 => repeat(unsafe { from.read() }, to),
        _ => {
            for (index, slot) in to.iter_mut().enumerate() {
                // SAFETY: the caller upholds this function's contract.
                slot.write(unsafe { from.wrapping_offset(index as isize * stride).read() });
            }
        }
    }
}

/// Fills `to` with every second element from `from` on. `to` is not empty.
///
/// # Safety
///
/// The contract of [`copy_row`] must hold. In addition, the memory between the elements must be
/// alive and not written to.
#[inline]
unsafe fn copy_every_second<T: Copy>(from: *const T, to: &mut [MaybeUninit<T>]) {
    let (last, others) = to.split_last_mut().expect("a part of a row is not empty");
    // SAFETY: each pair is an element and the gap after it. Each pair precedes the last element, so
    // it is readable by this function's contract.
    let pairs: &[[MaybeUninit<T>; 2]] = unsafe { from_raw_parts(from.cast(), others.len()) };
    // SAFETY: the caller upholds this function's contract.
    last.write(unsafe { from.add(2 * others.len()).read() });
    for (slot, [first, _]) in others.iter_mut().zip(pairs) {
        *slot = *first;
    }
}

#[inline]
fn repeat<T: Copy>(value: T, to: &mut [MaybeUninit<T>]) {
    if to.len() < LONG {
        return to.fill(MaybeUninit::new(value));
    }
    vectorised(Repeat(value), to);
}

/// The minimum number of elements for which vector code is used.
const LONG: usize = 64;

struct Repeat<T>(T);

impl<T: Copy> Loop<[MaybeUninit<T>]> for Repeat<T> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [MaybeUninit<T>]) {
        out.fill(MaybeUninit::new(self.0));
    }
}

/// Copies at most one tile to the memory at `to`. The memory has space for a whole tile. `lengths`
/// are the number of rows and the number of elements of a row. Each row is copied to a separate row
/// of the tile. The first element is at offset `at`.
///
/// # Safety
///
/// From offset `at` on, the last two axes of the walk must reach the elements of the tile. The
/// elements must be alive and not written to. Only the caller may access the memory at `to`.
pub unsafe fn gather_tile(view: ViewedElements<'_>, at: usize, lengths: [usize; 2], to: *mut u8) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { by_bytes!(view.bytes, gather_tile_of::<Word>(&view, at, lengths, to)) };
}

/// # Safety
///
/// The contract of [`gather_tile`] must hold.
unsafe fn gather_tile_of<T: Copy>(
    view: &ViewedElements<'_>,
    at: usize,
    [height, width]: [usize; 2],
    to: *mut u8,
) {
    let (first, walk) = (view.base.cast::<T>().wrapping_add(at), view.walk);
    // SAFETY: the caller upholds this function's contract.
    let tile: &mut [MaybeUninit<T>; TILE.elements()] = unsafe { &mut *to.cast() };
    let (_, [along]) = walk.row();
    let (_, [across]) = (walk.axes().rev().nth(1)).expect("a tile has two axes");
    assert!(height <= TILE.rows && width <= TILE.columns);
    for column in 0..width {
        let top = first.wrapping_offset(column as isize * along);
        for row in 0..height {
            let from = top.wrapping_offset(row as isize * across);
            // SAFETY: the caller upholds this function's contract.
            tile[row * TILE.columns + column].write(unsafe { from.read() });
        }
    }
}
