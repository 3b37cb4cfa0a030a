//! Adam, with and without weight decay.

use super::memory::State;
use super::{Checked, Stateful, Subject, check_gradient, step};
use crate::array::{AnyElement, Array, DType, Float};
use crate::error::Result;
use crate::grad::{Optimizer, Parameters};
use crate::ops::update;

/// Adam (Kingma and Ba 2015, algorithm 1), with the bias corrections.
#[derive(Debug)]
pub struct Adam(AdamW);

impl Adam {
    /// Makes an optimizer with the paper's defaults: β₁ = 0.9, β₂ = 0.999, ε = 10⁻⁸.
    #[must_use]
    pub fn new(rate: f64) -> Self {
        Self(AdamW::new(rate).weight_decay(0.0).called("Adam"))
    }

    /// Sets the decay rates of the means of gradients and of their squares.
    #[must_use]
    pub fn betas(self, first: f64, second: f64) -> Self {
        Self(self.0.betas(first, second))
    }

    /// Sets the learning rate, from the next step on.
    pub fn set_rate(&mut self, rate: f64) {
        self.0.rate = rate;
    }

    /// Moves the parameters.
    ///
    /// # Errors
    ///
    /// The errors of [`Sgd::step`](super::Sgd::step).
    #[track_caller]
    pub fn step<P: Parameters>(&mut self, parameters: &mut P, gradients: &P) -> Result<()> {
        step(self, parameters, gradients)
    }
}

impl Checked for Adam {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    #[track_caller]
    fn check_states<T: Float>(&self, subject: Subject<'_>, parameter: &Array<T>) -> Result<()> {
        self.0.check_states(subject, parameter)
    }

    fn counted(&mut self) -> Option<&mut State> {
        self.0.counted()
    }
}

impl Optimizer for Adam {
    fn begin(&mut self) {
        self.0.begin();
    }

    fn abandon(&mut self) {
        self.0.abandon();
    }

    #[track_caller]
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

    #[track_caller]
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

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019): each step shrinks the parameters
/// by learning rate times decay.
#[derive(Debug)]
pub struct AdamW {
    /// The learning rate.
    pub rate: f64,
    /// The name of the optimizer in errors.
    name: &'static str,
    betas: [f64; 2],
    epsilon: f64,
    decay: f64,
    steps: u64,
    means: State,
    squares: State,
}

impl AdamW {
    /// Makes an optimizer with PyTorch's defaults: β₁ = 0.9, β₂ = 0.999, ε = 10⁻⁸ and a decay of
    /// 0.01.
    #[must_use]
    pub fn new(rate: f64) -> Self {
        Self {
            rate,
            name: "AdamW",
            betas: [0.9, 0.999],
            epsilon: 1e-8,
            decay: 0.01,
            steps: 0,
            means: State::default(),
            squares: State::default(),
        }
    }

    /// Sets the name in errors, for an optimizer that this one is a part of.
    pub(super) fn called(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// Sets the decay rates of the means of gradients and of their squares.
    #[must_use]
    pub fn betas(self, first: f64, second: f64) -> Self {
        Self {
            betas: [first, second],
            ..self
        }
    }

    /// Sets the weight decay: a step shrinks the parameters by learning rate times decay.
    #[must_use]
    pub fn weight_decay(self, decay: f64) -> Self {
        Self { decay, ..self }
    }

    /// Moves the parameters.
    ///
    /// # Errors
    ///
    /// The errors of [`Sgd::step`](super::Sgd::step).
    #[track_caller]
    pub fn step<P: Parameters>(&mut self, parameters: &mut P, gradients: &P) -> Result<()> {
        step(self, parameters, gradients)
    }
}

/// Returns a positive number that does not round to 0 in that float type.
fn least_positive(dtype: DType) -> f64 {
    if dtype == DType::F16 { 6e-8 } else { 0.0 }
}

impl Checked for AdamW {
    fn name(&self) -> &'static str {
        self.name
    }

    #[track_caller]
    fn check_states<T: Float>(&self, subject: Subject<'_>, parameter: &Array<T>) -> Result<()> {
        self.means.check(subject, parameter)?;
        self.squares.check(subject, parameter)
    }

    fn counted(&mut self) -> Option<&mut State> {
        Some(&mut self.means)
    }
}

impl Optimizer for AdamW {
    fn begin(&mut self) {
        self.steps = self.steps.saturating_add(1);
    }

    fn abandon(&mut self) {
        self.steps = self.steps.saturating_sub(1);
    }

    #[track_caller]
    fn step_one<T: Float>(
        &mut self,
        number: usize,
        own: &mut Array<T>,
        gradient: &Array<T>,
    ) -> Result<()> {
        let subject = Subject::numbered((self.name, "step_one"), number);
        check_gradient(subject, own, gradient)?;
        let mean = self.means.writable(subject, own)?;
        let square = self.squares.writable(subject, own)?;
        // Steps are counted beyond the exponents of `powi`.
        let steps = self.steps as f64;
        let corrections = self.betas.map(|beta| 1.0 - beta.powf(steps));
        let of = |value: f64| <T as AnyElement>::from_f64(value);
        let [first, second] = self.betas;
        let kept = of(1.0 - self.rate * self.decay);
        let step = of(self.rate / corrections[0]);
        let scale = of(corrections[1].sqrt().recip());
        // In half precision 10⁻⁸ is 0, and 0 / 0 is no step.
        let epsilon = of(self.epsilon.max(least_positive(T::DTYPE)));
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

    #[track_caller]
    fn state_of<T: Float>(
        &mut self,
        which: usize,
        number: usize,
        parameter: &Array<T>,
    ) -> Result<&mut Array<T>> {
        let subject = Subject::numbered((self.name, "state_of"), number);
        let states = match which {
            0 => &mut self.means,
            _ => &mut self.squares,
        };
        states.of(subject, parameter)
    }

    fn steps(&self) -> u64 {
        self.steps
    }

    fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    fn is_elementwise(&self) -> bool {
        true
    }
}
