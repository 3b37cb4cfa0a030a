//! Scaling of the loss, for gradients in `f16`.

use super::rounded::is_narrow;
use super::state::{Stateful, forward_states, steps_of};
use crate::array::{Array, Float};
use crate::context::scope::enter_uncached;
use crate::error::{Error, ErrorKind, Result};
use crate::grad::Optimizer;
use crate::ops::{scaled, scaled_wide};

/// The scale of the first step, and the number of finite steps until the scale doubles, as in
/// PyTorch.
const FIRST_SCALE: f64 = 65_536.0;
const INTERVAL: u64 = 2000;
/// The minimum scale. If gradients are not finite with this scale, the cause is not the range of
/// `f16`.
const LEAST_SCALE: f64 = 1.0 / 65_536.0;

/// The maximum scale, 2¹²⁷.
const GREATEST_SCALE: f64 = f64::from_bits((1023 + 127) << 52);
/// The minimum scale that a program may set, 2⁻¹²⁶. Below this number, `f32` has fewer digits.
const LEAST_SET: f64 = f32::MIN_POSITIVE as f64;

/// An optimizer for gradients that are computed in `f16`, like PyTorch's `GradScaler`. The smallest
/// positive number of `f16` is 6 · 10⁻⁸. The gradients are computed for the loss times a scale, and
/// divided by the scale before the update (Micikevicius et al. 2018, ["Mixed Precision
/// Training"](https://arxiv.org/abs/1710.03740)).
///
/// [`value_and_step`](crate::grad::value_and_step) and `collective::DataParallel::value_and_step`
/// multiply the loss by the scale. Other functions, such as
/// [`value_and_grad`](crate::grad::value_and_grad), [`Accumulated`](super::Accumulated) and
/// `collective::DataParallel::accumulate`, do not. For these functions, multiply the loss by
/// [`scale`](Self::scale).
///
/// If an element of a gradient is infinite or NaN, the step is skipped. No parameter then changes,
/// and the scale is halved. After 2000 finite steps, the scale is doubled, up to 2¹²⁷. All scales
/// are powers of two times the first scale. With the default of 65536, scaling rounds nothing.
///
/// The host reads the norm of the gradients in each step, so a step cannot be captured in a graph.
/// All gradients are in memory at once. Gradients in `bf16`, which has the range of `f32`, need no
/// scale.
///
/// # Examples
///
/// ```
/// use cachescope::grad::optim::{AdamW, Clipped, LossScaled};
/// use cachescope::grad::{CastParameters, nn::Linear, value_and_step};
/// use cachescope::half::f16;
/// use cachescope::{Array, manual_seed};
///
/// manual_seed(1);
/// let x = Array::<f32>::randn([16, 4])?.cast::<f16>().eval()?;
/// let mut layer = Linear::<f32>::new(4, 1)?;
/// let mut optimizer = LossScaled::new(Clipped::new(AdamW::new(0.01)).norm(1.0));
/// for _ in 0..10 {
///     let loss = value_and_step(&mut layer, &mut optimizer, |own| {
///         let y = own.cast::<f16>()?.forward(&x)?;
///         y.cast::<f32>().square().mean() // a loss in f32
///     })?;
///     assert!(loss.item()? < 2.0); // the loss without the scale
/// }
/// // The first gradients were infinite in f16.
/// assert_eq!((optimizer.scale(), optimizer.skipped_steps()), (32768.0, 1));
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Debug)]
pub struct LossScaled<O> {
    /// The optimizer that updates the parameters.
    pub optimizer: O,
    scale: f64,
    /// The number of steps with finite gradients until the scale doubles.
    interval: u64,
    /// The number of steps with finite gradients since the last change of the scale.
    good_steps: u64,
    skipped_steps: u64,
    present: Present,
}

/// The state of the current step.
#[derive(Debug)]
enum Present {
    /// The state before [`LossScaled::decide`]. The norm of the scaled gradients, an array of rank
    /// 0, is `None` until [`Optimizer::set_norm`].
    Open(Option<Array<f64>>),
    /// A step that updates the parameters, with the scale of its gradients.
    Moves(f64),
    Skipped,
}

impl<O: Optimizer> LossScaled<O> {
    /// Wraps an optimizer, with a scale of 65536. If the wrapped optimizer also scales the loss,
    /// each step returns an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::optim::{LossScaled, Sgd};
    ///
    /// assert_eq!(LossScaled::new(Sgd::new(0.1)).scale(), 65536.0);
    /// ```
    #[must_use]
    pub fn new(optimizer: O) -> Self {
        Self {
            optimizer,
            scale: FIRST_SCALE,
            interval: INTERVAL,
            good_steps: 0,
            skipped_steps: 0,
            present: Present::Open(None),
        }
    }

