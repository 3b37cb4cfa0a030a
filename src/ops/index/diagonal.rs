//! Diagonals, and the triangles that they bound. Diagonal 0 begins at a matrix's first element.
//! Diagonals above diagonal 0 have positive indices, and diagonals below it have negative indices.

use super::invalid;
use super::moves::{copied, on_diagonal, triangular};
use crate::array::{AnyArray, AnyElement, Array, Layout, Shape};
use crate::error::{Error, Result};
use crate::ops::derivatives::{RuledOperation, is_any_tracked};
use crate::ops::descriptors::{Copying, Triangle, length_of, start_of};

fn name_of(triangle: Triangle) -> &'static str {
    match triangle {
        Triangle::Lower => "tril",
        Triangle::Upper => "triu",
    }
}

#[track_caller]
fn diagonal_of(matrix: &Layout, k: isize) -> Result<Layout> {
    let (row, column) = start_of(k);
    let length = length_of(matrix.shape(), k);
    let (row, column) = if length == 0 { (0, 0) } else { (row, column) };
    let square = matrix.part(0, row..row + length, 1)?;
    let square = square.part(1, column..column + length, 1)?;
    Ok(square.diagonal(0, 1))
}

#[track_caller]
fn triangle_of(array: &AnyArray, triangle: Triangle, k: isize) -> Result<AnyArray> {
    let step = RuledOperation::begin(name_of(triangle), &[array])?;
    let kept = triangular(array, triangle, k)?;
    Ok(step.finish(kept, |_| {
        move |gradient| Ok(vec![triangle_of(&gradient, triangle, k)?])
    }))
}

#[track_caller]
fn matrix_of(vector: &AnyArray, k: isize, shape: &Shape) -> Result<AnyArray> {
    let step = RuledOperation::begin("diag", &[vector])?;
    let matrix = on_diagonal(vector, k, shape)?;
    Ok(step.finish(matrix, |_| {
        move |gradient: AnyArray| {
            let diagonal = diagonal_of(&gradient.layout, k)?;
            Ok(vec![gradient.seen(diagonal)])
        }
    }))
}

impl<T: AnyElement> Array<T> {
    /// Returns the array with zeros above diagonal `k` of its last two axes. Leading axes index
    /// matrices.
    ///
    /// Diagonal 0 is the main diagonal. Positive diagonals are above it, and negative diagonals are
    /// below it.
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
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if there are fewer than two axes, and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn tril(&self, k: isize) -> Result<Self> {
        self.erased().tril(k).map(Self::from_erased)
    }

    /// Returns the array with zeros below diagonal `k` of its last two axes. Leading axes index
    /// matrices.
    ///
    /// Diagonals are numbered like for [`tril`](Self::tril).
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
        self.erased().triu(k).map(Self::from_erased)
    }

    /// Returns a matrix with this array as a diagonal, or the diagonal of a matrix. This is NumPy's
    /// `diag`. For a vector, returns the square matrix with the vector on diagonal `k`, and zeros
    /// elsewhere. For a matrix, returns a copy of the matrix's diagonal `k`. This diagonal may be
    /// empty.
    ///
    /// Diagonals are numbered like for [`tril`](Self::tril).
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
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the array has neither one axis nor
    /// two axes, [`InvalidShape`](crate::ErrorKind::InvalidShape) if the size overflows, and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn diag(&self, k: isize) -> Result<Self> {
        self.erased().diag(k).map(Self::from_erased)
    }
}

impl AnyArray {
    /// See [`Array::tril`].
    #[track_caller]
    pub(in crate::ops) fn tril(&self, k: isize) -> Result<Self> {
        self.check_matrices("tril")?;
        triangle_of(self, Triangle::Lower, k)
    }

    /// See [`Array::triu`].
    #[track_caller]
    pub(in crate::ops) fn triu(&self, k: isize) -> Result<Self> {
        self.check_matrices("triu")?;
        triangle_of(self, Triangle::Upper, k)
    }

    /// See [`Array::diag`].
    #[track_caller]
    pub(in crate::ops) fn diag(&self, k: isize) -> Result<Self> {
        match *self.dims() {
            [length] => {
                // If the side saturates, the size of the matrix overflows, which is an error.
                let side = length.saturating_add(k.unsigned_abs());
                matrix_of(self, k, &[side, side].into())
            }
            // A view passes gradients, but `copied` records no step on the tape.
            [_, _] if is_any_tracked(&[self])? => {
                let diagonal = self.viewed(diagonal_of(&self.layout, k)?);
                diagonal.lazy().eval()
            }
            [_, _] => {
                let length = length_of(self.shape(), k);
                copied(self, Copying::Diagonal { k }, &length.into())
            }
            _ => Err(self.rank_error("diag", ", expected a vector or a matrix")),
        }
    }

    #[track_caller]
    fn check_matrices(&self, operation: &str) -> Result<()> {
        if self.layout.ndim() < 2 {
            return Err(self.rank_error(operation, ", expected at least two axes"));
        }
        Ok(())
    }

    #[track_caller]
    fn rank_error(&self, operation: &str, what: &str) -> Error {
        let (shape, rank) = (self.shape(), self.layout.ndim());
        invalid(format!(
            "{operation}: the shape {shape} has rank {rank}{what}"
        ))
    }
}
