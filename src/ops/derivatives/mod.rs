//! Derivatives of operations, and the tape that passes gradients back through them.
//!
//! An operation that reads what a tape follows records one step. For elementwise expressions the step is derived from the
//! formula, as terms: what the chain rule gives for each operand is a formula again, evaluated in one pass, in which the
//! terms of the forward pass are computed a second time in registers. So a step keeps only arrays that these formulas
//! read. Operations without a rule refuse what a tape follows, at the one door to both devices, `on_device!`.

mod evaluation;
mod folds;
mod gradients;
mod graph;
mod products;
mod rule;
mod rules;
mod tape;

use std::panic::Location;

use smallvec::SmallVec;

pub(super) use evaluation::Evaluation;
pub(super) use folds::Folding;
pub(crate) use gradients::{AnyArray, Followed, Gradients, zeros_like};
pub(super) use graph::by_float;
pub(super) use products::Multiplication;
pub(super) use rule::Ruled;
pub(crate) use tape::{Backward, Pause, Step, TapeGuard, follow, followed, is_live, steps};

use gradients::filled;
use graph::is_float;

use super::order::Operands;
use crate::array::{AnyElement, Array, Buffer, DType, Layout, bits_of};
use crate::device::Use;
use crate::error::{AtCaller, Error, ErrorKind, Result};

/// Refuses what a tape follows, for work that no step is recorded of.
#[inline]
#[track_caller]
pub(super) fn check(operands: &dyn Operands) -> Result<()> {
    if is_live() {
        return refuse(operands);
    }
    Ok(())
}

#[cold]
#[track_caller]
fn refuse(operands: &dyn Operands) -> Result<()> {
    let mut outcome = Ok(());
    operands.visit(&mut |buffer, used| {
        if outcome.is_ok() {
            outcome = followed(buffer).and_then(|value| match value {
                None => Ok(()),
                Some(_) => Err(unsupported(used)),
            });
        }
    });
    outcome.at_caller()
}

#[cold]
#[track_caller]
fn unsupported(used: Use) -> Error {
    let text = match used {
        Use::Read => {
            "no derivative is known of this operation; stop_gradient makes a value of what it reads"
        }
        Use::Write => "a part of an array is written that gradients are computed through",
    };
    Error::new(ErrorKind::Unsupported, text)
}

/// Records the step that computed the array `result`, and lets the tape follow it.
#[track_caller]
fn record(result: (Buffer, Layout, DType), saved_bytes: u64, backward: Backward) -> Buffer {
    let mut buffers = record_all(SmallVec::from_iter([result]), saved_bytes, backward);
    buffers.pop().expect("there is one")
}

/// The same for several results. Of these, only floats are followed.
#[track_caller]
fn record_all(
    results: SmallVec<[(Buffer, Layout, DType); 1]>,
    saved_bytes: u64,
    backward: Backward,
) -> SmallVec<[Buffer; 1]> {
    let followed = results.into_iter().map(|(buffer, layout, dtype)| {
        if is_float(dtype) {
            follow(buffer, layout, dtype)
        } else {
            buffer
        }
    });
    let buffers: SmallVec<[Buffer; 1]> = followed.collect();
    let node = |buffer: &Buffer| buffer.node().map(|node| node.index);
    tape::push(Step {
        results: buffers.iter().map(node).collect(),
        backward,
        saved_bytes,
        call_site: Location::caller(),
    });
    buffers
}

/// Passes the gradient of `loss`, which is 1, back to everything that it was computed from.
#[track_caller]
pub(crate) fn backward<T: AnyElement>(loss: &Array<T>) -> Result<Gradients> {
    let mut gradients = Gradients::default();
    let Some(value) = followed(loss.buffer())? else {
        return Ok(gradients);
    };
    let _paused = Pause::begin();
    let one = bits_of(<T as AnyElement>::from_f64(1.0));
    let one = filled(loss.device(), loss.layout(), (T::DTYPE, one))?;
    gradients.add(
        Followed {
            value,
            layout: *loss.layout(),
        },
        one,
    )?;
    while let Some(step) = tape::pop() {
        let upstream = step.results.iter();
        let upstream = upstream.map(|&own| own.and_then(|own| gradients.take(own)));
        let upstream: Vec<_> = upstream.collect();
        if upstream.iter().any(Option::is_some) {
            (step.backward)(&upstream, &mut gradients)?;
        }
    }
    Ok(gradients)
}
