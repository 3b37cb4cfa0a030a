//! Optimizers: what makes better parameters of parameters and their gradients.
//!
//! Each is a plain structure whose state, made in the first step, is in the order of the parameters. A step of a parameter is
//! one pass, in place. [`value_and_step`](super::value_and_step) makes it inside of the backward pass.
//!
//! ```
//! use cachescope::grad::optim::Adam;
//! use cachescope::grad::value_and_grad;
//! use cachescope::Array;
//!
//! let target = Array::from_slice(&[1.0_f32, -2.0, 3.0], 3)?;
//! let mut x = Array::<f32>::zeros(3)?;
//! let mut optimizer = Adam::new(0.1);
//! for _ in 0..200 {
//!     let (_, gradient) = value_and_grad(&x, |x| (x - &target).square().sum())?;
//!     optimizer.step(&mut x, &gradient)?;
//! }
//! assert!((&x - &target).abs().max()?.item()? < 1e-2);
//! # Ok::<(), cachescope::Error>(())
//! ```

mod average;
mod muon;
mod schedule;
mod state;

use std::any::Any;
use std::fmt;
use std::panic::Location;

pub use average::Average;
pub use muon::Muon;
pub use schedule::{cosine, linear};
pub use state::{OptimizerState, Stateful};
pub(crate) use state::{Shared, check_count};

use super::parameters::{MapArrays, Parameters, ZipArrays};
use super::step::Optimizer;
use crate::array::{Array, DType, Float};
use crate::error::{Asking, Error, ErrorKind, Result};
use crate::ops::derivatives::zeros_like;
use crate::ops::update;

/// Arrays of some types, by the number of the parameter.
#[derive(Default)]
struct State(Vec<Option<Box<dyn Any + Send + Sync>>>);

impl State {
    /// The array for the parameter of that number, zeros in its first step.
    #[track_caller]
    fn of<T: Float>(&mut self, number: usize, parameter: &Array<T>) -> Result<&mut Array<T>> {
        let length = self.0.len().max(number + 1);
        self.0.resize_with(length, || None);
        let place = &mut self.0[number];
        if place.is_none() {
            *place = Some(Box::new(zeros_like(parameter)?));
        }
        let own = place.as_mut();
        let own = own.and_then(|own| own.downcast_mut::<Array<T>>());
        own.filter(|own| own.shape() == parameter.shape())
            .ok_or_else(others)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State of {} arrays", self.0.len())
    }
}

#[cold]
#[track_caller]
fn others() -> Error {
    let text = "an optimizer steps the same parameters every time: their number, types and shapes";
    Error::new(ErrorKind::InvalidArgument, text)
}

/// Moves all parameters.
#[track_caller]
fn step<P: Parameters>(
    optimizer: &mut impl Optimizer,
    parameters: &mut P,
    gradients: &P,
) -> Result<()> {
    let _asking = Asking::at(Location::caller());
    optimizer.begin();
    let mut stepping = Stepping {
        optimizer,
        number: 0,
    };
    let stepped = parameters.zip_arrays(gradients, &mut stepping);
    if stepped.is_err() {
        stepping.optimizer.abandon();
    }
    stepped
}

struct Stepping<'a, O> {
    optimizer: &'a mut O,
    number: usize,
}

impl<O: Optimizer> ZipArrays for Stepping<'_, O> {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, gradient: &Array<T>) -> Result<()> {
        self.number += 1;
        self.optimizer.step_one(self.number - 1, own, gradient)
    }
}

/// Stochastic gradient descent, with momentum (Sutskever et al. 2013, as PyTorch counts it: v = m v + g, x = x − rate v).
#[derive(Debug)]
pub struct Sgd {
    /// How far a step goes.
    pub rate: f64,
    momentum: f64,
    velocity: State,
}

impl Sgd {
    /// One without momentum.
    #[must_use]
    pub fn new(rate: f64) -> Self {
        Self {
            rate,
            momentum: 0.0,
            velocity: State::default(),
        }
    }

    /// How much of its velocity a step keeps: 0.9 is usual.
    #[must_use]
    pub fn momentum(self, momentum: f64) -> Self {
        Self { momentum, ..self }
    }

