//! The number of steps and the learning rate of an optimizer on the device, for captured steps.

use crate::array::Array;
use crate::context::Device;
use crate::context::scope::enter_uncached;
use crate::error::{Error, ErrorCode, Result};

/// The number of steps and the learning rate on the device of the parameters. A captured step
/// updates the number and reads the rate on the device. Therefore each launch is a separate step.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// True if steps can be captured.
    pub(super) is_capturable: bool,
    arrays: Option<ClockArrays>,
    /// True from the beginning of a step until the update of its first parameter.
    is_due: bool,
    /// True if the device counted a step that was abandoned.
    is_abandoned: bool,
    /// A number of steps that is not yet written to the device.
    set_steps: Option<u64>,
}

#[derive(Debug)]
struct ClockArrays {
    steps: Array<f64>,
    /// The rate that was written last.
    written_rate: f64,
    factors: Factors,
}

/// The factors of a step of Adam, arrays of rank 0.
#[derive(Debug)]
pub(super) struct Factors {
    /// The factor of a parameter: 1 minus the learning rate times the decay.
    pub(super) kept: Array<f64>,
    /// The learning rate.
    pub(super) rate: Array<f64>,
    /// The correction of the mean of gradients, over the root of the correction of the mean of
    /// squares.
    pub(super) scale: Array<f64>,
    /// ε times the correction of the mean of gradients.
    pub(super) epsilon: Array<f64>,
}

impl Clock {
    pub(super) fn begin(&mut self) {
        self.is_due = true;
    }

    /// Abandons a step, which the device may have counted.
    pub(super) fn abandon(&mut self) {
        self.is_abandoned |= !std::mem::take(&mut self.is_due);
    }

    /// Sets the number of steps that the next write copies to the device.
    pub(super) fn set_steps(&mut self, steps: u64) {
        self.set_steps = Some(steps);
    }

    /// Returns the number of steps on the device. Returns `None` before the first step, or if steps
    /// cannot be captured.
    #[track_caller]
    pub(super) fn read_steps(&self) -> Result<Option<u64>> {
        if !self.is_capturable {
            return Ok(None);
        }
        let Some(arrays) = self.arrays.as_ref().filter(|_| self.set_steps.is_none()) else {
            return Ok(self.set_steps);
        };
        let counted = arrays.steps.item()? as u64;
        Ok(Some(counted - u64::from(self.is_abandoned)))
    }

    /// Writes the rate to the device, if it differs from the written rate. Also writes the number
    /// of steps that [`set_steps`](Self::set_steps) set, if any.
    #[track_caller]
    pub(super) fn write(&mut self, rate: f64) -> Result<()> {
        let Some(arrays) = &mut self.arrays else {
            return Ok(());
        };
        if arrays.written_rate.to_bits() != rate.to_bits() {
            arrays.factors.rate.fill(rate)?;
            arrays.written_rate = rate;
        }
        if std::mem::take(&mut self.is_abandoned) {
            arrays.steps.update(|steps| steps - 1.0)?;
        }
        if let Some(steps) = self.set_steps.take() {
            arrays.steps.fill(steps as f64)?;
        }
        Ok(())
    }

    /// Returns the factors of the current step. The first call in a step counts the step. `steps`
    /// is the number of earlier steps.
    #[track_caller]
    pub(super) fn factors(
        &mut self,
        device: &Device,
        steps: u64,
        (rate, betas, decay, epsilon): (f64, [f64; 2], f64, f64),
    ) -> Result<&Factors> {
        if self.is_due && device.backend().is_capturing() {
            self.check_capture(rate)?;
        }
        if self.arrays.is_none() {
            let (_outside, _current) = (enter_uncached(), device.enter());
            let zero = || Array::<f64>::zeros([]);
            self.arrays = Some(ClockArrays {
                steps: Array::full([], steps as f64)?,
                written_rate: rate,
                factors: Factors {
                    kept: zero()?,
                    rate: Array::full([], rate)?,
                    scale: zero()?,
                    epsilon: zero()?,
                },
            });
            (self.set_steps, self.is_abandoned) = (None, false);
        }
        if self.is_due {
            self.write(rate)?;
        }
        let arrays = self
            .arrays
            .as_mut()
            .expect("`write` has created the arrays");
        if self.is_due {
            arrays.steps.update(|steps| steps + 1.0)?;
            self.is_due = false;
            arrays.compute_factors(betas, decay, epsilon)?;
        }
        Ok(&arrays.factors)
    }

    /// Checks that a captured step writes no settings to the device, because each launch would
    /// repeat the write.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the step would write settings.
    #[track_caller]
    fn check_capture(&self, rate: f64) -> Result<()> {
        let is_written = |arrays: &ClockArrays| arrays.written_rate.to_bits() == rate.to_bits();
        let is_pending = self.set_steps.is_some() || self.is_abandoned;
        if self.arrays.as_ref().is_some_and(is_written) && !is_pending {
            return Ok(());
        }
        let text = "the step cannot be captured, because the rate or the number of steps is not \
                    on the device: take a step before the capture, and call write_rate after a \
                    change";
        Err(Error::new(ErrorCode::Capture, text))
    }
}

impl ClockArrays {
    /// Computes the factors of the step that was counted last.
    #[track_caller]
    fn compute_factors(&mut self, betas: [f64; 2], decay: f64, epsilon: f64) -> Result<()> {
        let Self { steps, factors, .. } = self;
        // The correction is 1 − βⁿ. If β is 0, its logarithm is −∞, and βⁿ is 0.
        let [first, second] = betas.map(f64::ln);
        let correction = || -((&*steps * first).exp_m1());
        factors.kept.assign(1.0 - &factors.rate * decay)?;
        factors.epsilon.assign(correction() * epsilon)?;
        let root = (-((&*steps * second).exp_m1())).rsqrt();
        factors.scale.assign(correction() * root)
    }
}
