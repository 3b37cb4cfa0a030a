//! The public functions of [`fft`](crate::fft). They call type-erased functions.

use super::{Signal, Spectrum, transform};
use crate::array::{AnyElement, Array};
use crate::error::Result;
use cachescope_fft::Direction;

/// Returns the Fourier transform of `x` along `axis`, of any length `n`. The element `k` of the
/// transform is the sum of `x[j] exp(-2πi j k / n)` over `j`. The result has the shape of `x`.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, Complex, fft};
///
/// let x = Array::from_slice(&[1.0_f64, 2.0, 3.0, 4.0].map(Complex::from), 4)?;
/// let spectrum = fft::fft(&x, 0)?.to_vec()?;
/// assert_eq!(spectrum[0], Complex::new(10.0, 0.0));
/// assert_eq!(spectrum[1], Complex::new(-2.0, 2.0));
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `axis` is out of range or has no
/// elements, and [`OutOfMemory`](crate::ErrorKind::OutOfMemory). On a CUDA device,
/// [`Driver`](crate::ErrorKind::Driver) if cuFFT is not found.
#[track_caller]
pub fn fft<C: Spectrum>(x: &Array<C>, axis: isize) -> Result<Array<C>> {
    transform::along("fft", x.erased(), axis, Direction::Forward).map(Array::from_erased)
}

/// Returns the inverse of [`fft()`]: the sums of `x[k] exp(2πi j k / n)` over `k`, divided by `n`.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, Complex, fft};
///
/// let spectrum = Array::from_slice(&[4.0_f64, 0.0, 0.0, 0.0].map(Complex::from), 4)?;
/// assert_eq!(fft::ifft(&spectrum, 0)?.to_vec()?, [Complex::ONE; 4]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// As for [`fft()`].
#[track_caller]
pub fn ifft<C: Spectrum>(x: &Array<C>, axis: isize) -> Result<Array<C>> {
    transform::along("ifft", x.erased(), axis, Direction::Inverse).map(Array::from_erased)
}

/// Returns the Fourier transform of `n` real numbers along `axis`. The result is the first `n / 2 +
/// 1` elements of [`fft()`]. The other elements of the spectrum are the conjugates of the returned
/// elements, in reverse order. `rfft` takes half of the time and the memory of [`fft()`].
///
/// # Examples
///
/// ```
/// use cachescope::{Array, Complex, fft};
///
/// let x = Array::from_slice(&[1.0_f64, 2.0, 3.0, 4.0], 4)?;
/// let spectrum = fft::rfft(&x, 0)?;
/// let wanted = [(10.0, 0.0), (-2.0, 2.0), (-2.0, 0.0)].map(|(re, im)| Complex::new(re, im));
/// assert_eq!(spectrum.to_vec()?, wanted);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// As for [`fft()`].
#[track_caller]
pub fn rfft<T: Signal>(x: &Array<T>, axis: isize) -> Result<Array<T::Spectrum>> {
    transform::rfft(x.erased(), axis).map(Array::from_erased)
}

/// Returns the inverse of [`rfft`]: the `length` real numbers along `axis` whose spectrum begins
/// with `x`. The caller passes the length, because real inputs of two lengths have spectra of one
/// length.
///
/// Only the first `length / 2 + 1` elements of `x` are used. Missing elements count as zero. The
/// imaginary part of the first element is taken as zero. If `length` is even, the imaginary part of
/// the last used element is also taken as zero.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, fft};
///
/// let x = Array::from_slice(&[1.0_f64, 5.0, 2.0], 3)?;
/// let again = fft::irfft(&fft::rfft(&x, 0)?, 3, 0)?;
/// assert!((again - &x).norm()?.item()? < 1e-14);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// As for [`fft()`], and [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the length is 0.
#[track_caller]
pub fn irfft<C: Spectrum>(x: &Array<C>, length: usize, axis: isize) -> Result<Array<C::Part>> {
    transform::irfft(x.erased(), length, axis).map(Array::from_erased)
}

/// Returns the Fourier transforms of matrices `[.., m, n]` along the last two axes.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, Complex, fft};
///
/// let x = Array::from_slice(&[1.0_f64, 2.0, 3.0, 4.0].map(Complex::from), [2, 2])?;
/// let spectrum = fft::fft2(&x)?;
/// assert_eq!(spectrum.to_vec()?, [10.0, -2.0, -4.0, 0.0].map(Complex::from));
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// As for [`fft()`], and [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `x` has fewer
/// than two axes.
#[track_caller]
pub fn fft2<C: Spectrum>(x: &Array<C>) -> Result<Array<C>> {
    transform::planes("fft2", x.erased(), Direction::Forward).map(Array::from_erased)
}

/// Returns the inverse of [`fft2`]. The inverse includes the division by `m n`.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, Complex, fft};
///
/// let spectrum = Array::from_slice(&[4.0_f64, 0.0, 0.0, 0.0].map(Complex::from), [2, 2])?;
/// assert_eq!(fft::ifft2(&spectrum)?.to_vec()?, [Complex::ONE; 4]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// As for [`fft2`].
#[track_caller]
pub fn ifft2<C: Spectrum>(x: &Array<C>) -> Result<Array<C>> {
    transform::planes("ifft2", x.erased(), Direction::Inverse).map(Array::from_erased)
}

/// Returns a copy in which the frequency 0 is in the middle of `axis`, after the negative
/// frequencies. This is NumPy's `fftshift`, for one axis.
///
/// # Examples
///
/// ```
/// use cachescope::fft;
///
/// let frequencies = fft::fftfreq(5, 0.2_f64)?;
/// assert_eq!(fft::fftshift(&frequencies, 0)?.to_vec()?, [-2.0, -1.0, 0.0, 1.0, 2.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `axis` is out of range, and
/// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
#[track_caller]
pub fn fftshift<T: AnyElement>(x: &Array<T>, axis: isize) -> Result<Array<T>> {
    transform::shifted("fftshift", x.erased(), axis, false).map(Array::from_erased)
}

/// Returns the inverse of [`fftshift`].
///
/// # Examples
///
/// ```
/// use cachescope::{Array, fft};
///
/// let shifted = Array::from_slice(&[-2, -1, 0, 1, 2], 5)?;
/// assert_eq!(fft::ifftshift(&shifted, 0)?.to_vec()?, [0, 1, 2, -2, -1]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// As for [`fftshift`].
#[track_caller]
pub fn ifftshift<T: AnyElement>(x: &Array<T>, axis: isize) -> Result<Array<T>> {
    transform::shifted("ifftshift", x.erased(), axis, true).map(Array::from_erased)
}
