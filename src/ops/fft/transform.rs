//! Fourier transforms along one axis and along two axes.

use super::{axis_of, invalid, resized};
use crate::array::{AnyArray, Shape};
use crate::error::Result;
use crate::ops::derivatives::{RuledOperation, zeros_on};
use crate::ops::descriptors::{part_of, spectrum_of};
use crate::ops::index::concatenated;
use cachescope_fft::Direction;

/// See [`fft`](crate::fft::fft) and [`ifft`](crate::fft::ifft).
#[track_caller]
pub(super) fn along(
    operation: &str,
    x: &AnyArray,
    axis: isize,
    direction: Direction,
) -> Result<AnyArray> {
    let at = axis_of(operation, x, axis)?;
    let length = x.dims()[at];
    resized(operation, x.shape(), (at, length), x.dtype)?;
    scaled(x, Some(at), direction, factor_of(direction, length))
}

/// Returns `empty` as the result of the transform of an array without elements.
#[track_caller]
fn empty(step: RuledOperation, empty: AnyArray) -> AnyArray {
    let [empty] = step.finish_empty([empty]);
    empty
}

/// Returns the factor of a transform, or `None` if the factor is 1. The inverse transform is
/// divided by `count`.
fn factor_of(direction: Direction, count: usize) -> Option<f64> {
    let is_scaled = direction == Direction::Inverse && count > 1;
    is_scaled.then(|| 1.0 / count as f64)
}

/// Returns the transform along the axis `at`, or along the last two axes if `at` is `None`, times
/// `factor`. The adjoint passes gradients back. The adjoint is the transform in the opposite
/// direction, times `factor`.
#[track_caller]
fn scaled(
    x: &AnyArray,
    at: Option<usize>,
    direction: Direction,
    factor: Option<f64>,
) -> Result<AnyArray> {
    let name = if at.is_some() { "fft" } else { "fft2" };
    let step = RuledOperation::begin(name, &[x])?;
    if x.len() == 0 {
        return Ok(empty(step, x.zeros(x.shape())?));
    }
    let spectrum = match at {
        Some(at) => on_device!(
            x.device(),
            touching & x.buffer,
            transformed(x.operand(), at, direction, factor)
        ),
        None => on_device!(
            x.device(),
            touching & x.buffer,
            transformed_planes(x.operand(), direction, factor)
        ),
    }?;
    Ok(step.finish(spectrum, |_| {
        move |gradient| Ok(vec![scaled(&gradient, at, reverse_of(direction), factor)?])
    }))
}

fn reverse_of(direction: Direction) -> Direction {
    match direction {
        Direction::Forward => Direction::Inverse,
        Direction::Inverse => Direction::Forward,
    }
}

/// See [`rfft`](crate::fft::rfft).
#[track_caller]
pub(super) fn rfft(x: &AnyArray, axis: isize) -> Result<AnyArray> {
    let at = axis_of("rfft", x, axis)?;
    let length = x.dims()[at];
    let dtype = spectrum_of(x.dtype);
    let shape = resized("rfft", x.shape(), (at, length / 2 + 1), dtype)?;
    let step = RuledOperation::begin("rfft", &[x])?;
    if x.len() == 0 {
        return Ok(empty(step, zeros_on(x.device(), &shape, dtype)?));
    }
    let spectra = on_device!(
        x.device(),
        touching & x.buffer,
        spectra_of(x.operand(), at, &shape)
    )?;
    Ok(step.finish(spectra, |_| {
        move |gradient: AnyArray| {
            // `reals` also adds the conjugates, which are not part of the result. So the weight of
            // the conjugated elements is halved.
            let half = weighted(&gradient, (at, length), 0.5)?;
            Ok(vec![reals(&half, (at, length), 1.0)?])
        }
    }))
}

