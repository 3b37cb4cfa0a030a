//! Optimizer steps inside of the backward pass.

use std::panic::Location;
use std::rc::Rc;

use super::loss::Loss;
use super::optim::interface::Optimizer;
use super::parameters::{Parameters, ZipArrays};
use super::place::{name_of, no_elements};
use super::tape::Tape;
use crate::array::{Array, Float};
use crate::error::{AtCaller, CallSiteOverride, Error, ErrorKind, Result};
use crate::ops::derivatives::{
    Gradients, Placer, backward_in_places, constant, detects_anomalies, first_reader,
    has_constants, length, seed, zeros_like,
};
use crate::sorting::sort_descending;

/// Returns the value of `function` at `parameters`. Inside of the backward pass, the optimizer
/// updates each parameter as soon as the parameter's gradient is complete. Therefore not all
/// gradients are in memory at once (Lv et al. 2023, "Full parameter fine-tuning for large language
/// models with limited resources").
///
/// The results equal the results of [`value_and_grad`](super::value_and_grad) followed by a step of
/// the optimizer. [`value_and_grad`](super::value_and_grad) lists the arrays that no gradient
/// passes through. A parameter that does not reach the value is updated with a gradient of zeros.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::optim::Adam;
/// use cachescope::grad::value_and_step;
///
/// let target = Array::from_slice(&[1.0_f32, -2.0, 3.0], 3)?;
/// let (mut x, mut optimizer) = (Array::<f32>::zeros(3)?, Adam::new(0.1));
/// for _ in 0..200 {
///     value_and_step(&mut x, &mut optimizer, |x| (x - &target).square().sum())?;
/// }
/// assert!((&x - &target).abs().max()?.item()? < 1e-2);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`value_and_grad`](super::value_and_grad) and of the optimizer.
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if a [`checkpoint`](super::checkpoint)
/// reads a parameter only when it runs again. After an error in the backward pass, some parameters
/// may have changed.
#[track_caller]
pub fn value_and_step<P: Parameters, L: Loss, O: Optimizer>(
    parameters: &mut P,
    optimizer: &mut O,
    function: impl FnOnce(&P) -> Result<L>,
) -> Result<Array<L::Item>> {
    let mut failed = None;
    let caller = ("value_and_step", &mut failed);
    let value = value_and_step_in_order(parameters, (optimizer, caller), function, |_, _| Ok(None));
    let value = value.map_err(|error| {
        let name = failed.and_then(|number| name_of(parameters, number));
        match name {
            Some(name) => error.of(&format!("value_and_step: `{name}`")),
            None => error,
        }
    });
    value.at_caller()
}

/// Computes [`value_and_step`] for the public function that `caller` names. Between the passes,
/// calls `see` with the optimizer and the order in which the gradients will be complete. `see` may
/// return memory for the gradients. `failed` is set to the index of the parameter whose step fails.
#[track_caller]
pub(crate) fn value_and_step_in_order<P: Parameters, L: Loss, O: Optimizer>(
    parameters: &mut P,
    (optimizer, (caller, failed)): (&mut O, (&'static str, &mut Option<usize>)),
    function: impl FnOnce(&P) -> Result<L>,
    see: impl FnOnce(&mut O, Order<'_>) -> Result<Option<Rc<dyn Placer>>>,
) -> Result<Array<L::Item>> {
    optimizer.check_settings()?;
    let mut tape = Tape::begin_for(caller)?;
    let tracked = tape.track(parameters)?;
    let loss = function(&tracked)?.into_value()?;
    tape.check_loss(&loss)?;
    // These handles of the parameters are dropped, because they would prevent writes in place.
    drop(tracked);
    optimizer.begin();
    let order = Order {
        variables: &tape.variables,
        numbers: order_of_gradients(&tape.variables),
    };
    // The `match` is not an `and_then`, because an error in a closure would report the closure as
    // the caller.
    let stepped = match see(optimizer, order) {
        Ok(placer) => step_all(parameters, (optimizer, failed), (&loss, &tape), placer),
        Err(error) => Err(error),
    };
    if stepped.is_err() {
        optimizer.abandon();
    }
    stepped?;
    Ok(constant(&loss))
}

/// The parameters, in the order of the next backward pass.
#[cfg_attr(
    not(feature = "collective"),
    expect(dead_code, reason = "only groups of ranks read the order")
)]
pub(crate) struct Order<'a> {
    /// The tape's variable of each parameter.
    pub(crate) variables: &'a [u32],
    /// The indices of the parameters, in the order in which their gradients will be complete.
    pub(crate) numbers: Vec<usize>,
}

