//! The tape: the operations that a thread computed from its variables, in order.
//!
//! A tape lists the values that it tracks. For each operation that computed some of them, it holds
//! a step that passes gradients back. A [`ValueId`] in a handle of memory names the tracked values
//! that the memory holds; views share the handle and the identity. While an operation computes, the
//! tape is paused: an operation records one step, whatever operations it is made of.

use std::cell::RefCell;
use std::panic::Location;
use std::rc::Rc;

use smallvec::SmallVec;

use super::activations::{self, Activation, Store};
use super::gradients::{AnyArray, Gradients, Tracked};
use super::pause::{Mode, mode};
use super::refuse_operands;
use crate::array::{Buffer, DType, Layout, TapeId, ValueId, set_has_tape};
use crate::context::{Device, PressureGuard};
use crate::error::{AtCaller, Error, ErrorCode, Result};
use crate::ops::order::set_tape_check;

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

/// The function of a tape that is begun by hand.
pub(crate) const BY_HAND: &str = "Tape::begin";

/// The gradients of a step's results, by the number of the result; `None` for a result that nothing
/// was computed from.
pub(crate) type Upstream = SmallVec<[Option<AnyArray>; 1]>;

/// Passes the gradients of a step's results back to what it read.
pub(crate) trait Backward {
    /// Passes gradients back for the last time: frees the saved values, and `upstream` as soon as
    /// it was read.
    fn pass_back(self: Box<Self>, upstream: Upstream, gradients: &mut Gradients) -> Result<()>;

    /// Returns a copy.
    fn share(&self) -> Box<dyn Backward>;
}

impl<F> Backward for F
where
    F: FnOnce(Upstream, &mut Gradients) -> Result<()> + Clone + 'static,
{
    fn pass_back(self: Box<Self>, upstream: Upstream, gradients: &mut Gradients) -> Result<()> {
        self(upstream, gradients)
    }

    fn share(&self) -> Box<dyn Backward> {
        Box::new(self.clone())
    }
}

/// The backward pass of a step.
pub(crate) struct BackwardStep {
    pub(crate) backward: Box<dyn Backward>,
    /// The bytes of the arrays that it saves.
    pub(crate) saved_bytes: u64,
    /// True if the backward pass records steps that gradients must pass through at once.
    pub(crate) runs_again: bool,
    /// The operation's name if gradients of its gradients are not known: it saved something besides
    /// its operands and results.
    pub(crate) only_once: Option<&'static str>,
}

/// The steps of small programs, for which the lists of a tape do not grow.
const STEPS: usize = 16;

struct Tape {
    number: Option<TapeId>,
    origin: Origin,
    /// True if its backward passes check for NaN.
    detects_anomalies: bool,
    /// True if tracked values became constants on purpose: by `stop_gradient`, or by a function of
    /// slope zero.
    has_constants: bool,
    values: Vec<TrackedValue>,
    /// The first step that may have read a value, by the number of the value.
    first_readers: Vec<usize>,
    /// The values that can be computed again, by their number; shorter than `values` if the last
    /// ones cannot.
    activations: Vec<Option<Rc<Activation>>>,
    /// The constants that can be computed again, by the index of their identity.
    regenerated: Vec<Rc<Activation>>,
    /// The memory of saved values, once there was a budget for it.
    store: Option<Rc<Store>>,
    /// The devices with a memory limit that may ask the tape to release saved values.
    limited: SmallVec<[(Device, PressureGuard); 1]>,
    steps: Vec<TapeStep>,
}

impl Drop for Tape {
    /// Drops the last values first: an activation holds those that it is computed from, and a chain
    /// of them must not be dropped recursively.
    fn drop(&mut self) {
        self.steps.clear();
        while self.activations.pop().is_some() {}
    }
}

/// A tracked value: the elements of an array without gaps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrackedValue {
    pub(crate) layout: Layout,
    pub(crate) dtype: DType,
    /// True for a variable, which no step computes.
    is_variable: bool,
}

/// An operation.
pub(crate) struct TapeStep {
    /// The numbers of its results; `None` for results that are not tracked.
    pub(crate) results: SmallVec<[Option<u32>; 1]>,
    pub(crate) back: BackwardStep,
    pub(crate) call_site: &'static Location<'static>,
}

