//! Transforms along an axis, and along two.

use num_complex::Complex;

use super::{Direction, Sample, axis_of, invalid, resized};
use crate::array::{AnyElement, Array, Number, Writer};
use crate::error::Result;

/// See [`fft`](crate::fft::fft) and [`ifft`](crate::fft::ifft).
#[track_caller]
pub(super) fn along<T: Sample>(
    operation: &str,
    x: &Array<Complex<T>>,
    axis: isize,
    direction: Direction,
) -> Result<Array<Complex<T>>>
where
    Complex<T>: Number<Part = T>,
{
    let at = axis_of(operation, x, axis)?;
    let shape = resized::<Complex<T>>(operation, x.layout().shape(), at, x.shape()[at])?;
    if x.is_empty() {
        return Writer::new(x.device(), &shape)?.finish();
    }
    let factor = factor_of::<T>(direction, shape.dims()[at]);
    on_device!(
        x.device(),
        touching x.buffer(),
        transformed(x, at, direction, factor)
    )
}

/// What a transform is multiplied by, where that is not 1: the inverse is divided by the count.
fn factor_of<T: Sample>(direction: Direction, count: usize) -> Option<T> {
    let is_scaled = direction == Direction::Inverse && count > 1;
    is_scaled.then(|| T::from_f64(1.0 / count as f64))
}

/// See [`rfft`](crate::fft::rfft).
#[track_caller]
pub(super) fn rfft<T: Sample>(x: &Array<T>, axis: isize) -> Result<Array<Complex<T>>>
where
    Complex<T>: Number<Part = T>,
{
    let at = axis_of("rfft", x, axis)?;
    let half = x.shape()[at] / 2 + 1;
    let shape = resized::<Complex<T>>("rfft", x.layout().shape(), at, half)?;
    if x.is_empty() {
        return Writer::new(x.device(), &shape)?.finish();
    }
    on_device!(x.device(), touching x.buffer(), spectra_of(x, at, &shape))
}

/// See [`irfft`](crate::fft::irfft).
#[track_caller]
pub(super) fn irfft<T: Sample>(
    x: &Array<Complex<T>>,
    length: usize,
    axis: isize,
) -> Result<Array<T>>
where
    Complex<T>: Number<Part = T>,
{
    let at = axis_of("irfft", x, axis)?;
    if length == 0 {
        return Err(invalid(format!(
            "irfft: the result of a spectrum of shape {} has a length of 1 at least, and not of 0",
            x.layout().shape()
        )));
    }
    let shape = resized::<T>("irfft", x.layout().shape(), at, length)?;
    if x.is_empty() {
        return Writer::new(x.device(), &shape)?.finish();
    }
    // What is beyond half of the spectrum says nothing.
    let half = length / 2 + 1;
    let there = x.shape()[at].min(half);
    let x = x.viewed(x.layout().part(at, 0..there, 1)?);
    let factor = T::from_f64(1.0 / length as f64);
    on_device!(
        x.device(),
        touching x.buffer(),
        reals_of(&x, at, &shape, factor)
    )
}

/// See [`fft2`](crate::fft::fft2) and [`ifft2`](crate::fft::ifft2).
#[track_caller]
pub(super) fn planes<T: Sample>(
    operation: &str,
    x: &Array<Complex<T>>,
    direction: Direction,
) -> Result<Array<Complex<T>>>
where
    Complex<T>: Number<Part = T>,
{
    if x.ndim() < 2 {
        return Err(invalid(format!(
            "{operation}: the array of shape {} has fewer than two axes",
            x.layout().shape()
        )));
    }
    let rows = axis_of(operation, x, -2)?;
    let columns = axis_of(operation, x, -1)?;
    let shape = resized::<Complex<T>>(operation, x.layout().shape(), rows, x.shape()[rows])?;
    if x.is_empty() {
        return Writer::new(x.device(), &shape)?.finish();
    }
    // Both lengths are of one array, so that their product does not overflow.
    let factor = factor_of::<T>(direction, shape.dims()[rows] * shape.dims()[columns]);
    on_device!(
        x.device(),
        touching x.buffer(),
        transformed_planes(x, direction, factor)
    )
}

/// See [`fftshift`](crate::fft::fftshift) and [`ifftshift`](crate::fft::ifftshift).
#[track_caller]
pub(super) fn shifted<T: AnyElement>(
    operation: &str,
    x: &Array<T>,
    axis: isize,
    is_inverse: bool,
) -> Result<Array<T>> {
    let at = x.layout().shape().axis(operation, axis)?;
    let length = x.shape()[at];
    let shift = if is_inverse {
        length.div_ceil(2)
    } else {
        length / 2
    };
    x.roll(shift as isize, axis)
}
