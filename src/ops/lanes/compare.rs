//! Comparison of whole arrays: `==`, and equality up to a tolerance for tests.

use approx::{AbsDiffEq, RelativeEq, UlpsEq};

use crate::array::{AnyArray, AnyElement, Array, Float};
use crate::context::scope::enter_uncached;
use crate::error::Result;
use crate::ops::host;
use cachescope_kernels::compare::{EqualLoops, Tolerance, close_loops_of, equal_loops_of};

/// The minimum size of arrays that a CUDA device compares itself. For smaller arrays, a download
/// and a comparison on the host are faster.
const ON_DEVICE_BYTES: usize = 1 << 16;

/// Returns whether both arrays are on one device and have one shape, and `compare` returns true. If
/// the device fails, returns false, and the device's next fallible call returns the error.
#[track_caller]
fn agree(arrays: [&AnyArray; 2], compare: impl FnOnce([&AnyArray; 2]) -> Result<bool>) -> bool {
    let [left, right] = arrays;
    if left.shape() != right.shape() || left.device() != right.device() {
        return false;
    }
    compare(arrays).unwrap_or_else(|error| {
        left.device().memory().defer(error);
        false
    })
}

/// Returns whether both arrays have equal elements. A CUDA device compares large arrays itself.
#[track_caller]
fn are_equal(arrays: [&AnyArray; 2], loops: &'static EqualLoops) -> bool {
    agree(arrays, |[left, right]| {
        if left.device().backend().cuda().is_none() || left.size_bytes() < ON_DEVICE_BYTES {
            return host::are_equal(loops, arrays);
        }
        let _outside = enter_uncached();
        let differs: Array<bool> = left.lazy().ne(right.lazy()).any()?.into_array();
        Ok(!differs.item()?)
    })
}

/// Returns whether the elements of each pair are within a tolerance.
#[track_caller]
fn are_close<T: Float>(left: &Array<T>, right: &Array<T>, tolerance: Tolerance) -> bool {
    let arrays = [left.erased(), right.erased()];
    agree(arrays, |arrays| {
        host::are_close(close_loops_of::<T>(), arrays, tolerance)
    })
}

/// Two arrays are equal if they are on one device, have one shape, and equal elements. `NaN` equals
/// nothing, not even itself.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
///
/// let array = Array::arange(0, 6, 1)?;
/// assert!(array == array.flip(0)?.flip(0)?);
/// assert!(array != array.reshape([2, 3])?);
/// # Ok::<(), cachescope::Error>(())
/// ```
impl<T: AnyElement> PartialEq for Array<T> {
    fn eq(&self, other: &Self) -> bool {
        are_equal([self.erased(), other.erased()], equal_loops_of::<T>())
    }
}

/// Compares the elements, all with one absolute tolerance. Returns false if shapes or devices
/// differ.
///
/// # Examples
///
/// ```
/// use approx::assert_abs_diff_eq;
/// use cachescope::Array;
///
/// let array = Array::linspace(0.0f32, 1.0, 3)?;
/// assert_abs_diff_eq!(array, Array::from_vec(vec![0.0, 0.5001, 1.0], 3)?, epsilon = 1e-3);
/// # Ok::<(), cachescope::Error>(())
/// ```
impl<T: Float> AbsDiffEq for Array<T> {
    type Epsilon = T;

    fn default_epsilon() -> T {
        T::epsilon()
    }

    fn abs_diff_eq(&self, other: &Self, epsilon: T) -> bool {
        are_close(self, other, Tolerance::Absolute(epsilon.to_f64()))
    }
}

/// Compares the elements, each with a tolerance relative to the larger element of the pair.
///
/// # Examples
///
/// ```
/// use approx::assert_relative_eq;
/// use cachescope::Array;
///
/// let array = Array::full(2, 1000.0f32)?;
/// assert_relative_eq!(array, Array::full(2, 1000.5)?, max_relative = 1e-3);
/// # Ok::<(), cachescope::Error>(())
/// ```
impl<T: Float> RelativeEq for Array<T> {
    fn default_max_relative() -> T {
        T::epsilon()
    }

    fn relative_eq(&self, other: &Self, epsilon: T, max_relative: T) -> bool {
        let tolerance = Tolerance::Relative(epsilon.to_f64(), max_relative.to_f64());
        are_close(self, other, tolerance)
    }
}

/// Compares the elements, each with a tolerance in units in the last place. The tolerance counts
/// the values of the type between the two elements. Zeros of either sign are one value, and an
/// infinity equals only itself.
///
/// # Examples
///
/// ```
/// use approx::{assert_ulps_eq, assert_ulps_ne};
/// use cachescope::Array;
///
/// let array = Array::full(2, 1.0f32)?;
/// let near = Array::full(2, 1.0f32.next_up().next_up())?;
/// assert_ulps_eq!(array, near, epsilon = 0.0, max_ulps = 2);
/// assert_ulps_ne!(array, near, epsilon = 0.0, max_ulps = 1);
/// # Ok::<(), cachescope::Error>(())
/// ```
impl<T: Float> UlpsEq for Array<T> {
    fn default_max_ulps() -> u32 {
        f64::default_max_ulps()
    }

    fn ulps_eq(&self, other: &Self, epsilon: T, max_ulps: u32) -> bool {
        are_close(self, other, Tolerance::Ulps(epsilon.to_f64(), max_ulps))
    }
}
