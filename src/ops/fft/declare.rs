//! The functions of [`fft`](crate::fft), each with its documentation. Their code is compiled with
//! the library, for each type.

use super::{Signal, Spectrum};
use crate::array::{AnyElement, Array};
use crate::error::Result;

/// The functions of a type, as methods of traits. They are compiled with the library, so no program
/// compiles them.
pub(in crate::ops) mod precompiled {
    use num_complex::Complex;

    use crate::array::{Array, Float, Number};
    use crate::error::Result;
    use crate::ops::fft::transform;
    use cachescope_fft::Direction;

    /// The transforms of complex numbers.
    pub trait OfSpectra: Number {
        #[doc(hidden)]
        #[track_caller]
        fn along(
            operation: &str,
            x: &Array<Self>,
            axis: isize,
            is_inverse: bool,
        ) -> Result<Array<Self>>;

        #[doc(hidden)]
        #[track_caller]
        fn planes(operation: &str, x: &Array<Self>, is_inverse: bool) -> Result<Array<Self>>;

        #[doc(hidden)]
        #[track_caller]
        fn irfft(x: &Array<Self>, length: usize, axis: isize) -> Result<Array<Self::Part>>;
    }

    /// The transforms of real numbers, whose spectra are of `C`.
    pub trait OfReals<C: Number>: Float {
        #[doc(hidden)]
        #[track_caller]
        fn rfft(x: &Array<Self>, axis: isize) -> Result<Array<C>>;
    }

    fn direction(is_inverse: bool) -> Direction {
        if is_inverse {
            Direction::Inverse
        } else {
            Direction::Forward
        }
    }

    macro_rules! functions {
        ($($part:ident)+) => {
            $(
                impl OfSpectra for Complex<$part> {
                    #[inline(never)]
                    #[track_caller]
                    fn along(
                        operation: &str,
                        x: &Array<Self>,
                        axis: isize,
                        is_inverse: bool,
                    ) -> Result<Array<Self>> {
                        transform::along(operation, x, axis, direction(is_inverse))
                    }

                    #[inline(never)]
                    #[track_caller]
                    fn planes(
                        operation: &str,
                        x: &Array<Self>,
                        is_inverse: bool,
                    ) -> Result<Array<Self>> {
                        transform::planes(operation, x, direction(is_inverse))
                    }

                    #[inline(never)]
                    #[track_caller]
                    fn irfft(x: &Array<Self>, length: usize, axis: isize) -> Result<Array<$part>> {
                        transform::irfft(x, length, axis)
                    }
                }

                impl OfReals<Complex<$part>> for $part {
                    #[inline(never)]
                    #[track_caller]
                    fn rfft(x: &Array<Self>, axis: isize) -> Result<Array<Complex<$part>>> {
                        transform::rfft(x, axis)
                    }
                }
            )+
        };
    }

    functions!(f32 f64);
}

/// Returns the Fourier transform of the numbers along `axis`, of any length `n`. For each `k` below
/// `n`, it is the sum of `x[j] exp(-2πi j k / n)` over `j`. The result has the shape of `x`.
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
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if there is no such axis or it has no
/// elements, [`OutOfMemory`](crate::ErrorKind::OutOfMemory), and on CUDA
/// [`Driver`](crate::ErrorKind::Driver) if there is no cuFFT.
#[track_caller]
pub fn fft<C: Spectrum>(x: &Array<C>, axis: isize) -> Result<Array<C>> {
    C::along("fft", x, axis, false)
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
/// Those of [`fft()`].
#[track_caller]
pub fn ifft<C: Spectrum>(x: &Array<C>, axis: isize) -> Result<Array<C>> {
    C::along("ifft", x, axis, true)
}

/// Returns the Fourier transform of `n` real numbers along `axis`: the first `n / 2 + 1` numbers of
/// [`fft()`]. The other numbers of the spectrum are the conjugates of these, in reverse order. The
/// call takes half of the time and the memory.
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
/// Those of [`fft()`].
#[track_caller]
pub fn rfft<T: Signal>(x: &Array<T>, axis: isize) -> Result<Array<T::Spectrum>> {
    T::rfft(x, axis)
}

/// Returns the inverse of [`rfft`]: the `length` real numbers along `axis` whose spectrum begins
/// with the numbers of `x`. The length must be given, because two lengths have spectra of one
/// length.
///
/// Only the first `length / 2 + 1` numbers of `x` are used. Missing numbers are zero. The imaginary
/// part of the first number is taken as zero. If `length` is even, the imaginary part of the last
/// number is taken as zero, too.
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
/// Those of [`fft()`], and [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the length is
/// 0.
#[track_caller]
pub fn irfft<C: Spectrum>(x: &Array<C>, length: usize, axis: isize) -> Result<Array<C::Part>> {
    C::irfft(x, length, axis)
}

/// Returns the Fourier transforms of matrices `[.., m, n]` along both axes.
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
/// Those of [`fft()`], and [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `x` has fewer
/// than two axes.
#[track_caller]
pub fn fft2<C: Spectrum>(x: &Array<C>) -> Result<Array<C>> {
    C::planes("fft2", x, false)
}

/// Returns the inverse of [`fft2`], divided by `m n`.
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
/// Those of [`fft2`].
#[track_caller]
pub fn ifft2<C: Spectrum>(x: &Array<C>) -> Result<Array<C>> {
    C::planes("ifft2", x, true)
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
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if there is no such axis, and
/// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
#[track_caller]
pub fn fftshift<T: AnyElement>(x: &Array<T>, axis: isize) -> Result<Array<T>> {
    super::transform::shifted("fftshift", x, axis, false)
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
/// Those of [`fftshift`].
#[track_caller]
pub fn ifftshift<T: AnyElement>(x: &Array<T>, axis: isize) -> Result<Array<T>> {
    super::transform::shifted("ifftshift", x, axis, true)
}
