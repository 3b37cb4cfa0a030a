//! Differences of adjacent elements.

use crate::array::{Array, Number};
use crate::error::Result;

impl<T: Number> Array<T> {
    /// Returns each element along `axis` minus the element before it, in one pass. This is NumPy's
    /// `diff`. The axis becomes one element shorter, or stays empty.
    ///
    /// Integers wrap, including unsigned integers. `diff` of `bool` is a compiler error. NumPy's
    /// result for `bool` is true where adjacent elements differ. For this result, write
    /// [`ne`](Self::ne) of two slices.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let x = Array::from_slice(&[1.0, 4.0, 9.0, 16.0], [2, 2])?;
    /// assert_eq!(x.diff(0)?.to_vec()?, [8.0, 12.0]);
    /// assert_eq!(x.diff(-1)?.to_vec()?, [3.0, 7.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `axis` is out of range, and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn diff(&self, axis: isize) -> Result<Self> {
        let layout = self.layout();
        let at = layout.shape().axis("diff", axis)?;
        let length = layout.dims()[at];
        let left = self.viewed(layout.part(at, 0..length.saturating_sub(1), 1)?);
        let right = self.viewed(layout.part(at, length.min(1)..length, 1)?);
        (right - left).eval_unfused()
    }
}
