//! Resizing of images.

use crate::array::{AnyElement, Array, Float, Shape, Writer};
use crate::context::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::{Arms, interpolated};

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

/// Returns images with `size` rows and columns, the last two axes. `size` may also be smaller than
/// the images, but no filter prevents aliasing.
///
/// `f16` and `bf16` are interpolated in `f32`. An element of weight 0 does not count, even if it is
/// infinite or NaN.
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
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if the array has fewer than two axes, or if one
/// of the last two axes is empty. The errors of [`Array::take`].
#[track_caller]
pub fn upsample<T: Float>(x: &Array<T>, size: [usize; 2], way: Upsampling) -> Result<Array<T>> {
    if !matches!(x.shape(), [.., height, width] if *height > 0 && *width > 0) {
        let shape = x.layout().shape();
        let text = format!("upsample: the shape is {shape}, expected images [.., height, width]");
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    if way == Upsampling::Nearest || T::DTYPE == T::DTYPE.computed_in() {
        return resized(x, size, way);
    }
    // The columns are computed from unrounded rows.
    let wide = x.cast::<T::Computed>().eval_unfused()?;
    resized(&wide, size, way)?.cast::<T>().eval_unfused()
}

/// Returns `x` with `size` rows and columns, computed in the type of `x`.
#[track_caller]
fn resized<T: Float>(x: &Array<T>, size: [usize; 2], way: Upsampling) -> Result<Array<T>> {
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
    let (device, beside) = (x.device(), count_shape(axis, length));
    let nearest = |place: usize| (place as u128 * own as u128 / length as u128) as usize;
    if way == Upsampling::Nearest {
        return x.take(&indices(device, length, nearest)?, axis);
    }
    let arms = |place| arms(place, own, length);
    let near = x.take(&indices(device, length, |place| arms(place).near)?, axis)?;
    let far = x.take(&indices(device, length, |place| arms(place).far)?, axis)?;
    let shares: Array<T::Computed> = numbered(device, &beside, |place| {
        AnyElement::from_f64(arms(place).share)
    })?;
    let shares = shares.erased().lazy();
    interpolated(near.erased(), far.erased(), &shares).map(Array::from_erased)
}

/// Returns the two input elements between which output element `place` is interpolated. The input
/// has `own` elements, and the output `length`. The position is computed in integers, so that an
/// input element at exactly this position is found.
fn arms(place: usize, own: usize, length: usize) -> Arms {
    let [place, own, length] = [place, own, length].map(|number| number as i128);
    let last = 2 * length * (own - 1);
    let halves = ((2 * place + 1) * own - length).clamp(0, last);
    let (before, rest) = (halves / (2 * length), halves % (2 * length));
    Arms::at(before as usize, rest as f64 / (2 * length) as f64)
}

/// Returns a shape of `length` numbers that broadcasts along `axis`, one of the last two axes.
fn count_shape(axis: isize, length: usize) -> Shape {
    match axis {
        -2 => [length, 1].into(),
        _ => length.into(),
    }
}

#[track_caller]
fn indices(device: &Device, length: usize, index: impl Fn(usize) -> usize) -> Result<Array<i64>> {
    numbered(device, &length.into(), |place| index(place) as i64)
}

/// Returns an array of the results of `value` for 0, 1, 2 and so on.
#[track_caller]
fn numbered<T: AnyElement>(
    device: &Device,
    shape: &Shape,
    value: impl Fn(usize) -> T,
) -> Result<Array<T>> {
    let mut writer = Writer::new(device, shape)?;
    writer.compute_chunks(|first, chunk| {
        for (slot, place) in chunk.iter_mut().zip(first..) {
            *slot = value(place);
        }
    })?;
    writer.finish()
}
