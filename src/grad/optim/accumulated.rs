//! Sums of gradients over the parts of a batch.

use std::panic::Location;

use super::wide::{AddToSum, BeginSum, HandOut, WideArrays};
use crate::array::Array;
use crate::context::scope::enter_uncached;
use crate::error::{AtCaller, CallSiteOverride, Error, ErrorKind, Result};
use crate::grad::arithmetic::SameShapes;
use crate::grad::{Loss, Parameters, value_and_grad};

/// The sum of the gradients of several losses. If a whole batch needs too much memory, compute it
/// in parts, and add the gradients of the parts.
///
/// Like the states of an optimizer, the sum is allocated outside of every cache. Gradients in `f16`
/// and `bf16` are added in `f32`, and the result is rounded once. For ranks, use
/// `collective::DataParallel::accumulate`.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::optim::{Accumulated, Sgd};
///
/// let batch = Array::from_slice(&[1.0_f64, 2.0, 3.0, 6.0], 4)?;
/// let (mut x, mut optimizer) = (Array::<f64>::zeros([])?, Sgd::new(0.5));
/// let mut gradients = Accumulated::new();
/// for part in batch.split(2, 0)? {
///     gradients.add(&x, |x| (x - &part).square().mean())?;
/// }
/// optimizer.step(&mut x, &gradients.take_mean()?)?;
/// assert_eq!(x.item()?, 3.0); // the mean of the whole batch
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Debug)]
pub struct Accumulated<P> {
    /// The sum. For a narrow array, `sum` has only the shape, and the elements are in `wide`.
    sum: Option<P>,
    wide: WideArrays,
    parts: usize,
}

impl<P> Default for Accumulated<P> {
    fn default() -> Self {
        Self {
            sum: None,
            wide: WideArrays::default(),
            parts: 0,
        }
    }
}

impl<P: Parameters> Accumulated<P> {
    /// Makes an empty sum.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::Accumulated;
    ///
    /// assert!(Accumulated::<Array<f32>>::new().take_mean().is_err());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the gradients of `function` at `parameters`, and returns the value of `function`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::Accumulated;
    ///
    /// let mut gradients = Accumulated::new();
    /// let value = gradients.add(&Array::full([], 2.0_f32)?, |x| (x * x).eval())?;
    /// assert_eq!(value.item()?, 4.0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`value_and_grad`]. [`InvalidArgument`](ErrorKind::InvalidArgument) if the
    /// shape of a parameter differs from earlier calls. After this error, the sum is unchanged.
    #[track_caller]
    pub fn add<L: Loss>(
        &mut self,
        parameters: &P,
        function: impl FnOnce(&P) -> Result<L>,
    ) -> Result<Array<L::Item>> {
        let (value, gradients) = value_and_grad(parameters, function)?;
        let _call_site = CallSiteOverride::at(Location::caller());
        match &mut self.sum {
            Some(sum) => {
                let checked = sum.zip_arrays(&gradients, &mut SameShapes::of("Accumulated::add"));
                checked.at_caller()?;
                let wide = &mut self.wide;
                let mut adding = AddToSum { wide, number: 0 };
                sum.zip_arrays(&gradients, &mut adding).at_caller()?;
            }
            None => {
                let _outside = enter_uncached();
                let mut wide = WideArrays::default();
                let sum = gradients.map_arrays(&mut BeginSum(&mut wide)).at_caller()?;
                (self.sum, self.wide) = (Some(sum), wide);
            }
        }
        self.parts += 1;
        Ok(value)
    }

    /// Returns the mean of the gradients of all parts, and empties the sum.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::Accumulated;
    ///
    /// let x = Array::full([], 2.0_f32)?;
    /// let mut gradients = Accumulated::new();
    /// gradients.add(&x, |x| (x * 1.0).eval())?;
    /// gradients.add(&x, |x| (x * 3.0).eval())?;
    /// assert_eq!(gradients.take_mean()?.item()?, 2.0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if nothing was added, and
    /// [`OutOfMemory`](ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn take_mean(&mut self) -> Result<P> {
        self.take(1.0 / self.parts as f64)
    }

    /// Returns the sum of the gradients of all parts, as PyTorch accumulates it. Empties the sum.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::Accumulated;
    ///
    /// let x = Array::full([], 2.0_f32)?;
    /// let mut gradients = Accumulated::new();
    /// gradients.add(&x, |x| (x * 1.0).eval())?;
    /// gradients.add(&x, |x| (x * 3.0).eval())?;
    /// assert_eq!(gradients.take_sum()?.item()?, 4.0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if nothing was added, and
    /// [`OutOfMemory`](ErrorKind::OutOfMemory) for gradients in `f16` and `bf16`.
    #[track_caller]
    pub fn take_sum(&mut self) -> Result<P> {
        self.take(1.0)
    }

    /// Returns the sum times `share`, and empties the sum. If memory is exhausted, the sum is
    /// unchanged.
    #[track_caller]
    fn take(&mut self, share: f64) -> Result<P> {
        let _call_site = CallSiteOverride::at(Location::caller());
        let Some(sum) = &self.sum else {
            let text = "Accumulated: no gradients were added: call add first";
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        };
        let mut handing_out = HandOut {
            wide: &mut self.wide,
            number: 0,
            share,
        };
        let taken = sum.map_arrays(&mut handing_out).at_caller()?;
        *self = Self::default();
        Ok(taken)
    }
}