/// The tape of a thread, which ends when the guard drops.
#[must_use]
#[derive(Debug)]
pub(crate) struct TapeGuard {
    number: TapeId,
}

impl TapeGuard {
    /// Begins a tape on this thread, for the public function of that name.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the thread has a tape.
    #[track_caller]
    pub(crate) fn begin(function: &'static str) -> Result<Self> {
        activations::read_environment()?;
        set_tape_check(refuse_operands);
        let number = TapeId::begin();
        let call_site = Location::caller();
        let begun = TAPE.with_borrow_mut(|tape| {
            if let Some(outer) = tape {
                return Err(nested(function, outer.origin));
            }
            *tape = Some(Tape {
                number: Some(number),
                origin: Origin {
                    function,
                    call_site,
                },
                detects_anomalies: false,
                has_constants: false,
                values: Vec::with_capacity(STEPS),
                first_readers: Vec::with_capacity(STEPS),
                activations: Vec::new(),
                regenerated: Vec::new(),
                store: None,
                limited: SmallVec::new(),
                steps: Vec::with_capacity(STEPS),
            });
            Ok(())
        });
        begun.inspect_err(|_| number.end()).at_caller()?;
        set_has_tape(true);
        Ok(Self { number })
    }
}

impl Drop for TapeGuard {
    fn drop(&mut self) {
        // Dropped outside of the borrow, because the saved values of steps are arrays.
        let ended = TAPE.try_with(|tape| tape.borrow_mut().take());
        drop(ended);
        set_has_tape(false);
        self.number.end();
    }
}

/// Returns whether this thread has a tape.
pub(crate) fn has_tape() -> bool {
    with_tape(|_| ()).is_some()
}

/// Returns the error for a tape of `function` while the thread has another one.
#[cold]
fn nested(function: &str, outer: Origin) -> Error {
    let Origin {
        function: outer,
        call_site,
    } = outer;
    let text = if outer == BY_HAND {
        format!(
            "{function} while the tape that {outer} began at {call_site} is open: gradients inside of gradients; take the \
             gradients of that tape, or drop it, before {function}"
        )
    } else {
        format!(
            "{function} inside of {outer} at {call_site}: gradients inside of gradients; call {function} before or after \
             {outer}, or compute derivatives of derivatives with value_and_grad, hvp and jvp"
        )
    };
    Error::new(ErrorCode::Gradient, text)
}

/// Makes the backward passes of this thread's tape, if there is one, check for NaN.
pub(crate) fn detect_anomalies() {
    with_tape(|tape| tape.detects_anomalies = true);
}

/// Returns whether the backward passes of this thread's tape check for NaN.
pub(crate) fn detects_anomalies() -> bool {
    with_tape(|tape| tape.detects_anomalies).unwrap_or(false)
}

/// Notes that tracked values became constants on purpose.
pub(crate) fn note_constants() {
    with_tape(|tape| tape.has_constants = true);
}

/// Returns whether tracked values became constants on purpose, so that a loss without gradients may
/// be intended.
pub(crate) fn has_constants() -> bool {
    with_tape(|tape| tape.has_constants).unwrap_or(false)
}

/// Calls `see` with the tape of this thread, if there is one.
fn with_tape<R>(see: impl FnOnce(&mut Tape) -> R) -> Option<R> {
    TAPE.with_borrow_mut(|tape| tape.as_mut().map(see))
}

/// Returns whether there is any tape in this process.
#[inline]
pub(crate) fn is_live() -> bool {
    TapeId::are_any()
}

/// Returns the tracked values that `buffer` holds, if any, by their number, and notes that the next
/// step may read them.
///
/// # Errors
///
/// [`Unsupported`](crate::ErrorKind::Unsupported) if the tape of another thread tracks them.
#[track_caller]
pub(crate) fn tracked(buffer: &Buffer) -> Result<Option<u32>> {
    let mode = mode();
    let Some(value_id) = buffer
        .value_id()
        .filter(|value_id| is_live() && mode != Mode::Paused && !value_id.is_constant())
    else {
        return Ok(None);
    };
    let is_own = TAPE.with_borrow_mut(|tape| {
        let tape = tape
            .as_mut()
            .filter(|tape| tape.number == Some(value_id.tape));
        tape.map(|tape| {
            let reader = &mut tape.first_readers[value_id.index as usize];
            *reader = tape.steps.len().min(*reader);
        })
    });
    if is_own.is_some() {
        return Ok((mode == Mode::Active).then_some(value_id.index));
    }
    if value_id.tape.is_live() {
        let text = "an array that another thread computes gradients for; stop_gradient makes a value of it";
        return Err(Error::new(ErrorCode::Gradient, text));
    }
    Ok(None)
}

