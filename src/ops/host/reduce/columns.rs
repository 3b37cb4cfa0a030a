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

/// Rows that are taken into partial results at once, which are read and written once for all of them.
const GROUP: usize = 4;

/// The outputs that are made side by side, at most: so many that long parts of rows are read at once.
const WIDTH: usize = BLOCK;

/// How many of `inner` outputs side by side stay on one thread at least. They are made from blocks as wide as they are, and a
/// block of a few elements costs more than these. Of fewer outputs than `WIDTH` the rows are shared among threads instead.
pub(super) fn together(inner: usize) -> usize {
    if inner < WIDTH { RUN } else { RUN / 2 }
}

/// Folds elements that stand apart, several outputs side by side; the first of `out` has number
/// `first`.
pub(super) fn columns<F: Reducer<T>, T: AnyElement>(
    elements: Readable<'_, T>,
    folds: Lanes,
    first: usize,
    out: &mut [MaybeUninit<F::Output>],
) {
    // As the number of outputs that a thread makes must not matter, this is not of their width. Where
    // there are many of them, they make work for threads enough.
    let rows = (CHUNK / folds.inner.min(RUN)).next_multiple_of(BLOCK_ROWS);
    if folds.length <= rows || folds.inner >= WIDTH {
        return elements.read(|elements| {
            let columns = Columns {
                elements,
                folds,
                first,
                reducer: PhantomData::<F>,
            };
            vectorised(columns, out);
        });
    }
    for place in column_runs(folds, first, out.len(), RUN) {
        let width = place.columns.len();
        let totals = merged(
            folds.length,
            rows,
            &|rows| {
                elements.read(|elements| {
                    let long = LongColumns {
                        elements,
                        folds,
                        rows,
                        start: place.start,
                        width,
                        reducer: PhantomData::<F>,
                    };
                    vectorised(long, &mut ())
                })
            },
            &|left: [F::Total; RUN], right| {
                let mut totals = left;
                for (left, &right) in totals[..width].iter_mut().zip(&right) {
                    *left = F::merge::<false>(*left, right);
                }
                totals
            },
        );
        for (slot, &total) in out[place.columns].iter_mut().zip(&totals) {
            slot.write(F::finish::<false>(total, folds.length));
        }
    }
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

/// Outputs side by side; the first has number `first`.
struct Columns<'a, 'b, 'c, F, T> {
    elements: &'a mut Blocks<'b, 'c, T>,
    folds: Lanes,
    first: usize,
    reducer: PhantomData<F>,
}

impl<F: Reducer<T>, T: AnyElement> Loop<[MaybeUninit<F::Output>]> for Columns<'_, '_, '_, F, T> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [MaybeUninit<F::Output>]) {
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
            side.fold::<FMA>(elements, folds, 0..folds.length, place.start, out.len());
            for (slot, &total) in out.iter_mut().zip(&*side.totals) {
                slot.write(F::finish::<FMA>(total, folds.length));
            }
        }
    }
}

/// Outputs side by side, `width` of them, and the rows of elements whose totals are asked for. The
/// first element of the first row of all has number `start`.
struct LongColumns<'a, 'b, 'c, F, T> {
    elements: &'a mut Blocks<'b, 'c, T>,
    folds: Lanes,
    rows: Range<usize>,
    start: usize,
    width: usize,
    reducer: PhantomData<F>,
}

impl<F: Reducer<T>, T: AnyElement> Loop<()> for LongColumns<'_, '_, '_, F, T> {
    type Result = [F::Total; RUN];

    #[inline(always)]
    #[track_caller]
    fn run<const FMA: bool>(self, _out: &mut ()) -> Self::Result {
        let elements = self.elements;
        let (mut partials, mut totals) = (
            allocate_for::<F::Partial, RUN>(),
            allocate_for::<F::Total, RUN>(),
        );
        let mut side = Side::<F, T>::new(elements, &mut partials, &mut totals);
        side.fold::<FMA>(elements, self.folds, self.rows, self.start, self.width);
        *side.totals.first_chunk().expect("there are as many")
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
            (_, true) => (BLOCK / width).max(GROUP),
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
                let grouped = if stands { count - count % GROUP } else { 0 };
                for index in (0..grouped).step_by(GROUP) {
                    let group = std::array::from_fn(|within| of_row(index + within));
                    let opens = row + index == opened;
                    accumulate_group::<F, T, FMA>(partials, group, row + index, opens);
                }
                for index in grouped..count {
                    let opens = row + index == opened;
                    accumulate::<F, T, FMA>(partials, of_row(index), row + index, opens);
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

/// Takes one more element into each of `partials`, or opens them with it.
#[inline(always)]
fn accumulate<F: Reducer<T>, T: AnyElement, const FMA: bool>(
    partials: &mut [F::Partial],
    values: &[T],
    row: usize,
    opens: bool,
) {
    let pairs = partials.iter_mut().zip(values);
    if opens {
        for (partial, &value) in pairs {
            *partial = F::open(value, row);
        }
    } else {
        for (partial, &value) in pairs {
            *partial = F::step::<FMA>(*partial, value, row);
        }
    }
}

/// The same with one element of each of several rows, in one pass over `partials`.
#[inline(always)]
fn accumulate_group<F: Reducer<T>, T: AnyElement, const FMA: bool>(
    partials: &mut [F::Partial],
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
            partials[column] = rest(F::open(rows[0][column], first), column);
        }
    } else {
        for column in 0..width {
            let partial = F::step::<FMA>(partials[column], rows[0][column], first);
            partials[column] = rest(partial, column);
        }
    }
}
