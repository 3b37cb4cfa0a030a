//! Evaluating an expression into new memory.

use std::mem::MaybeUninit;

use super::kernel::{Bound, fill};
use super::launch::{Work, launch};
use super::memory::{Output, computed, laid_out};
use super::view::Frame;
use crate::array::{Array, Layout, Shape};
use crate::context::Device;
use crate::error::Result;
use crate::ops::Expr;
use crate::ops::order::{Reading, ordered};

/// The elements of `expr` over `shape`, in one pass into one allocation.
#[track_caller]
pub(in crate::ops) fn evaluate<E: Expr>(
    expr: &E,
    device: &Device,
    shape: &Shape,
) -> Result<Array<E::Item>> {
    let stream = ordered(&Reading(expr), device)?;
    let bound = Bound::new(expr, &Frame::row_major(shape));
    let write = |output: Output<E::Item>| {
        launch(
            device,
            stream,
            bound.work(expr),
            (&bound, &output),
            |bound, output, range| {
                // SAFETY: the memory is alive while a launch runs, and its ranges do not overlap.
                let part = unsafe { output.part(range.clone()) };
                let mut room = MaybeUninit::uninit();
                // SAFETY: the stream is ordered after what other streams wrote, so a launch on it may
                // read the operands; the output is no part of them, because it is new.
                let mut reader = unsafe { bound.reader(&mut room) };
                reader.write(range.start, part);
            },
        );
    };
    // SAFETY: the ranges of a launch cover all elements, and `Reader::write` writes all of a part.
    unsafe { computed(device, shape, write) }
}

/// The same where every operand is dense and of the shape of `layout`, which is dense from index 0.
///
/// # Panics
///
/// Where one is not.
#[track_caller]
pub(in crate::ops) fn evaluate_dense<E: Expr>(
    expr: &E,
    device: &Device,
    layout: Layout,
) -> Result<Array<E::Item>> {
    let stream = ordered(&Reading(expr), device)?;
    let run = expr.dense();
    let write = |output: Output<E::Item>| {
        launch(
            device,
            stream,
            Work::of_elements(expr, output.count()),
            (&run, &output),
            |&run, output, range| {
                // SAFETY: the memory is alive while a launch runs, and its ranges do not overlap. The
                // stream is ordered after what other streams wrote, so a launch on it may read the
                // operands, which are as long as the output and no part of it, because it is new.
                unsafe { fill(run, range.start, output.part(range.clone())) };
            },
        );
    };
    // SAFETY: the ranges of a launch cover all elements, and `fill` writes all of a part.
    unsafe { laid_out(device, layout, write) }
}
