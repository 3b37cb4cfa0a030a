//! Adam, with and without weight decay.

use super::memory::{Memory, ParameterState};
use super::settings::{check_betas, check_rate_and_decay};
use super::{Rule, Subject, optimizer};
use crate::array::{AnyElement, Array, Float};
use crate::error::Result;
use crate::ops::update;

/// The decay rates of the means of gradients and of their squares, as in the paper.
const BETAS: [f64; 2] = [0.9, 0.999];

/// The term ε that keeps the divisor of a step above 0, as in the paper.
const EPSILON: f64 = 1e-8;

/// Adam (Kingma and Ba 2015, algorithm 1), with the bias corrections.
#[derive(Debug)]
pub struct Adam {
    /// The learning rate.
    pub rate: f64,
    betas: [f64; 2],
    decay: f64,
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
            decay: 0.0,
            memory: Memory::default(),
        }
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
}

/// Implements an optimizer with Adam's rule, whose steps can be captured.
macro_rules! adam {
    ($Own:ident) => {
        impl $Own {
            /// Sets the decay rates of the means of gradients and of their squares.
            ///
            /// # Examples
            ///
            /// ```
            /// use cachescope::Array;
            #[doc = concat!("use cachescope::grad::optim::", stringify!($Own), ";")]
            ///
            /// let mut x = Array::<f64>::zeros(1)?;
            #[doc = concat!("let mut optimizer = ", stringify!($Own), "::new(0.001).betas(0.0, 0.0);")]
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

            /// Returns step `number` with the optimizer's settings.
            pub(super) fn at(&self, number: u64) -> Step {
                Step {
                    number,
                    rate: self.rate,
                    betas: self.betas,
                    decay: self.decay,
                }
            }

            /// Counts steps, and reads the learning rate, on the device of the parameters. Then a
            /// whole training step can be [captured](crate::graph::capture). Each launch of the
            /// graph is a step.
            ///
            /// Take a step before the capture. The next step outside of a graph writes a new `rate`
            /// to the device, and so does [`write_rate`](Self::write_rate). All parameters must be
            /// on one device. The method has the name of PyTorch's option.
            ///
            /// # Examples
            ///
            /// ```
            /// use cachescope::Array;
            #[doc = concat!("use cachescope::grad::optim::", stringify!($Own), ";")]
            ///
            /// let mut x = Array::<f64>::zeros(1)?;
            #[doc = concat!("let mut optimizer = ", stringify!($Own), "::new(0.1).capturable();")]
            /// optimizer.step(&mut x, &Array::full(1, 5.0)?)?;
            /// assert!((x.item()? + 0.1).abs() < 1e-6);
            /// # Ok::<(), cachescope::Error>(())
            /// ```
            #[must_use]
            pub fn capturable(mut self) -> Self {
                self.memory.clock.is_capturable = true;
                self
            }

            /// Writes the field `rate` to the device of the parameters. If a state was restored,
            /// also writes its number of steps. The next launch of a captured step reads the
            /// written values. Does nothing before the first step, or if the optimizer is not
            /// [`capturable`](Self::capturable).
            ///
            /// # Examples
            ///
            /// ```
            /// use cachescope::Array;
            #[doc = concat!("use cachescope::grad::optim::", stringify!($Own), ";")]
            ///
            /// let mut x = Array::<f64>::zeros(1)?;
            #[doc = concat!("let mut optimizer = ", stringify!($Own), "::new(0.1).capturable();")]
            /// optimizer.step(&mut x, &Array::ones(1)?)?;
            /// optimizer.rate = 0.01;
            /// optimizer.write_rate()?; // The next launch takes a tenth of the step.
            /// # Ok::<(), cachescope::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a setting outside of its
            /// domain, and the errors of [`Array::fill`].
            #[track_caller]
            pub fn write_rate(&mut self) -> Result<()> {
                Rule::check(self)?;
                self.memory.clock.write(self.rate)
            }
        }

        optimizer!($Own);

        impl Rule for $Own {
            const NAME: &'static str = stringify!($Own);

            fn count(&self) -> usize {
                2
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
                let step = self.at(self.memory.steps);
                step.apply_in(&mut self.memory, subject, (own, gradient))
            }
        }
    };
}

