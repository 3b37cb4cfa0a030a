//! Folding the elements of an expression without storing them.

mod columns;
mod rows;

use std::mem::MaybeUninit;
use std::ops::Range;

use super::kernel::{Bound, Readable, Source};
use super::launch::{Work, both, bytes_read, launch_reading};
use super::memory::{Output, computed};
use crate::array::{Array, Element};
use crate::context::Device;
use crate::device::StreamId;
use crate::error::Result;
use crate::ops::Expr;
use crate::ops::lines::Lines;
use crate::ops::order::{Reading, ordered};
use crate::ops::reductions::{Plan, Reducer};

/// The elements that are folded one after another, at most: the totals of longer folds are those of
/// chunks, merged two by two, by several threads where there are.
const CHUNK: usize = 1 << 16;

/// The results of folding `expr` with `F` as `plan` says.
#[track_caller]
pub(in crate::ops) fn fold<F: Reducer<E::Item>, E: Expr>(
    expr: &E,
    device: &Device,
    plan: &Plan,
) -> Result<Array<F::Output>> {
    let stream = ordered(&Reading(expr), device)?;
    let bound = Bound::new(expr, &plan.frame);
    fold_source::<F, E::Item>(&bound, bytes_read(expr), device, stream, plan)
}

/// The same of any expression, whose elements read `bytes_each`: compiled once for a type of elements.
#[track_caller]
fn fold_source<F: Reducer<T>, T: Element>(
    source: &dyn Source<T>,
    bytes_each: usize,
    device: &Device,
    stream: StreamId,
    plan: &Plan,
) -> Result<Array<F::Output>> {
    let folds = plan.lines;
    let write = |output: Output<F::Output>| {
        let work = Work::of_folds(bytes_each, output.count(), folds.length);
        let writes = (output, folds);
        launch_reading(
            device,
            stream,
            work,
            (source, &writes),
            |source, &(output, folds), range| {
                // SAFETY: the memory is alive while a launch runs, and its ranges do not overlap.
                let out = unsafe { output.part(range.clone()) };
                // SAFETY: the stream is ordered after what other streams wrote, so a launch on it may read
                // the operands; the output is no part of them, because it is new.
                let elements = unsafe { Readable::new(source) };
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
