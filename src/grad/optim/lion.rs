//! Lion: steps of one length, in the direction of a momentum's sign.

use super::memory::Memory;
use super::settings::{check_betas, check_rate_and_decay};
use super::{Rule, Subject, optimizer};
use crate::array::{AnyElement, Array, Float};
use crate::error::Result;
use crate::ops::update;

/// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2), with
/// decoupled weight decay. Lion has one state, and [`AdamW`](super::AdamW) has two. The paper's
/// rate is 3 to 10 times smaller than AdamW's rate. The paper's decay is 3 to 10 times larger.
#[derive(Debug)]
pub struct Lion {
    /// The learning rate: the length of each element's step.
    pub rate: f64,
    betas: [f64; 2],
    decay: f64,
    memory: Memory,
}

impl Lion {
    /// Makes an optimizer with the paper's defaults: β₁ = 0.9, β₂ = 0.99, and no decay.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::Lion;
    ///
    /// let mut x = Array::<f64>::zeros(2)?;
    /// Lion::new(0.25).step(&mut x, &Array::from_slice(&[5.0, -0.1], 2)?)?;
    /// assert_eq!(x.to_vec()?, [-0.25, 0.25]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn new(rate: f64) -> Self {
        Self {
            rate,
            betas: [0.9, 0.99],
            decay: 0.0,
            memory: Memory::default(),
        }
    }

    /// Sets the decay rates of the momentum. `first` is for the direction of a step, `second` for
    /// the momentum that the next step reads.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::Lion;
    ///
    /// let mut x = Array::<f64>::zeros(1)?;
    /// let mut optimizer = Lion::new(1.0).betas(0.0, 0.0);
    /// optimizer.step(&mut x, &Array::full(1, 5.0)?)?;
    /// optimizer.step(&mut x, &Array::full(1, -0.1)?)?;
    /// assert_eq!(x.item()?, 0.0); // Without momentum, a step is the sign of its gradient.
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn betas(self, first: f64, second: f64) -> Self {
        Self {
            betas: [first, second],
            ..self
        }
    }

    /// Sets the weight decay: a step shrinks the parameters by learning rate times decay.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::Lion;
    ///
    /// let mut x = Array::<f64>::ones(1)?;
    /// Lion::new(0.5).weight_decay(0.5).step(&mut x, &Array::zeros(1)?)?;
    /// assert_eq!(x.item()?, 0.75);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn weight_decay(self, decay: f64) -> Self {
        Self { decay, ..self }
    }
}

optimizer!(Lion);

impl Rule for Lion {
    const NAME: &'static str = "Lion";

    fn count(&self) -> usize {
        1
    }

    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn check(&self) -> Result<()> {
        check_betas(Self::NAME, self.betas)?;
        check_rate_and_decay(Self::NAME, self.rate, self.decay)
    }

    fn apply<T: Float, G: Float>(
        &mut self,
        subject: Subject<'_>,
        own: &mut Array<T>,
        gradient: &Array<G>,
    ) -> Result<()> {
        let of = |value: f64| <T::Computed as AnyElement>::from_f64(value);
        let [first, second] = self.betas;
        let [first, of_gradient] = [first, 1.0 - first].map(of);
        let [second, of_next] = [second, 1.0 - second].map(of);
        let [kept, rate] = [1.0 - self.rate * self.decay, self.rate].map(of);
        let momentum = self.memory.states[0].writable(subject, own)?;
        update((own, momentum), |(own, momentum)| {
            let gradient = gradient.cast::<T::Computed>();
            let direction = (&momentum * first + &gradient * of_gradient).sign();
            let own = own.cast::<T::Computed>() * kept - direction * rate;
            (own.cast::<T>(), momentum * second + gradient * of_next)
        })
    }
}