adam!(Adam);
adam!(AdamW);

/// Updates a parameter, its mean of gradients and its mean of squares. The factors are numbers, or
/// arrays on the device. The rate is the last factor, because its products with other factors may
/// be beyond the range of the type.
macro_rules! moved {
    ($self:ident, [$own:ident, $mean:ident, $square:ident], $gradient:ident, [$kept:ident, $rate:ident, $scale:ident, $epsilon:ident]) => {{
        let [first, of_gradient, second, of_square] = $self.constants::<T::Computed>();
        update(($own, $mean, $square), |(own, mean, square)| {
            let gradient = $gradient.cast::<T::Computed>();
            let mean = mean * first + &gradient * of_gradient;
            let square = square * second + gradient.square() * of_square;
            let moved = &mean / (square.sqrt() * $scale + $epsilon) * $rate;
            let own = own.cast::<T::Computed>() * $kept - moved;
            (own.cast::<T>(), mean, square)
        })
    }};
}

/// A step of Adam: its number, from 1 on, and the settings.
pub(super) struct Step {
    number: u64,
    rate: f64,
    betas: [f64; 2],
    decay: f64,
}

impl Step {
    /// Updates a parameter, with the states and the clock in `memory`.
    #[track_caller]
    fn apply_in<T: Float, G: Float>(
        &self,
        memory: &mut Memory,
        subject: Subject<'_>,
        (own, gradient): (&mut Array<T>, &Array<G>),
    ) -> Result<()> {
        let [means, squares, _] = &mut memory.states;
        if !memory.clock.is_capturable {
            return self.apply([means, squares], subject, (own, gradient));
        }
        let settings = (self.rate, self.betas, self.decay, EPSILON);
        let steps = self.number.saturating_sub(1);
        let factors = memory.clock.factors(own.device(), steps, settings)?;
        let mean = means.writable(subject, own)?;
        let square = squares.writable(subject, own)?;
        let kept = factors.kept.cast::<T::Computed>();
        let rate = factors.rate.cast::<T::Computed>();
        let scale = factors.scale.cast::<T::Computed>();
        let epsilon = factors.epsilon.cast::<T::Computed>();
        moved!(
            self,
            [own, mean, square],
            gradient,
            [kept, rate, scale, epsilon]
        )
    }

    /// Returns each decay rate, and 1 minus the rate.
    fn constants<C: Float>(&self) -> [C; 4] {
        let [first, second] = self.betas;
        [first, 1.0 - first, second, 1.0 - second].map(<C as AnyElement>::from_f64)
    }

    /// Updates a parameter, with its mean of gradients and its mean of squares.
    #[track_caller]
    pub(super) fn apply<T: Float, G: Float>(
        &self,
        [means, squares]: [&mut ParameterState; 2],
        subject: Subject<'_>,
        (own, gradient): (&mut Array<T>, &Array<G>),
    ) -> Result<()> {
        let mean = means.writable(subject, own)?;
        let square = squares.writable(subject, own)?;
        // The number of steps may exceed `i32`, the type of `powi`'s exponent.
        let number = self.number as f64;
        let corrections = self.betas.map(|beta| 1.0 - beta.powf(number));
        let of = |value: f64| <T::Computed as AnyElement>::from_f64(value);
        let kept = of(1.0 - self.rate * self.decay);
        let rate = of(self.rate);
        let scale = of(corrections[0] / corrections[1].sqrt());
        let epsilon = of(corrections[0] * EPSILON);
        moved!(
            self,
            [own, mean, square],
            gradient,
            [kept, rate, scale, epsilon]
        )
    }
}
