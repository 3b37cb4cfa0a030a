//! Folding the elements of an expression without storing them.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::kernel::{Bound, RUN, Reader};
use super::launch::{Work, both, launch};
use super::memory::{Output, computed};
use super::vector::{Loop, vectorised};
use crate::array::Array;
use crate::context::Device;
use crate::error::Result;
use crate::ops::Expr;
use crate::ops::order::ordered_reads;
use crate::ops::reductions::{Plan, Reducer};

/// The elements that are folded one after another, at most: the totals of longer folds are those of
/// chunks, merged two by two, by several threads where there are.
const CHUNK: usize = 1 << 16;

/// The elements of a block that are read where they stand. So many that joining its lanes counts for
/// little, and so few that a lane's sum loses little.
const BLOCK: usize = 1024;

/// Rows that are folded before their results are merged into the totals.
const BLOCK_ROWS: usize = 16;

/// The results of folding `expr` with `F` as `plan` says.
#[track_caller]
pub(in crate::ops) fn fold<F: Reducer<E::Item>, E: Expr>(
    expr: &E,
    device: &Device,
    plan: &Plan,
) -> Result<Array<F::Output>> {
    let stream = ordered_reads(expr, device)?;
    let bound = Bound::new(expr, &plan.frame);
    let folds = Folds {
        length: plan.length,
        inner: plan.inner,
    };
    let write = |output: Output<F::Output>| {
        let work = Work::of_folds(expr, output.count(), plan.length);
        let writes = (output, folds);
        launch(
            device,
            stream,
            work,
            (&bound, &writes),
            |bound, &(output, folds), range| {
                // SAFETY: the memory is alive while a launch runs, and its ranges do not overlap.
                let out = unsafe { output.part(range.clone()) };
                if let (Some(nothing), 0) = (F::nothing(), folds.length) {
                    return out.fill(MaybeUninit::new(nothing));
                }
                // The stream is ordered after what other streams wrote, so a launch on it may read the
                // operands; the output is no part of them, because it is new.
                let bound = Readable(bound);
                let first = range.start;
                if folds.inner > 1 {
                    columns::<F, E>(bound, folds, first, out);
                } else if folds.length > CHUNK {
                    long_rows::<F, E>(bound, folds.length, first, out);
                } else {
                    let rows = Rows {
                        bound,
                        length: folds.length,
                        first,
                        reducer: PhantomData::<F>,
                    };
                    vectorised(rows, out);
                }
            },
        );
    };
    // SAFETY: the ranges of a launch cover all outputs, and each of the ways writes all of `out`.
    // `Plan::run` sees to it that a fold of nothing has a result.
    unsafe { computed(device, &plan.outputs, write) }
}

/// The part of a plan that a kernel needs, besides its frame.
#[derive(Clone, Copy)]
struct Folds {
    /// As of the plan.
    length: usize,
    /// As of the plan.
    inner: usize,
}

/// A bound kernel that may be read.
///
/// Invariant: as long as there is one, the memory of the operands is alive, and nothing writes to what
/// the kernel reads.
struct Readable<'a, E: Expr>(&'a Bound<E>);

impl<E: Expr> Clone for Readable<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Expr> Copy for Readable<'_, E> {}

/// Outputs whose elements stand together, `length` for each; the first output has number `first`.
struct Rows<'a, F, E: Expr> {
    bound: Readable<'a, E>,
    length: usize,
    first: usize,
    reducer: PhantomData<F>,
}

impl<F: Reducer<E::Item>, E: Expr> Loop<[MaybeUninit<F::Output>]> for Rows<'_, F, E> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [MaybeUninit<F::Output>]) {
        let Self {
            bound,
            length,
            first,
            ..
        } = self;
        let mut room = MaybeUninit::uninit();
        // SAFETY: by the invariant of `Readable`.
        let reader = &mut unsafe { bound.0.reader(&mut room) };
        if length > RUN {
            for (index, slot) in out.iter_mut().enumerate() {
                let start = (first + index) * length;
                let total = total_of::<F, E, FMA>(reader, start..start + length, 0);
                slot.write(F::finish::<FMA>(total, length));
            }
            return;
        }
        let together = RUN / length;
        for (index, part) in out.chunks_mut(together).enumerate() {
            let start = (first + index * together) * length;
            let values = reader.values(start..start + part.len() * length);
            for (slot, row) in part.iter_mut().zip(values.chunks_exact(length)) {
                let total = F::total(F::fold::<FMA>(row, 0), length);
                slot.write(F::finish::<FMA>(total, length));
            }
        }
    }
}

