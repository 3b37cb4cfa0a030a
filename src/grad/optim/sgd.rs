//! Gradient descent.

use super::memory::Memory;
use super::{Rule, Subject, optimizer};
use crate::array::{Array, Float};
use crate::error::Result;
use crate::ops::update;

/// Stochastic gradient descent, with momentum (Sutskever et al. 2013, with PyTorch's velocity:
/// v = m v + g, x = x − rate v).
#[derive(Debug)]
pub struct Sgd {
    /// The learning rate.
    pub rate: f64,
    momentum: f64,
    /// The velocity.
    memory: Memory,
}

impl Sgd {
    /// Makes an optimizer without momentum.
    #[must_use]
    pub fn new(rate: f64) -> Self {
        Self {
            rate,
            momentum: 0.0,
            memory: Memory::default(),
        }
    }

    /// Sets the momentum coefficient, typically 0.9.
    #[must_use]
    pub fn momentum(self, momentum: f64) -> Self {
        Self { momentum, ..self }
    }
}

optimizer!(Sgd);

impl Rule for Sgd {
    const NAME: &'static str = "Sgd";

    fn count(&self) -> usize {
        usize::from(self.momentum != 0.0)
    }

    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn apply<T: Float>(
        &mut self,
        subject: Subject<'_>,
        own: &mut Array<T>,
        gradient: &Array<T>,
    ) -> Result<()> {
        let [rate, momentum] = [self.rate, self.momentum].map(T::from_f64);
        if self.momentum == 0.0 {
            return own.update(|own| own - gradient * rate);
        }
        let velocity = self.memory.states[0].writable(subject, own)?;
        update((own, velocity), |(own, velocity)| {
            let velocity = velocity * momentum + gradient;
            (own - &velocity * rate, velocity)
        })
    }
}