/// Tracks a variable: the elements of `buffer` of that layout. Returns the buffer with its
/// identity.
///
/// # Panics
///
/// If the elements have gaps: a gradient has the layout of its values.
pub(crate) fn track(buffer: Buffer, layout: Layout, dtype: DType) -> Buffer {
    track_value(
        buffer,
        TrackedValue {
            layout,
            dtype,
            is_variable: true,
        },
    )
}

/// Like [`track`], for a result of a step.
pub(super) fn track_result(buffer: Buffer, layout: Layout, dtype: DType) -> Buffer {
    track_value(
        buffer,
        TrackedValue {
            layout,
            dtype,
            is_variable: false,
        },
    )
}

fn track_value(buffer: Buffer, value: TrackedValue) -> Buffer {
    assert!(value.layout.is_contiguous(), "{:?} has gaps", value.layout);
    let value_id = TAPE.with_borrow_mut(|tape| {
        let tape = tape.as_mut()?;
        tape.values.push(value);
        tape.first_readers.push(NEVER);
        let index = tape.values.len() as u32 - 1;
        tape.number.map(|tape| ValueId { tape, index })
    });
    buffer.with_value_id(value_id)
}

/// Lets the values of that number be saved and counted like the values that they are equal to.
pub(super) fn saves_like(index: u32, outer: &Tracked) {
    with_tape(|tape| {
        let (own, outer_value) = (index as usize, outer.value as usize);
        if tape.values[outer_value].layout != outer.layout {
            return;
        }
        tape.values[own].is_variable = tape.values[outer_value].is_variable;
        if let Some(Some(activation)) = tape.activations.get(outer_value).cloned() {
            let length = tape.activations.len().max(own + 1);
            tape.activations.resize(length, None);
            tape.activations[own] = Some(activation);
        }
    });
}

/// The first reader of values that no step has read.
pub(crate) const NEVER: usize = usize::MAX;

/// Returns the first step that may have read the values of that number, or [`NEVER`]. As soon as
/// the backward pass has taken that step, their gradient is complete.
pub(crate) fn first_reader(index: u32) -> usize {
    TAPE.with_borrow(|tape| {
        let tape = tape.as_ref().expect("a tape tracks them");
        tape.first_readers[index as usize]
    })
}

/// Returns the values with that number.
pub(crate) fn value(index: u32) -> TrackedValue {
    TAPE.with_borrow(|tape| {
        let tape = tape.as_ref().expect("a tape tracks them");
        tape.values[index as usize]
    })
}

/// Appends a step.
pub(crate) fn push(step: TapeStep) {
    TAPE.with_borrow_mut(|tape| {
        if let Some(tape) = tape {
            tape.steps.push(step);
        }
    });
}

/// Returns the number of steps on the tape.
pub(crate) fn length() -> usize {
    TAPE.with_borrow(|tape| tape.as_ref().map_or(0, |tape| tape.steps.len()))
}

/// Calls `see` with the step of that number.
pub(crate) fn with_step<R>(number: usize, see: impl FnOnce(&TapeStep) -> R) -> R {
    TAPE.with_borrow(|tape| {
        let tape = tape.as_ref().expect("it has steps");
        see(&tape.steps[number])
    })
}

/// Takes the last step. Nothing computes its results again: no step that is left reads them.
pub(crate) fn pop() -> Option<TapeStep> {
    // Dropped outside of the borrow, because an activation holds arrays.
    let mut ended: SmallVec<[Rc<Activation>; 1]> = SmallVec::new();
    TAPE.with_borrow_mut(|tape| {
        let tape = tape.as_mut()?;
        let step = tape.steps.pop()?;
        for result in step.results.iter().flatten() {
            let activation = tape.activations.get_mut(*result as usize);
            ended.extend(activation.and_then(Option::take));
        }
        Some(step)
    })
}