    /// Moves the parameters.
    ///
    /// # Errors
    ///
    /// Those of [`Array::assign`]; [`InvalidArgument`](ErrorKind::InvalidArgument) where the gradients are not of these
    /// parameters, or these are not those of the first step.
    #[track_caller]
    pub fn step<P: Parameters>(&mut self, parameters: &mut P, gradients: &P) -> Result<()> {
        step(self, parameters, gradients)
    }
}

impl Optimizer for Sgd {
    fn step_one<T: Float>(
        &mut self,
        number: usize,
        own: &mut Array<T>,
        gradient: &Array<T>,
    ) -> Result<()> {
        let [rate, momentum] = [self.rate, self.momentum].map(T::from_f64);
        if self.momentum == 0.0 {
            return own.update(|own| own - gradient * rate);
        }
        let velocity = self.velocity.of(number, own)?;
        update((own, velocity), |(own, velocity)| {
            let velocity = velocity * momentum + gradient;
            (own - &velocity * rate, velocity)
        })
    }
}

impl Stateful for Sgd {
    fn states(&self) -> usize {
        usize::from(self.momentum != 0.0)
    }

    fn keeps(&self, _: usize, _: &[usize]) -> bool {
        true
    }

    fn state_of<T: Float>(
        &mut self,
        _: usize,
        number: usize,
        parameter: &Array<T>,
    ) -> Result<&mut Array<T>> {
        self.velocity.of(number, parameter)
    }

    fn steps(&self) -> u64 {
        0
    }

    fn set_steps(&mut self, _: u64) {}

    fn is_elementwise(&self) -> bool {
        true
    }
}

/// Adam (Kingma and Ba 2015, algorithm 1), with the bias corrections.
#[derive(Debug)]
pub struct Adam(AdamW);

impl Adam {
    /// With the paper's other values: β₁ = 0.9, β₂ = 0.999, ε = 10⁻⁸.
    #[must_use]
    pub fn new(rate: f64) -> Self {
        Self(AdamW::new(rate).weight_decay(0.0))
    }

    /// How much of the means of gradients and of their squares a step keeps.
    #[must_use]
    pub fn betas(self, first: f64, second: f64) -> Self {
        Self(self.0.betas(first, second))
    }

    /// How far a step goes, from the next one on.
    pub fn set_rate(&mut self, rate: f64) {
        self.0.rate = rate;
    }

    /// Moves the parameters.
    ///
    /// # Errors
    ///
    /// Those of [`Sgd::step`].
    #[track_caller]
    pub fn step<P: Parameters>(&mut self, parameters: &mut P, gradients: &P) -> Result<()> {
        step(self, parameters, gradients)
    }
}

impl Optimizer for Adam {
    fn begin(&mut self) {
        self.0.begin();
    }

    fn abandon(&mut self) {
        self.0.abandon();
    }

    fn step_one<T: Float>(
        &mut self,
        number: usize,
        own: &mut Array<T>,
        gradient: &Array<T>,
    ) -> Result<()> {
        self.0.step_one(number, own, gradient)
    }
}

impl Stateful for Adam {
    fn states(&self) -> usize {
        self.0.states()
    }

    fn keeps(&self, which: usize, shape: &[usize]) -> bool {
        self.0.keeps(which, shape)
    }

    fn state_of<T: Float>(
        &mut self,
        which: usize,
        number: usize,
        parameter: &Array<T>,
    ) -> Result<&mut Array<T>> {
        self.0.state_of(which, number, parameter)
    }

    fn steps(&self) -> u64 {
        self.0.steps()
    }

    fn set_steps(&mut self, steps: u64) {
        self.0.set_steps(steps);
    }

    fn is_elementwise(&self) -> bool {
        true
    }
}

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019): each step shrinks the parameters by rate times decay.
#[derive(Debug)]
pub struct AdamW {
    /// How far a step goes.
    pub rate: f64,
    betas: [f64; 2],
    epsilon: f64,
    decay: f64,
    steps: i32,
    means: State,
    squares: State,
}

impl AdamW {
    /// With β₁ = 0.9, β₂ = 0.999, ε = 10⁻⁸ and a decay of 0.01, as PyTorch.
    #[must_use]
    pub fn new(rate: f64) -> Self {
        Self {
            rate,
            betas: [0.9, 0.999],
            epsilon: 1e-8,
            decay: 0.01,
            steps: 0,
            means: State::default(),
            squares: State::default(),
        }
    }

