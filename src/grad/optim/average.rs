//! Averages of parameters over steps.

use std::panic::Location;

use super::wide::{MoveAverage, WideArrays};
use crate::array::{Array, Float};
use crate::context::scope::enter_uncached;
use crate::error::{AtCaller, CallSiteOverride, Error, ErrorKind, Result};
use crate::grad::place::follow_place;
use crate::grad::{MapArrays, ParameterPath, Parameters, ZipArrays};

/// An exponential moving average of parameters (Polyak and Juditsky 1992). The average often
/// generalizes better than the final parameters.
///
/// Like the states of an optimizer, the average is allocated outside of every cache. The average of
/// parameters in `f16` and `bf16` is stored in `f32`. In `f16` and `bf16`, most updates would be
/// lost, because they are smaller than the spacing of the type. For these types,
/// [`parameters`](Self::parameters) returns a rounded copy.
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
    wide: WideArrays,
}

impl<P: Parameters> Average<P> {
    /// Makes an average that starts as a copy of `parameters`. An update multiplies the average by
    /// `decay`, and adds 1 − `decay` times the new parameters. `decay` is from 0 to 1, typically
    /// 0.999.
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
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the decay is not from 0 to 1; the errors
    /// of [`Array::assign`].
    #[track_caller]
    pub fn new(parameters: &P, decay: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&decay) {
            let text = format!("Average::new: the decay is {decay}, expected 0 to 1");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let _call_site = CallSiteOverride::at(Location::caller());
        let _outside = enter_uncached();
        let mut wide = WideArrays::default();
        let average = parameters.map_arrays(&mut CopyAverage(&mut wide));
        let average = average.map_err(|error| error.of("Average::new"));
        Ok(Self {
            decay,
            average: average.at_caller()?,
            wide,
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
    /// [`InvalidArgument`](ErrorKind::InvalidArgument), naming the parameter, if a parameter has
    /// another shape than its average. After this error, the average is unchanged. The errors of
    /// [`Array::assign`].
    #[track_caller]
    pub fn update(&mut self, parameters: &P) -> Result<()> {
        let _call_site = CallSiteOverride::at(Location::caller());
        let mut moving = MoveAverage {
            wide: &mut self.wide,
            number: 0,
            share: 1.0 - self.decay,
        };
        let checked = self
            .average
            .zip_arrays(parameters, &mut CheckShapes::default());
        let updated = checked.and_then(|()| self.average.zip_arrays(parameters, &mut moving));
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

/// Traversal that copies arrays, and also copies narrow arrays to accumulators.
struct CopyAverage<'a>(&'a mut WideArrays);

impl MapArrays for CopyAverage<'_> {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        self.0.push(array)?;
        array.lazy().eval_unfused()
    }
}

/// Traversal that returns an error if the shapes of a parameter and its average differ.
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
