//! Folding the elements of an expression without storing them.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::kernel::{Bound, RUN, Reader};
use super::launch::{Work, launch};
use super::memory::{Output, computed};
use crate::array::Array;
use crate::context::Device;
use crate::error::Result;
use crate::ops::Expr;
use crate::ops::order::ordered_reads;
use crate::ops::reduce::{LANES, Plan, Reducer};

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
        let count = output.count();
        let writes = (output, folds);
        launch(
            device,
            stream,
            Work::on_one_thread(count),
            (&bound, &writes),
            |bound, &(output, folds), range| {
                // SAFETY: the memory is alive while a launch runs, and its ranges do not overlap.
                let out = unsafe { output.part(range.clone()) };
                let mut room = MaybeUninit::uninit();
                // SAFETY: the stream is ordered after what other streams wrote, so a launch on it may
                // read the operands; the output is no part of them, because it is new.
                let reader = &mut unsafe { bound.reader(&mut room) };
                match (F::nothing(), folds.length, folds.inner) {
                    (Some(nothing), 0, _) => out.fill(MaybeUninit::new(nothing)),
                    (_, length, 1) => rows::<F, E>(reader, length, range.start, out),
                    _ => columns::<F, E>(reader, folds, range.start, out),
                }
            },
        );
    };
    // SAFETY: the ranges of a launch cover all outputs, and each of the three ways writes all of
    // `out`. `Plan::run` sees to it that a fold of nothing has a result.
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

/// Folds elements that stand together, `length` for each output; the first of `out` has number
/// `first`.
fn rows<F: Reducer<E::Item>, E: Expr>(
    reader: &mut Reader<'_, E>,
    length: usize,
    first: usize,
    out: &mut [MaybeUninit<F::Output>],
) {
    if length > RUN {
        for (index, slot) in out.iter_mut().enumerate() {
            let start = (first + index) * length;
            slot.write(long_row::<F, E>(reader, start..start + length));
        }
        return;
    }
    let together = RUN / length;
    for (index, part) in out.chunks_mut(together).enumerate() {
        let start = (first + index * together) * length;
        let values = reader.values(start..start + part.len() * length);
        for (slot, row) in part.iter_mut().zip(values.chunks_exact(length)) {
            slot.write(F::finish(F::total(F::fold(row, 0)), length));
        }
    }
}

/// Folds the elements of `range`, block by block.
fn long_row<F: Reducer<E::Item>, E: Expr>(
    reader: &mut Reader<'_, E>,
    range: Range<usize>,
) -> F::Output {
    let length = range.len();
    let mut total = F::total(F::fold(reader.values(range.start..range.start + RUN), 0));
    for done in (RUN..length).step_by(RUN) {
        let start = range.start + done;
        let values = reader.values(start..range.end.min(start + RUN));
        total = F::merge(total, F::total(F::fold(values, done)));
    }
    F::finish(total, length)
}

/// Folds elements that stand apart, several outputs side by side; the first of `out` has number
/// `first`.
fn columns<F: Reducer<E::Item>, E: Expr>(
    reader: &mut Reader<'_, E>,
    folds: Folds,
    first: usize,
    mut out: &mut [MaybeUninit<F::Output>],
) {
    let mut side = Side::<F, E>::new(reader);
    let mut number = first;
    while !out.is_empty() {
        let (outer, column) = (number / folds.inner, number % folds.inner);
        let width = out.len().min(folds.inner - column).min(RUN);
        let (part, rest) = out.split_at_mut(width);
        side.fold(
            reader,
            folds,
            outer * folds.length * folds.inner + column,
            width,
        );
        for (slot, &total) in part.iter_mut().zip(&side.totals) {
            slot.write(F::finish(total, folds.length));
        }
        (out, number) = (rest, number + width);
    }
}

/// The results of outputs side by side.
struct Side<F: Reducer<E::Item>, E: Expr> {
    partials: [F::Partial; RUN],
    totals: [F::Total; RUN],
}

impl<F: Reducer<E::Item>, E: Expr> Side<F, E> {
    fn new(reader: &mut Reader<'_, E>) -> Self {
        // Any value will do: `fold` begins by overwriting it.
        let partial = F::open(reader.values(0..1)[0], 0);
        Self {
            partials: [partial; RUN],
            totals: [F::total(partial); RUN],
        }
    }

    /// Folds `width` outputs, the first elements of which begin at number `start`.
    fn fold(&mut self, reader: &mut Reader<'_, E>, folds: Folds, start: usize, width: usize) {
        // Whole rows of outputs stand together, so that short ones are read many at once.
        let together = if width == folds.inner { RUN / width } else { 1 };
        let partials = &mut self.partials[..width];
        let totals = &mut self.totals[..width];
        let mut row = 0;
        while row < folds.length {
            // A block ends after as many rows as a lane of `Reducer::fold` has elements, at most.
            let in_block = row % BLOCK_ROWS;
            let count = together.min(folds.length - row).min(BLOCK_ROWS - in_block);
            let from = start + row * folds.inner;
            let values = reader.values(from..from + count * width);
            for (index, values) in values.chunks_exact(width).enumerate() {
                accumulate::<F, E>(partials, values, row + index, in_block + index == 0);
            }
            row += count;
            if row % BLOCK_ROWS == 0 || row == folds.length {
                let opening = row <= BLOCK_ROWS;
                for (total, &partial) in totals.iter_mut().zip(&*partials) {
                    let block = F::total(partial);
                    *total = if opening {
                        block
                    } else {
                        F::merge(*total, block)
                    };
                }
            }
        }
    }
}

/// Rows that are folded before their results are merged into the totals.
const BLOCK_ROWS: usize = RUN / LANES;

/// Takes one more element into each of `partials`, or opens them with it.
#[inline]
fn accumulate<F: Reducer<E::Item>, E: Expr>(
    partials: &mut [F::Partial],
    values: &[E::Item],
    row: usize,
    opens: bool,
) {
    let pairs = partials.iter_mut().zip(values);
    if opens {
        pairs.for_each(|(partial, &value)| *partial = F::open(value, row));
    } else {
        pairs.for_each(|(partial, &value)| *partial = F::step(*partial, value, row));
    }
}
