//! Adam, with and without weight decay.

use super::memory::{Memory, ParameterState};
use super::{Rule, Subject, optimizer};
use crate::array::{AnyElement, Array, DType, Float};
use crate::error::Result;
use crate::ops::update;

/// The decay rates of the means of gradients and of their squares, as in the paper.
const BETAS: [f64; 2] = [0.9, 0.999];

/// The term that keeps a divisor above 0, as in the paper.
const EPSILON: f64 = 1e-8;

/// Adam (Kingma and Ba 2015, algorithm 1), with the bias corrections.
#[derive(Debug)]
pub struct Adam {
    /// The learning rate.
    pub rate: f64,
    betas: [f64; 2],
    memory: Memory,
}

impl Adam {
    /// Makes an optimizer with the paper's defaults: β₁ = 0.9, β₂ = 0.999, ε = 10⁻⁸.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::Adam;
    ///
    /// let mut x = Array::<f64>::zeros(1)?;
    /// Adam::new(0.1).step(&mut x, &Array::full(1, 5.0)?)?;
    /// assert!((x.item()? + 0.1).abs() < 1e-6); // The first step is as long as the rate.
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn new(rate: f64) -> Self {
        Self {
            rate,
            betas: BETAS,
            memory: Memory::default(),
        }
    }

    /// Sets the decay rates of the means of gradients and of their squares.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::Adam;
    ///
    /// let mut x = Array::<f64>::zeros(1)?;
    /// let mut optimizer = Adam::new(0.1).betas(0.0, 0.0);
    /// optimizer.step(&mut x, &Array::full(1, 5.0)?)?;
    /// optimizer.step(&mut x, &Array::full(1, -1.0)?)?;
    /// assert!(x.item()?.abs() < 1e-6); // Without means, each step is as long as the rate.
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn betas(self, first: f64, second: f64) -> Self {
        Self {
            betas: [first, second],
            ..self
        }
    }

    /// Sets the learning rate: the old form of a write to the field `rate`.
    #[deprecated = "write `optimizer.rate = …`"]
    pub fn set_rate(&mut self, rate: f64) {
        self.rate = rate;
    }
}

optimizer!(Adam);

impl Rule for Adam {
    const NAME: &'static str = "Adam";

    fn count(&self) -> usize {
        2
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
        let step = Step {
            number: self.memory.steps,
            rate: self.rate,
            betas: self.betas,
            decay: 0.0,
        };
        let [means, squares, _] = &mut self.memory.states;
        step.apply([means, squares], subject, (own, gradient))
    }
}

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019): each step shrinks the parameters
/// by learning rate times decay.
#[derive(Debug)]
pub struct AdamW {
    /// The learning rate.
    pub rate: f64,
    betas: [f64; 2],
    decay: f64,
    memory: Memory,
}

impl AdamW {
    /// Makes an optimizer with PyTorch's defaults: β₁ = 0.9, β₂ = 0.999, ε = 10⁻⁸ and a decay of
    /// 0.01.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::AdamW;
    ///
    /// let mut x = Array::<f64>::ones(1)?;
    /// AdamW::new(0.1).step(&mut x, &Array::zeros(1)?)?;
    /// assert!((x.item()? - 0.999).abs() < 1e-9); // Without a gradient, only the decay moves it.
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn new(rate: f64) -> Self {
        Self {
            rate,
            betas: BETAS,
            decay: 0.01,
            memory: Memory::default(),
        }
    }

    /// Sets the decay rates of the means of gradients and of their squares.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::AdamW;
    ///
    /// let mut x = Array::<f64>::zeros(1)?;
    /// let mut optimizer = AdamW::new(0.1).weight_decay(0.0).betas(0.0, 0.0);
    /// optimizer.step(&mut x, &Array::full(1, 5.0)?)?;
    /// optimizer.step(&mut x, &Array::full(1, -1.0)?)?;
    /// assert!(x.item()?.abs() < 1e-6); // Without means, each step is as long as the rate.
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
    /// use cachescope::grad::optim::AdamW;
    ///
    /// let mut x = Array::<f64>::ones(1)?;
    /// AdamW::new(0.1).weight_decay(0.5).step(&mut x, &Array::zeros(1)?)?;
    /// assert!((x.item()? - 0.95).abs() < 1e-9);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn weight_decay(self, decay: f64) -> Self {
        Self { decay, ..self }
    }

    /// Returns step `number` with these settings.
    pub(super) fn at(&self, number: u64) -> Step {
        Step {
            number,
            rate: self.rate,
            betas: self.betas,
            decay: self.decay,
        }
    }
}

optimizer!(AdamW);

impl Rule for AdamW {
    const NAME: &'static str = "AdamW";

    fn count(&self) -> usize {
        2
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
        let step = self.at(self.memory.steps);
        let [means, squares, _] = &mut self.memory.states;
        step.apply([means, squares], subject, (own, gradient))
    }
}

/// A step of Adam: its number, from 1 on, and the settings.
pub(super) struct Step {
    number: u64,
    rate: f64,
    betas: [f64; 2],
    decay: f64,
}

impl Step {
    /// Moves a parameter, with its mean of gradients and its mean of squares.
    #[track_caller]
    pub(super) fn apply<T: Float>(
        &self,
        [means, squares]: [&mut ParameterState; 2],
        subject: Subject<'_>,
        (own, gradient): (&mut Array<T>, &Array<T>),
    ) -> Result<()> {
        let mean = means.writable(subject, own)?;
        let square = squares.writable(subject, own)?;
        // Steps are counted beyond the exponents of `powi`.
        let number = self.number as f64;
        let corrections = self.betas.map(|beta| 1.0 - beta.powf(number));
        let of = |value: f64| <T as AnyElement>::from_f64(value);
        let [first, second] = self.betas;
        let kept = of(1.0 - self.rate * self.decay);
        let step = of(self.rate / corrections[0]);
        let scale = of(corrections[1].sqrt().recip());
        // In half precision 10⁻⁸ is 0, and 0 / 0 is no step.
        let epsilon = of(EPSILON.max(least_positive(T::DTYPE)));
        update((own, mean, square), |(own, mean, square)| {
            let mean = mean * of(first) + gradient * of(1.0 - first);
            let square = square * of(second) + gradient.square() * of(1.0 - second);
            let moved = &mean * step / (square.sqrt() * scale + epsilon);
            (own * kept - moved, mean, square)
        })
    }
}

/// Returns a positive number that does not round to 0 in that float type.
fn least_positive(dtype: DType) -> f64 {
    if dtype == DType::F16 { 6e-8 } else { 0.0 }
}