/// The total of the elements of `range`, block by block; the first of them has number `index` among
/// those of its output.
#[inline(always)]
fn total_of<F: Reducer<E::Item>, E: Expr, const FMA: bool>(
    reader: &mut Reader<'_, E>,
    range: Range<usize>,
    index: usize,
) -> F::Total {
    let (count, start) = (range.len(), range.start);
    let block = if reader.stands() { BLOCK } else { RUN };
    let values = reader.values(start..start + block.min(count));
    let mut total = F::total(F::fold::<FMA>(values, index), values.len());
    let mut done = block;
    while done < count {
        let values = reader.values(start + done..start + count.min(done + block));
        let more = F::total(F::fold::<FMA>(values, index + done), values.len());
        total = F::merge::<FMA>(total, more);
        done += block;
    }
    total
}

/// As [`Rows`], for long ones.
fn long_rows<F: Reducer<E::Item>, E: Expr>(
    bound: Readable<'_, E>,
    length: usize,
    first: usize,
    out: &mut [MaybeUninit<F::Output>],
) {
    for (index, slot) in out.iter_mut().enumerate() {
        let start = (first + index) * length;
        let total = merged(
            length,
            CHUNK,
            &|part| {
                let chunk = Chunk {
                    bound,
                    range: start + part.start..start + part.end,
                    index: part.start,
                    reducer: PhantomData::<F>,
                };
                vectorised(chunk, &mut ())
            },
            &F::merge::<false>,
        );
        slot.write(F::finish::<false>(total, length));
    }
}

/// Elements whose total is asked for.
struct Chunk<'a, F, E: Expr> {
    bound: Readable<'a, E>,
    range: Range<usize>,
    index: usize,
    reducer: PhantomData<F>,
}

impl<F: Reducer<E::Item>, E: Expr> Loop<()> for Chunk<'_, F, E> {
    type Result = F::Total;

    #[inline(always)]
    fn run<const FMA: bool>(self, _out: &mut ()) -> F::Total {
        let mut room = MaybeUninit::uninit();
        // SAFETY: by the invariant of `Readable`.
        let reader = &mut unsafe { self.bound.0.reader(&mut room) };
        total_of::<F, E, FMA>(reader, self.range, self.index)
    }
}

/// The totals of parts of `0..length` of at most `chunk`, merged two by two. Where a part ends depends
/// on the lengths alone.
fn merged<R: Send>(
    length: usize,
    chunk: usize,
    total: &(impl Fn(Range<usize>) -> R + Sync),
    merge: &(impl Fn(R, R) -> R + Sync),
) -> R {
    fn of_range<R: Send>(
        range: Range<usize>,
        chunk: usize,
        total: &(impl Fn(Range<usize>) -> R + Sync),
        merge: &(impl Fn(R, R) -> R + Sync),
    ) -> R {
        if range.len() <= chunk {
            return total(range);
        }
        let middle = range.start + (range.len() / 2).next_multiple_of(chunk);
        let (left, right) = both(
            || of_range(range.start..middle, chunk, total, merge),
            || of_range(middle..range.end, chunk, total, merge),
        );
        merge(left, right)
    }
    of_range(0..length, chunk, total, merge)
}

