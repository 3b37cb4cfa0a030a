//! Derivatives of operations, and the tape that passes gradients back through them.
//!
//! An operation that reads tracked values records one step. The step of an elementwise expression
//! is derived from the expression graph. The chain rule gives the gradient of each operand as
//! another expression graph. The evaluation of a gradient computes nodes of the forward pass again,
//! in registers. So a step saves only the arrays that the gradients read. One pass over the memory
//! can compute several gradients. `on_device!`, the entry point of operations to both devices,
//! rejects tracked values if an operation has no rule.

mod activations;
mod adding;
mod backward;
#[cfg(feature = "linalg")]
mod direction;
mod distinct_parts;
mod evaluation;
mod forward;
mod gradients;
mod guard;
mod joint_graph;
mod logsumexp;
mod products;
mod reduction;
mod rule;
mod rules;
mod sum;
mod tape;
mod total;
mod values;

use std::ops::Range;
use std::panic::Location;

use smallvec::SmallVec;

pub(crate) use activations::{Budget, BudgetCounts};
pub(super) use activations::{Operand, SavedArray, Source, pin, store, with_source, work_of};
pub(super) use adding::{store_parts, sum_of_windows, with_windows};
pub(super) use backward::{BackwardStep, Upstream};
pub(crate) use backward::{Gradients, Placer};
#[cfg(feature = "linalg")]
pub(crate) use direction::DirectionGuard;
#[cfg(feature = "linalg")]
pub(super) use direction::{change_of, has_direction};
pub(super) use evaluation::{Evaluation, bytes_of, evaluate, evaluate_all};
pub(crate) use gradients::{zeros_like, zeros_on};
pub(crate) use guard::{FirstRun, TapeGuard};
pub(super) use joint_graph::is_differentiable;
pub(super) use reduction::{SoftmaxOf, TrackedReduction};
pub(super) use rule::RuledOperation;
pub(crate) use rule::constant;
pub(crate) use tape::{
    BY_HAND, NEVER, Tracked, detect_anomalies, detects_anomalies, first_reader, has_constants,
    has_tape, length, note_constants, steps, track, tracked, with_value,
};
pub(crate) use total::{GlobalNorm, Total};

use gradients::filled;
use tape::{TapeStep, track_result};

use crate::array::{AnyArray, AnyElement, Array, Buffer, DType, Layout, bits_of};
use crate::device::Use;
use crate::error::{CallSiteOverride, Error, ErrorCode, Result, reported_call_site};
use crate::ops::dispatch::device_for;
use crate::ops::expression::graph::{ExpressionGraph, NodeKind};
use crate::ops::expression::tree::Tree;
use crate::ops::order::TouchedMemory;
pub(crate) use crate::ops::order::pause::{Pause, is_live, is_paused, runs_again_later};

/// Rejects tracked operands of an operation that records no step.
#[cold]
fn refuse_operands(operands: &dyn TouchedMemory) -> Result<()> {
    let mut outcome = Ok(());
    operands.visit(&mut |buffer, used| {
        if outcome.is_ok() {
            outcome = tracked(buffer).and_then(|value| match value {
                None => Ok(()),
                Some(_) => Err(unsupported(used)),
            });
        }
    });
    outcome
}

#[cold]
fn unsupported(used: Use) -> Error {
    let text = match used {
        Use::Read => {
            "the operation has no derivative: pass its tracked operands through stop_gradient"
        }
        Use::Write => "the call writes to a part of a tracked array, which has no derivative",
    };
    Error::new(ErrorCode::Gradient, text)
}

/// Returns the value of the expression `tree` if an operand is tracked. If an operation's rule
/// takes only arrays, the operation calls this function.
#[inline]
#[track_caller]
pub(super) fn tracked_value(tree: &dyn Tree) -> Result<Option<AnyArray>> {
    if !is_live() {
        return Ok(None);
    }
    let graph = ExpressionGraph::of(tree)?;
    for operand in graph.operands() {
        if tracked(operand.buffer)?.is_some() {
            if let ([_], NodeKind::Array(own)) = (graph.nodes(), &graph.nodes()[0].kind) {
                return Ok(Some(own.share()));
            }
            let device = device_for("eval", &graph)?;
            let buffer = evaluate(&graph, &device, graph.shape())?;
            let dtype = graph.first().dtype;
            return Ok(Some(AnyArray::of_shape(buffer, graph.shape(), dtype)));
        }
    }
    Ok(None)
}

