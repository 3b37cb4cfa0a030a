//! Reductions of elements that are not contiguous, for several adjacent outputs at once.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::parts::Parts;
use super::{CHUNK, ReductionJob};
use crate::ops::descriptors::Lanes;
use crate::ops::host::blocked::{BLOCK, Blocks, RUN};
use cachescope_kernels::reduce::leaves::{BLOCK_ROWS, Columns};
use cachescope_kernels::reduce::loops::{MOST_UNITS, Scratch};

/// The maximum number of adjacent outputs that are computed together. It is large, so that long
/// parts of rows are read at once.
const WIDTH: usize = BLOCK;

/// Returns the minimum number of adjacent outputs that one thread reduces, if `inner` outputs are
/// adjacent. A block is as wide as these outputs. The overhead of a narrow block exceeds its
/// computation. Narrow parts of many long rows are also slow, because each row is on another page.
/// If there are fewer outputs than `WIDTH`, threads share the rows instead.
pub(super) fn together(inner: usize) -> usize {
    if inner < WIDTH { RUN } else { WIDTH }
}

impl ReductionJob<'_> {
    /// Reduces elements that are not contiguous, for several adjacent outputs at once.
    pub(super) fn columns(&self) {
        let Lanes { length, inner, .. } = self.lanes;
        // Results must not depend on the number of outputs of a thread, so `rows` does not depend
        // on this number. If there are many outputs, they are enough work for all threads.
        let rows = (CHUNK / inner.min(RUN)).next_multiple_of(BLOCK_ROWS);
        if length > rows && inner < WIDTH {
            return self.long_columns(rows);
        }
        // The smallest sufficient stack frame is used, because the compiler probes each page of a
        // large frame.
        let width = self.count.min(WIDTH);
        let of_partials = units(width * self.loops.partial_bytes);
        match of_partials + units(width * self.loops.total_bytes) {
            ..=128 => self.short_columns_in::<128>(of_partials),
            129..=1024 => self.short_columns_in::<1024>(of_partials),
            _ => self.short_columns_in::<{ 2 * MOST_UNITS * WIDTH }>(of_partials),
        }
    }

    /// Reduces all rows of each output at once, with scratch memory of `UNITS` units.
    #[inline(never)]
    fn short_columns_in<const UNITS: usize>(&self, of_partials: usize) {
        let mut scratch = [const { MaybeUninit::uninit() }; UNITS];
        let (partials, totals) = scratch.split_at_mut(of_partials);
        self.elements
            .read(&mut |elements| self.short_columns(elements, partials, totals));
    }

    fn short_columns(
        &self,
        elements: &mut Blocks<'_, '_>,
        partials: &mut Scratch,
        totals: &mut Scratch,
    ) {
        let Lanes { length, inner, .. } = self.lanes;
        // The maximum number of runs that are read at once. The elements of these runs are
        // consecutive.
        let most_runs = match elements.is_in_memory() {
            true => WIDTH / inner.min(WIDTH),
            false => BLOCK / length.saturating_mul(inner).min(BLOCK),
        };
        let mut done = 0;
        while done < self.count {
            let (outer, column) = ((self.first + done) / inner, (self.first + done) % inner);
            let left = self.count - done;
            let (runs, width) = match column == 0 && inner <= left.min(WIDTH) {
                true => (most_runs.min(left / inner), inner),
                false => (1, left.min(inner - column).min(WIDTH)),
            };
            let side = Side {
                start: outer * length * inner + column,
                width,
                runs,
                rows: 0..length,
            };
            self.total_columns(elements, side, partials, totals);
            // SAFETY: `total_columns` has written these totals.
            unsafe { self.finish(totals, done, runs * width) };
            done += runs * width;
        }
    }

    /// Reduces more rows than a chunk has. Chunks of at most `chunk` rows are merged two by two.
    #[inline(never)]
    fn long_columns(&self, chunk: usize) {
        let Lanes { length, inner, .. } = self.lanes;
        let mut done = 0;
        while done < self.count {
            let (outer, column) = ((self.first + done) / inner, (self.first + done) % inner);
            let width = (self.count - done).min(inner - column).min(RUN);
            let start = outer * length * inner + column;
            let mut totals = [const { MaybeUninit::uninit() }; MOST_UNITS * RUN];
            let totals = &mut totals[..units(width * self.loops.total_bytes)];
            let parts = Parts {
                length,
                chunk,
                bytes_each: width * self.loops.element_bytes,
                total: &|rows, totals| {
                    let mut partials = [const { MaybeUninit::uninit() }; MOST_UNITS * RUN];
                    self.elements.read(&mut |elements| {
                        let side = Side {
                            start,
                            width,
                            runs: 1,
                            rows: rows.clone(),
                        };
                        self.total_columns(elements, side, &mut partials, totals);
                    });
                },
                // SAFETY: each part has `width` totals, which were written.
                merge: &|left, right| unsafe { (self.loops.merge)(left, right, width) },
            };
            parts.merged(totals);
            // SAFETY: the merged totals were written.
            unsafe { self.finish(totals, done, width) };
            done += width;
        }
    }

    /// Writes the totals of adjacent outputs.
    fn total_columns(
        &self,
        elements: &mut Blocks<'_, '_>,
        side: Side,
        partials: &mut Scratch,
        totals: &mut Scratch,
    ) {
        let Side {
            start,
            width,
            runs,
            rows,
        } = side;
        let inner = self.lanes.inner;
        assert!(width * self.loops.partial_bytes <= size_of_val(partials));
        assert!(runs * width * self.loops.total_bytes <= size_of_val(totals));
        // Whole rows of outputs are contiguous, so several short rows are read at once. If all
        // elements are in memory, parts of rows are read together with the elements between them.
        let together = match (elements.is_in_memory(), width == inner) {
            (true, _) => rows.len(),
            (false, true) => (BLOCK / width).max(1),
            (false, false) => 1,
        };
        assert!(runs == 1 || together >= rows.len());
        let mut row = rows.start;
        while row < rows.end {
            let end = rows.end.min(row + together);
            let from = start + row * inner;
            let columns = Columns {
                values: elements.address(from..from + (runs * (end - row) - 1) * inner + width),
                stride: inner,
                width,
                rows: row..end,
                all: rows.clone(),
                runs,
            };
            // SAFETY: `address` has returned the address of all elements of the rows. By the
            // invariant of `ReductionJob`, the elements are of the loop's type. There is space for
            // the partial results and the totals, as asserted. The loop has reduced the earlier
            // rows to these partial results and totals. The rows of several runs are read at once,
            // as asserted.
            unsafe { (self.leaves.columns)(&columns, partials, totals) };
            row = end;
        }
    }
}

/// Adjacent outputs, and the rows to reduce. If there are several runs, each run has all `inner`
/// columns.
struct Side {
    /// The index of the first output's first element.
    start: usize,
    /// The number of outputs of a run.
    width: usize,
    runs: usize,
    rows: Range<usize>,
}

/// Returns the number of elements of [`Scratch`] that `bytes` occupy.
fn units(bytes: usize) -> usize {
    bytes.div_ceil(size_of::<u128>())
}
