//! Reductions of elements that are contiguous.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::parts::Parts;
use super::{CHUNK, ReductionJob};
use crate::ops::host::blocked::{BLOCK, Blocks};
use cachescope_kernels::reduce::ACCUMULATORS;
use cachescope_kernels::reduce::leaves::Rows;
use cachescope_kernels::reduce::loops::{MOST_UNITS, Scratch};

/// The maximum number of rows that are always reduced at once. With this number of totals, the
/// compiler does not have to probe the stack.
const FEW: usize = 64;

impl ReductionJob<'_> {
    /// Reduces contiguous elements for each output.
    pub(super) fn rows(&self) {
        if self.lanes.length > CHUNK {
            return self.long_rows();
        }
        let mut totals = [const { MaybeUninit::uninit() }; FEW * MOST_UNITS];
        self.elements
            .read(&mut |elements| self.short_rows(elements, &mut totals));
    }

    /// Reduces rows that fit one chunk.
    fn short_rows(&self, elements: &mut Blocks<'_, '_>, totals: &mut Scratch) {
        let length = self.lanes.length;
        let mut together = self.count;
        if together > FEW {
            let most = size_of_val(totals) / self.loops.total_bytes;
            together = most - most % ACCUMULATORS;
        }
        let in_blocks = !elements.is_in_memory();
        if in_blocks {
            // `together` is at least 1, even if a row is longer than a block.
            together = together.min((BLOCK / length).max(1));
        }
        let mut done = 0;
        while done < self.count {
            let count = together.min(self.count - done);
            let start = (self.first + done) * length;
            if in_blocks && length > BLOCK {
                self.total_row(elements, start..start + length, 0, totals);
            } else {
                let rows = (start, count, length);
                // SAFETY: the rows do not continue earlier elements.
                unsafe { self.total_rows(elements, rows, (0, false), totals) };
            }
            // SAFETY: the total of each of these rows was written.
            unsafe { self.finish(totals, done, count) };
            done += count;
        }
    }

    /// Reduces rows that need more than one chunk each. Chunks are merged two by two.
    #[inline(never)]
    fn long_rows(&self) {
        let length = self.lanes.length;
        for index in 0..self.count {
            let start = (self.first + index) * length;
            let mut total = [const { MaybeUninit::uninit() }; MOST_UNITS];
            let parts = Parts {
                length,
                chunk: CHUNK,
                bytes_each: self.loops.element_bytes,
                total: &|part, total| {
                    let range = start + part.start..start + part.end;
                    self.elements.read(&mut |elements| {
                        self.total_row(elements, range.clone(), part.start, total);
                    });
                },
                // SAFETY: each part has a total, which was written.
                merge: &|left, right| unsafe { (self.loops.merge)(left, right, 1) },
            };
            parts.merged(&mut total);
            // SAFETY: the merged total was written.
            unsafe { self.finish(&total, index, 1) };
        }
    }

    /// Writes the total of the elements of `range`, a row or a part of a row. The first element has
    /// the index `first` in its row.
    #[inline(never)]
    fn total_row(
        &self,
        elements: &mut Blocks<'_, '_>,
        range: Range<usize>,
        first: usize,
        total: &mut Scratch,
    ) {
        let at_once = match elements.is_in_memory() {
            true => range.len(),
            false => BLOCK,
        };
        for start in range.clone().step_by(at_once) {
            let row = (start, 1, at_once.min(range.end - start));
            let (first, continues) = (first + (start - range.start), start > range.start);
            // SAFETY: the total of the earlier elements was written.
            unsafe { self.total_rows(elements, row, (first, continues), total) };
        }
    }

    /// Writes the totals of `count` rows of `length` elements. The first row begins at the element
    /// `start`. In its output, the first element of each row has the index `first`. The elements
    /// are in memory, or fit a block.
    ///
    /// # Safety
    ///
    /// If the rows continue earlier elements, there must be one row. `totals` must then have the
    /// total of the earlier elements.
    #[inline(always)]
    unsafe fn total_rows(
        &self,
        elements: &mut Blocks<'_, '_>,
        (start, count, length): (usize, usize, usize),
        (first, continues): (usize, bool),
        totals: &mut Scratch,
    ) {
        assert!(length > 0 && count * self.loops.total_bytes <= size_of_val(totals));
        let rows = Rows {
            values: elements.address(start..start + count * length),
            count,
            length,
            first,
            continues,
        };
        // SAFETY: `address` has returned the address of all elements of the rows. By the invariant
        // of `ReductionJob`, the elements are of the loop's type. There are elements, and there is
        // space for the totals, as asserted. This function's contract covers the earlier totals.
        unsafe { (self.leaves.rows)(&rows, totals) };
    }
}
