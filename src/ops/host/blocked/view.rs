//! Operands whose elements, in the order of the index space, are not consecutive in memory. These
//! elements are gathered, block by block.
//!
//! If a row consists of every second element, it is read in pairs, because compilers vectorise
//! pairs. The second element of a pair is in the array's memory, too, and is ignored. If an array
//! is overwritten while it is read, another thread may write the second element. So `store` names
//! the memory that it writes, and views of this memory read single elements.

use super::BLOCK;
use super::scratch::ScratchMemory;
use super::tile::{OpenTile, TILE, TilePart, TileRows};
use crate::array::Walk;
use cachescope_kernels::moves::views::{ViewedElements, gather, gather_tile};

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
    // row. It is at most `BLOCK`.
    period: Option<usize>,
    // `true` if nothing writes to the memory between the elements while they are read.
    reads_between: bool,
}

/// The memory of [`View::scratch_bytes`] in which a view's elements are gathered. It has the
/// elements of one block or of one tile. For a periodic view, it has the elements that repeat in
/// all blocks. An [`OpenTile`] precedes the elements: the record of the tile's rows that were not
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

    /// If the view's memory begins at `written`, prevents reads between the view's elements. Other
    /// threads may write to the memory between these elements.
    pub(super) fn exclude_written(&mut self, written: *const u8) {
        self.reads_between &= self.base != written;
    }

    fn elements(&self) -> ViewedElements<'_> {
        ViewedElements {
            base: self.base,
            bytes: self.element_bytes,
            walk: &self.walk,
            reads_between: self.reads_between,
        }
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
    /// The scratch must be of this view, in memory that the caller may write. The memory of the
    /// array must be alive, and nothing may write to it meanwhile.
    pub(super) unsafe fn prepare(&self, scratch: ViewScratch) {
        // SAFETY: by this function's contract, `open` points to aligned, writable scratch memory.
        unsafe { scratch.open.write(OpenTile::NONE) };
        if let Some(period) = self.period {
            // A block begins within the first period and has at most `BLOCK` elements.
            let shared = self.walk.count().min(period + BLOCK);
            let mut done = period.min(shared);
            // SAFETY: by this function's contract. The scratch has space for `done` elements.
            unsafe { self.gather(0, done, scratch) };
            // The gathered elements are copied to the memory behind them. Each copy except the last
            // has whole periods.
            while done < shared {
                let more = done.min(shared - done);
                let bytes = self.element_bytes;
                let to = scratch.elements.wrapping_add(done * bytes);
                // SAFETY: the scratch has space for `shared` elements, and the first `done`
                // elements have been written. The copy begins behind these elements.
                unsafe { to.copy_from_nonoverlapping(scratch.elements, more * bytes) };
                done += more;
            }
        }
    }

    /// If this view is best read in tiles, gathers `part`. The part begins at the element `start`.
    /// The next blocks must be the rows of `part`, from the first to the last.
    ///
    /// # Safety
    ///
    /// The contract of [`block`](Self::block) applies to each row of the part.
    pub(super) unsafe fn open(&self, start: usize, part: TilePart, scratch: ViewScratch) {
        // The rows of the part may belong to another operand.
        if self.transposed() != Some(part.rows) {
            return;
        }
        let [at] = self.walk.at(start);
        // SAFETY: by the invariant of the view and this function's contract, the part is in
        // readable memory.
        unsafe {
            let lengths = [part.height, part.width];
            gather_tile(self.elements(), at, lengths, scratch.elements);
            scratch.open.write(OpenTile::new(start, part));
        }
    }

    /// Returns the address of the `count` elements from the element `start` on. The elements are
    /// readable until the scratch memory is used again.
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
    /// The contract of [`block`](Self::block) applies, except that the size of the scratch memory
    /// limits `count`.
    unsafe fn gather(&self, start: usize, count: usize, scratch: ViewScratch) {
        // SAFETY: by this function's contract.
        unsafe {
            gather(self.elements(), start..start + count, scratch.elements);
        }
    }
}
