//! Elements several times.

use super::{Copying, check_size};
use crate::array::{AnyElement, Array};
use crate::error::Result;

impl<T: AnyElement> Array<T> {
    /// Every element along `axis` `count` times, one after another: NumPy's `repeat`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let array = Array::arange(0, 4, 1)?.reshape([2, 2])?;
    /// assert_eq!(array.repeat(2, 0)?.to_vec()?, [0, 1, 0, 1, 2, 3, 2, 3]);
    /// assert_eq!(array.repeat(2, 1)?.to_vec()?, [0, 0, 1, 1, 2, 2, 3, 3]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) where there is no such axis,
    /// [`InvalidShape`](crate::ErrorKind::InvalidShape) where the size overflows, and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn repeat(&self, count: usize, axis: isize) -> Result<Self> {
        let shape = self.layout().shape();
        let at = shape.axis("repeat", axis)?;
        // What saturates here is beyond every size that a shape may have.
        let shape = shape.with(at, shape.dims()[at].saturating_mul(count));
        check_size::<T>("repeat", &shape)?;
        let copying = Copying::Repeated { at, times: count };
        on_device!(self.device(), touching self.buffer(), copied(self, copying, &shape))
    }
}