/// Folds elements that stand apart, several outputs side by side; the first of `out` has number
/// `first`.
fn columns<F: Reducer<E::Item>, E: Expr>(
    bound: Readable<'_, E>,
    folds: Folds,
    first: usize,
    out: &mut [MaybeUninit<F::Output>],
) {
    // As the number of outputs that a thread makes must not matter, this is not of their width.
    let rows = (CHUNK / folds.inner.min(RUN)).next_multiple_of(BLOCK_ROWS);
    if folds.length <= rows {
        let columns = Columns {
            bound,
            folds,
            first,
            reducer: PhantomData::<F>,
        };
        return vectorised(columns, out);
    }
    for place in places(folds, first, out.len()) {
        let width = place.columns.len();
        let totals = merged(
            folds.length,
            rows,
            &|rows| {
                let long = LongColumns {
                    bound,
                    folds,
                    rows,
                    start: place.start,
                    width,
                    reducer: PhantomData::<F>,
                };
                vectorised(long, &mut ())
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
struct Place {
    /// Which of the outputs that are asked for, at most [`RUN`].
    columns: Range<usize>,
    /// The number of the first one's first element.
    start: usize,
}

/// The `count` outputs from number `first` on, as many at once as can be.
#[inline(always)]
fn places(folds: Folds, first: usize, count: usize) -> Places {
    Places {
        folds,
        first,
        count,
        done: 0,
    }
}

/// See [`places`].
struct Places {
    folds: Folds,
    first: usize,
    count: usize,
    done: usize,
}

impl Iterator for Places {
    type Item = Place;

    #[inline(always)]
    fn next(&mut self) -> Option<Place> {
        if self.done == self.count {
            return None;
        }
        let Folds { length, inner } = self.folds;
        let number = self.first + self.done;
        let (outer, column) = (number / inner, number % inner);
        let width = (self.count - self.done).min(inner - column).min(RUN);
        let columns = self.done..self.done + width;
        self.done = columns.end;
        Some(Place {
            columns,
            start: outer * length * inner + column,
        })
    }
}

/// Outputs side by side; the first has number `first`.
struct Columns<'a, F, E: Expr> {
    bound: Readable<'a, E>,
    folds: Folds,
    first: usize,
    reducer: PhantomData<F>,
}

impl<F: Reducer<E::Item>, E: Expr> Loop<[MaybeUninit<F::Output>]> for Columns<'_, F, E> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [MaybeUninit<F::Output>]) {
        let Self { bound, folds, .. } = self;
        let mut room = MaybeUninit::uninit();
        // SAFETY: by the invariant of `Readable`.
        let reader = &mut unsafe { bound.0.reader(&mut room) };
        let mut side = Side::<F, E>::new(reader);
        for place in places(folds, self.first, out.len()) {
            let out = &mut out[place.columns];
            side.fold::<FMA>(reader, folds, 0..folds.length, place.start, out.len());
            for (slot, &total) in out.iter_mut().zip(&side.totals) {
                slot.write(F::finish::<FMA>(total, folds.length));
            }
        }
    }
}

/// Outputs side by side, `width` of them, and the rows of elements whose totals are asked for. The
/// first element of the first row of all has number `start`.
struct LongColumns<'a, F, E: Expr> {
    bound: Readable<'a, E>,
    folds: Folds,
    rows: Range<usize>,
    start: usize,
    width: usize,
    reducer: PhantomData<F>,
}

impl<F: Reducer<E::Item>, E: Expr> Loop<()> for LongColumns<'_, F, E> {
    type Result = [F::Total; RUN];

    #[inline(always)]
    fn run<const FMA: bool>(self, _out: &mut ()) -> Self::Result {
        let mut room = MaybeUninit::uninit();
        // SAFETY: by the invariant of `Readable`.
        let reader = &mut unsafe { self.bound.0.reader(&mut room) };
        let mut side = Side::<F, E>::new(reader);
        side.fold::<FMA>(reader, self.folds, self.rows, self.start, self.width);
        side.totals
    }
}

/// The results of outputs side by side.
struct Side<F: Reducer<E::Item>, E: Expr> {
    partials: [F::Partial; RUN],
    totals: [F::Total; RUN],
}

impl<F: Reducer<E::Item>, E: Expr> Side<F, E> {
    #[inline(always)]
    fn new(reader: &mut Reader<'_, E>) -> Self {
        // Any value will do: `fold` begins by overwriting it.
        let partial = F::open(reader.values(0..1)[0], 0);
        Self {
            partials: [partial; RUN],
            totals: [F::total(partial, 1); RUN],
        }
    }

    /// Folds the elements in `rows` of `width` outputs, the first elements of which begin at number
    /// `start`.
    #[inline(always)]
    fn fold<const FMA: bool>(
        &mut self,
        reader: &mut Reader<'_, E>,
        folds: Folds,
        rows: Range<usize>,
        start: usize,
        width: usize,
    ) {
        // Whole rows of outputs stand together, so that short ones are read many at once.
        let together = if width == folds.inner { RUN / width } else { 1 };
        let partials = &mut self.partials[..width];
        let totals = &mut self.totals[..width];
        let mut row = rows.start;
        while row < rows.end {
            let opened = row;
            let end = rows.end.min(row + BLOCK_ROWS);
            while row < end {
                let count = together.min(end - row);
                let from = start + row * folds.inner;
                let values = reader.values(from..from + count * width);
                for (index, values) in values.chunks_exact(width).enumerate() {
                    let row = row + index;
                    accumulate::<F, E, FMA>(partials, values, row, row == opened);
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
fn accumulate<F: Reducer<E::Item>, E: Expr, const FMA: bool>(
    partials: &mut [F::Partial],
    values: &[E::Item],
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
