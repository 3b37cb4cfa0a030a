//! Arrays of values in equal steps.

use super::{Array, Float, Numeric, Writer};
use crate::error::{Error, ErrorKind, Result};

impl<T: Numeric> Array<T> {
    /// Returns the values `start`, `start + step`, … before `stop`. Each value is before `stop`,
    /// even after rounding. If `start` is before `stop`, the first value is `start`, even if the
    /// step is infinite.
    ///
    /// Each value is computed from its index, so that rounding errors do not accumulate. Floats are
    /// computed in `f64` and rounded once. An `f32`, `f16` or `bf16` argument means the shortest
    /// decimal that rounds to it. So a step of 0.1 is a tenth in every type. NumPy's `arange` may
    /// return one more value, at or beyond `stop`, such as for `(1.0, 1.3, 0.1)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// assert_eq!(Array::arange(0, 10, 3)?.to_vec()?, [0, 3, 6, 9]);
    /// assert_eq!(Array::arange(1.0, 0.0, -0.25)?.to_vec()?, [1.0, 0.75, 0.5, 0.25]);
    /// assert_eq!(Array::arange(0.0_f32, 0.3, 0.1)?.to_vec()?, [0.0, 0.1, 0.2]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`zeros`](Self::zeros), and [`InvalidArgument`](ErrorKind::InvalidArgument) if the
    /// step is zero or NaN, or `start` or `stop` is infinite or NaN.
    #[track_caller]
    pub fn arange(start: T, stop: T, step: T) -> Result<Self> {
        let Some((steps, count)) = T::steps(start, stop, step) else {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "arange: the step {step} does not lead from {start} to {stop}, expected finite ends and a step that is not 0"
                ),
            ));
        };
        let shape = count.into();
        let mut writer = Writer::on_current(&shape)?;
        writer.compute_chunks(|first, chunk| {
            for (index, value) in chunk.iter_mut().enumerate() {
                *value = T::nth(&steps, first + index);
            }
        })?;
        writer.finish()
    }
}

impl<T: Float> Array<T> {
    /// Returns `count` values in equal steps from `start` to `stop`, both included. If `count` is
    /// 1, returns only `start`. All values are between `start` and `stop`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::linspace(0.0f32, 1.0, 5)?;
    /// assert_eq!(array.to_vec()?, [0.0, 0.25, 0.5, 0.75, 1.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`zeros`](Self::zeros), and [`InvalidArgument`](ErrorKind::InvalidArgument) if
    /// `start` or `stop` is infinite or NaN.
    #[track_caller]
    pub fn linspace(start: T, stop: T, count: usize) -> Result<Self> {
        for (name, end) in [("start", start), ("stop", stop)] {
            if !end.to_f64().is_finite() {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    format!("linspace: {name} is {end}, expected a finite number"),
                ));
            }
        }
        let last = count.saturating_sub(1);
        let (from, to) = (start.to_f64(), stop.to_f64());
        // If `to - from` overflows, the step is computed from half of each bound.
        let unit = if (to - from).is_finite() { 1.0 } else { 2.0 };
        let (begin, step) = (from / unit, (to / unit - from / unit) / last as f64);
        let (low, high) = (from.min(to), from.max(to));
        let shape = count.into();
        let mut writer = Writer::on_current(&shape)?;
        writer.compute_chunks(|first, chunk| {
            for (index, value) in chunk.iter_mut().enumerate() {
                *value = match first + index {
                    0 => start,
                    // The last value is not computed, so that rounding does not change it.
                    end if end == last => stop,
                    inner => {
                        let value = (begin + inner as f64 * step) * unit;
                        T::from_f64(value.clamp(low, high))
                    }
                };
            }
        })?;
        writer.finish()
    }
}
