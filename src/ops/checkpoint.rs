//! Checkpoints: functions that the backward pass runs again.

use std::panic::Location;
use std::rc::Rc;

use crate::array::{Array, Buffer, Float, Layout, Shape};
use crate::context::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::derivatives::{
    BackwardStep, Gradients, Pause, Tracked, Upstream, constant, is_live, pin, record,
};
use crate::ops::random::{replace_thread_state, thread_state};

/// Returns the value of `run`, and saves only the arrays in `inputs` for the backward pass. If a
/// tape tracks one of these arrays, the backward pass calls `run` again. This second call draws the
/// random numbers of the first call, and records its steps on the tape. If `checks_values` is set,
/// the first value is also saved, and compared with the value of the second call.
///
/// `run` reads its captured arrays in each call. In the first call, the tape records only which
/// values `run` reads. The steps are recorded in the second call, so the gradients of captured
/// parameters are complete only after that call.
///
/// # Errors
///
/// The first error of `run`.
#[track_caller]
pub(crate) fn checkpointed<T: Float>(
    inputs: &[(Buffer, Layout)],
    (saved_bytes, checks_values): (u64, bool),
    run: impl Fn() -> Result<Array<T>> + 'static,
) -> Result<Array<T>> {
    let mut is_tracked = false;
    for (buffer, layout) in inputs {
        is_tracked |= is_live() && Tracked::of(buffer, layout)?.is_some();
    }
    if !is_tracked {
        return run();
    }
    let pins: Vec<_> = (inputs.iter())
        .filter_map(|(buffer, layout)| pin(buffer, layout, T::DTYPE))
        .collect();
    let run = Rc::new(run);
    let state = thread_state();
    let device = Device::current();
    let result = {
        let _paused = Pause::before_rerun();
        run()?
    };
    let shape = *result.layout().shape();
    let first = checks_values.then(|| constant(&result));
    let call_site = Location::caller();
    let backward = Box::new(move |mut upstream: Upstream, gradients: &mut Gradients| {
        let Some(upstream) = upstream[0].take() else {
            return Ok(());
        };
        drop(pins);
        // The backward pass continues with the steps that this second call records.
        let (again, tracked) = {
            let _device = device.enter();
            let later = replace_thread_state(state);
            let _restored = scopeguard::guard(later, |later| {
                replace_thread_state(later);
            });
            let _tracking = Pause::end();
            let again = run()?;
            let tracked = Tracked::of(again.buffer(), again.layout())?;
            (again, tracked)
        };
        if *again.layout().shape() != shape {
            return Err(differs(&shape, again.layout().shape()).at(call_site));
        }
        if let Some(first) = first {
            check_values(&constant(&again), &first).map_err(|error| error.at(call_site))?;
        }
        match tracked {
            Some(tracked) => gradients.add(tracked, upstream),
            None => Ok(()),
        }
    });
    let result = if result.layout().is_contiguous() {
        result
    } else {
        let _paused = Pause::begin();
        result.lazy().eval_unfused()?
    };
    let layout = *result.layout();
    let buffer = result.into_buffer().with_value_id(None);
    let back = BackwardStep {
        backward,
        saved_bytes,
        runs_again: true,
        takes_unrounded: true,
        only_once: None,
    };
    let buffer = record((buffer, &layout, T::DTYPE), None, |_| back);
    Ok(Array::from_parts(buffer, layout))
}

/// Returns an error if two elements at one index differ, unless both elements are NaN.
fn check_values<T: Float>(again: &Array<T>, first: &Array<T>) -> Result<()> {
    let are_numbers = again.is_nan().and(first.is_nan()).not();
    if !again.ne(first).and(are_numbers).any()?.item()? {
        return Ok(());
    }
    let text = "checkpoint: the function returned other values in its second run: compute the \
                values from the inputs only";
    Err(Error::new(ErrorKind::InvalidArgument, text))
}

#[cold]
#[track_caller]
fn differs(first: &Shape, second: &Shape) -> Error {
    let text = format!(
        "checkpoint: the function returned the shape {first} in its first run, and {second} in \
         its second run"
    );
    Error::new(ErrorKind::InvalidArgument, text)
}
