//! The leaves of a program whose elements are not consecutive in memory in the index space's order.
//! Their elements are gathered, block by block.
//!
//! If a row consists of every second element, it is read in pairs, because compilers vectorise
//! pairs. The other half of a pair is in the array's memory too, and is dropped. If an array is
//! overwritten while it is read, another thread may write the other half. So `store` names the
//! memory that it writes, and views of that memory read single elements.

use std::mem::MaybeUninit;
use std::ptr::copy_nonoverlapping;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use super::BLOCK;
use super::scratch::ScratchMemory;
use super::tile::{OpenTile, TILE, TilePart, TileRows, gather_tile};
use crate::array::Walk;
use cachescope_kernels::by_bytes;
use cachescope_kernels::vector::{Loop, vectorised};

/// The elements of an array in the host's memory, in the order of an index space.
///
/// Invariant: the elements that `walk` reaches from `base` lie in the array's buffer and have been
/// written. The invariants of [`Array`](crate::Array) imply this.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    base: *const u8,
    element_bytes: usize,
    walk: Walk<1>,
    // The number of elements after which the elements repeat, such as the length of a broadcast
    // row; at most `BLOCK`.
    period: Option<usize>,
    // `true` if nothing writes to the memory between the elements while they are read.
    reads_between: bool,
}

/// The memory of [`View::scratch_bytes`] in which a view's elements are gathered. It has the
/// elements of one block, the elements of a tile, or the elements that all blocks of a periodic
/// view share. Before the elements is an [`OpenTile`], the record of the tile's rows that were not
/// read yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct ViewScratch {
    open: *mut OpenTile,
    elements: *mut u8,
}

impl View {
    pub(super) fn new(base: *const u8, element_bytes: usize, walk: Walk<1>) -> Self {
        let mut axes = walk.axes();
        let is_repeated = axes.next().is_some_and(|(_, steps)| steps == [0]);
        let period: usize = axes.map(|(length, _)| length).product();
        let is_periodic = is_repeated && period <= BLOCK;
        Self {
            base,
            element_bytes,
            walk,
            period: is_periodic.then_some(period),
            reads_between: true,
        }
    }

    /// Ensures that only the view's own elements are read if the view's memory begins at `written`.
    /// The elements between them may be written meanwhile.
    pub(super) fn exclude_written(&mut self, written: *const u8) {
        self.reads_between &= self.base != written;
    }

    pub(super) fn scratch_bytes(&self) -> usize {
        let gathered = self.period.unwrap_or(0) + BLOCK.max(TILE.elements());
        ScratchMemory::ALIGNMENT + gathered * self.element_bytes
    }

    /// Returns the scratch in the memory from `at` on.
    pub(super) fn scratch(&self, at: *mut u8) -> ViewScratch {
        const {
            assert!(
                size_of::<OpenTile>() <= ScratchMemory::ALIGNMENT
                    && align_of::<OpenTile>() <= ScratchMemory::ALIGNMENT
            );
        };
        ViewScratch {
            open: at.cast(),
            elements: at.wrapping_add(ScratchMemory::ALIGNMENT),
        }
    }

    /// Returns the rows that are best read in tiles, if there are any.
    pub(super) fn transposed(&self) -> Option<TileRows> {
        match self.period {
            None => TileRows::transposed(&self.walk),
            Some(_) => None,
        }
    }

    /// Gathers the elements that all blocks share.
    ///
    /// # Safety
    ///
    /// The scratch must be of this view, in memory that is the caller's to write to. The memory of
    /// the array must be alive, and nothing may write to it meanwhile.
    pub(super) unsafe fn prepare(&self, scratch: ViewScratch) {
        // SAFETY: by this function's contract, `open` points to aligned, writable scratch memory.
        unsafe { scratch.open.write(OpenTile::NONE) };
        if let Some(period) = self.period {
            // A block begins within the first period and has at most `BLOCK` elements.
            let shared = self.walk.count().min(period + BLOCK);
            let mut done = period.min(shared);
            // SAFETY: by this function's contract, and there is room for `done` elements.
            unsafe { self.gather(0, done, scratch) };
            // The gathered elements are copied behind themselves, whole periods each time except
            // the last.
            while done < shared {
                let more = done.min(shared - done);
                let bytes = self.element_bytes;
                let to = scratch.elements.wrapping_add(done * bytes);
                // SAFETY: there is room for `shared` elements, of which the first `done` have been
                // written. The written elements end where the others begin.
                unsafe { to.copy_from_nonoverlapping(scratch.elements, more * bytes) };
                done += more;
            }
        }
    }

    /// Gathers `part`, whose first element has number `start`, if this view is best read in tiles.
    /// The next blocks must be its rows, from the first to the last.
    ///
    /// # Safety
    ///
    /// As for [`block`](Self::block), for each row of the part.
    pub(super) unsafe fn open(&self, start: usize, part: TilePart, scratch: ViewScratch) {
        // The rows of the part may belong to another operand.
        if self.transposed() != Some(part.rows) {
            return;
        }
        let [at] = self.walk.at(start);
        // SAFETY: by the invariant the part lies in the index space, and the caller keeps this
        // contract.
        unsafe {
            by_bytes!(
                self.element_bytes,
                open_tile::<Bits>(self.base, at, &self.walk, part, scratch.elements)
            );
            scratch.open.write(OpenTile::new(start, part));
        }
    }

