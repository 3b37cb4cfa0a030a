//! Clipping of gradients.

use std::panic::Location;

use super::rounded::is_narrow;
use super::state::{Stateful, forward_states};
use crate::array::{AnyArray, Array, DType, Float};
use crate::context::Device;
use crate::context::scope::enter_uncached;
use crate::error::{AtCaller, CallSiteOverride, Error, ErrorKind, Result};
use crate::grad::arithmetic::{Scaled, global_norm};
use crate::grad::{Optimizer, Parameters};
use crate::ops::{AnyLazy, widened};

/// Scales gradients so that their global norm is at most `max_norm`. Returns the gradients and
/// their norm before the scaling. An infinite `max_norm` scales nothing.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::optim::clip_norm;
///
/// let gradients = vec![Array::full([], 3.0_f64)?, Array::full([], 4.0)?];
/// let (clipped, norm) = clip_norm(gradients, 1.0)?;
/// assert_eq!(norm, 5.0);
/// assert!((clipped[0].item()? - 0.6).abs() < 1e-12);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if `max_norm` is negative or NaN; the errors of
/// [`Array::sum`].
#[track_caller]
pub fn clip_norm<P: Parameters>(gradients: P, max_norm: f64) -> Result<(P, f64)> {
    check_bound("clip_norm", max_norm)?;
    let _call_site = CallSiteOverride::at(Location::caller());
    clipped(gradients, max_norm)
        .map_err(|error| error.of("clip_norm"))
        .at_caller()
}

fn clipped<P: Parameters>(gradients: P, max_norm: f64) -> Result<(P, f64)> {
    let global = global_norm(&gradients)?;
    let norm = global.item()?;
    // A dry run counts the memory of clipping, which any step may need.
    if norm <= max_norm && !global.is_unknown() {
        return Ok((gradients, norm));
    }
    let clipped = gradients.map_arrays(&mut Scaled(max_norm / norm))?;
    Ok((clipped, norm))
}

/// Returns an error for a bound that is negative or NaN.
#[track_caller]
fn check_bound(setting: &str, most: f64) -> Result<()> {
    if most >= 0.0 {
        return Ok(());
    }
    let text = format!("{setting}: the bound is {most}, expected a number of at least 0");
    Err(Error::new(ErrorKind::InvalidArgument, text))
}

/// An optimizer that clips the gradients of each step, by their global norm, by value, or both. It
/// can be used in [`value_and_step`](crate::grad::value_and_step), and in `collective::Sharded`. In
/// `Sharded`, the norm is over all ranks.
///
/// The norm is computed on the device, and the host does not wait for it. If the norm has a bound,
/// no parameter changes before all gradients are complete. In this case, all gradients are in
/// memory at once.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::optim::{Clipped, Sgd};
/// use cachescope::grad::value_and_step;
///
/// let mut x = Array::from_slice(&[3.0_f64, 4.0], 2)?;
/// let mut optimizer = Clipped::new(Sgd::new(1.0)).norm(1.0);
/// value_and_step(&mut x, &mut optimizer, |x| Ok(x.square().sum()? * 0.5))?;
/// assert_eq!(optimizer.last_norm()?, Some(5.0));
/// assert!((x.to_vec()?[0] - 2.4).abs() < 1e-12); // a step of length 1
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Debug)]
pub struct Clipped<O> {
    /// The optimizer that updates the parameters.
    pub optimizer: O,
    max_norm: Option<f64>,
    max_value: Option<f64>,
    /// The norm of the last step, an array of rank 0.
    norm: Option<Array<f64>>,
    /// True if the norm is of the current step.
    has_norm: bool,
    /// The loss scale, which multiplies the gradients of the current step.
    scale: f64,
}