/// Takes the steps from `from` on, which a checkpoint will record again. The checkpoint, whose step
/// has that number, is the reader of all that they read.
pub(super) fn end_first_run(from: usize) {
    while length() > from {
        drop(pop());
    }
    with_tape(|tape| {
        let later = tape.first_readers.iter_mut();
        let later = later.filter(|reader| **reader != NEVER && **reader > from);
        later.for_each(|reader| *reader = from);
    });
}

/// Visits the steps, the first one first.
pub(crate) fn steps(see: &mut dyn FnMut(&TapeStep)) {
    TAPE.with_borrow(|tape| {
        let steps = tape.iter().flat_map(|tape| &tape.steps);
        steps.for_each(see);
    });
}

/// Returns the store of this thread's tape, if what steps save on `device` has a budget.
pub(in crate::ops) fn store(device: &Device) -> Option<Rc<Store>> {
    if !activations::are_stored(device) {
        return None;
    }
    with_tape(|tape| {
        let is_known = tape.limited.iter().any(|(known, _)| known == device);
        if device.has_memory_limit() && !is_known {
            // The guard ends with the tape, so that the callback may hold the device.
            let own = device.clone();
            let guard = device.on_memory_pressure(move |bytes| release(&own, bytes));
            tape.limited.push((device.clone(), guard));
        }
        Rc::clone(tape.store.get_or_insert_default())
    })
}

/// Releases saved values of this thread's tape because an allocation lacks `bytes`. Returns the
/// bytes that were freed.
fn release(device: &Device, bytes: u64) -> u64 {
    let store = TAPE.try_with(|tape| {
        let tape = tape.try_borrow().ok()?;
        tape.as_ref()?.store.clone()
    });
    store
        .ok()
        .flatten()
        .map_or(0, |store| store.release_for(device, bytes))
}

/// Returns the store of this thread's tape, if it has one.
pub(super) fn present_store() -> Option<Rc<Store>> {
    TAPE.with_borrow(|tape| tape.as_ref()?.store.clone())
}

/// Returns the activation of the value that `buffer` holds, or of a constant; `None` for a
/// variable.
pub(super) fn activation(
    store: &Rc<Store>,
    buffer: &Buffer,
    place: (&Layout, DType),
) -> Option<Rc<Activation>> {
    TAPE.with_borrow(|tape| {
        let tape = tape.as_ref();
        let own = |value_id: &ValueId| tape.filter(|tape| tape.number == Some(value_id.tape));
        let known = buffer.value_id().and_then(|value_id| {
            let (tape, index) = (own(&value_id)?, value_id.index());
            Some(match value_id.is_constant() {
                true => Known::Computed(Rc::clone(&tape.regenerated[index])),
                false if tape.values[index].is_variable => Known::Variable,
                false => Known::Computed(tape.activations.get(index)?.clone()?),
            })
        });
        match known {
            Some(Known::Variable) => None,
            Some(Known::Computed(activation)) => Some(activation),
            None => Some(store.constant(buffer, place)),
        }
    })
}

/// A value that a tape knows.
enum Known {
    Variable,
    Computed(Rc<Activation>),
}

/// Sets the activations of the results of a step.
pub(super) fn set_activations(results: &[Buffer], activations: Vec<Option<Rc<Activation>>>) {
    with_tape(|tape| {
        for (buffer, activation) in results.iter().zip(activations) {
            if let (Some(value_id), Some(activation)) = (buffer.value_id(), activation) {
                let index = value_id.index();
                let length = tape.activations.len().max(index + 1);
                tape.activations.resize(length, None);
                tape.activations[index] = Some(activation);
            }
        }
    });
}

/// Adds the activation that `make` returns for a constant, and returns the identity of the
/// constant.
pub(super) fn regenerated(make: impl FnOnce(ValueId) -> Rc<Activation>) -> Option<ValueId> {
    if mode() != Mode::Active {
        return None;
    }
    with_tape(|tape| {
        let value_id = ValueId::constant(tape.number?, tape.regenerated.len());
        tape.regenerated.push(make(value_id));
        Some(value_id)
    })?
}