    /// Sets the scale of the next step. A power of two causes no rounding.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::optim::{LossScaled, Sgd};
    ///
    /// assert_eq!(LossScaled::new(Sgd::new(0.1)).first_scale(1024.0)?.scale(), 1024.0);
    /// assert!(LossScaled::new(Sgd::new(0.1)).first_scale(0.0).is_err());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the scale is not a number from 2⁻¹²⁶ to
    /// 2¹²⁷.
    #[track_caller]
    pub fn first_scale(self, scale: f64) -> Result<Self> {
        check_scale("first_scale", scale)?;
        Ok(Self { scale, ..self })
    }

    /// Sets the number of steps with finite gradients after which the scale doubles (default:
    /// 2000).
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::{LossScaled, Sgd};
    /// use cachescope::grad::value_and_step;
    ///
    /// let mut x = Array::<f32>::ones([])?;
    /// let mut optimizer = LossScaled::new(Sgd::new(0.1)).interval(2)?;
    /// for _ in 0..4 {
    ///     value_and_step(&mut x, &mut optimizer, |x| (x * x).eval())?;
    /// }
    /// assert_eq!(optimizer.scale(), 4.0 * 65536.0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if `steps` is 0.
    #[track_caller]
    pub fn interval(self, steps: usize) -> Result<Self> {
        if steps == 0 {
            let text = "LossScaled::interval: the interval is 0 steps, expected at least 1";
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(Self {
            interval: steps as u64,
            ..self
        })
    }

    /// Returns the scale of the next step, for gradients that
    /// [`value_and_step`](crate::grad::value_and_step) does not compute.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::{Accumulated, LossScaled, Sgd};
    /// use cachescope::grad::Optimizer;
    ///
    /// let (mut x, parts) = (Array::<f32>::zeros([])?, [Array::full([], 1.0_f32)?, Array::full([], 3.0)?]);
    /// let mut optimizer = LossScaled::new(Sgd::new(0.5));
    /// let (mut gradients, scale) = (Accumulated::new(), optimizer.scale() as f32);
    /// for part in &parts {
    ///     gradients.add(&x, |x| Ok((x - part).square() * scale))?;
    /// }
    /// optimizer.step(&mut x, &gradients.take_mean()?)?;
    /// assert_eq!(x.item()?, 2.0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Returns the number of steps that were skipped, because gradients were not finite.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::{LossScaled, Sgd};
    /// use cachescope::grad::value_and_step;
    /// use cachescope::half::f16;
    ///
    /// let mut x = Array::<f32>::full([], 3.0)?;
    /// let mut optimizer = LossScaled::new(Sgd::new(0.1));
    /// value_and_step(&mut x, &mut optimizer, |x| {
    ///     let y = x.cast::<f16>().eval()?;
    ///     Ok((&y * &y).cast::<f32>()) // the gradient 6 · 65536 is infinite in f16
    /// })?;
    /// assert_eq!((optimizer.skipped_steps(), optimizer.scale(), x.item()?), (1, 32768.0, 3.0));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn skipped_steps(&self) -> u64 {
        self.skipped_steps
    }

