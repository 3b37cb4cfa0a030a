//! Transforms along one axis, and along two axes.

use num_complex::Complex;

use super::{axis_of, invalid, resized};
#[cfg(feature = "cuda")]
use crate::array::bits_of;
use crate::array::{AnyArray, AnyElement, Array, Number, Shape, Writer};
use crate::context::Device;
use crate::error::Result;
#[cfg(feature = "cuda")]
use crate::ops::cuda;
use crate::ops::derivatives::RuledOperation;
use crate::ops::descriptors::Sample;
use crate::ops::host;
use crate::ops::index::concat;
use cachescope_fft::Direction;

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
    resized::<Complex<T>>(operation, x.layout().shape(), at, x.shape()[at])?;
    let factor = factor_of::<T>(direction, x.shape()[at]);
    scaled(x, Some(at), direction, factor)
}

/// Returns the result of a transform of no elements.
#[track_caller]
fn empty<T: AnyElement>(step: RuledOperation, device: &Device, shape: &Shape) -> Result<Array<T>> {
    let [empty] = step.finish_empty_typed([Writer::new(device, shape)?.finish()?]);
    Ok(empty)
}

/// Returns the factor of a transform, or `None` if it is 1. The inverse is divided by the count.
fn factor_of<T: Sample>(direction: Direction, count: usize) -> Option<T> {
    let is_scaled = direction == Direction::Inverse && count > 1;
    is_scaled.then(|| T::from_f64(1.0 / count as f64))
}

/// Returns a transform along the axis `at`, or of the planes of the last two axes, with any factor.
/// Its adjoint, which passes gradients back, is the transform in the other direction with the same
/// factor.
#[track_caller]
fn scaled<T: Sample>(
    x: &Array<Complex<T>>,
    at: Option<usize>,
    direction: Direction,
    factor: Option<T>,
) -> Result<Array<Complex<T>>>
where
    Complex<T>: Number<Part = T>,
{
    let name = if at.is_some() { "fft" } else { "fft2" };
    let step = RuledOperation::begin_typed(name, &[x])?;
    if x.is_empty() {
        return empty(step, x.device(), x.layout().shape());
    }
    let (device, buffer) = (x.device(), x.buffer());
    let spectrum = match at {
        Some(at) => on_device!(
            device,
            touching buffer,
            order => host::transformed(order, x, at, direction, factor),
            cuda::transformed(order, x.into(), at, direction, factor.map(bits_of))
                .map(AnyArray::into_array)
        ),
        None => on_device!(
            device,
            touching buffer,
            order => host::transformed_planes(order, x, direction, factor),
            cuda::transformed_planes(order, x.into(), direction, factor.map(bits_of))
                .map(AnyArray::into_array)
        ),
    }?;
    Ok(step.finish_typed(spectrum, |_| {
        move |gradient: AnyArray| {
            let gradient = gradient.into_array();
            let back = scaled::<T>(&gradient, at, reverse_of(direction), factor)?;
            Ok(vec![AnyArray::of(&back)])
        }
    }))
}

fn reverse_of(direction: Direction) -> Direction {
    match direction {
        Direction::Forward => Direction::Inverse,
        Direction::Inverse => Direction::Forward,
    }
}

#[track_caller]
pub(super) fn rfft<T: Sample>(x: &Array<T>, axis: isize) -> Result<Array<Complex<T>>>
where
    Complex<T>: Number<Part = T>,
{
    let at = axis_of("rfft", x, axis)?;
    let length = x.shape()[at];
    let shape = resized::<Complex<T>>("rfft", x.layout().shape(), at, length / 2 + 1)?;
    let step = RuledOperation::begin_typed("rfft", &[x])?;
    if x.is_empty() {
        return empty(step, x.device(), &shape);
    }
    let spectra = on_device!(
        x.device(),
        touching x.buffer(),
        order => host::spectra_of(order, x, at, &shape),
        cuda::spectra_of(order, x.into(), at, &shape).map(AnyArray::into_array)
    )?;
    Ok(step.finish_typed(spectra, |_| {
        move |gradient: AnyArray| {
            // The other half of the spectrum, which `reals` adds, is not part of the result.
            let half = weighted(&gradient.into_array(), (at, length), 0.5)?;
            let back = reals::<T>(&half, (at, length), T::from_f64(1.0))?;
            Ok(vec![AnyArray::of(&back)])
        }
    }))
}

/// Returns spectra of `length` real numbers along the axis `at`. If a number also represents its
/// conjugate, it is multiplied by `weight`.
#[track_caller]
fn weighted<T: Sample>(
    spectra: &Array<Complex<T>>,
    (at, length): (usize, usize),
    weight: f64,
) -> Result<Array<Complex<T>>>
where
    Complex<T>: Number<Part = T>,
{
    let ones_after = usize::from(length % 2 == 0);
    let pairs = (length - 1) / 2;
    let mut parts = Vec::new();
    for (count, value) in [(1, 1.0), (pairs, weight), (ones_after, 1.0)] {
        parts.push(spectra.erased().full(&[count].into(), value)?.into_array());
    }
    let weights = concat(&[&parts[0], &parts[1], &parts[2]], 0)?;
    let there = weights.layout().part(0, 0..spectra.shape()[at], 1)?;
    let mut along = Shape::from(vec![1; spectra.ndim()].as_slice());
    along = along.with(at, spectra.shape()[at]);
    (spectra * weights.viewed(there).reshape(along)?).eval_unfused()
}

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
            "irfft: the length of the result is 0 for a spectrum of shape {}, expected at least 1",
            x.layout().shape()
        )));
    }
    reals(x, (at, length), T::from_f64(1.0 / length as f64))
}

/// Returns the `length` real numbers of spectra along the axis `at`, with any factor.
#[track_caller]
fn reals<T: Sample>(
    x: &Array<Complex<T>>,
    (at, length): (usize, usize),
    factor: T,
) -> Result<Array<T>>
where
    Complex<T>: Number<Part = T>,
{
    let shape = resized::<T>("irfft", x.layout().shape(), at, length)?;
    if x.is_empty() {
        let step = RuledOperation::begin_typed("irfft", &[x])?;
        return empty(step, x.device(), &shape);
    }
    // The second half of the spectrum adds no information.
    let half = length / 2 + 1;
    let there = x.shape()[at].min(half);
    let x = x.viewed(x.layout().part(at, 0..there, 1)?);
    let step = RuledOperation::begin_typed("irfft", &[&x])?;
    let reals = on_device!(
        x.device(),
        touching x.buffer(),
        order => host::reals_of(order, &x, at, &shape, factor),
        cuda::reals_of(order, (&x).into(), at, &shape, bits_of(factor)).map(AnyArray::into_array)
    )?;
    Ok(step.finish_typed(reals, |_| {
        move |gradient: AnyArray| {
            let spectra = rfft(&gradient.into_array::<T>(), at as isize)?;
            let there = spectra.viewed(spectra.layout().part(at, 0..there, 1)?);
            let twice = weighted(&there, (at, length), 2.0)?;
            let factor = Complex::new(factor, T::from_f64(0.0));
            Ok(vec![AnyArray::of(&(twice * factor).eval_unfused()?)])
        }
    }))
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
    resized::<Complex<T>>(operation, x.layout().shape(), rows, x.shape()[rows])?;
    // Both lengths belong to one array, so their product does not overflow.
    let count = x.shape()[rows] * x.shape()[columns];
    scaled(x, None, direction, factor_of::<T>(direction, count))
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
