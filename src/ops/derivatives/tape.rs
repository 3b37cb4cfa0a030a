//! The tape: the operations that a thread computed from its variables, in order.
//!
//! A tape lists the values that it tracks. For each operation that computed tracked values, the
//! tape stores a step that passes gradients back. A [`ValueId`] in a handle identifies the tracked
//! value in the handle's memory. Views share the handle and the value id. While an operation runs,
//! the tape is paused. So an operation records one step, even if it consists of other operations.

use std::cell::RefCell;
use std::panic::Location;

use smallvec::SmallVec;

use super::backward::BackwardStep;
use crate::array::{Buffer, DType, Layout, TapeId, ValueId, set_has_tape};
use crate::error::{AtCaller, Error, ErrorCode, Result};
use crate::ops::order::pause::{Mode, is_live, mode};

thread_local! {
    static TAPE: RefCell<Option<Tape>> = const { RefCell::new(None) };
}

/// The call that began a tape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// The public function, as error messages name it.
    pub(crate) function: &'static str,
    pub(crate) call_site: &'static Location<'static>,
}

/// The public function that begins a tape explicitly.
pub(crate) const BY_HAND: &str = "Tape::begin";

/// The initial capacity of a tape's lists, enough for the steps of small programs.
const STEPS: usize = 16;

struct Tape {
    number: TapeId,
    origin: Origin,
    /// True if backward passes of this tape check for NaN.
    detects_anomalies: bool,
    /// True if tracked values became constants on purpose: by stop_gradient, or by a function of
    /// slope zero.
    has_constants: bool,
    values: Vec<TrackedValue>,
    /// The first step that may have read a value, by the index of the value.
    first_readers: Vec<usize>,
    steps: Vec<TapeStep>,
}

/// A tracked value: the elements of an array without gaps.
#[derive(Debug)]
pub(crate) struct TrackedValue {
    pub(crate) layout: Layout,
    pub(crate) dtype: DType,
    /// True for a variable, which no step computes.
    pub(super) is_variable: bool,
    /// True if the value is narrow, and the step that computed it takes its gradient unrounded.
    pub(super) is_taken_unrounded: bool,
}

/// A recorded operation, with its backward pass.
pub(crate) struct TapeStep {
    /// The value indices of the results. If a result is not tracked, its entry is `None`.
    pub(crate) results: SmallVec<[Option<u32>; 1]>,
    pub(crate) back: BackwardStep,
    pub(crate) call_site: &'static Location<'static>,
}

/// Begins the tape `number` on this thread, for the public function `function`.
///
/// # Errors
///
/// [`Unsupported`](crate::ErrorKind::Unsupported) if the thread already has a tape.
#[track_caller]
pub(super) fn begin(number: TapeId, function: &'static str) -> Result<()> {
    let call_site = Location::caller();
    let begun = TAPE.with_borrow_mut(|tape| {
        if let Some(outer) = tape {
            return Err(nested(function, outer.origin));
        }
        *tape = Some(Tape {
            number,
            origin: Origin {
                function,
                call_site,
            },
            detects_anomalies: false,
            has_constants: false,
            values: Vec::with_capacity(STEPS),
            first_readers: Vec::with_capacity(STEPS),
            steps: Vec::with_capacity(STEPS),
        });
        Ok(())
    });
    begun.at_caller()?;
    set_has_tape(true);
    Ok(())
}

pub(super) fn end() {
    // The tape is dropped outside the borrow, because its steps save arrays.
    let ended = TAPE.try_with(|tape| tape.borrow_mut().take());
    drop(ended);
    set_has_tape(false);
}

pub(crate) fn has_tape() -> bool {
    with_tape(|_| ()).is_some()
}

