//! Diagonals, and what they bound. Diagonal 0 begins at a matrix's first element, those above it
//! have positive numbers, those below it negative ones.

use super::{Copying, invalid};
use crate::array::{AnyElement, Array, Layout, Shape};
use crate::error::{Error, Result};
use crate::ops::derivatives::{AnyArray, Ruled, by_gradient, is_followed};

/// Which part of a matrix is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum Triangle {
    /// What is on the diagonal and below.
    Lower,
    /// What is on the diagonal and above.
    Upper,
}

/// The row and the column that diagonal `k` begins at.
pub(super) fn start_of(k: isize) -> (usize, usize) {
    match k.unsigned_abs() {
        rows if k < 0 => (rows, 0),
        columns => (0, columns),
    }
}

/// How many elements diagonal `k` of a matrix has.
pub(super) fn length_of(matrix: &Shape, k: isize) -> usize {
    let (row, column) = start_of(k);
    let (rows, columns) = (matrix.dims()[0], matrix.dims()[1]);
    rows.saturating_sub(row).min(columns.saturating_sub(column))
}

/// Where the elements of a diagonal of a matrix stand.
#[track_caller]
fn diagonal_of(matrix: &Layout, k: isize) -> Result<Layout> {
    let (row, column) = start_of(k);
    let length = length_of(matrix.shape(), k);
    let (row, column) = if length == 0 { (0, 0) } else { (row, column) };
    let square = matrix.part(0, row..row + length, 1)?;
    let square = square.part(1, column..column + length, 1)?;
    Ok(square.diagonal(0, 1))
}

impl<T: AnyElement> Array<T> {
    /// The array with zeros above diagonal `k` of its last two axes; those before them count
    /// matrices.
    ///
    /// Diagonal 0 is the main one, positive ones lie above it and negative ones below.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let matrix = Array::<i32>::ones([2, 3])?;
    /// assert_eq!(matrix.tril(0)?.to_vec()?, [1, 0, 0, 1, 1, 0]);
    /// assert_eq!(matrix.tril(-1)?.to_vec()?, [0, 0, 0, 1, 0, 0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) where there are not two axes, and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn tril(&self, k: isize) -> Result<Self> {
        self.check_matrices("tril")?;
        let step = Ruled::begin("tril", &[self])?;
        let kept = on_device!(self.device(), touching self.buffer(), triangular(self, Triangle::Lower, k))?;
        Ok(step.finish(kept, |_| by_gradient!(gradient => [gradient.tril(k)?])))
    }

    /// The array with zeros below diagonal `k` of its last two axes; those before them count
    /// matrices.
    ///
    /// Diagonal 0 is the main one, positive ones lie above it and negative ones below.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let matrix = Array::<i32>::ones([2, 3])?;
    /// assert_eq!(matrix.triu(0)?.to_vec()?, [1, 1, 1, 0, 1, 1]);
    /// assert_eq!(matrix.triu(1)?.to_vec()?, [0, 1, 1, 0, 0, 1]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`tril`](Self::tril).
    #[track_caller]
    pub fn triu(&self, k: isize) -> Result<Self> {
        self.check_matrices("triu")?;
        let step = Ruled::begin("triu", &[self])?;
        let kept = on_device!(self.device(), touching self.buffer(), triangular(self, Triangle::Upper, k))?;
        Ok(step.finish(kept, |_| by_gradient!(gradient => [gradient.triu(k)?])))
    }

    /// Of a vector, the square matrix with it on diagonal `k` among zeros; of a matrix, a copy of
    /// its diagonal `k`, which is empty where the matrix has none: NumPy's `diag`.
    ///
    /// Diagonal 0 is the main one, positive ones lie above it and negative ones below.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let matrix = Array::from_slice(&[3, 5], 2)?.diag(0)?;
    /// assert_eq!(matrix.to_vec()?, [3, 0, 0, 5]);
    /// assert_eq!(matrix.diag(0)?.to_vec()?, [3, 5]);
    /// assert_eq!(matrix.diag(1)?.to_vec()?, [0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) where there are neither one axis nor
    /// two, [`InvalidShape`](crate::ErrorKind::InvalidShape) where the size overflows, and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn diag(&self, k: isize) -> Result<Self> {
        match *self.shape() {
            [length] => {
                // What saturates here is beyond every size that a shape may have.
                let side = length.saturating_add(k.unsigned_abs());
                let shape = [side, side].into();
                let step = Ruled::begin("diag", &[self])?;
                let matrix = on_device!(self.device(), touching self.buffer(), on_diagonal(self, k, &shape))?;
                Ok(step.finish(matrix, |_| {
                    move |gradient: AnyArray| {
                        let layout = diagonal_of(&gradient.layout, k)?;
                        Ok(vec![AnyArray { layout, ..gradient }])
                    }
                }))
            }
            // A view, through which gradients pass.
            [_, _] if is_followed(self)? => {
                let diagonal = self.viewed(diagonal_of(self.layout(), k)?);
                diagonal.lazy().eval()
            }
            [_, _] => {
                let (copying, shape) =
                    (Copying::Diagonal { k }, length_of(self.layout().shape(), k));
                on_device!(self.device(), touching self.buffer(), copied(self, copying, &shape.into()))
            }
            _ => Err(self.rank_error("diag", ", expected a vector or a matrix")),
        }
    }

    #[track_caller]
    fn check_matrices(&self, operation: &str) -> Result<()> {
        if self.ndim() < 2 {
            return Err(self.rank_error(operation, ", expected at least two axes"));
        }
        Ok(())
    }

    #[track_caller]
    fn rank_error(&self, operation: &str, what: &str) -> Error {
        let (shape, rank) = (self.layout().shape(), self.ndim());
        invalid(format!(
            "{operation}: the shape {shape} has rank {rank}{what}"
        ))
    }
}
