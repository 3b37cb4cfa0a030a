//! Comparison of whole arrays: `==`, and equality up to a tolerance for tests.

use approx::{AbsDiffEq, RelativeEq, UlpsEq};

use crate::array::{AnyElement, Array, Elements, Float, Layout};
use crate::context::scope::enter_uncached;
use crate::error::Result;
use crate::ops::IntoExpr;

/// Returns whether both arrays are on one device and have one shape, and `same` is true for every
/// pair of elements.
///
/// If the download fails, returns false. The device's next fallible call then returns the error.
fn all_pairs<T: AnyElement>(
    left: &Array<T>,
    right: &Array<T>,
    mut same: impl FnMut(T, T) -> bool,
) -> bool {
    let device = left.device();
    if left.shape() != right.shape() || device != right.device() {
        return false;
    }
    let (left, right) = match (Elements::of(left), Elements::of(right)) {
        (Ok(left), Ok(right)) => (left, right),
        (Err(error), _) | (_, Err(error)) => {
            device.memory().defer(error);
            return false;
        }
    };
    let walk = Layout::walk([left.layout(), right.layout()]);
    let (_, [left_stride, right_stride]) = walk.row();
    for ([left_first, right_first], count) in walk.runs(0..walk.count()) {
        let left_row = left.row(left_first, left_stride, count);
        let right_row = right.row(right_first, right_stride, count);
        if !left_row
            .zip(right_row)
            .all(|(left, right)| same(left, right))
        {
            return false;
        }
    }
    true
}

/// The minimum size of arrays that are compared on the device. Downloading smaller arrays is
/// faster.
const ON_DEVICE_BYTES: usize = 1 << 16;

/// Returns whether two arrays of one shape on one device have equal elements. The device compares,
/// and allocates outside every cache.
#[track_caller]
fn are_equal_on_device<T: AnyElement>(left: &Array<T>, right: &Array<T>) -> Result<bool> {
    let _outside = enter_uncached();
    left.lazy().eq(right.into_lazy()).all()?.item()
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
        let on_device =
            self.device().backend().cuda().is_some() && self.size_bytes() >= ON_DEVICE_BYTES;
        if !on_device || self.shape() != other.shape() || self.device() != other.device() {
            return all_pairs(self, other, |left, right| left == right);
        }
        are_equal_on_device(self, other).unwrap_or_else(|error| {
            self.device().memory().defer(error);
            false
        })
    }
}

/// Compares the elements, each with the same absolute tolerance. Returns false if shapes or devices
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
        let epsilon = epsilon.to_f64();
        all_pairs(self, other, |left, right| {
            left == right || (left.to_f64() - right.to_f64()).abs() <= epsilon
        })
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
        let (epsilon, max_relative) = (epsilon.to_f64(), max_relative.to_f64());
        all_pairs(self, other, |left, right| {
            if left == right {
                return true;
            }
            let (left, right) = (left.to_f64(), right.to_f64());
            let difference = (left - right).abs();
            // An infinite difference is never within a tolerance, even if an element is infinite.
            difference.is_finite()
                && (difference <= epsilon
                    || difference <= left.abs().max(right.abs()) * max_relative)
        })
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
        let epsilon = epsilon.to_f64();
        all_pairs(self, other, |left, right| {
            if left == right {
                return true;
            }
            let difference = (left.to_f64() - right.to_f64()).abs();
            let distance = left.ordinal().abs_diff(right.ordinal());
            difference.is_finite() && (difference <= epsilon || distance <= u64::from(max_ulps))
        })
    }
}
