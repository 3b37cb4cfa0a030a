//! Copies of elements with any strides.
//!
//! The C library copies a long run with one instruction, `rep movsb`. If the target's offset in its
//! page is a few bytes above the source's, the processor assumes an overlap. It then copies byte by
//! byte. Such offsets are usual in `roll` and `pad` of arrays from one pool. Therefore runs with
//! such offsets are copied in pieces of 512 bytes, without `rep movsb`.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::copy_nonoverlapping;
use std::slice::from_raw_parts_mut;

use crate::element::plain::Bits;
use crate::pointers::{ReadPtr, WritePtr};
use crate::walk::Walk;

/// A copy, divided into parts that several threads can copy.
#[derive(Clone, Copy, Debug)]
pub enum CopyParts {
    Tiles(Tiles),
    /// A walk over the first elements of the rows, and the length and strides of a row.
    Rows(Walk<2>, (usize, [isize; 2])),
    Elements(Walk<2>),
}

impl CopyParts {
    /// Divides the copy of `walk` into parts. The walk pairs source elements with target elements.
    pub fn of(walk: &Walk<2>) -> Self {
        if let Some(tiles) = Tiles::of(walk) {
            return Self::Tiles(tiles);
        }
        let (firsts, row) = walk.by_rows();
        match row.0 <= SHORT_ROW {
            true => Self::Rows(firsts, row),
            false => Self::Elements(*walk),
        }
    }

    /// Returns the number of parts.
    pub fn count(&self) -> usize {
        match self {
            Self::Tiles(tiles) => tiles.count(),
            Self::Rows(walk, _) | Self::Elements(walk) => walk.count(),
        }
    }

    /// Returns the number of elements in each part.
    pub fn elements_each(&self) -> usize {
        match self {
            Self::Tiles(tiles) => tiles.elements_each(),
            Self::Rows(_, (length, _)) => *length,
            Self::Elements(_) => 1,
        }
    }
}

/// Copies the parts of index `range`, of elements of `bytes` bytes each, from `from` to `to`.
///
/// # Safety
///
/// The walk of the parts must stay within the memory of `from` and `to`. It must reach no element
/// of `to` twice. The source elements must have been written, and must not be written to meanwhile.
/// Only the caller may access the elements that the parts of `range` write.
pub unsafe fn copy_parts(
    bytes: usize,
    parts: &CopyParts,
    range: Range<usize>,
    from: ReadPtr<u8>,
    to: WritePtr<u8>,
) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { by_bytes!(bytes, copy_parts_of::<Word>(parts, range, from, to)) };
}

/// # Safety
///
/// The contract of [`copy_parts`] must hold.
unsafe fn copy_parts_of<T: Copy>(
    parts: &CopyParts,
    range: Range<usize>,
    from: ReadPtr<u8>,
    to: WritePtr<u8>,
) {
    let (from, to) = (from.cast::<T>(), to.cast::<T>());
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        match parts {
            CopyParts::Tiles(tiles) => tiles.copy(range, from, to),
            CopyParts::Rows(firsts, row) => copy_rows(firsts, *row, range, from, to),
            CopyParts::Elements(walk) => {
                let (_, strides) = walk.row();
                for ([at, target], count) in walk.runs(range) {
                    copy_run(from.at(at), to.at(target), count, strides);
                }
            }
        }
    }
}

/// The maximum length of rows that are copied as a whole. Threads may divide longer rows.
pub const SHORT_ROW: usize = 1 << 12;

