//! Gradient descent.

use super::memory::Memory;
use super::settings::{MOMENTUM, RATE, check};
use super::{Rule, Subject, optimizer};
use crate::array::{AnyElement, Array, Float};
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
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::Sgd;
    ///
    /// let mut x = Array::from_slice(&[1.0_f32, 2.0], 2)?;
    /// Sgd::new(0.5).step(&mut x, &Array::ones(2)?)?;
    /// assert_eq!(x.to_vec()?, [0.5, 1.5]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn new(rate: f64) -> Self {
        Self {
            rate,
            momentum: 0.0,
            memory: Memory::default(),
        }
    }

    /// Sets the momentum coefficient, from 0 to 1, typically 0.9.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::Sgd;
    ///
    /// let (mut x, gradient) = (Array::<f32>::zeros(1)?, Array::ones(1)?);
    /// let mut optimizer = Sgd::new(1.0).momentum(0.5);
    /// for _ in 0..2 {
    ///     optimizer.step(&mut x, &gradient)?;
    /// }
    /// assert_eq!(x.to_vec()?, [-2.5]); // A step of 1, and one of 1.5.
    /// # Ok::<(), cachescope::Error>(())
    /// ```
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

    fn check(&self) -> Result<()> {
        check(Self::NAME, "`rate`", self.rate, &RATE)?;
        check(Self::NAME, "`momentum`", self.momentum, &MOMENTUM)
    }

    fn apply<T: Float, G: Float>(
        &mut self,
        subject: Subject<'_>,
        own: &mut Array<T>,
        gradient: &Array<G>,
    ) -> Result<()> {
        let of = |value: f64| <T::Computed as AnyElement>::from_f64(value);
        let [rate, momentum] = [self.rate, self.momentum].map(of);
        let gradient = gradient.cast::<T::Computed>();
        if self.momentum == 0.0 {
            return own.update(|own| {
                let own = own.cast::<T::Computed>() - gradient * rate;
                own.cast::<T>()
            });
        }
        let velocity = self.memory.states[0].writable(subject, own)?;
        update((own, velocity), |(own, velocity)| {
            let velocity = velocity * momentum + gradient;
            let own = own.cast::<T::Computed>() - &velocity * rate;
            (own.cast::<T>(), velocity)
        })
    }
}