/// Returns the error for a call of `function` that would begin a second tape on its thread.
#[cold]
fn nested(function: &str, outer: Origin) -> Error {
    let Origin {
        function: outer,
        call_site,
    } = outer;
    let text = if outer == BY_HAND {
        format!(
            "{function}: the tape that {outer} began at {call_site} is open, and gradients cannot \
             be nested: take the gradients of that tape, or drop it, before {function}"
        )
    } else {
        format!(
            "{function}: called inside of {outer} at {call_site}, and gradients cannot be nested: \
             call {function} before or after {outer}, or compute derivatives of derivatives with \
             value_and_grad, hvp and jvp"
        )
    };
    Error::new(ErrorCode::Gradient, text)
}

/// Enables the check for NaN in backward passes of this thread's tape, if the thread has a tape.
pub(crate) fn detect_anomalies() {
    with_tape(|tape| tape.detects_anomalies = true);
}

/// Returns whether the backward passes of this thread's tape check for NaN.
pub(crate) fn detects_anomalies() -> bool {
    with_tape(|tape| tape.detects_anomalies).unwrap_or(false)
}

/// Records that tracked values became constants on purpose.
pub(crate) fn note_constants() {
    with_tape(|tape| tape.has_constants = true);
}

/// Returns whether tracked values became constants on purpose. Then a loss without gradients may be
/// intended.
pub(crate) fn has_constants() -> bool {
    with_tape(|tape| tape.has_constants).unwrap_or(false)
}

/// Calls `see` with the tape of this thread, if there is one.
fn with_tape<R>(see: impl FnOnce(&mut Tape) -> R) -> Option<R> {
    TAPE.with_borrow_mut(|tape| tape.as_mut().map(see))
}

/// Returns the index of the tracked value in `buffer`, if any. Records that the next step may read
/// this value.
///
/// # Errors
///
/// [`Unsupported`](crate::ErrorKind::Unsupported) if the tape of another thread tracks the value.
#[inline]
#[track_caller]
pub(crate) fn tracked(buffer: &Buffer) -> Result<Option<u32>> {
    match buffer.value_id() {
        Some(value_id) if is_live() && !value_id.is_constant() => tracked_by(value_id),
        _ => Ok(None),
    }
}

/// Like [`tracked`], for the value id of a buffer.
#[track_caller]
fn tracked_by(value_id: ValueId) -> Result<Option<u32>> {
    let is_own = TAPE.with_borrow_mut(|tape| {
        let tape = tape.as_mut().filter(|tape| tape.number == value_id.tape);
        tape.map(|tape| {
            let reader = &mut tape.first_readers[value_id.index as usize];
            *reader = tape.steps.len().min(*reader);
        })
    });
    if is_own.is_some() {
        return Ok((mode() == Mode::Active).then_some(value_id.index));
    }
    if value_id.tape.is_live() {
        let text = "the array is tracked by another thread: pass it through stop_gradient";
        return Err(Error::new(ErrorCode::Gradient, text));
    }
    Ok(None)
}

/// The part of a tracked value that a step read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tracked {
    pub(crate) value: u32,
    pub(crate) layout: Layout,
}

impl Tracked {
    /// Returns the tracked value, or the part of a tracked value, that an array contains.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`tracked`].
    #[track_caller]
    pub(crate) fn of(buffer: &Buffer, layout: &Layout) -> Result<Option<Self>> {
        let value = tracked(buffer)?;
        Ok(value.map(|value| Self {
            value,
            layout: *layout,
        }))
    }

    /// Returns whether the step read the whole value, in the layout of the value.
    pub(super) fn is_whole(&self) -> bool {
        with_value(self.value, |value| value.layout == self.layout)
    }
}

/// Tracks a variable: the elements of `buffer` with `layout`. Returns the buffer with its value id.
///
/// # Panics
///
/// Panics if the elements have gaps, because a gradient has the layout of its value.
pub(crate) fn track(buffer: Buffer, layout: &Layout, dtype: DType) -> Buffer {
    track_value(buffer, (layout, dtype), true)
}

