//! Reductions of elements that are not contiguous, several outputs side by side.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::{CHUNK, finish_all, merged};
use crate::array::AnyElement;
use crate::ops::descriptors::Lanes;
use crate::ops::host::blocked::{BLOCK, Blocks, RUN, Readable};
use crate::ops::reducers::Reducer;
use crate::ops::vector::{Loop, vectorised};

/// Rows that are reduced before their results are merged into the totals.
const BLOCK_ROWS: usize = 16;

/// Rows that are added to the partial results in one pass.
const GROUP: usize = 4;

/// The most outputs that are computed side by side: enough that long parts of rows are read at
/// once.
const WIDTH: usize = BLOCK;

/// Returns the least number of `inner` outputs side by side that stay on one thread. Outputs are
/// computed from blocks as wide as they are, and a block of a few elements costs more than the
/// elements. Narrow parts of many long rows cost more too, because each row is on another page. If
/// there are fewer outputs than `WIDTH`, the rows are shared among threads instead.
pub(super) fn together(inner: usize) -> usize {
    if inner < WIDTH { RUN } else { WIDTH }
}

/// Reduces elements that are not contiguous, several outputs side by side; the first of `out` has
/// number `first`.
pub(super) fn columns<F: Reducer<T>, T: AnyElement>(
    elements: Readable<'_, T>,
    lanes: Lanes,
    first: usize,
    out: &mut [MaybeUninit<F::Output>],
) {
    assert!(lanes.length > 0, "no elements to reduce");
    // The number of outputs that a thread computes must not matter, so this does not depend on it.
    // Many outputs are enough work for all threads.
    let rows = (CHUNK / lanes.inner.min(RUN)).next_multiple_of(BLOCK_ROWS);
    if lanes.length <= rows || lanes.inner >= WIDTH {
        return short_columns::<F, T>(elements, lanes, first, out);
    }
    for place in column_runs(lanes, first, out.len(), RUN) {
        let width = place.columns.len();
        let totals = merged(
            (lanes.length, width * size_of::<T>()),
            rows,
            &|rows| {
                let mut totals = [const { MaybeUninit::uninit() }; RUN];
                elements.read(|elements| {
                    let columns = Columns {
                        elements,
                        lanes,
                        rows,
                        first: first + place.columns.start,
                        reducer: PhantomData::<F::Inner>,
                    };
                    vectorised(columns, &mut totals[..width]);
                });
                totals
            },
            &|mut totals, right| {
                for (left, right) in totals[..width].iter_mut().zip(&right) {
                    // SAFETY: the loop has written the totals of all outputs.
                    let (one, other) = unsafe { (left.assume_init(), right.assume_init()) };
                    left.write(F::merge::<false>(one, other));
                }
                totals
            },
        );
        // SAFETY: as above.
        unsafe { finish_all::<F, T>(&totals[..width], lanes.length, &mut out[place.columns]) };
    }
}

/// Reduces all rows of each output at once.
fn short_columns<F: Reducer<T>, T: AnyElement>(
    elements: Readable<'_, T>,
    lanes: Lanes,
    first: usize,
    out: &mut [MaybeUninit<F::Output>],
) {
    // Whole rows of outputs, if a row fits.
    let at_once = WIDTH / lanes.inner.min(WIDTH) * lanes.inner.min(WIDTH);
    elements.read(|elements| {
        let mut totals = [const { MaybeUninit::uninit() }; WIDTH];
        let mut done = 0;
        while done < out.len() {
            let number = first + done;
            let count = (at_once - number % lanes.inner.min(WIDTH)).min(out.len() - done);
            let columns = Columns {
                elements,
                lanes,
                rows: 0..lanes.length,
                first: number,
                reducer: PhantomData::<F::Inner>,
            };
            vectorised(columns, &mut totals[..count]);
            let out = &mut out[done..done + count];
            // SAFETY: the loop has written as many totals.
            unsafe { finish_all::<F, T>(&totals[..count], lanes.length, out) };
            done += count;
        }
    });
}

/// Outputs whose first elements are contiguous.
struct ColumnRun {
    /// The positions among the requested outputs.
    columns: Range<usize>,
    /// The number of the first output's first element.
    start: usize,
}

/// Returns the `count` outputs from number `first` on, in runs as long as possible, but at most
/// `widest`.
#[inline(always)]
fn column_runs(lanes: Lanes, first: usize, count: usize, widest: usize) -> ColumnRuns {
    ColumnRuns {
        lanes,
        first,
        count,
        widest,
        done: 0,
    }
}

/// See [`column_runs`].
struct ColumnRuns {
    lanes: Lanes,
    first: usize,
    count: usize,
    widest: usize,
    done: usize,
}

impl Iterator for ColumnRuns {
    type Item = ColumnRun;

    #[inline(always)]
    fn next(&mut self) -> Option<ColumnRun> {
        if self.done == self.count {
            return None;
        }
        let Lanes { length, inner, .. } = self.lanes;
        let number = self.first + self.done;
        let (outer, column) = (number / inner, number % inner);
        let width = (self.count - self.done)
            .min(inner - column)
            .min(self.widest);
        let columns = self.done..self.done + width;
        self.done = columns.end;
        Some(ColumnRun {
            columns,
            start: outer * length * inner + column,
        })
    }
}

/// Outputs side by side, the first of which has number `first`, and the rows of elements whose
/// totals are computed.
struct Columns<'a, 'b, 'c, F, T> {
    elements: &'a mut Blocks<'b, 'c, T>,
    lanes: Lanes,
    rows: Range<usize>,
    first: usize,
    reducer: PhantomData<F>,
}

