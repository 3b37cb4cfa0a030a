//! Sums of gradients over the parts of a batch.

use std::panic::Location;

use super::average::CopyArrays;
use super::memory::unshare;
use crate::array::{Array, Float};
use crate::context::scope::enter_uncached;
use crate::error::{AtCaller, CallSiteOverride, Error, ErrorKind, Result};
use crate::grad::arithmetic::{Axpy, SameShapes, Scaled};
use crate::grad::{Loss, Parameters, ZipArrays, value_and_grad};

/// The sum of the gradients of several losses, for a batch that is computed in parts because the
/// whole one needs too much memory.
///
/// Like the states of an optimizer, it is allocated outside of every cache. For ranks, use
/// [`DataParallel::accumulate`](crate::collective::DataParallel::accumulate).
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
    sum: Option<P>,
    parts: usize,
}

impl<P> Default for Accumulated<P> {
    fn default() -> Self {
        Self {
            sum: None,
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

    /// Adds the gradients of `function` at `parameters`, and returns its value.
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
    /// The errors of [`value_and_grad`], and [`InvalidArgument`](ErrorKind::InvalidArgument) if a
    /// parameter has another shape than in earlier calls; the sum is unchanged then.
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
                sum.zip_arrays(&gradients, &mut AddInPlace).at_caller()?;
            }
            None => {
                let _outside = enter_uncached();
                self.sum = Some(gradients.map_arrays(&mut CopyArrays).at_caller()?);
            }
        }
        self.parts += 1;
        Ok(value)
    }

    /// Takes the mean of the gradients of all parts out. The next [`add`](Self::add) begins a new
    /// sum.
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
        let _call_site = CallSiteOverride::at(Location::caller());
        let share = 1.0 / self.parts as f64;
        let mean = self.sum.as_ref();
        let mean = mean.map(|sum| sum.map_arrays(&mut Scaled(share)).at_caller());
        let mean = mean.transpose()?;
        // The sum is kept if memory is exhausted.
        let sum = self.take_sum()?;
        Ok(mean.unwrap_or(sum))
    }

    /// Takes the sum of the gradients of all parts out, which PyTorch accumulates. The next
    /// [`add`](Self::add) begins a new sum.
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
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if nothing was added.
    #[track_caller]
    pub fn take_sum(&mut self) -> Result<P> {
        self.parts = 0;
        let Some(sum) = self.sum.take() else {
            let text = "Accumulated: no gradients were added: call add first";
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        };
        Ok(sum)
    }
}

/// Adds arrays, to memory outside of every cache.
struct AddInPlace;

impl ZipArrays for AddInPlace {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, other: &Array<T>) -> Result<()> {
        unshare(own)?;
        Axpy(1.0).zip(own, other)
    }
}