    /// Returns the scale, and the number of finite steps since its last change, as arrays of rank
    /// 0. Save them in a [file](crate::grad::files) beside the [state](Stateful::state) of the
    /// optimizer.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::optim::{LossScaled, Sgd};
    ///
    /// let first = LossScaled::new(Sgd::new(0.1)).first_scale(256.0)?;
    /// let mut second = LossScaled::new(Sgd::new(0.1));
    /// second.set_scale_state(&first.scale_state()?)?;
    /// assert_eq!(second.scale(), 256.0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn scale_state(&self) -> Result<(Array<f64>, Array<f64>)> {
        let _outside = enter_uncached();
        let good_steps = Array::full([], self.good_steps as f64)?;
        Ok((Array::full([], self.scale)?, good_steps))
    }

    /// Restores the scale and the number of steps that [`scale_state`](Self::scale_state) returned.
    /// After an error, the optimizer is unchanged.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::{LossScaled, Sgd};
    ///
    /// let mut optimizer = LossScaled::new(Sgd::new(0.1));
    /// optimizer.set_scale_state(&(Array::full([], 512.0)?, Array::zeros([])?))?;
    /// assert_eq!(optimizer.scale(), 512.0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the scale is not from 2⁻¹²⁶ to 2¹²⁷, or
    /// if the number of steps is not whole.
    #[track_caller]
    pub fn set_scale_state(&mut self, (scale, steps): &(Array<f64>, Array<f64>)) -> Result<()> {
        const METHOD: &str = "set_scale_state";
        let scale = scale.item()?;
        check_scale(METHOD, scale)?;
        let steps = steps_of(steps);
        let steps = steps.map_err(|error| error.of("LossScaled::set_scale_state"))?;
        (self.scale, self.good_steps) = (scale, steps);
        Ok(())
    }

    /// Reads the norm of the gradients, and decides whether the parameters are updated. Changes the
    /// scale of the next step.
    #[track_caller]
    fn decide(&mut self, norm: &Array<f64>) -> Result<()> {
        self.check_scales()?;
        let scale = self.scale;
        if !norm.item()?.is_finite() {
            return self.skip();
        }
        self.good_steps += 1;
        if self.good_steps >= self.interval {
            (self.scale, self.good_steps) = ((scale * 2.0).min(GREATEST_SCALE), 0);
        }
        self.present = Present::Moves(scale);
        self.optimizer.begin();
        if self.optimizer.needs_norm() {
            // The optimizer may hold the norm after the scope has exited.
            let _outside = enter_uncached();
            self.optimizer
                .set_norm(&(norm * (1.0 / scale)).eval_unfused()?);
        }
        Ok(())
    }

    /// Returns an error if the wrapped optimizer also scales the loss.
    #[track_caller]
    fn check_scales(&self) -> Result<()> {
        if self.optimizer.loss_scale() == 1.0 {
            return Ok(());
        }
        let text =
            "LossScaled: the wrapped optimizer scales the loss, expected only one `LossScaled`";
        Err(Error::new(ErrorKind::InvalidArgument, text))
    }

    /// Returns the scale of the gradients of the current step. Returns `None` if the step is
    /// skipped.
    #[track_caller]
    fn scale_of_step(&mut self) -> Result<Option<f64>> {
        if let Present::Open(norm) = &mut self.present {
            let norm = norm.take().ok_or_else(without_norm)?;
            self.decide(&norm)?;
        }
        match self.present {
            Present::Moves(scale) => Ok(Some(scale)),
            _ => Ok(None),
        }
    }

    #[track_caller]
    fn skip(&mut self) -> Result<()> {
        if self.scale * 0.5 < LEAST_SCALE {
            return Err(never_finite(self.scale, self.skipped_steps));
        }
        self.scale *= 0.5;
        self.good_steps = 0;
        self.skipped_steps += 1;
        self.present = Present::Skipped;
        Ok(())
    }
}

#[track_caller]
fn check_scale(method: &str, scale: f64) -> Result<()> {
    if (LEAST_SET..=GREATEST_SCALE).contains(&scale) {
        return Ok(());
    }
    let text = format!(
        "LossScaled::{method}: the scale is {scale}, expected a positive, finite number, from 2^-126 to 2^127"
    );
    Err(Error::new(ErrorKind::InvalidArgument, text))
}

#[cold]
#[track_caller]
fn never_finite(scale: f64, skipped: u64) -> Error {
    let text = format!(
        "LossScaled: the gradients are not finite with a scale of {scale}, after {skipped} \
         skipped steps: the loss itself is infinite or NaN: find the line with \
         `grad::detect_anomaly`"
    );
    Error::new(ErrorKind::InvalidArgument, text)
}

#[cold]
#[track_caller]
fn without_norm() -> Error {
    let text = "LossScaled: the norm of the gradients was not set: forward needs_norm, set_norm \
                and loss_scale, and call step";
    Error::new(ErrorKind::InvalidArgument, text)
}

impl<O: Optimizer> Optimizer for LossScaled<O> {
    // The step of the wrapped optimizer begins when the gradients are known to be finite.
    fn begin(&mut self) {
        self.present = Present::Open(None);
    }

    fn abandon(&mut self) {
        if let Present::Moves(_) = self.present {
            self.optimizer.abandon();
        }
        self.present = Present::Open(None);
    }

    fn needs_norm(&self) -> bool {
        true
    }

    fn set_norm(&mut self, norm: &Array<f64>) {
        self.present = Present::Open(Some(norm.clone()));
    }

    fn loss_scale(&self) -> f64 {
        self.scale
    }

    #[track_caller]
    fn step_one<T: Float>(
        &mut self,
        number: usize,
        own: &mut Array<T>,
        gradient: &Array<T>,
    ) -> Result<()> {
        let Some(scale) = self.scale_of_step()? else {
            return Ok(());
        };
        if const { is_narrow::<T>() } {
            // The gradient may be too small for its own type.
            let gradient = scaled_wide(gradient, 1.0 / scale)?;
            return self.optimizer.step_wide(number, own, &gradient);
        }
        let gradient = scaled(gradient, 1.0 / scale)?;
        self.optimizer.step_one(number, own, &gradient)
    }

    #[track_caller]
    fn step_wide<T: Float>(
        &mut self,
        number: usize,
        own: &mut Array<T>,
        gradient: &Array<T::Computed>,
    ) -> Result<()> {
        let Some(scale) = self.scale_of_step()? else {
            return Ok(());
        };
        let gradient = scaled(gradient, 1.0 / scale)?;
        self.optimizer.step_wide(number, own, &gradient)
    }

    #[track_caller]
    fn check_settings(&self) -> Result<()> {
        self.check_scales()?;
        self.optimizer.check_settings()
    }
}

forward_states!(LossScaled);
