//! Matrix products.

use super::eval::device_mismatch;
use super::host::multiply;
use crate::array::{Array, Layout, Numeric, Shape};
use crate::error::{Error, ErrorKind, Result};

impl<T: Numeric> Array<T> {
    /// The matrix product; operands of any strides are read where they stand.
    ///
    /// A vector on the left is a row, and one on the right a column; the axis that makes it one is
    /// not in the result. Integers wrap, `f16` and `bf16` are summed in `f32`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let a = Array::from_slice(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3])?;
    /// let gram = a.matmul(&a.transpose()?)?;
    /// assert_eq!(gram.shape(), [2, 2]);
    /// assert_eq!(gram.to_vec()?, [14.0, 32.0, 32.0, 77.0]);
    ///
    /// let weights = Array::from_slice(&[1.0, 0.0, -1.0], 3)?;
    /// assert_eq!(a.matmul(&weights)?.to_vec()?, [-2.0, -2.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](ErrorKind::ShapeMismatch) where the lengths that are summed over differ, or
    /// an operand has rank 0,
    /// [`Unsupported`](ErrorKind::Unsupported) for more than two axes,
    /// [`DeviceMismatch`](ErrorKind::DeviceMismatch) and [`OutOfMemory`](ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn matmul(&self, other: &Self) -> Result<Self> {
        if self.device() != other.device() {
            return Err(device_mismatch(self.device(), other.device()));
        }
        check_ranks(self.layout().shape(), other.layout().shape())?;
        // A vector is a matrix with an axis of length 1 on the outside.
        let left = as_matrix(self.layout(), 0)?;
        let right = as_matrix(other.layout(), 1)?;
        if left.dims()[1] != right.dims()[0] {
            return Err(mismatch(self.layout().shape(), other.layout().shape()));
        }
        let rows = self.shape().split_last().map_or(&[][..], |(_, rows)| rows);
        let columns = other.shape().get(1..).unwrap_or_default();
        let shape: Shape = rows.iter().chain(columns).collect();
        multiply((self, &left), (other, &right), &shape)
    }
}

/// Errors for operands of more or less than one or two axes.
fn check_ranks(left: &Shape, right: &Shape) -> Result<()> {
    let lowest = left.ndim().min(right.ndim());
    let highest = left.ndim().max(right.ndim());
    let (kind, what) = match (lowest, highest) {
        (0, _) => (ErrorKind::ShapeMismatch, "has no axis to sum over"),
        (_, 3..) => (ErrorKind::Unsupported, "has more than two axes"),
        _ => return Ok(()),
    };
    Err(Error::new(
        kind,
        format!("matmul: of the shapes {left} and {right} one {what}"),
    ))
}

/// A layout of two axes, a vector's other axis being `axis`.
fn as_matrix(layout: &Layout, axis: isize) -> Result<Layout> {
    match layout.ndim() {
        1 => layout.unsqueeze(axis),
        _ => Ok(*layout),
    }
}

fn mismatch(left: &Shape, right: &Shape) -> Error {
    Error::new(
        ErrorKind::ShapeMismatch,
        format!("matmul: the shapes {left} and {right} do not multiply"),
    )
}
