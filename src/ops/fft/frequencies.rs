//! The frequencies of the elements of a spectrum.

use std::fmt::Display;

use super::{Signal, invalid};
use crate::array::{AnyArray, Array, DType, Float};
use crate::error::Result;

/// Returns the frequencies of the `n` elements of a spectrum, on the current device. This is
/// NumPy's `fftfreq`. The samples are `spacing` apart. Negative frequencies are last.
///
/// # Examples
///
/// ```
/// use cachescope::fft;
///
/// assert_eq!(fft::fftfreq(5, 0.1_f64)?.to_vec()?, [0.0, 2.0, 4.0, -4.0, -2.0]);
/// assert_eq!(fft::fftfreq(4, 1.0_f32)?.to_vec()?, [0.0, 0.25, -0.5, -0.25]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `n` is 0, or if `spacing` is not a
/// positive finite number. [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `spacing` is
/// so small that the frequencies overflow. [`OutOfMemory`](crate::ErrorKind::OutOfMemory) if the
/// device has no memory.
#[track_caller]
pub fn fftfreq<T: Signal>(n: usize, spacing: T) -> Result<Array<T>> {
    let counts = [n, n, n.div_ceil(2)];
    let apart = (spacing.to_f64(), &spacing as &dyn Display);
    frequencies("fftfreq", counts, apart, T::DTYPE).map(Array::from_erased)
}

/// Returns the frequencies of the spectrum of `n` real samples, on the current device. This is
/// NumPy's `rfftfreq`. The samples are `spacing` apart, and the spectrum has `n / 2 + 1` elements.
///
/// # Examples
///
/// ```
/// use cachescope::fft;
///
/// assert_eq!(fft::rfftfreq(5, 0.1_f64)?.to_vec()?, [0.0, 2.0, 4.0]);
/// assert_eq!(fft::rfftfreq(4, 1.0_f32)?.to_vec()?, [0.0, 0.25, 0.5]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// As for [`fftfreq`].
#[track_caller]
pub fn rfftfreq<T: Signal>(n: usize, spacing: T) -> Result<Array<T>> {
    let counts = [n, n / 2 + 1, n / 2 + 1];
    let apart = (spacing.to_f64(), &spacing as &dyn Display);
    frequencies("rfftfreq", counts, apart, T::DTYPE).map(Array::from_erased)
}

/// Returns `count` frequencies of `n` samples. `apart` is the distance between two samples. The
/// first `positive` frequencies are at least 0. Error messages show `shown` for the spacing.
#[track_caller]
fn frequencies(
    operation: &str,
    [n, count, positive]: [usize; 3],
    (apart, shown): (f64, &dyn Display),
    dtype: DType,
) -> Result<AnyArray> {
    if n == 0 {
        return Err(invalid(format!(
            "{operation}: the number of samples is 0, expected at least 1"
        )));
    }
    if !(apart > 0.0 && apart.is_finite()) {
        return Err(invalid(format!(
            "{operation}: the spacing is {shown}, expected a positive finite number"
        )));
    }
    // The step is rounded like in NumPy.
    let step = 1.0 / (n as f64 * apart);
    let number = |place: usize| match place < positive {
        true => place as f64 * step,
        false => -((n - place) as f64) * step,
    };
    let largest = (n / 2) as f64 * step;
    let is_finite = match dtype {
        DType::F32 => (largest as f32).is_finite(),
        _ => largest.is_finite(),
    };
    if !(step.is_finite() && is_finite) {
        return Err(invalid(format!(
            "{operation}: the spacing is {shown}, expected a spacing whose frequencies are finite \
             in {}",
            dtype.name()
        )));
    }
    match dtype {
        DType::F32 => written::<f32>(count, &number),
        _ => written::<f64>(count, &number),
    }
}

#[track_caller]
fn written<T: Float>(count: usize, number: &dyn Fn(usize) -> f64) -> Result<AnyArray> {
    Array::<T>::from_fn(count, |index| T::from_f64(number(index[0]))).map(Array::into_erased)
}