impl<O: Optimizer> Clipped<O> {
    /// Wraps an optimizer, without a bound.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::Optimizer;
    /// use cachescope::grad::optim::{Clipped, Sgd};
    ///
    /// let mut x = Array::<f32>::zeros(1)?;
    /// Clipped::new(Sgd::new(1.0)).step(&mut x, &Array::full(1, 8.0)?)?;
    /// assert_eq!(x.item()?, -8.0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn new(optimizer: O) -> Self {
        Self {
            optimizer,
            max_norm: None,
            max_value: None,
            norm: None,
            has_norm: false,
            scale: 1.0,
        }
    }

    /// Scales the gradients so that their global norm is at most `max_norm`. An infinite bound
    /// scales nothing, but lets [`last_norm`](Self::last_norm) read the norm. The first step
    /// returns an error for a bound that is negative or NaN.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::Optimizer;
    /// use cachescope::grad::optim::{Clipped, Sgd};
    ///
    /// let mut x = vec![Array::<f64>::zeros([])?, Array::zeros([])?];
    /// let gradients = vec![Array::full([], 3.0)?, Array::full([], 4.0)?];
    /// Clipped::new(Sgd::new(1.0)).norm(2.5).step(&mut x, &gradients)?;
    /// assert_eq!((x[0].item()?, x[1].item()?), (-1.5, -2.0));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn norm(self, max_norm: f64) -> Self {
        Self {
            max_norm: Some(max_norm),
            ..self
        }
    }

    /// Clips each element of the gradients to `-max_value..=max_value`, after the scaling by the
    /// norm. The first step returns an error for a bound that is negative or NaN.
    ///
    /// A wrapped optimizer that also clips by the norm receives the norm before this clipping by
    /// value.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::Optimizer;
    /// use cachescope::grad::optim::{Clipped, Sgd};
    ///
    /// let mut x = Array::<f32>::zeros(2)?;
    /// let gradient = Array::from_slice(&[8.0, -0.25], 2)?;
    /// Clipped::new(Sgd::new(1.0)).value(0.5).step(&mut x, &gradient)?;
    /// assert_eq!(x.to_vec()?, [-0.5, 0.25]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn value(self, max_value: f64) -> Self {
        Self {
            max_value: Some(max_value),
            ..self
        }
    }

    /// Reads the global norm of the gradients of the last step, before clipping. Returns `None` if
    /// the norm has no bound, and before the first step.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::Optimizer;
    /// use cachescope::grad::optim::{Clipped, Sgd};
    ///
    /// let mut optimizer = Clipped::new(Sgd::new(1.0)).norm(1.0);
    /// assert_eq!(optimizer.last_norm()?, None);
    /// optimizer.step(&mut Array::<f64>::zeros(1)?, &Array::full(1, 7.0)?)?;
    /// assert_eq!(optimizer.last_norm()?, Some(7.0));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Array::item`].
    #[track_caller]
    pub fn last_norm(&self) -> Result<Option<f64>> {
        let norm = self.norm.as_ref().map(Array::item).transpose();
        Ok(norm.at_caller()?.map(|norm| norm / self.scale))
    }

    /// Returns an error for bounds that are negative or NaN.
    #[track_caller]
    fn check(&self) -> Result<()> {
        check_bound("Clipped::norm", self.max_norm.unwrap_or(0.0))?;
        check_bound("Clipped::value", self.max_value.unwrap_or(0.0))
    }

    /// Returns true if a step changes gradients.
    fn clips(&self) -> bool {
        self.norm_bound().is_some() || self.max_value.is_some()
    }

    /// Returns a gradient, clipped by the norm and by value, in its accumulation type.
    #[track_caller]
    fn clipped(&self, gradient: &AnyArray) -> Result<AnyArray> {
        let mut clipped = widened(gradient);
        let dtype = clipped.dtype();
        if let Some(most) = self.norm_bound() {
            let factor = self.factor(most, gradient.device())?;
            let [first, second] = split(factor, dtype);
            clipped = clipped * first * second;
        }
        if let Some(most) = self.max_value.map(|most| most * self.scale) {
            let [least, most] = [-most, most].map(|bound| AnyLazy::number(dtype, bound));
            clipped = clipped.clamp(least, most);
        }
        clipped.eval()
    }

    /// Returns the bound of the norm, multiplied by the loss scale, if the bound is finite.
    fn norm_bound(&self) -> Option<f64> {
        let bound = self.max_norm.map(|most| most * self.scale);
        bound.filter(|most| most.is_finite())
    }

    /// Returns the factor, at most 1, that scales gradients to the norm `most`, on `device`.
    #[track_caller]
    fn factor(&self, most: f64, device: &Device) -> Result<AnyLazy> {
        let norm = self.norm.as_ref().filter(|_| self.has_norm);
        let norm = norm.ok_or_else(without_norm)?.to_device(device)?;
        // The maximum prevents a division by a norm of 0.
        let least = AnyLazy::number(DType::F64, most.max(f64::MIN_POSITIVE));
        Ok(most / norm.erased().lazy().maximum(least))
    }
}