/// Returns `spectra` of `length` real numbers along the axis `at`, with weights. An element that
/// also represents its conjugate is multiplied by `weight`.
#[track_caller]
fn weighted(spectra: &AnyArray, (at, length): (usize, usize), weight: f64) -> Result<AnyArray> {
    let ones_after = usize::from(length % 2 == 0);
    let pairs = (length - 1) / 2;
    let mut parts = Vec::new();
    for (count, value) in [(1, 1.0), (pairs, weight), (ones_after, 1.0)] {
        parts.push(spectra.full(&[count].into(), value)?);
    }
    let weights = concatenated(&parts, 0)?;
    let width = spectra.dims()[at];
    let there = weights.layout.part(0, 0..width, 1)?;
    let along = Shape::from(vec![1; spectra.dims().len()].as_slice()).with(at, width);
    let weights = weights.viewed(there).reshape(&along)?;
    (spectra.lazy() * weights.lazy()).eval()
}

/// See [`irfft`](crate::fft::irfft).
#[track_caller]
pub(super) fn irfft(x: &AnyArray, length: usize, axis: isize) -> Result<AnyArray> {
    let at = axis_of("irfft", x, axis)?;
    if length == 0 {
        return Err(invalid(format!(
            "irfft: the length of the result is 0 for a spectrum of shape {}, expected at least 1",
            x.shape()
        )));
    }
    reals(x, (at, length), 1.0 / length as f64)
}

/// Returns the unscaled inverse of [`rfft`] with `length` elements along the axis `at`, times
/// `factor`.
#[track_caller]
fn reals(x: &AnyArray, (at, length): (usize, usize), factor: f64) -> Result<AnyArray> {
    let dtype = part_of(x.dtype);
    let shape = resized("irfft", x.shape(), (at, length), dtype)?;
    if x.len() == 0 {
        let step = RuledOperation::begin("irfft", &[x])?;
        return Ok(empty(step, zeros_on(x.device(), &shape, dtype)?));
    }
    // The second half of the spectrum only repeats the first half as conjugates.
    let half = length / 2 + 1;
    let there = x.dims()[at].min(half);
    let x = x.viewed(x.layout.part(at, 0..there, 1)?);
    let step = RuledOperation::begin("irfft", &[&x])?;
    let reals = on_device!(
        x.device(),
        touching & x.buffer,
        reals_of(x.operand(), at, &shape, factor)
    )?;
    Ok(step.finish(reals, |_| {
        move |gradient: AnyArray| {
            let spectra = rfft(&gradient, at as isize)?;
            let there = spectra.viewed(spectra.layout.part(at, 0..there, 1)?);
            let twice = weighted(&there, (at, length), 2.0)?;
            Ok(vec![(twice.lazy() * factor).eval()?])
        }
    }))
}

/// See [`fft2`](crate::fft::fft2) and [`ifft2`](crate::fft::ifft2).
#[track_caller]
pub(super) fn planes(operation: &str, x: &AnyArray, direction: Direction) -> Result<AnyArray> {
    if x.dims().len() < 2 {
        return Err(invalid(format!(
            "{operation}: the array of shape {} has fewer than two axes",
            x.shape()
        )));
    }
    let rows = axis_of(operation, x, -2)?;
    let columns = axis_of(operation, x, -1)?;
    resized(operation, x.shape(), (rows, x.dims()[rows]), x.dtype)?;
    // The two lengths belong to one array, so their product does not overflow.
    let count = x.dims()[rows] * x.dims()[columns];
    scaled(x, None, direction, factor_of(direction, count))
}

/// See [`fftshift`](crate::fft::fftshift) and [`ifftshift`](crate::fft::ifftshift).
#[track_caller]
pub(super) fn shifted(
    operation: &str,
    x: &AnyArray,
    axis: isize,
    is_inverse: bool,
) -> Result<AnyArray> {
    let at = x.shape().axis(operation, axis)?;
    let length = x.dims()[at];
    let shift = if is_inverse {
        length.div_ceil(2)
    } else {
        length / 2
    };
    x.roll(shift as isize, axis)
}