/// Returns the indices of variables in the order in which the backward pass completes their
/// gradients. A gradient is complete once the pass has processed the first recorded step that read
/// the variable.
fn order_of_gradients(variables: &[u32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..variables.len()).collect();
    sort_descending(&mut order, |&number| first_reader(variables[number]) as u64);
    order
}

#[track_caller]
fn step_all<P: Parameters, T: Float>(
    parameters: &mut P,
    (optimizer, failed): (&mut impl Optimizer, &mut Option<usize>),
    (loss, tape): (&Array<T>, &Tape),
    placer: Option<Rc<dyn Placer>>,
) -> Result<()> {
    let _call_site = CallSiteOverride::at(Location::caller());
    let nothing = no_elements(parameters)?;
    let mut waiting: Vec<Option<u32>> = tape.variables.iter().copied().map(Some).collect();
    let mut is_reached = false;
    let needs_norm = optimizer.needs_norm();
    let seeds = seed(loss, optimizer.loss_scale())?;
    let mut step = |gradients: &mut Gradients, steps: usize, norm: Option<Array<f64>>| {
        if let Some(norm) = norm {
            optimizer.set_norm(&norm);
        }
        let is_complete = |own: &Option<u32>| own.is_some_and(|own| first_reader(own) >= steps);
        if !waiting.iter().any(is_complete) {
            return Ok(());
        }
        let mut stepping = Stepping {
            optimizer: &mut *optimizer,
            failed: &mut *failed,
            gradients,
            waiting: &mut waiting,
            is_reached: &mut is_reached,
            steps,
            number: 0,
        };
        parameters.zip_arrays(&nothing, &mut stepping)
    };
    let mut see = |gradients: &mut Gradients| match needs_norm {
        true => Ok(()),
        false => step(gradients, length(), None),
    };
    let gradients = Gradients::new(detects_anomalies()).in_places_of(placer);
    let mut rest = backward_in_places(seeds, gradients, 0, &mut see).at_caller()?;
    let norm = match needs_norm {
        true => Some(rest.norm(&tape.variables).at_caller()?),
        false => None,
    };
    // This call updates the parameters that no step of the tape reads. If the optimizer needs a
    // norm, this call updates all parameters.
    step(&mut rest, 0, norm).at_caller()?;
    if tape.variables.iter().any(|&variable| rest.has(variable)) {
        let text = "checkpoint: the function read a parameter only in its second run, after the \
                    step of the parameter: compute the same values in both runs";
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    tape.check_gradients(is_reached || has_constants())
}

/// The traversal that updates each parameter once, when its gradient is complete.
struct Stepping<'a, O> {
    optimizer: &'a mut O,
    failed: &'a mut Option<usize>,
    gradients: &'a mut Gradients,
    /// The variable of each parameter, or `None` if the parameter is already updated.
    waiting: &'a mut [Option<u32>],
    /// True if a parameter has a gradient.
    is_reached: &'a mut bool,
    /// The number of the tape's steps that the backward pass has not processed yet.
    steps: usize,
    number: usize,
}

impl<O: Optimizer> ZipArrays for Stepping<'_, O> {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, _: &Array<T>) -> Result<()> {
        let number = self.number;
        self.number += 1;
        let Some(value) = self.waiting[number].filter(|&own| first_reader(own) >= self.steps)
        else {
            return Ok(());
        };
        self.waiting[number] = None;
        let gradient = match self.gradients.take(value)? {
            Some(gradient) => {
                *self.is_reached = true;
                constant(&gradient.into_array())
            }
            None => zeros_like(own)?,
        };
        let stepped = self.optimizer.step_one(number, own, &gradient);
        stepped.inspect_err(|_| *self.failed = Some(number))
    }
}
