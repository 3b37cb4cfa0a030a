//! Gradient descent.

use super::memory::State;
use super::{Checked, Stateful, Subject, check_gradient, step};
use crate::array::{Array, Float};
use crate::error::Result;
use crate::grad::{Optimizer, Parameters};
use crate::ops::update;

/// Stochastic gradient descent, with momentum (Sutskever et al. 2013, with PyTorch's velocity:
/// v = m v + g, x = x − rate v).
#[derive(Debug)]
pub struct Sgd {
    /// The learning rate.
    pub rate: f64,
    momentum: f64,
    steps: u64,
    velocity: State,
}

impl Sgd {
    /// Makes an optimizer without momentum.
    #[must_use]
    pub fn new(rate: f64) -> Self {
        Self {
            rate,
            momentum: 0.0,
            steps: 0,
            velocity: State::default(),
        }
    }

    /// Sets the momentum coefficient, typically 0.9.
    #[must_use]
    pub fn momentum(self, momentum: f64) -> Self {
        Self { momentum, ..self }
    }

    /// Moves the parameters.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if a gradient has another shape than
    /// its parameter, or if the number, types or shapes of the parameters differ from earlier
    /// steps. No parameter has moved then. The errors of [`Array::assign`], after which some
    /// parameters may have moved. An error names the optimizer, and the parameter by its [name in
    /// files](crate::grad::files).
    #[track_caller]
    pub fn step<P: Parameters>(&mut self, parameters: &mut P, gradients: &P) -> Result<()> {
        step(self, parameters, gradients)
    }
}

const NAME: &str = "Sgd";

impl Checked for Sgd {
    fn name(&self) -> &'static str {
        NAME
    }

    #[track_caller]
    fn check_states<T: Float>(&self, subject: Subject<'_>, parameter: &Array<T>) -> Result<()> {
        self.velocity.check(subject, parameter)
    }

    fn counted(&mut self) -> Option<&mut State> {
        (self.momentum != 0.0).then_some(&mut self.velocity)
    }
}

impl Optimizer for Sgd {
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
        let subject = Subject::numbered((NAME, "step_one"), number);
        check_gradient(subject, own, gradient)?;
        let [rate, momentum] = [self.rate, self.momentum].map(T::from_f64);
        if self.momentum == 0.0 {
            return own.update(|own| own - gradient * rate);
        }
        let velocity = self.velocity.writable(subject, own)?;
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

    #[track_caller]
    fn state_of<T: Float>(
        &mut self,
        _: usize,
        number: usize,
        parameter: &Array<T>,
    ) -> Result<&mut Array<T>> {
        let subject = Subject::numbered((NAME, "state_of"), number);
        self.velocity.of(subject, parameter)
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
