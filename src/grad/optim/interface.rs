//! The trait of optimizers.

use super::rounded::is_narrow;
use super::step_any;
use crate::array::{Array, Float};
use crate::error::Result;
use crate::grad::parameters::Parameters;

/// An optimizer, or other code that gets each parameter with its gradient. The receiver usually
/// updates the parameter. A program can also implement this trait to read gradients, or to send
/// them elsewhere. Such an implementation passes the gradients on to an optimizer that it contains.
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
///     // Adam counts its steps by this.
///     fn begin(&mut self) {
///         self.of.begin();
///     }
///
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
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::Optimizer;
    /// use cachescope::grad::optim::{Adam, Stateful};
    ///
    /// let mut optimizer = Adam::new(0.1);
    /// optimizer.begin();
    /// assert_eq!(optimizer.steps(), 1);
    /// ```
    fn begin(&mut self) {}

    /// Abandons a step after an error. Some parameters may have changed.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::Optimizer;
    /// use cachescope::grad::optim::{Adam, Stateful};
    ///
    /// let mut optimizer = Adam::new(0.1);
    /// optimizer.begin();
    /// optimizer.abandon();
    /// assert_eq!(optimizer.steps(), 0);
    /// ```
    fn abandon(&mut self) {}

    /// Returns true if the optimizer needs the global norm of the gradients before it updates the
    /// first parameter. All gradients of a pass are then in memory at once. An optimizer that wraps
    /// another optimizer must forward this method, [`set_norm`](Self::set_norm) and
    /// [`loss_scale`](Self::loss_scale) together.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::Optimizer;
    /// use cachescope::grad::optim::{Clipped, Sgd};
    ///
    /// assert!(!Sgd::new(0.1).needs_norm());
    /// assert!(Clipped::new(Sgd::new(0.1)).norm(1.0).needs_norm());
    /// ```
    fn needs_norm(&self) -> bool {
        false
    }

    /// Receives the global norm of the gradients, an array of rank 0, after [`begin`](Self::begin)
    /// and before the first parameter changes. If the optimizer does not [need](Self::needs_norm)
    /// the norm, this method is not called.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::Optimizer;
    /// use cachescope::grad::optim::{Clipped, Sgd};
    ///
    /// let mut optimizer = Clipped::new(Sgd::new(0.1)).norm(1.0);
    /// optimizer.set_norm(&Array::full([], 2.0)?);
    /// assert_eq!(optimizer.last_norm()?, Some(2.0));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    fn set_norm(&mut self, _norm: &Array<f64>) {}

    /// Returns the loss scale of the next step. [`value_and_step`](crate::grad::value_and_step)
    /// computes the gradients of the loss times this scale, and returns the loss without the scale.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::Optimizer;
    /// use cachescope::grad::optim::{LossScaled, Sgd};
    ///
    /// assert_eq!(Sgd::new(0.1).loss_scale(), 1.0);
    /// assert_eq!(LossScaled::new(Sgd::new(0.1)).loss_scale(), 65536.0);
    /// ```
    fn loss_scale(&self) -> f64 {
        1.0
    }

    /// Updates all parameters by the given gradients.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::Optimizer;
    /// use cachescope::grad::optim::{Clipped, Sgd};
    ///
    /// let mut x = Array::from_slice(&[1.0_f32, 2.0], 2)?;
    /// Clipped::new(Sgd::new(0.5)).step(&mut x, &Array::ones(2)?)?;
    /// assert_eq!(x.to_vec()?, [0.5, 1.5]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if a gradient has another shape than
    /// its parameter. The errors of [`check_settings`](Self::check_settings). After these errors,
    /// no parameter has changed. The errors of [`step_one`](Self::step_one), after which some
    /// parameters may have changed.
    #[track_caller]
    fn step<P: Parameters>(&mut self, parameters: &mut P, gradients: &P) -> Result<()>
    where
        Self: Sized,
    {
        step_any(self, parameters, gradients)
    }

    /// Updates parameter `number`, counted in the order of the structure.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::Optimizer;
    /// use cachescope::grad::optim::Sgd;
    ///
    /// let mut x = Array::from_slice(&[1.0_f32, 2.0], 2)?;
    /// let mut optimizer = Sgd::new(0.5);
    /// optimizer.begin();
    /// optimizer.step_one(0, &mut x, &Array::ones(2)?)?;
    /// assert_eq!(x.to_vec()?, [0.5, 1.5]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of the implementation.
    fn step_one<T: Float>(
        &mut self,
        number: usize,
        own: &mut Array<T>,
        gradient: &Array<T>,
    ) -> Result<()>;

    /// Updates a parameter like [`step_one`](Self::step_one), with a gradient in the parameter's
    /// [accumulation type](Float::Computed). This type can represent numbers that `T` cannot. An
    /// optimizer that scales gradients and wraps another optimizer passes the gradients on by this
    /// method. The default rounds the gradient to `T`. The optimizers of [this
    /// library](crate::grad::optim) do not round it.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::Optimizer;
    /// use cachescope::grad::optim::Sgd;
    /// use cachescope::half::f16;
    ///
    /// let mut x = Array::<f16>::zeros(1)?;
    /// let mut optimizer = Sgd::new(1e6);
    /// optimizer.begin();
    /// optimizer.step_wide(0, &mut x, &Array::<f32>::full(1, 1e-9)?)?;
    /// assert_eq!(x.item()?, f16::from_f32(-1e-3)); // 1e-9 is 0 in `f16`.
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`step_one`](Self::step_one).
    #[track_caller]
    fn step_wide<T: Float>(
        &mut self,
        number: usize,
        own: &mut Array<T>,
        gradient: &Array<T::Computed>,
    ) -> Result<()> {
        let gradient = match is_narrow::<T>() {
            true => gradient.cast::<T>().eval_unfused()?,
            false => gradient.clone().downcast(),
        };
        self.step_one(number, own, &gradient)
    }

    /// Checks the settings. Each step calls this method before it changes a parameter. An optimizer
    /// that wraps other optimizers must forward this method. The default returns no error.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::Optimizer;
    /// use cachescope::grad::optim::Adam;
    ///
    /// assert!(Adam::new(1e-3).check_settings().is_ok());
    /// assert!(Adam::new(1e-3).betas(0.9, 1.0).check_settings().is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a setting outside of its domain.
    /// The message names the setting. A learning rate is from 0 to 3.4e38, and a momentum
    /// coefficient from 0 to 1. A decay rate of a mean is from 0 to below 1. A weight decay is at
    /// least 0, and its product with the learning rate at most 1.
    #[track_caller]
    fn check_settings(&self) -> Result<()> {
        Ok(())
    }
}