/// Returns two numbers of `dtype` whose product is `factor`, which is at most 1. The second number
/// is 1, unless `factor` is below the normal numbers of `f32`. Below the normal numbers, a single
/// number would lose digits.
fn split(factor: AnyLazy, dtype: DType) -> [AnyLazy; 2] {
    let least = AnyLazy::number(DType::F64, f32::MIN_POSITIVE.into());
    let first = factor.clone().maximum(least);
    let second = factor / first.clone();
    [first.cast(dtype), second.cast(dtype)]
}

#[cold]
#[track_caller]
fn without_norm() -> Error {
    let text = "Clipped: the norm of the gradients was not set: forward needs_norm and set_norm, \
                and call step";
    Error::new(ErrorKind::InvalidArgument, text)
}

impl<O: Optimizer> Optimizer for Clipped<O> {
    fn begin(&mut self) {
        self.has_norm = false;
        self.scale = self.optimizer.loss_scale();
        self.optimizer.begin();
    }

    fn abandon(&mut self) {
        self.optimizer.abandon();
    }

    fn needs_norm(&self) -> bool {
        self.max_norm.is_some() || self.optimizer.needs_norm()
    }

    fn set_norm(&mut self, norm: &Array<f64>) {
        self.norm = Some(norm.clone());
        self.has_norm = true;
        if !self.optimizer.needs_norm() {
            return;
        }
        // A norm that is not finite becomes NaN.
        let clipped = self.norm_bound().map(|most| {
            let _outside = enter_uncached();
            (norm.minimum(most) + norm * 0.0).eval_unfused()
        });
        match clipped.transpose() {
            Ok(clipped) => self.optimizer.set_norm(clipped.as_ref().unwrap_or(norm)),
            Err(_) => self.has_norm = false, // The step then returns an error.
        }
    }

    fn loss_scale(&self) -> f64 {
        self.optimizer.loss_scale()
    }

    #[track_caller]
    fn step_one<T: Float>(
        &mut self,
        number: usize,
        own: &mut Array<T>,
        gradient: &Array<T>,
    ) -> Result<()> {
        self.check()?;
        if !self.clips() {
            return self.optimizer.step_one(number, own, gradient);
        }
        let clipped = self.clipped(gradient.erased())?;
        if const { is_narrow::<T>() } {
            // The gradient may be too small for its own type.
            let clipped = Array::from_erased(clipped);
            return self.optimizer.step_wide(number, own, &clipped);
        }
        let clipped = Array::from_erased(clipped);
        self.optimizer.step_one(number, own, &clipped)
    }

    #[track_caller]
    fn step_wide<T: Float>(
        &mut self,
        number: usize,
        own: &mut Array<T>,
        gradient: &Array<T::Computed>,
    ) -> Result<()> {
        self.check()?;
        if !self.clips() {
            return self.optimizer.step_wide(number, own, gradient);
        }
        let clipped = self.clipped(gradient.erased()).map(Array::from_erased)?;
        self.optimizer.step_wide(number, own, &clipped)
    }

    #[track_caller]
    fn check_settings(&self) -> Result<()> {
        self.check()?;
        self.optimizer.check_settings()
    }
}

forward_states!(Clipped);