/// Returns whether a tape tracks any of `arrays`.
#[track_caller]
pub(super) fn is_any_tracked(arrays: &[&AnyArray]) -> Result<bool> {
    for array in arrays {
        if is_live() && tracked(&array.buffer)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Records the step that computed `result`, and tracks the result. `source` can compute the result
/// again.
#[track_caller]
pub(super) fn record(
    result: StepResult<'_>,
    source: Option<Source>,
    back: impl FnOnce(&Buffer) -> BackwardStep,
) -> Buffer {
    let results = SmallVec::from_iter([result]);
    let mut buffers = record_all(results, source, |results| back(&results[0]));
    buffers.pop().expect("the operation has one result")
}

type StepResult<'a> = (Buffer, &'a Layout, DType);

/// Records the step that computed `results`, and tracks the results of float and complex types.
/// `back` receives the tracked results, and may save them.
#[track_caller]
fn record_all(
    results: SmallVec<[StepResult<'_>; 1]>,
    source: Option<Source>,
    back: impl FnOnce(&[Buffer]) -> BackwardStep,
) -> SmallVec<[Buffer; 1]> {
    let mut back = Some(back);
    record_results(results, source, &mut |results| {
        let back = back.take().expect("the closure is called once");
        back(results)
    })
}

/// Implements [`record_all`] without generic parameters. Calls `back` once.
#[track_caller]
fn record_results(
    results: SmallVec<[StepResult<'_>; 1]>,
    source: Option<Source>,
    back: &mut dyn FnMut(&[Buffer]) -> BackwardStep,
) -> SmallVec<[Buffer; 1]> {
    let mut places: SmallVec<[(&Layout, DType); 1]> = SmallVec::new();
    let tracked = results.into_iter().map(|(buffer, layout, dtype)| {
        places.push((layout, dtype));
        if is_differentiable(dtype) {
            track_result(buffer, layout, dtype)
        } else {
            buffer
        }
    });
    let buffers: SmallVec<[Buffer; 1]> = tracked.collect();
    let store = store(buffers[0].device());
    let mut first_result = None;
    if let Some(store) = &store {
        let places = buffers.iter().zip(&places);
        let results = places.map(|(buffer, &(layout, dtype))| (buffer, layout, dtype));
        let results: SmallVec<[_; 1]> = results.collect();
        let results = activations::of_results(store, source, &results);
        first_result = results.iter().flatten().next().cloned();
        activations::set_activations(&buffers, results);
    }
    let value_id = |buffer: &Buffer| buffer.value_id().map(|value_id| value_id.index);
    let back = back(&buffers);
    let results = buffers.iter().map(value_id).collect();
    if back.takes_unrounded {
        tape::take_unrounded(&results);
    }
    tape::push(TapeStep {
        results,
        back,
        // A step of a tracked backward pass has the call site of the step that it differentiates.
        call_site: reported_call_site(Location::caller()),
    });
    if let Some(store) = store {
        if let Some(result) = first_result {
            result.lose_source_unless_saved();
        }
        store.settle_step();
    }
    buffers
}

/// The values that a backward pass begins with, and their gradients.
pub(crate) type Seeds = Vec<(Tracked, AnyArray)>;

/// Returns the gradient of `scale * loss` with respect to `loss`. Returns no seed if the tape does
/// not track `loss`.
#[track_caller]
pub(crate) fn seed<T: AnyElement>(loss: &Array<T>, scale: f64) -> Result<Seeds> {
    let Some(tracked) = Tracked::of(loss.buffer(), loss.layout())? else {
        return Ok(Vec::new());
    };
    let scale = bits_of(<T as AnyElement>::from_f64(scale));
    let scale = filled(loss.device(), loss.layout(), (T::DTYPE, scale))?;
    Ok(vec![(tracked, scale)])
}

/// Passes the gradients `seeds` back through the steps of the tape, the last step first. Removes
/// the steps from the tape, down to the step `from`. If the tape detects anomalies, the first step
/// that produces a NaN is an error.
#[track_caller]
pub(crate) fn backward(seeds: Seeds, from: usize) -> Result<Gradients> {
    let gradients = Gradients::new(detects_anomalies());
    backward_in_places(seeds, gradients, from, &mut |_| Ok(()))
}

/// Like [`backward`], but adds to `gradients`, which must be empty. The placer of `gradients` may
/// provide memory for some gradients. Calls `see` with the gradients after each step. When no
/// remaining step of the tape reads a value, the value's gradient is complete.
#[track_caller]
pub(crate) fn backward_in_places(
    seeds: Seeds,
    mut gradients: Gradients,
    from: usize,
    see: &mut dyn FnMut(&mut Gradients) -> Result<()>,
) -> Result<Gradients> {
    check_budget()?;
    let _paused = Pause::begin();
    let _call_site = CallSiteOverride::at(Location::caller());
    for (tracked, gradient) in seeds {
        gradients.add(tracked, gradient)?;
    }
    while length() > from {
        let step = guard::pop().expect("the tape has another step");
        let upstream = gradients.take_all(&step.results, step.back.takes_unrounded);
        let upstream = upstream.map_err(|error| error.at(step.call_site))?;
        if upstream.iter().any(Option::is_some) {
            let _call_site = CallSiteOverride::at(step.call_site);
            let passed = step.back.backward.pass_back(upstream, &mut gradients);
            passed.map_err(|error| error.at(step.call_site))?;
            gradients.check_anomaly(step.call_site)?;
        }
        see(&mut gradients)?;
    }
    Ok(gradients)
}

/// Like [`backward`], but records the backward pass as steps of the tape, so that the gradients can
/// be differentiated, too. Removes no steps from the tape.
///
/// # Errors
///
/// [`Unsupported`](crate::ErrorKind::Unsupported) if an operation's gradient has no derivative. The
/// error has the operation's name and call site.
#[track_caller]
pub(crate) fn tracked_backward(seeds: Seeds, from: usize) -> Result<Gradients> {
    check_budget()?;
    let mut gradients = Gradients::tracked(detects_anomalies());
    for (tracked, gradient) in seeds {
        gradients.add(tracked, gradient)?;
    }
    pass_tracked(from..length(), &mut gradients)?;
    Ok(gradients)
}

/// Passes tracked gradients back through the steps of `range`, the last step first.
#[track_caller]
fn pass_tracked(range: Range<usize>, gradients: &mut Gradients) -> Result<()> {
    for number in range.rev() {
        let (results, takes_unrounded) = tape::with_step(number, |step| {
            (step.results.clone(), step.back.takes_unrounded)
        });
        let upstream = gradients.take_all(&results, takes_unrounded)?;
        if upstream.iter().all(Option::is_none) {
            continue;
        }
        let again = |step: &TapeStep| match step.back.only_once {
            Some(operation) => Err(not_twice(operation).at(step.call_site)),
            None => Ok((
                step.back.backward.share(),
                step.back.runs_again,
                step.call_site,
            )),
        };
        let (backward, runs_again, call_site) = tape::with_step(number, again)?;
        let _call_site = CallSiteOverride::at(call_site);
        let before = length();
        let passed = backward.pass_back(upstream, gradients);
        passed.map_err(|error| error.at(call_site))?;
        if runs_again {
            pass_tracked(before..length(), gradients)?;
        }
        gradients.check_anomaly(call_site)?;
    }
    Ok(())
}

/// Returns a new value with the elements of a tracked value. Records a step that passes the
/// gradient on unchanged.
#[track_caller]
pub(crate) fn identity(array: AnyArray, tracked: Tracked) -> Buffer {
    let AnyArray {
        buffer,
        layout,
        dtype,
    } = array;
    let backward =
        Box::new(move |mut upstream: Upstream, gradients: &mut Gradients| {
            match upstream[0].take() {
                Some(upstream) => gradients.add(tracked, upstream),
                None => Ok(()),
            }
        });
    let result = (buffer.with_value_id(None), &layout, dtype);
    let own = record(result, None, |_| BackwardStep {
        backward,
        saved_bytes: 0,
        runs_again: false,
        takes_unrounded: true,
        only_once: None,
    });
    if let Some(value_id) = own.value_id()
        && tape::saves_like(value_id.index, &tracked)
    {
        activations::share(value_id.index, tracked.value);
    }
    own
}

/// Checks that the saved values of the forward pass were within the activation budget.
#[track_caller]
fn check_budget() -> Result<()> {
    match activations::present_store() {
        Some(store) => store.check_budget(),
        None => Ok(()),
    }
}

#[cold]
fn not_twice(operation: &str) -> Error {
    let text = format!("{operation}: the gradient has no derivative");
    Error::new(ErrorCode::Gradient, text)
}
