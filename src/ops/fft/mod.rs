//! Fourier transforms. This module checks the operands. The modules [`host`](crate::ops::host) and
//! [`cuda`](crate::ops::cuda) compute the transforms.
//!
//! The two modules have functions of equal names. The functions accept any strides and any axis,
//! and return row-major arrays.

mod declare;
mod frequencies;
mod transform;

use num_complex::Complex;

use crate::array::{AnyArray, DType, Float, Number, Shape};
use crate::error::{Error, ErrorKind, Result};

pub use declare::{fft, fft2, fftshift, ifft, ifft2, ifftshift, irfft, rfft};
pub use frequencies::{fftfreq, rfftfreq};

/// The complex element types of Fourier transforms: `Complex<f32>` and `Complex<f64>`.
#[diagnostic::on_unimplemented(
    message = "elements of `{Self}` cannot be Fourier-transformed",
    label = "expected elements of `Complex<f32>` or `Complex<f64>`, found `{Self}`",
    note = "to transform real numbers of `f32` or `f64`, call `fft::rfft`; to convert other \
            elements, call `.cast::<Complex<f32>>().eval()?`"
)]
pub trait Spectrum: Number {}

impl Spectrum for Complex<f32> {}
impl Spectrum for Complex<f64> {}

/// The real element types of Fourier transforms: `f32` and `f64`.
#[diagnostic::on_unimplemented(
    message = "elements of `{Self}` cannot be Fourier-transformed",
    label = "expected elements of `f32` or `f64`, found `{Self}`",
    note = "to transform complex numbers, call `fft::fft`; to convert other elements, call \
            `.cast::<f32>().eval()?`"
)]
pub trait Signal: Float {
    /// The element type of the spectrum.
    type Spectrum: Spectrum;
}

impl Signal for f32 {
    type Spectrum = Complex<f32>;
}

impl Signal for f64 {
    type Spectrum = Complex<f64>;
}

/// Returns the index of `axis`, along which `array` is transformed.
///
/// # Errors
///
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if `axis` is out of range or has no elements.
#[track_caller]
fn axis_of(operation: &str, array: &AnyArray, axis: isize) -> Result<usize> {
    let shape = array.shape();
    let at = shape.axis(operation, axis)?;
    if shape.dims()[at] > 0 {
        return Ok(at);
    }
    Err(invalid(format!(
        "{operation}: axis {axis} of the shape {shape} has no elements to transform"
    )))
}

/// Returns `shape` with `length` as the length of the axis `at`.
///
/// # Errors
///
/// [`InvalidShape`](ErrorKind::InvalidShape) if an array of `dtype` of this shape is too large.
#[track_caller]
fn resized(
    operation: &str,
    shape: &Shape,
    (at, length): (usize, usize),
    dtype: DType,
) -> Result<Shape> {
    let resized = shape.with(at, length);
    crate::ops::index::check_size(operation, &resized, dtype)?;
    Ok(resized)
}

#[cold]
#[track_caller]
fn invalid(text: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, text)
}
