//! Averages of parameters over steps.

use crate::array::{Array, Float};
use crate::error::Result;
use crate::grad::{MapArrays, Parameters, ZipArrays};

/// An exponential moving average of parameters (Polyak and Juditsky 1992), which often generalizes better than the last ones.
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
    /// One that begins at `parameters`, of which it has a copy; `decay` is how much it keeps in a step: 0.999 is usual.
    ///
    /// # Errors
    ///
    /// Those of [`Array::assign`].
    #[track_caller]
    pub fn new(parameters: &P, decay: f64) -> Result<Self> {
        Ok(Self {
            decay,
            average: parameters.map_arrays(&mut Copied)?,
        })
    }

    /// Takes the parameters after a step in.
    ///
    /// # Errors
    ///
    /// Those of [`Sgd::step`](super::Sgd::step).
    #[track_caller]
    pub fn update(&mut self, parameters: &P) -> Result<()> {
        let decay = self.decay;
        self.average.zip_arrays(parameters, &mut Mixed(decay))
    }

    /// The average.
    pub fn parameters(&self) -> &P {
        &self.average
    }
}

struct Copied;

impl MapArrays for Copied {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        array.lazy().eval()
    }
}

struct Mixed(f64);

impl ZipArrays for Mixed {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, other: &Array<T>) -> Result<()> {
        let share = <T as crate::array::AnyElement>::from_f64(1.0 - self.0);
        own.update(|own| own + (other - own) * share)
    }
}