    /// Returns the address of the `count` elements from number `start` on, readable until the
    /// scratch is used again.
    ///
    /// # Safety
    ///
    /// The scratch must have been [prepared](Self::prepare). The range must lie within the index
    /// space, and have at most [`BLOCK`] elements. The memory of the array must be alive, and
    /// nothing may write to it meanwhile.
    pub(super) unsafe fn block(
        &self,
        start: usize,
        count: usize,
        scratch: ViewScratch,
    ) -> *const u8 {
        let bytes = self.element_bytes;
        if let Some(period) = self.period {
            return scratch.elements.wrapping_add(start % period * bytes);
        }
        let (length, [stride]) = self.walk.row();
        let [at] = self.walk.at(start);
        let is_in_row = start % length + count <= length;
        if stride == 1 && is_in_row {
            return self.base.wrapping_add(at * bytes);
        }
        // SAFETY: the scratch has been prepared, by this function's contract.
        let open = unsafe { &mut *scratch.open };
        if let Some(row) = open.row_at(start, count) {
            return scratch.elements.wrapping_add(row * bytes);
        }
        *open = if stride == 0 && is_in_row {
            // In a row that is longer than a block, most blocks repeat the element of the previous
            // block.
            if open.repeats(at, count) {
                return scratch.elements;
            }
            OpenTile::repeating(at, count)
        } else {
            OpenTile::NONE
        };
        // SAFETY: by this function's contract.
        unsafe { self.gather(start, count, scratch) };
        scratch.elements
    }

    /// # Safety
    ///
    /// As for [`block`](Self::block), except that `count` is limited by the size of the scratch
    /// memory.
    unsafe fn gather(&self, start: usize, count: usize, scratch: ViewScratch) {
        // SAFETY: by this function's contract.
        unsafe {
            by_bytes!(
                self.element_bytes,
                gather_to::<Bits>(self, start, count, scratch.elements)
            );
        }
    }
}

/// # Safety
///
/// As for [`View::gather`], to `count` elements from `to` on.
unsafe fn gather_to<T: Copy>(view: &View, start: usize, count: usize, to: *mut u8) {
    // SAFETY: by this function's contract.
    unsafe { gather::<T>(view, start, from_raw_parts_mut(to.cast(), count)) };
}

/// # Safety
///
/// As for [`gather_tile`], to a tile from `to` on.
unsafe fn open_tile<T: Copy>(
    base: *const u8,
    at: usize,
    walk: &Walk<1>,
    part: TilePart,
    to: *mut u8,
) {
    // SAFETY: by this function's contract.
    unsafe {
        let first = base.cast::<T>().wrapping_add(at);
        gather_tile(first, walk, part, &mut *to.cast());
    }
}

/// Copies the elements of `view` from number `start` on to all of `out`, which is not empty.
///
/// # Safety
///
/// As for [`View::gather`]. The size of `T` must be the size of the view's elements.
unsafe fn gather<T: Copy>(view: &View, start: usize, out: &mut [MaybeUninit<T>]) {
    let (base, (_, [stride])) = (view.base.cast::<T>(), view.walk.row());
    let mut rest = &mut *out;
    for ([at], count) in view.walk.runs(start..start + rest.len()) {
        let (from, part) = (base.wrapping_add(at), rest.split_off_mut(..count));
        let part = part.expect("the runs are as long as `out`");
        // SAFETY: the row's elements from `at` on, which are `stride` apart, are elements of the
        // view's innermost axis. By the invariant, they lie in the array's buffer. The memory
        // between them is the array's, too. It is only read if `reads_between` is `true`, so
        // nothing writes to it.
        unsafe {
            match stride {
                2 if view.reads_between => copy_every_second(from, part),
                _ => copy_row(from, stride, part),
            }
        }
    }
}

/// Copies elements that are `stride` apart to all of `to`.
///
/// # Safety
///
/// `from` and the following elements, `stride` apart, must be readable and outside `to`, for the
/// length of `to`.
#[inline]
unsafe fn copy_row<T: Copy>(from: *const T, stride: isize, to: &mut [MaybeUninit<T>]) {
    match stride {
        // SAFETY: by this function's contract.
        1 => unsafe { copy_nonoverlapping(from, to.as_mut_ptr().cast(), to.len()) },
        // SAFETY: by this function's contract.
        0 => repeat(unsafe { from.read() }, to),
        _ => {
            for (index, slot) in to.iter_mut().enumerate() {
                // SAFETY: by this function's contract.
                slot.write(unsafe { from.wrapping_offset(index as isize * stride).read() });
            }
        }
    }
}

/// Copies every second element from `from` on to all of `to`, which is not empty.
///
/// # Safety
///
/// As for [`copy_row`]. The memory between the elements must be alive and not written to.
#[inline]
unsafe fn copy_every_second<T: Copy>(from: *const T, to: &mut [MaybeUninit<T>]) {
    let (last, others) = to.split_last_mut().expect("a part of a row is not empty");
    // SAFETY: each of these elements has one after it that lies before the last element.
    let pairs: &[[MaybeUninit<T>; 2]] = unsafe { from_raw_parts(from.cast(), others.len()) };
    // SAFETY: by this function's contract.
    last.write(unsafe { from.add(2 * others.len()).read() });
    for (slot, [first, _]) in others.iter_mut().zip(pairs) {
        *slot = *first;
    }
}

/// Copies `value` to all of `to`.
#[inline]
fn repeat<T: Copy>(value: T, to: &mut [MaybeUninit<T>]) {
    if to.len() < LONG {
        return to.fill(MaybeUninit::new(value));
    }
    vectorised(Repeat(value), to);
}

/// The minimum number of elements for which vector code is selected.
const LONG: usize = 64;

struct Repeat<T>(T);

impl<T: Copy> Loop<[MaybeUninit<T>]> for Repeat<T> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [MaybeUninit<T>]) {
        out.fill(MaybeUninit::new(self.0));
    }
}
