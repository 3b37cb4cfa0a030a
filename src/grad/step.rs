//! Steps of parameters inside of the backward pass.

use std::cmp::Reverse;
use std::panic::Location;
use std::rc::Rc;

use super::loss::{Loss, check_value, detects_anomalies};
use super::optim::Named;
use super::parameters::{MapArrays, Parameters, ZipArrays};
use super::tape::Tape;
use crate::array::{Array, Float};
use crate::error::{Asking, Result};
use crate::ops::derivatives::{
    AnyArray, Gradients, Placer, backward_in_places, constant, first_reader, length, seed,
    zeros_like,
};

/// What is done with each parameter and its gradient: the optimizers move the parameter. A program that sends gradients elsewhere, or
/// looks at them, implements it too, and hands them on to the optimizer that it has.
///
/// # Examples
///
/// ```
/// use cachescope::grad::optim::Sgd;
/// use cachescope::grad::{Optimizer, value_and_step};
/// use cachescope::{Array, Float, Result};
///
/// /// Notes which gradients come first.
/// struct Noting {
///     of: Sgd,
///     order: Vec<usize>,
/// }
///
/// impl Optimizer for Noting {
///     fn step_one<T: Float>(&mut self, number: usize, own: &mut Array<T>, gradient: &Array<T>) -> Result<()> {
///         self.order.push(number);
///         self.of.step_one(number, own, gradient)
///     }
/// }
///
/// let mut layers = vec![Array::<f32>::eye(4)?, Array::eye(4)?];
/// let mut optimizer = Noting { of: Sgd::new(0.1), order: Vec::new() };
/// value_and_step(&mut layers, &mut optimizer, |layers| {
///     layers[0].matmul(&layers[1])?.square().sum()
/// })?;
/// assert_eq!(optimizer.order.len(), 2);
/// # Ok::<(), cachescope::Error>(())
/// ```
pub trait Optimizer {
    /// Begins a step of all parameters.
    fn begin(&mut self) {}

    /// Ends a step that an error ended. Some parameters may have moved.
    fn abandon(&mut self) {}

    /// Moves the parameter of that number, in the order in which the structure has them.
    ///
    /// # Errors
    ///
    /// Whatever it does.
    fn step_one<T: Float>(
        &mut self,
        number: usize,
        own: &mut Array<T>,
        gradient: &Array<T>,
    ) -> Result<()>;
}

/// The value of `function` at `parameters`, which the optimizer moves: each as soon as its gradient is complete, inside of the backward
/// pass, so that the gradients are not all in memory at once (Lv et al. 2023, "Full parameter fine-tuning for large language models
/// with limited resources").
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
/// Those of [`value_and_grad`](super::value_and_grad) and of the optimizer. After an error in the backward pass some parameters may have
/// moved.
#[track_caller]
pub fn value_and_step<P: Parameters, L: Loss, O: Optimizer>(
    parameters: &mut P,
    optimizer: &mut O,
    function: impl FnOnce(&P) -> Result<L>,
) -> Result<Array<L::Item>> {
    let mut named = Named::new(optimizer);
    let value = value_and_step_in_order(parameters, &mut named, function, |_, _| Ok(None));
    named.name(value, parameters)
}

/// The same. Between the passes `see` has the optimizer and what the tape calls the parameters, in the order in which their gradients
/// will be complete, with their numbers. It may give them places.
#[track_caller]
pub(crate) fn value_and_step_in_order<P: Parameters, L: Loss, O: Optimizer>(
    parameters: &mut P,
    optimizer: &mut O,
    function: impl FnOnce(&P) -> Result<L>,
    see: impl FnOnce(&mut O, Order<'_>) -> Result<Option<Rc<dyn Placer>>>,
) -> Result<Array<L::Item>> {
    let mut tape = Tape::begin()?;
    let followed = tape.follow(parameters)?;
    let loss = function(&followed)?.into_value()?;
    check_value(&loss)?;
    // Handles of the parameters, which are to be written in place.
    drop(followed);
    optimizer.begin();
    let order = Order {
        variables: tape.variables(),
        numbers: order_of_gradients(tape.variables()),
    };
    // Without a closure, which would be the caller.
    let stepped = match see(optimizer, order) {
        Ok(placer) => step_all(parameters, optimizer, (&loss, &tape), placer),
        Err(error) => Err(error),
    };
    if stepped.is_err() {
        optimizer.abandon();
    }
    stepped?;
    Ok(constant(&loss))
}

/// The parameters of a backward pass to come.
pub(crate) struct Order<'a> {
    /// What the tape calls them, by their numbers.
    pub(crate) variables: &'a [u32],
    /// Their numbers in the order in which their gradients will be complete.
    pub(crate) numbers: Vec<usize>,
}

/// The numbers of variables in the order in which the backward pass completes their gradients: when it has passed the step that read
/// them first.
fn order_of_gradients(variables: &[u32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..variables.len()).collect();
    order.sort_by_key(|&number| Reverse(first_reader(variables[number])));
    order
}

#[track_caller]
fn step_all<P: Parameters, T: Float>(
    parameters: &mut P,
    optimizer: &mut impl Optimizer,
    (loss, tape): (&Array<T>, &Tape),
    placer: Option<Rc<dyn Placer>>,
) -> Result<()> {
    let _asking = Asking::at(Location::caller());
    let nothing = parameters.map_arrays(&mut Nothing)?;
    let mut waiting: Vec<Option<u32>> = tape.variables().iter().copied().map(Some).collect();
    let mut step = |gradients: &mut Gradients, steps: usize| {
        let is_complete = |own: &Option<u32>| own.is_some_and(|own| first_reader(own) >= steps);
        if !waiting.iter().any(is_complete) {
            return Ok(());
        }
        let mut stepping = Stepping {
            optimizer: &mut *optimizer,
            gradients,
            waiting: &mut waiting,
            steps,
            number: 0,
        };
        parameters.zip_arrays(&nothing, &mut stepping)
    };
    let seeds = seed(loss)?;
    let mut see = |gradients: &mut Gradients| step(gradients, length());
    let gradients = Gradients::new(detects_anomalies()).in_places_of(placer);
    let mut rest = backward_in_places(seeds, gradients, 0, &mut see)?;
    // What is no operation's operand: the loss itself, or nothing.
    step(&mut rest, 0)
}

/// Steps the parameters whose gradients are complete, and which did not.
struct Stepping<'a, O> {
    optimizer: &'a mut O,
    gradients: &'a mut Gradients,
    /// What the tape calls those that wait.
    waiting: &'a mut [Option<u32>],
    /// How many steps are left to pass back.
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
        let gradient = match self.gradients.take(value) {
            Some(gradient) => constant(&gradient.into_array()),
            None => zeros_like(own)?,
        };
        self.optimizer.step_one(number, own, &gradient)
    }
}

/// Arrays of no elements: nothing is zipped with parameters.
pub(crate) struct Nothing;

impl MapArrays for Nothing {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        Ok(AnyArray::of(array).zeros(&[0].into())?.into_array())
    }
}
