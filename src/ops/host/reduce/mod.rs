//! Folding the elements of an expression without storing them.

mod columns;
mod rows;

use std::mem::MaybeUninit;
use std::ops::Range;

use super::blocked::{Program, Readable};
use super::launch::{Work, both, launch};
use super::memory::{Output, computed};
use crate::array::{Array, Element};
use crate::context::Device;
use crate::error::Result;
use crate::ops::formula::Formula;
use crate::ops::lines::Lines;
use crate::ops::order::{Reading, ordered};
use crate::ops::reductions::{Plan, Reducer};

/// The elements that are folded one after another, at most: the totals of longer folds are those of
/// chunks, merged two by two, by several threads where there are.
const CHUNK: usize = 1 << 16;

/// The results of folding `formula`, whose elements are of type `T`, with `F` as `plan` says.
#[track_caller]
pub(in crate::ops) fn fold<F: Reducer<T>, T: Element>(
    formula: &Formula<'_>,
    device: &Device,
    plan: &Plan,
) -> Result<Array<F::Output>> {
    let stream = ordered(&Reading(formula), device)?;
    let program = Program::new(formula, &plan.frame);
    let folds = plan.lines;
    let write = |output: Output<F::Output>| {
        let work = Work::of_folds(formula.bytes_read(), output.count(), folds.length);
        let writes = (output, folds);
        launch(
            device,
            stream,
            work,
            (&program, &writes),
            |program, &(output, folds), range| {
                // SAFETY: the memory is alive while a launch runs, and its ranges do not overlap.
                let out = unsafe { output.part(range.clone()) };
                // SAFETY: the stream is ordered after what other streams wrote, so a launch on it may read
                // the operands; the output is no part of them, because it is new.
                let elements = unsafe { Readable::new(program) };
                fold_range::<F, T>(elements, folds, range.start, out);
            },
        );
    };
    // SAFETY: the ranges of a launch cover all outputs, and each of the ways writes all of `out`.
    // `Plan::run` sees to it that a fold of nothing has a result.
    unsafe { computed(device, &plan.outputs, write) }
}

/// Makes all of `out`, the first of which has number `first`.
fn fold_range<F: Reducer<T>, T: Element>(
    elements: Readable<'_, T>,
    folds: Lines,
    first: usize,
    out: &mut [MaybeUninit<F::Output>],
) {
    match F::nothing() {
        Some(nothing) if folds.length == 0 => out.fill(MaybeUninit::new(nothing)),
        _ if folds.inner > 1 => columns::columns::<F, T>(elements, folds, first, out),
        _ => rows::rows::<F, T>(elements, folds.length, first, out),
    }
}

/// The totals of parts of `0..length` of at most `chunk`, merged two by two. Where a part ends depends
/// on the lengths alone.
fn merged<R: Send>(
    length: usize,
    chunk: usize,
    total: &(dyn Fn(Range<usize>) -> R + Sync),
    merge: &(dyn Fn(R, R) -> R + Sync),
) -> R {
    fn of_range<R: Send>(
        range: Range<usize>,
        chunk: usize,
        total: &(dyn Fn(Range<usize>) -> R + Sync),
        merge: &(dyn Fn(R, R) -> R + Sync),
    ) -> R {
        if range.len() <= chunk {
            return total(range);
        }
        let middle = range.start + (range.len() / 2).next_multiple_of(chunk);
        let (left, right) = both(
            &|| of_range(range.start..middle, chunk, total, merge),
            &|| of_range(middle..range.end, chunk, total, merge),
        );
        merge(left, right)
    }
    of_range(0..length, chunk, total, merge)
}
