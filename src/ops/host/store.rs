//! Evaluating an expression into the memory of an array.

use std::mem::MaybeUninit;

use super::evaluate::evaluate;
use super::kernel::{Bound, RUN, fill, stage};
use super::launch::{Work, launch};
use super::memory::Target;
use super::view::Frame;
use crate::array::{Array, Element};
use crate::error::Result;
use crate::ops::aliasing::Aliasing;
use crate::ops::order::{Reading, Updating, ordered};
use crate::ops::{Expr, IntoExpr};

/// Sets the elements of `target` to those of `expr`, which is of the same device and broadcasts to
/// it: in place, where nothing outside `expr` shares the memory, and in new memory otherwise.
#[track_caller]
pub(in crate::ops) fn store<T: Element, E: Expr<Item = T>>(
    expr: &E,
    target: &mut Array<T>,
) -> Result<()> {
    let aliasing = Aliasing::of(target, expr);
    if aliasing.is_exclusive && !aliasing.is_crosswise {
        // SAFETY: what has been seen is what both ask for, and stays so: the array is borrowed
        // exclusively, and nobody can make another handle meanwhile.
        return unsafe {
            if aliasing.is_dense {
                overwrite_dense(expr, target)
            } else {
                overwrite(expr, target)
            }
        };
    }
    let fresh = evaluate(expr, target.device(), target.layout().shape())?;
    if !aliasing.is_exclusive {
        *target = fresh;
        return Ok(());
    }
    // SAFETY: as above, and `fresh` is other memory.
    unsafe { overwrite(&fresh.into_lazy().expr, target) }
}

/// Writes the elements of `expr` over those of `target`, run by run.
///
/// # Safety
///
/// Nothing outside `expr` may hold the target's memory, whose elements must not overlap one another,
/// and `expr` may read it only as `target` itself does, element by element.
unsafe fn overwrite<T: Element, E: Expr<Item = T>>(expr: &E, target: &mut Array<T>) -> Result<()> {
    let updating = Updating {
        target: target.buffer(),
        reading: Reading(expr),
    };
    let stream = ordered(&updating, target.device())?;
    let bound = Bound::new(expr, &Frame::row_major(target.layout().shape()));
    let writes = Target::new(target);
    launch(
        target.device(),
        stream,
        Work::of_elements(expr, writes.count()),
        (&bound, &writes),
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

/// The same where the target and every operand are dense and of one shape.
///
/// # Safety
///
/// As for [`overwrite`], and what is said above must be so.
unsafe fn overwrite_dense<T: Element, E: Expr<Item = T>>(
    expr: &E,
    target: &mut Array<T>,
) -> Result<()> {
    let updating = Updating {
        target: target.buffer(),
        reading: Reading(expr),
    };
    let stream = ordered(&updating, target.device())?;
    let run = expr.dense();
    let writes = Target::new(target);
    launch(
        target.device(),
        stream,
        Work::of_elements(expr, writes.count()),
        (&run, &writes),
        |&run, target, range| {
            let mut values = stage();
            for start in range.clone().step_by(RUN) {
                let values = &mut values[..RUN.min(range.end - start)];
                // SAFETY: as in `overwrite`; the operands have as many elements as the target, which
                // stand one after another.
                unsafe {
                    fill(run, start, values);
                    target.write_dense(start, written(values));
                }
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
