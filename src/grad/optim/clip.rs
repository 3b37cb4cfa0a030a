//! Clipping of gradients.

use std::panic::Location;

use crate::array::{AnyElement, Array, Float};
use crate::error::{AtCaller, CallSiteOverride, Result};
use crate::grad::{MapArrays, Parameters};

/// The sum of the squares of all elements.
#[derive(Default)]
struct SquaresOfAll {
    sum: f64,
    /// True if an array is on a device without data. The sum is then not known.
    is_unknown: bool,
}

impl MapArrays for SquaresOfAll {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        self.sum += array.cast::<f64>().square().sum()?.item()?;
        self.is_unknown |= array.device().backend().is_meta();
        Ok(array.clone())
    }
}

struct Scaled(f64);

impl MapArrays for Scaled {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        (array * <T as AnyElement>::from_f64(self.0)).eval()
    }
}

/// Scales gradients so that their global norm is at most `most`. Returns them with the norm before
/// scaling.
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
/// The errors of [`Array::sum`].
#[track_caller]
pub fn clip_norm<P: Parameters>(gradients: P, most: f64) -> Result<(P, f64)> {
    let _call_site = CallSiteOverride::at(Location::caller());
    clipped(gradients, most)
        .map_err(|error| error.of("clip_norm"))
        .at_caller()
}

fn clipped<P: Parameters>(gradients: P, most: f64) -> Result<(P, f64)> {
    let mut squares = SquaresOfAll::default();
    gradients.map_arrays(&mut squares)?;
    let norm = squares.sum.sqrt();
    // A dry run counts the memory of clipping, which any step may need.
    if norm <= most && !squares.is_unknown {
        return Ok((gradients, norm));
    }
    let clipped = gradients.map_arrays(&mut Scaled(most / norm))?;
    Ok((clipped, norm))
}
