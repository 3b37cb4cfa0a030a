//! Evaluating an expression into new memory.

use std::mem::MaybeUninit;

use super::kernel::Bound;
use super::launch::launch;
use super::memory::{Output, computed};
use super::view::Frame;
use crate::array::{Array, Shape};
use crate::context::Device;
use crate::error::Result;
use crate::ops::Expr;

/// The elements of `expr` over `shape`, in one pass into one allocation.
pub(in crate::ops) fn evaluate<E: Expr>(
    expr: &E,
    device: &Device,
    shape: &Shape,
) -> Result<Array<E::Item>> {
    let bound = Bound::new(expr, &Frame::row_major(shape));
    let write = |output: &Output<'_, E::Item>| {
        launch(device, bound.count(), |range| {
            // SAFETY: the ranges of a launch do not overlap.
            let part = unsafe { output.part(range.clone()) };
            let mut room = MaybeUninit::uninit();
            bound.reader(&mut room).write(range.start, part);
        });
    };
    // SAFETY: the ranges of a launch cover all elements, and `Reader::write` writes all of a part.
    unsafe { computed(device, shape, write) }
}
