//! The frequencies of the numbers of a spectrum.

use super::{Signal, invalid};
use crate::array::Array;
use crate::error::Result;

/// Returns the frequencies of the `n` numbers of a spectrum, on the current device: NumPy's
/// `fftfreq`. The samples are `spacing` apart. The frequencies from 0 on are first, then the
/// negative frequencies.
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
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `n` is 0, if `spacing` is not a
/// positive finite number, or so small that the frequencies overflow; and
/// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
#[track_caller]
pub fn fftfreq<T: Signal>(n: usize, spacing: T) -> Result<Array<T>> {
    let positive = n.div_ceil(2);
    let number = |place: usize| match place < positive {
        true => place as f64,
        false => -((n - place) as f64),
    };
    frequencies("fftfreq", n, n, spacing, number)
}

/// Returns the frequencies of the spectrum of `n` real samples, on the current device: NumPy's
/// `rfftfreq`. The samples are `spacing` apart, and the spectrum has `n / 2 + 1` numbers.
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
/// Those of [`fftfreq`].
#[track_caller]
pub fn rfftfreq<T: Signal>(n: usize, spacing: T) -> Result<Array<T>> {
    frequencies("rfftfreq", n, n / 2 + 1, spacing, |place| place as f64)
}

#[track_caller]
fn frequencies<T: Signal>(
    operation: &str,
    n: usize,
    count: usize,
    spacing: T,
    number: impl Fn(usize) -> f64,
) -> Result<Array<T>> {
    if n == 0 {
        return Err(invalid(format!(
            "{operation}: the number of samples is 0, expected at least 1"
        )));
    }
    let apart = spacing.to_f64();
    if !(apart > 0.0 && apart.is_finite()) {
        return Err(invalid(format!(
            "{operation}: the spacing is {spacing}, expected a positive finite number"
        )));
    }
    // Rounded as by NumPy.
    let step = 1.0 / (n as f64 * apart);
    let largest = T::from_f64((n / 2) as f64 * step);
    if !(step.is_finite() && largest.to_f64().is_finite()) {
        return Err(invalid(format!(
            "{operation}: the spacing is {spacing}, expected one whose frequencies {} represents",
            T::NAME
        )));
    }
    Array::from_fn(count, |index| T::from_f64(number(index[0]) * step))
}