    /// How much of the means of gradients and of their squares a step keeps.
    #[must_use]
    pub fn betas(self, first: f64, second: f64) -> Self {
        Self {
            betas: [first, second],
            ..self
        }
    }

    /// How much a step shrinks the parameters, times the rate.
    #[must_use]
    pub fn weight_decay(self, decay: f64) -> Self {
        Self { decay, ..self }
    }

    /// Moves the parameters.
    ///
    /// # Errors
    ///
    /// Those of [`Sgd::step`].
    #[track_caller]
    pub fn step<P: Parameters>(&mut self, parameters: &mut P, gradients: &P) -> Result<()> {
        step(self, parameters, gradients)
    }
}

/// A number that floats of that type are not 0 at.
fn least_positive(dtype: DType) -> f64 {
    if dtype == DType::F16 { 6e-8 } else { 0.0 }
}

impl Optimizer for AdamW {
    fn begin(&mut self) {
        self.steps += 1;
    }

    fn abandon(&mut self) {
        self.steps -= 1;
    }

    fn step_one<T: Float>(
        &mut self,
        number: usize,
        own: &mut Array<T>,
        gradient: &Array<T>,
    ) -> Result<()> {
        let Self {
            rate,
            betas,
            epsilon,
            decay,
            steps,
            means,
            squares,
        } = self;
        let [mean, square] = [means.of(number, own)?, squares.of(number, own)?];
        let corrections = betas.map(|beta| 1.0 - beta.powi(*steps));
        let of = |value: f64| <T as crate::array::AnyElement>::from_f64(value);
        let [first, second] = *betas;
        let (kept, step) = (of(1.0 - *rate * *decay), of(*rate / corrections[0]));
        let scale = of(corrections[1].sqrt().recip());
        // Of half precision 10⁻⁸ is 0, and 0 / 0 no step.
        let epsilon = of(epsilon.max(least_positive(T::DTYPE)));
        update((own, mean, square), |(own, mean, square)| {
            let mean = mean * of(first) + gradient * of(1.0 - first);
            let square = square * of(second) + gradient.square() * of(1.0 - second);
            let moved = &mean * step / (square.sqrt() * scale + epsilon);
            (own * kept - moved, mean, square)
        })
    }
}

impl Stateful for AdamW {
    fn states(&self) -> usize {
        2
    }

    fn keeps(&self, _: usize, _: &[usize]) -> bool {
        true
    }

    fn state_of<T: Float>(
        &mut self,
        which: usize,
        number: usize,
        parameter: &Array<T>,
    ) -> Result<&mut Array<T>> {
        let states = match which {
            0 => &mut self.means,
            _ => &mut self.squares,
        };
        states.of(number, parameter)
    }

    fn steps(&self) -> u64 {
        self.steps as u64
    }

    fn set_steps(&mut self, steps: u64) {
        self.steps = i32::try_from(steps).unwrap_or(i32::MAX);
    }

    fn is_elementwise(&self) -> bool {
        true
    }
}

/// The sum of the squares of all elements.
#[derive(Default)]
struct SquaresOfAll(f64);

impl MapArrays for SquaresOfAll {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        self.0 += array.cast::<f64>().square().sum()?.item()?;
        Ok(array.clone())
    }
}

struct Scaled(f64);

impl MapArrays for Scaled {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        (array * <T as crate::array::AnyElement>::from_f64(self.0)).eval()
    }
}

/// Gradients whose norm, over all of them together, is at most `most`: scaled where it is above. Gives the norm that they had,
/// too.
///
/// # Errors
///
/// Those of [`Array::sum`].
#[track_caller]
pub fn clip_norm<P: Parameters>(gradients: P, most: f64) -> Result<(P, f64)> {
    let mut squares = SquaresOfAll::default();
    gradients.map_arrays(&mut squares)?;
    let norm = squares.0.sqrt();
    if norm <= most {
        return Ok((gradients, norm));
    }
    let clipped = gradients.map_arrays(&mut Scaled(most / norm))?;
    Ok((clipped, norm))
}
