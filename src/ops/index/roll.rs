//! Rotation of elements along an axis.

use super::concatenated;
use crate::array::{AnyArray, AnyElement, Array};
use crate::error::Result;

impl<T: AnyElement> Array<T> {
    /// Returns a copy in which every element is shifted by `shift` positions along `axis`. Elements
    /// that are shifted beyond the last position move to the beginning. A negative shift moves
    /// elements towards the beginning. This is NumPy's `roll`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let x = Array::arange(0, 5, 1)?;
    /// assert_eq!(x.roll(2, 0)?.to_vec()?, [3, 4, 0, 1, 2]);
    /// assert_eq!(x.roll(-1, 0)?.to_vec()?, [1, 2, 3, 4, 0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `axis` is out of range, and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn roll(&self, shift: isize, axis: isize) -> Result<Self> {
        self.erased().roll(shift, axis).map(Self::from_erased)
    }
}

impl AnyArray {
    /// See [`Array::roll`].
    #[track_caller]
    pub(in crate::ops) fn roll(&self, shift: isize, axis: isize) -> Result<Self> {
        let at = self.shape().axis("roll", axis)?;
        let length = self.dims()[at];
        // If the axis has no elements, the shift is 0.
        let moved = shift.rem_euclid(length.max(1) as isize) as usize;
        let last = self.viewed(self.layout.part(at, length - moved..length, 1)?);
        let first = self.viewed(self.layout.part(at, 0..length - moved, 1)?);
        concatenated(&[last, first], at as isize)
    }
}
