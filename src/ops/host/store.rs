//! Evaluating an expression into the memory of an array.

use std::mem::MaybeUninit;

use super::evaluate::evaluate;
use super::kernel::{Bound, RUN, stage};
use super::launch::{Work, launch};
use super::memory::Target;
use super::view::Frame;
use crate::array::{Array, Element};
use crate::context::Device;
use crate::error::Result;
use crate::ops::order::ordered_update;
use crate::ops::{Expr, IntoExpr};

/// Sets the elements of `target` to those of `expr`, both on `device`: in place, where nothing
/// outside `expr` shares the memory, and in new memory otherwise.
#[track_caller]
pub(in crate::ops) fn store<T: Element, E: Expr<Item = T>>(
    expr: &E,
    device: &Device,
    target: &mut Array<T>,
) -> Result<()> {
    let aliasing = Aliasing::of(target, expr);
    if aliasing.is_exclusive && !aliasing.is_crosswise {
        // SAFETY: what has been seen is what `overwrite` asks for, and stays so: the array is
        // borrowed exclusively, and nobody can make another handle meanwhile.
        return unsafe { overwrite(expr, target) };
    }
    let fresh = evaluate(expr, device, target.layout().shape())?;
    if !aliasing.is_exclusive {
        *target = fresh;
        return Ok(());
    }
    // SAFETY: as above, and `fresh` is other memory.
    unsafe { overwrite(&fresh.into_lazy().expr, target) }
}

/// How an expression and the array that it is assigned to share memory.
struct Aliasing {
    /// Nothing but the expression holds the array's memory, and the array reaches no element of it
    /// twice.
    is_exclusive: bool,
    /// The expression reads the memory in another order than the array.
    is_crosswise: bool,
}

impl Aliasing {
    fn of<T: Element, E: Expr<Item = T>>(target: &Array<T>, expr: &E) -> Self {
        let (buffer, layout) = (target.buffer(), target.layout());
        let (mut handles, mut is_crosswise) = (1, false);
        expr.operands(&mut |operand| {
            if operand.buffer.is_same(buffer) {
                handles += 1;
                is_crosswise |= operand.layout != layout;
            }
        });
        let mut axes = layout.dims().iter().zip(layout.strides());
        let repeats = axes.any(|(&length, &stride)| length > 1 && stride == 0);
        Self {
            is_exclusive: buffer.holders() == handles && !repeats,
            is_crosswise,
        }
    }
}

/// Writes the elements of `expr` over those of `target`, run by run.
///
/// # Safety
///
/// Nothing outside `expr` may hold the target's memory, whose elements must not overlap one another,
/// and `expr` may read it only as `target` itself does, element by element.
unsafe fn overwrite<T: Element, E: Expr<Item = T>>(expr: &E, target: &mut Array<T>) -> Result<()> {
    let device = target.device().clone();
    let stream = ordered_update(expr, target.buffer(), &device)?;
    let bound = Bound::new(expr, &Frame::row_major(target.layout().shape()));
    let target = Target::new(target);
    launch(
        &device,
        stream,
        Work::of_elements(expr, target.count()),
        (&bound, &target),
        |bound, target, range| {
            let mut room = MaybeUninit::uninit();
            // SAFETY: the memory is alive while a launch runs. The stream is ordered after what other
            // streams do there, and what is written here was read before, as shown below.
            let mut reader = unsafe { bound.reader(&mut room) };
            let mut values = stage();
            for start in range.clone().step_by(RUN) {
                let values = &mut values[..RUN.min(range.end - start)];
                reader.write(start, values);
                // SAFETY: `write` wrote every element of `values`, which are on this thread's stack. The
                // ranges of a launch do not overlap, a run is read in whole before it is written, and
                // runs read only their own elements of the target, by this function's contract.
                unsafe { target.write(start, written(values)) };
            }
        },
    );
    Ok(())
}

/// `values` as what they hold.
///
/// # Safety
///
/// Every one must have been written.
unsafe fn written<T>(values: &[MaybeUninit<T>]) -> &[T] {
    // SAFETY: the layout is the same, and the values are initialised by this function's contract.
    unsafe { &*(std::ptr::from_ref(values) as *const [T]) }
}
