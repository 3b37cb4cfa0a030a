//! Folds of elements that stand apart, several side by side.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::{CHUNK, merged};
use crate::array::AnyElement;
use crate::ops::host::blocked::{BLOCK, Blocks, RUN, Readable};
use crate::ops::host::vector::{Loop, vectorised};
use crate::ops::lanes::Lanes;
use crate::ops::reductions::Reducer;

/// Rows that are folded before their results are merged into the totals.
const BLOCK_ROWS: usize = 16;

/// Rows that are added to the partial results in one pass: with the row that opens them, three groups are a block.
const GROUP: usize = 5;

/// The outputs that are made side by side, at most: so many that long parts of rows are read at once.
const WIDTH: usize = BLOCK;

/// How many of `inner` outputs side by side stay on one thread at least. They are made from blocks as wide as they are, and a
/// block of a few elements costs more than these. Of fewer outputs than `WIDTH` the rows are shared among threads instead.
pub(super) fn together(inner: usize) -> usize {
    if inner < WIDTH { RUN } else { RUN / 2 }
}

/// Reduces elements that are not contiguous, several outputs side by side; the first of `out` has
/// number `first`.
pub(super) fn columns<F: Reducer<T>, T: AnyElement>(
    elements: Readable<'_, T>,
    folds: Lanes,
    first: usize,
    out: &mut [MaybeUninit<F::Output>],
) {
    // The number of outputs that a thread computes must not matter, so this does not depend on it. If there are
    // many outputs, they are work for threads enough.
    let rows = (CHUNK / folds.inner.min(RUN)).next_multiple_of(BLOCK_ROWS);
    if folds.length <= rows || folds.inner >= WIDTH {
        return short_columns::<F, T>(elements, folds, first, out);
    }
    for place in column_runs(folds, first, out.len(), RUN) {
        let width = place.columns.len();
        let totals = merged(
            folds.length,
            rows,
            &|rows| {
                let mut totals = [const { MaybeUninit::uninit() }; RUN];
                elements.read(|elements| {
                    let columns = Columns {
                        elements,
                        folds,
                        rows,
                        first: first + place.columns.start,
                        reducer: PhantomData::<F::Folded>,
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
        for (slot, total) in out[place.columns].iter_mut().zip(&totals) {
            // SAFETY: as above.
            slot.write(F::finish(unsafe { total.assume_init() }, folds.length));
        }
    }
}

/// Reduces all rows of each output at once.
fn short_columns<F: Reducer<T>, T: AnyElement>(
    elements: Readable<'_, T>,
    folds: Lanes,
    first: usize,
    out: &mut [MaybeUninit<F::Output>],
) {
    // Whole rows of outputs, where one has room.
    let at_once = WIDTH / folds.inner.min(WIDTH) * folds.inner.min(WIDTH);
    elements.read(|elements| {
        let mut totals = [const { MaybeUninit::uninit() }; WIDTH];
        let mut done = 0;
        while done < out.len() {
            let number = first + done;
            let count = (at_once - number % folds.inner.min(WIDTH)).min(out.len() - done);
            let columns = Columns {
                elements,
                folds,
                rows: 0..folds.length,
                first: number,
                reducer: PhantomData::<F::Folded>,
            };
            vectorised(columns, &mut totals[..count]);
            for (slot, total) in out[done..done + count].iter_mut().zip(&totals) {
                // SAFETY: the loop has written as many totals.
                slot.write(F::finish(unsafe { total.assume_init() }, folds.length));
            }
            done += count;
        }
    });
}

/// Outputs whose first elements stand together.
struct ColumnRun {
    /// Which of the outputs that are asked for.
    columns: Range<usize>,
    /// The number of the first one's first element.
    start: usize,
}

/// The `count` outputs from number `first` on, as many at once as can be, but at most `widest`.
#[inline(always)]
fn column_runs(folds: Lanes, first: usize, count: usize, widest: usize) -> ColumnRuns {
    ColumnRuns {
        folds,
        first,
        count,
        widest,
        done: 0,
    }
}

/// See [`places`].
struct ColumnRuns {
    folds: Lanes,
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
        let Lanes { length, inner, .. } = self.folds;
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

/// Outputs side by side, the first of which has number `first`, and the rows of elements whose totals are computed.
struct Columns<'a, 'b, 'c, F, T> {
    elements: &'a mut Blocks<'b, 'c, T>,
    folds: Lanes,
    rows: Range<usize>,
    first: usize,
    reducer: PhantomData<F>,
}

impl<F: Reducer<T>, T: AnyElement> Loop<[MaybeUninit<F::Total>]> for Columns<'_, '_, '_, F, T> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [MaybeUninit<F::Total>]) {
        let Self {
            elements, folds, ..
        } = self;
        let widest = WIDTH.min(folds.inner).min(out.len());
        let (mut partials, mut totals) = (
            allocate_for::<F::Partial, WIDTH>(),
            allocate_for::<F::Total, WIDTH>(),
        );
        let mut side = Side::<F, T>::new(elements, &mut partials[..widest], &mut totals[..widest]);
        for place in column_runs(folds, self.first, out.len(), widest) {
            let out = &mut out[place.columns];
            side.fold::<FMA>(elements, folds, self.rows.clone(), place.start, out.len());
            for (slot, &total) in out.iter_mut().zip(&*side.totals) {
                slot.write(total);
            }
        }
    }
}

/// The results of outputs side by side.
struct Side<'a, F: Reducer<T>, T: AnyElement> {
    partials: &'a mut [F::Partial],
    totals: &'a mut [F::Total],
}

/// Room for results, not yet written.
const fn allocate_for<T, const N: usize>() -> [MaybeUninit<T>; N] {
    [const { MaybeUninit::uninit() }; N]
}

/// All of `room`, with `value` in each place.
#[inline(always)]
fn filled<T: Copy>(room: &mut [MaybeUninit<T>], value: T) -> &mut [T] {
    room.fill(MaybeUninit::new(value));
    // SAFETY: the layout is the same, and every place has just been written.
    unsafe { &mut *(std::ptr::from_mut(room) as *mut [T]) }
}

impl<'a, F: Reducer<T>, T: AnyElement> Side<'a, F, T> {
    #[inline(always)]
    fn new(
        elements: &mut Blocks<'_, '_, T>,
        partials: &'a mut [MaybeUninit<F::Partial>],
        totals: &'a mut [MaybeUninit<F::Total>],
    ) -> Self {
        // Any value will do: `fold` begins by overwriting it.
        let partial = F::open(elements.values(0..1)[0], 0);
        Self {
            partials: filled(partials, partial),
            totals: filled(totals, F::total(partial, 1)),
        }
    }

    /// Folds the elements in `rows` of `width` outputs, the first elements of which begin at number
    /// `start`.
    #[inline(always)]
    fn fold<const FMA: bool>(
        &mut self,
        elements: &mut Blocks<'_, '_, T>,
        folds: Lanes,
        rows: Range<usize>,
        start: usize,
        width: usize,
    ) {
        let inner = folds.inner;
        let stands = elements.stands();
        // Whole rows of outputs stand together, so that short ones are read many at once; of elements that
        // all do, parts of rows are read with what stands between them.
        let together = match (width == inner, stands) {
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
                let mut index = 0;
                if row == opened {
                    open::<F, T>(partials, of_row(0), row);
                    index = 1;
                }
                while stands && index + GROUP <= count {
                    let group = std::array::from_fn(|within| of_row(index + within));
                    accumulate_group::<F, T, FMA>(partials, group, row + index);
                    index += GROUP;
                }
                while index < count {
                    accumulate::<F, T, FMA>(partials, of_row(index), row + index);
                    index += 1;
                }
                row += count;
            }
            let opening = opened == rows.start;
            for (total, &partial) in totals.iter_mut().zip(&*partials) {
                let block = F::total(partial, end - opened);
                *total = if opening {
                    block
                } else {
                    F::merge::<FMA>(*total, block)
                };
            }
        }
    }
}

/// Begins each of `partials` with an element.
#[inline(always)]
fn open<F: Reducer<T>, T: AnyElement>(partials: &mut [F::Partial], values: &[T], row: usize) {
    for (partial, &value) in partials.iter_mut().zip(values) {
        *partial = F::open(value, row);
    }
}

/// Adds one element to each of `partials`.
#[inline(always)]
fn accumulate<F: Reducer<T>, T: AnyElement, const FMA: bool>(
    partials: &mut [F::Partial],
    values: &[T],
    row: usize,
) {
    for (partial, &value) in partials.iter_mut().zip(values) {
        *partial = F::step::<FMA>(*partial, value, row);
    }
}

/// Adds one element of each of several rows to each of `partials`, in one pass.
#[inline(always)]
fn accumulate_group<F: Reducer<T>, T: AnyElement, const FMA: bool>(
    partials: &mut [F::Partial],
    rows: [&[T]; GROUP],
    first: usize,
) {
    let width = partials.len();
    let rows = rows.map(|row| &row[..width]);
    for column in 0..width {
        let mut partial = partials[column];
        for (index, row) in rows.iter().enumerate() {
            partial = F::step::<FMA>(partial, row[column], first + index);
        }
        partials[column] = partial;
    }
}