/// Copies the rows of index `range`.
///
/// # Safety
///
/// The contract of [`copy_parts`] must hold.
unsafe fn copy_rows<T: Copy>(
    firsts: &Walk<2>,
    (length, strides): (usize, [isize; 2]),
    range: Range<usize>,
    from: ReadPtr<T>,
    to: WritePtr<T>,
) {
    // SAFETY: in each branch, the rows have the given length. By this function's contract, the rows
    // may be read and written.
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

/// Copies rows like [`copy_rows`], with a length that the compiler knows. For short rows, a loop's
/// overhead would take most of the time.
///
/// # Safety
///
/// The contract of [`copy_rows`] must hold.
unsafe fn copy_few<T: Copy, const LENGTH: usize>(
    firsts: &Walk<2>,
    strides: [isize; 2],
    range: Range<usize>,
    from: ReadPtr<T>,
    to: WritePtr<T>,
) {
    for [at, target] in firsts.each(range) {
        // SAFETY: the caller upholds this function's contract.
        unsafe { strided(from.at(at), to.at(target), LENGTH, strides) };
    }
}

/// Writes `value`, of `bytes` bytes, to the elements of row-major index `range` that `walk`
/// reaches.
///
/// # Safety
///
/// The walk must stay within the memory of `to`. Only the caller may access the elements of
/// `range`.
pub unsafe fn fill_runs(
    (value, bytes): (Bits, usize),
    walk: &Walk<1>,
    range: Range<usize>,
    to: WritePtr<u8>,
) {
    let value = value.bytes(bytes).as_ptr();
    // SAFETY: the caller upholds this function's contract. `value` is on this thread's stack.
    unsafe { by_bytes!(bytes, fill_runs_of::<Word>(value, walk, range, to)) };
}

/// # Safety
///
/// The contract of [`fill_runs`] must hold. `value` must be the address of an element.
unsafe fn fill_runs_of<T: Copy>(
    value: *const u8,
    walk: &Walk<1>,
    range: Range<usize>,
    to: WritePtr<u8>,
) {
    let (_, [stride]) = walk.row();
    let to = to.cast::<T>();
    for ([at], count) in walk.runs(range) {
        // SAFETY: the caller upholds this function's contract. [`Bits`] are aligned for every
        // element type.
        unsafe { copy_run(value.cast::<T>(), to.at(at), count, [0, stride]) };
    }
}

/// Copies `count` elements. `strides` are the stride of the source and the stride of the target.
///
/// # Safety
///
/// The elements that are read must be initialised. Only the caller may access the elements that are
/// written. Source and target must not overlap.
#[inline]
pub unsafe fn copy_run<T: Copy>(
    from: *const T,
    to: *mut MaybeUninit<T>,
    count: usize,
    strides: [isize; 2],
) {
    // SAFETY: each branch accesses only elements of the run. By this function's contract, the
    // caller may read and write these elements.
    unsafe {
        match strides {
            [1, 1] => copy_dense(from, to, count),
            [0, 1] if count > 0 => {
                from_raw_parts_mut(to, count).fill(MaybeUninit::new(from.read()));
            }
            // If the compiler knows the stride, it vectorises the loop.
            [-1, 1] => strided(from, to, count, [-1, 1]),
            [2, 1] => strided(from, to, count, [2, 1]),
            [stride, 1] => strided(from, to, count, [stride, 1]),
            strides => strided(from, to, count, strides),
        }
    }
}

/// Copies `count` elements of `bytes` bytes each. `strides` are the stride of the source and the
/// stride of the target.
///
/// # Safety
///
/// The contract of [`copy_run`] must hold.
pub unsafe fn copy_elements(
    bytes: usize,
    from: *const u8,
    to: *mut u8,
    count: usize,
    strides: [isize; 2],
) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { by_bytes!(bytes, copy_elements_of::<Word>(from, to, count, strides)) };
}

/// # Safety
///
/// The contract of [`copy_run`] must hold.
unsafe fn copy_elements_of<T: Copy>(
    from: *const u8,
    to: *mut u8,
    count: usize,
    strides: [isize; 2],
) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { copy_run::<T>(from.cast(), to.cast(), count, strides) };
}

/// The bound of harmful distances, in bytes. The distance is the target's offset in its page minus
/// the source's. Below the bound, the processor assumes that source and target overlap.
const NEAR_BYTES: usize = 64;

/// The modulus of the addresses that the processor compares to detect overlap.
const PAGE_BYTES: usize = 4096;

/// The size in bytes of the pieces of a run at a harmful distance. For a piece of this size, the C
/// library does not use `rep movsb`.
const PIECE_BYTES: usize = 512;

