//! Adding at given positions.

use super::check_indices;
use super::gather::along;
use crate::array::{Array, Numeric};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::aliasing::Target;
use crate::ops::eval::same_device;
use crate::ops::order::Updating;

impl<T: Numeric> Array<T> {
    /// Adds each element of `source` to the one of this array that its index picks along `axis`, and
    /// where it stands along the other axes: the opposite of [`gather`](Self::gather).
    ///
    /// Indices that repeat add up, in row-major order, so that the result is always the same. Integers
    /// wrap. The array and `indices` broadcast as for `gather`, and `source` broadcasts to the shape
    /// that comes of it. Where other arrays or expressions share the memory, they keep their values,
    /// and this array gets memory of its own.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let mut counts = Array::<i32>::zeros(3)?;
    /// let seen = Array::from_vec(vec![2, 0, 2, -1], 4)?;
    /// counts.scatter_add(&seen, &Array::ones(4)?, 0)?;
    /// assert_eq!(counts.to_vec()?, [1, 0, 3]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) where there is no such axis or an index lies
    /// outside it, [`ShapeMismatch`](ErrorKind::ShapeMismatch) where the shapes do not go together,
    /// [`DeviceMismatch`](ErrorKind::DeviceMismatch), and [`OutOfMemory`](ErrorKind::OutOfMemory).
    /// Nothing has been written then.
    #[track_caller]
    pub fn scatter_add(&mut self, indices: &Array<i64>, source: &Self, axis: isize) -> Result<()> {
        let at = self.layout().shape().axis("scatter_add", axis)?;
        same_device("scatter_add", self, indices)?;
        same_device("scatter_add", self, source)?;
        let own = self.layout().shape();
        let shape = along("scatter_add", own, indices.layout().shape(), at)?;
        if source.layout().broadcast_to(&shape).is_err() {
            return Err(Error::new(
                ErrorKind::ShapeMismatch,
                format!(
                    "scatter_add: a source of shape {} does not go with indices of shape {} and the \
                     shape {own}",
                    source.layout().shape(),
                    indices.layout().shape()
                ),
            ));
        }
        check_indices("scatter_add", self, at, indices)?;
        if shape.len()? == 0 {
            return Ok(());
        }
        if self.buffer().holders() > 1 || self.layout().repeats() {
            self.make_unique(&[])?;
        }
        let target = Target::new(self);
        let updating = Updating {
            targets: &[target.buffer()],
            reading: [indices.buffer(), source.buffer()],
        };
        on_device!(
            target.device(),
            touching & updating,
            add_at(target, indices, source, at, &shape)
        )
    }
}
