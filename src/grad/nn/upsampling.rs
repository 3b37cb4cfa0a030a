//! Images of another size.

use crate::array::{Array, Float};
use crate::error::{Error, ErrorKind, Result};

/// The interpolation of [`upsample`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Upsampling {
    /// Repeats elements: PyTorch's `nearest`.
    Nearest,
    /// Interpolates linearly along both axes: PyTorch's `bilinear`, with elements as areas
    /// (`align_corners=False`).
    Bilinear,
}

/// Returns images with `size` rows and columns, the last two axes. It also makes images smaller,
/// without a filter against aliasing.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::nn::{Upsampling, upsample};
///
/// let x = Array::from_slice(&[1.0_f32, 3.0], [1, 1, 2])?;
/// assert_eq!(upsample(&x, [1, 4], Upsampling::Nearest)?.to_vec()?, [1.0, 1.0, 3.0, 3.0]);
/// assert_eq!(upsample(&x, [1, 4], Upsampling::Bilinear)?.to_vec()?, [1.0, 1.5, 2.5, 3.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if the array has fewer than two axes, or one of
/// the two is empty; the errors of [`Array::take`].
#[track_caller]
pub fn upsample<T: Float>(x: &Array<T>, size: [usize; 2], way: Upsampling) -> Result<Array<T>> {
    if !matches!(x.shape(), [.., height, width] if *height > 0 && *width > 0) {
        let shape = x.layout().shape();
        let text = format!("upsample: the shape is {shape}, expected images [.., height, width]");
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    let rows = along(x, (-2, size[0]), way)?;
    along(&rows, (-1, size[1]), way)
}

/// Returns `x` with another length of one of the last two axes.
#[track_caller]
fn along<T: Float>(
    x: &Array<T>,
    (axis, length): (isize, usize),
    way: Upsampling,
) -> Result<Array<T>> {
    let own = x.shape()[x.ndim().wrapping_add_signed(axis)];
    if own == length {
        return Ok(x.clone());
    }
    let _device = x.device().enter();
    let [own, count] = [own, length].map(|length| i64::try_from(length).unwrap_or(i64::MAX));
    let numbers = Array::<i64>::arange(0, count, 1)?;
    if way == Upsampling::Nearest {
        return x.take(&(numbers * own / count).eval()?, axis);
    }
    let (own, count) = (own as f64, count as f64);
    let places = ((numbers.cast::<f64>() + 0.5) * (own / count) - 0.5).clamp(0.0, own - 1.0);
    let places = places.eval()?;
    let before = places.floor().cast::<i64>().eval()?;
    let after = places.ceil().cast::<i64>().eval()?;
    let mut share = (&places - places.floor()).cast::<T>().eval()?;
    if axis == -2 {
        share = share.unsqueeze(1)?;
    }
    let (before, after) = (x.take(&before, axis)?, x.take(&after, axis)?);
    (&before + (after - &before) * share).eval()
}
