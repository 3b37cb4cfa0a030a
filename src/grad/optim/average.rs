//! Averages of parameters over steps.

use std::panic::Location;

use super::memory::unshare;
use crate::array::{AnyElement, Array, Float};
use crate::context::scope::enter_uncached;
use crate::error::{AtCaller, CallSiteOverride, Error, ErrorKind, Result};
use crate::grad::place::follow_place;
use crate::grad::{MapArrays, ParameterPath, Parameters, ZipArrays};

/// An exponential moving average of parameters (Polyak and Juditsky 1992), which often generalizes
/// better than the final parameters.
///
/// Like the states of an optimizer, it is allocated outside of every cache.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::optim::Average;
///
/// let mut weights = Array::<f32>::zeros(2)?;
/// let mut average = Average::new(&weights, 0.5)?;
/// weights.fill(1.0)?;
/// average.update(&weights)?;
/// assert_eq!(average.parameters().to_vec()?, [0.5, 0.5]);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Debug)]
pub struct Average<P> {
    decay: f64,
    average: P,
}

impl<P: Parameters> Average<P> {
    /// Makes an average that starts as a copy of `parameters`. A step multiplies it by `decay`,
    /// typically 0.999, and adds the rest from the new parameters.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::Average;
    ///
    /// let mut weights = Array::<f32>::ones(2)?;
    /// let average = Average::new(&weights, 0.999)?;
    /// weights.fill(3.0)?;
    /// assert_eq!(average.parameters().to_vec()?, [1.0, 1.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Array::assign`].
    #[track_caller]
    pub fn new(parameters: &P, decay: f64) -> Result<Self> {
        let _call_site = CallSiteOverride::at(Location::caller());
        let _outside = enter_uncached();
        let average = parameters.map_arrays(&mut CopyArrays);
        let average = average.map_err(|error| error.of("Average::new"));
        Ok(Self {
            decay,
            average: average.at_caller()?,
        })
    }

    /// Updates the average with the parameters after a step.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::Average;
    ///
    /// let mut average = Average::new(&Array::<f32>::zeros(2)?, 0.75)?;
    /// average.update(&Array::full(2, 4.0)?)?;
    /// assert_eq!(average.parameters().to_vec()?, [1.0, 1.0]);
    /// assert!(average.update(&Array::zeros(3)?).is_err());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if a parameter has another shape than its
    /// average, naming it; the average is unchanged then. The errors of [`Array::assign`].
    #[track_caller]
    pub fn update(&mut self, parameters: &P) -> Result<()> {
        let _call_site = CallSiteOverride::at(Location::caller());
        let share = 1.0 - self.decay;
        let checked = self
            .average
            .zip_arrays(parameters, &mut CheckShapes::default());
        let updated =
            checked.and_then(|()| self.average.zip_arrays(parameters, &mut MixArrays(share)));
        updated
            .map_err(|error| error.of("Average::update"))
            .at_caller()
    }

    /// Returns the average.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::optim::Average;
    ///
    /// let average = Average::new(&vec![Array::<f32>::eye(2)?], 0.9)?;
    /// assert_eq!(average.parameters()[0], Array::eye(2)?);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn parameters(&self) -> &P {
        &self.average
    }
}

pub(crate) struct CopyArrays;

impl MapArrays for CopyArrays {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        array.lazy().eval()
    }
}

/// Returns an error for parameters of other shapes.
#[derive(Default)]
struct CheckShapes {
    place: ParameterPath,
}

impl ZipArrays for CheckShapes {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, other: &Array<T>) -> Result<()> {
        let (own, other) = (own.shape(), other.shape());
        if own == other {
            return Ok(());
        }
        let name = self.place.name();
        let text = format!("parameter `{name}` has shape {other:?}, its average has shape {own:?}");
        Err(Error::new(ErrorKind::InvalidArgument, text))
    }

    follow_place!();
}

/// Moves an average towards the parameters by a share.
struct MixArrays(f64);

impl ZipArrays for MixArrays {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, other: &Array<T>) -> Result<()> {
        let share = <T as AnyElement>::from_f64(self.0);
        unshare(own)?;
        own.update(|own| own + (other - own) * share)
    }
}