/// Like [`track`], for a result of a step.
pub(super) fn track_result(buffer: Buffer, layout: &Layout, dtype: DType) -> Buffer {
    track_value(buffer, (layout, dtype), false)
}

fn track_value(buffer: Buffer, (layout, dtype): (&Layout, DType), is_variable: bool) -> Buffer {
    assert!(layout.is_contiguous(), "{layout:?} has gaps");
    let value_id = TAPE.with_borrow_mut(|tape| {
        let tape = tape.as_mut()?;
        tape.values.push(TrackedValue {
            layout: *layout,
            dtype,
            is_variable,
            is_taken_unrounded: false,
        });
        tape.first_readers.push(NEVER);
        let index = tape.values.len() as u32 - 1;
        let tape = tape.number;
        Some(ValueId { tape, index })
    });
    buffer.with_value_id(value_id)
}

/// If the equal value `outer` is a variable, makes the value `index` a variable. If `outer` is only
/// a part of its value, returns false and does nothing.
pub(super) fn saves_like(index: u32, outer: &Tracked) -> bool {
    let is_whole = |tape: &mut Tape| {
        let (own, outer_value) = (index as usize, outer.value as usize);
        if tape.values[outer_value].layout != outer.layout {
            return false;
        }
        tape.values[own].is_variable = tape.values[outer_value].is_variable;
        true
    };
    with_tape(is_whole).unwrap_or(false)
}

/// Records that the step that computed `values` takes their gradients unrounded.
pub(super) fn take_unrounded(values: &SmallVec<[Option<u32>; 1]>) {
    with_tape(|tape| {
        for &value in values.iter().flatten() {
            tape.values[value as usize].is_taken_unrounded = true;
        }
    });
}

/// The first reader of a value that no step has read.
pub(crate) const NEVER: usize = usize::MAX;

/// Returns the first step that may have read the value `index`, or [`NEVER`]. When the backward
/// pass has removed this step, the gradient of the value is complete.
pub(crate) fn first_reader(index: u32) -> usize {
    TAPE.with_borrow(|tape| {
        let tape = tape.as_ref().expect("the values are on an open tape");
        tape.first_readers[index as usize]
    })
}

pub(crate) fn with_value<R>(index: u32, see: impl FnOnce(&TrackedValue) -> R) -> R {
    TAPE.with_borrow(|tape| {
        let tape = tape.as_ref().expect("the values are on an open tape");
        see(&tape.values[index as usize])
    })
}

pub(super) fn number() -> Option<TapeId> {
    with_tape(|tape| tape.number)
}

pub(crate) fn push(step: TapeStep) {
    TAPE.with_borrow_mut(|tape| {
        if let Some(tape) = tape {
            tape.steps.push(step);
        }
    });
}

pub(crate) fn length() -> usize {
    TAPE.with_borrow(|tape| tape.as_ref().map_or(0, |tape| tape.steps.len()))
}

pub(crate) fn with_step<R>(number: usize, see: impl FnOnce(&TapeStep) -> R) -> R {
    TAPE.with_borrow(|tape| {
        let tape = tape.as_ref().expect("the step is on an open tape");
        see(&tape.steps[number])
    })
}

pub(super) fn pop() -> Option<TapeStep> {
    TAPE.with_borrow_mut(|tape| tape.as_mut()?.steps.pop())
}

/// Makes the step `from` the first reader of all values that only later steps may have read. A
/// checkpoint will record a step at the index `from`.
pub(super) fn read_at(from: usize) {
    with_tape(|tape| {
        let later = tape.first_readers.iter_mut();
        let later = later.filter(|reader| **reader != NEVER && **reader > from);
        later.for_each(|reader| *reader = from);
    });
}

/// Visits the steps in the order in which they were recorded.
pub(crate) fn steps(see: &mut dyn FnMut(&TapeStep)) {
    TAPE.with_borrow(|tape| {
        let steps = tape.iter().flat_map(|tape| &tape.steps);
        steps.for_each(see);
    });
}