/// Copies elements like [`copy_run`], with stride 1 in the source and the target.
///
/// # Safety
///
/// The contract of [`copy_run`] must hold.
#[inline]
unsafe fn copy_dense<T: Copy>(from: *const T, to: *mut MaybeUninit<T>, count: usize) {
    let further = to.addr().wrapping_sub(from.addr()) % PAGE_BYTES;
    let each = PIECE_BYTES / size_of::<T>();
    if further == 0 || further >= NEAR_BYTES || count <= each {
        // SAFETY: the caller upholds this function's contract.
        return unsafe { copy_nonoverlapping(from, to.cast(), count) };
    }
    // The C library copies long runs with `rep movsb`. At this distance, `rep movsb` would copy
    // byte by byte, and take ten times as long.
    for start in (0..count).step_by(each) {
        let piece = each.min(count - start);
        // SAFETY: the piece is part of the run. By this function's contract, the run may be copied.
        unsafe { copy_nonoverlapping(from.add(start), to.add(start).cast(), piece) };
    }
}

/// Copies elements like [`copy_run`], with any strides.
///
/// # Safety
///
/// The contract of [`copy_run`] must hold.
#[inline(always)]
unsafe fn strided<T: Copy>(
    from: *const T,
    to: *mut MaybeUninit<T>,
    count: usize,
    [read, write]: [isize; 2],
) {
    for index in 0..count as isize {
        let slot = to.wrapping_offset(index * write);
        // SAFETY: the caller upholds this function's contract.
        unsafe {
            let element = from.wrapping_offset(index * read);
            slot.write(element.cast::<MaybeUninit<T>>().read());
        };
    }
}

/// The number of elements along each side of a tile. The source elements and the target elements of
/// a tile together fit into the first-level cache.
const TILE: usize = 32;

/// A walk in tiles over two axes. Along the divided axis, the source has no gaps. Along the other
/// axis, the target usually has no gaps.
#[derive(Clone, Copy, Debug)]
pub struct Tiles {
    /// A walk over the first elements of all strips. A strip has up to [`TILE`] elements of the
    /// divided axis, and all elements of the axis along the strip.
    strips: Walk<2>,
    /// The number of strips along the divided axis.
    in_axis: usize,
    /// The length and the strides of the axis that the strips divide.
    across: (usize, [isize; 2]),
    /// The length and the strides of the axis along a strip.
    along: (usize, [isize; 2]),
}

impl Tiles {
    /// Returns the tiles of `walk`. If a copy by rows uses the cache lines equally well, returns
    /// `None`.
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

    /// # Safety
    ///
    /// The contract of [`copy_parts`] must hold for the walk of these tiles.
    unsafe fn copy<T: Copy>(&self, range: Range<usize>, from: ReadPtr<T>, to: WritePtr<T>) {
        let (_, [read, write]) = self.strips.row();
        let mut number = range.start;
        for ([at, target], count) in self.strips.runs(range) {
            for step in 0..count as isize {
                let wide = self.across.0 - number % self.in_axis * TILE;
                let (from, to) = (from.at(at), to.at(target));
                let from = from.wrapping_offset(step * read);
                let to = to.wrapping_offset(step * write);
                // SAFETY: by this function's contract, only the caller accesses the strip. The
                // width is at most the remaining length of the axis.
                unsafe { self.copy_strip(from, to, wide.min(TILE)) };
                number += 1;
            }
        }
    }

    /// Copies one strip, tile by tile. Each row of a tile is copied along the strip.
    ///
    /// # Safety
    ///
    /// The elements that the strip reads must be readable. Only the caller may access the elements
    /// that the strip writes.
    unsafe fn copy_strip<T: Copy>(&self, from: *const T, to: *mut MaybeUninit<T>, wide: usize) {
        let (length, strides @ [read, write]) = self.along;
        let (_, [read_across, write_across]) = self.across;
        for start in (0..length).step_by(TILE) {
            let from = from.wrapping_offset(start as isize * read);
            let to = to.wrapping_offset(start as isize * write);
            for row in 0..wide as isize {
                let from = from.wrapping_offset(row * read_across);
                let to = to.wrapping_offset(row * write_across);
                // SAFETY: the run is a row of a tile of the strip. By this function's contract, the
                // strip may be copied.
                unsafe { copy_run(from, to, TILE.min(length - start), strides) };
            }
        }
    }
}