impl<F: Reducer<T>, T: AnyElement> Loop<[MaybeUninit<F::Total>]> for Columns<'_, '_, '_, F, T> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [MaybeUninit<F::Total>]) {
        let Self {
            elements, lanes, ..
        } = self;
        let widest = WIDTH.min(lanes.inner).min(out.len());
        // Both arrays are local, so that the compiler sees that nothing else reaches them.
        let mut partials = [const { MaybeUninit::uninit() }; WIDTH];
        let mut totals = [const { MaybeUninit::uninit() }; WIDTH];
        for place in column_runs(lanes, self.first, out.len(), widest) {
            let out = &mut out[place.columns];
            let mut side = Side::<F, T> {
                partials: &mut partials[..out.len()],
                totals: &mut totals[..out.len()],
            };
            side.reduce::<FMA>(elements, lanes, self.rows.clone(), place.start);
            out.copy_from_slice(&totals[..out.len()]);
        }
    }
}

/// The results of outputs side by side. The first row of all writes the partial results, the first
/// block of rows the totals.
struct Side<'a, F: Reducer<T>, T: AnyElement> {
    partials: &'a mut [MaybeUninit<F::Partial>],
    totals: &'a mut [MaybeUninit<F::Total>],
}

impl<F: Reducer<T>, T: AnyElement> Side<'_, F, T> {
    /// Reduces the elements in `rows` of the outputs, whose first elements begin at number `start`.
    #[inline(always)]
    fn reduce<const FMA: bool>(
        &mut self,
        elements: &mut Blocks<'_, '_, T>,
        lanes: Lanes,
        rows: Range<usize>,
        start: usize,
    ) {
        let width = self.totals.len();
        let inner = lanes.inner;
        let is_in_memory = elements.is_in_memory();
        // Whole rows of outputs are contiguous, so that several short ones are read at once. If all
        // elements are in memory, parts of rows are read together with the elements between them.
        let together = match (width == inner, is_in_memory) {
            (_, true) => BLOCK_ROWS,
            (true, false) => (BLOCK / width).max(1),
            (false, false) => 1,
        };
        let partials = &mut self.partials[..width];
        let totals = &mut self.totals[..width];
        let mut row = rows.start;
        while row < rows.end {
            let opened = row;
            let end = rows.end.min(row + BLOCK_ROWS);
            while row < end {
                let count = together.min(end - row);
                let from = start + row * inner;
                let values = elements.values(from..from + (count - 1) * inner + width);
                let of_row = |index: usize| &values[index * inner..][..width];
                let grouped = if is_in_memory {
                    count - count % GROUP
                } else {
                    0
                };
                for index in (0..grouped).step_by(GROUP) {
                    let group = std::array::from_fn(|within| of_row(index + within));
                    let opens = row + index == opened;
                    // SAFETY: the first row of the block opens the partial results.
                    unsafe { accumulate_group::<F, T, FMA>(partials, group, row + index, opens) };
                }
                for index in grouped..count {
                    let opens = row + index == opened;
                    // SAFETY: as above.
                    unsafe { accumulate::<F, T, FMA>(partials, of_row(index), row + index, opens) };
                }
                row += count;
            }
            let pairs = totals.iter_mut().zip(&*partials);
            let count = end - opened;
            // Two loops, so that neither has a branch.
            if opened == rows.start {
                for (total, partial) in pairs {
                    // SAFETY: the first row of the block has written the partial results.
                    total.write(F::total(unsafe { partial.assume_init() }, count));
                }
            } else {
                for (total, partial) in pairs {
                    // SAFETY: as above; the first block has written the totals.
                    let (before, partial) = unsafe { (total.assume_init(), partial.assume_init()) };
                    total.write(F::merge::<FMA>(before, F::total(partial, count)));
                }
            }
        }
    }
}

/// Adds one element to each of `partials`, or opens them with it.
///
/// # Safety
///
/// Partial results that are not opened must have been written.
#[inline(always)]
unsafe fn accumulate<F: Reducer<T>, T: AnyElement, const FMA: bool>(
    partials: &mut [MaybeUninit<F::Partial>],
    values: &[T],
    row: usize,
    opens: bool,
) {
    let pairs = partials.iter_mut().zip(values);
    if opens {
        for (partial, &value) in pairs {
            partial.write(F::open(value, row));
        }
    } else {
        for (partial, &value) in pairs {
            // SAFETY: by this function's contract.
            let before = unsafe { partial.assume_init() };
            partial.write(F::step::<FMA>(before, value, row));
        }
    }
}

/// Adds one element of each of several rows to each of `partials`, in one pass, or opens them with
/// the first.
///
/// # Safety
///
/// Partial results that are not opened must have been written.
#[inline(always)]
unsafe fn accumulate_group<F: Reducer<T>, T: AnyElement, const FMA: bool>(
    partials: &mut [MaybeUninit<F::Partial>],
    rows: [&[T]; GROUP],
    first: usize,
    opens: bool,
) {
    let width = partials.len();
    let rows = rows.map(|row| &row[..width]);
    let rest = |mut partial, column: usize| {
        for (index, row) in rows.iter().enumerate().skip(1) {
            partial = F::step::<FMA>(partial, row[column], first + index);
        }
        partial
    };
    if opens {
        for column in 0..width {
            partials[column].write(rest(F::open(rows[0][column], first), column));
        }
    } else {
        for column in 0..width {
            // SAFETY: by this function's contract.
            let before = unsafe { partials[column].assume_init() };
            let partial = F::step::<FMA>(before, rows[0][column], first);
            partials[column].write(rest(partial, column));
        }
    }
}
