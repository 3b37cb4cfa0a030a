//! Evaluating an expression into new memory.

use std::mem::MaybeUninit;

use super::kernel::Bound;
use super::launch::{Work, launch};
use super::memory::{Output, computed};
use super::view::Frame;
use crate::array::{Array, Shape};
use crate::context::Device;
use crate::error::Result;
use crate::ops::Expr;
use crate::ops::order::ordered_reads;

/// The elements of `expr` over `shape`, in one pass into one allocation.
#[track_caller]
pub(in crate::ops) fn evaluate<E: Expr>(
    expr: &E,
    device: &Device,
    shape: &Shape,
) -> Result<Array<E::Item>> {
    let stream = ordered_reads(expr, device)?;
    let bound = Bound::new(expr, &Frame::row_major(shape));
    let write = |output: Output<E::Item>| {
        launch(
            device,
            stream,
            Work::of_elements(expr, bound.count()),
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
