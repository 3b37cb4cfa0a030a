//! Matrices in the host's memory.

use std::ops::Range;

use crate::AnyElement;
use crate::walk::Walk;

/// A matrix in the host's memory.
///
/// Invariant: the elements are in the buffer of an array, and have been written.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<T> {
    pub first: *const T,
    pub rows: usize,
    pub columns: usize,
    pub row_stride: isize,
    pub column_stride: isize,
}

// SAFETY: a matrix only reads plain data. By the contracts of this module's functions, no code
// writes to the data meanwhile.
unsafe impl<T: Sync> Send for Matrix<T> {}
// SAFETY: a matrix only reads plain data, which no code writes to meanwhile.
unsafe impl<T: Sync> Sync for Matrix<T> {}

impl<T: Copy> Matrix<T> {
    pub fn rows(&self, range: Range<usize>) -> Self {
        self.part(range.start, 0, range.len(), self.columns)
    }

    /// Returns the part with `rows` rows, from `row` on, and `columns` columns, from `column` on.
    /// The part must be within the matrix.
    #[inline(always)]
    pub fn part(&self, row: usize, column: usize, rows: usize, columns: usize) -> Self {
        debug_assert!(row + rows <= self.rows && column + columns <= self.columns);
        Self {
            first: self.address(row, column),
            rows,
            columns,
            ..*self
        }
    }

    /// Returns the matrix with element type `U`. The elements must be of `U`.
    pub fn cast<U>(&self) -> Matrix<U> {
        Matrix {
            first: self.first.cast(),
            rows: self.rows,
            columns: self.columns,
            row_stride: self.row_stride,
            column_stride: self.column_stride,
        }
    }

    /// Returns the real parts and the imaginary parts of the matrix. The elements of the matrix
    /// must be complex numbers of `U`.
    pub fn parts<U>(&self) -> [Matrix<U>; 2] {
        [0, 1].map(|part| Matrix {
            first: self.first.cast::<U>().wrapping_add(part),
            rows: self.rows,
            columns: self.columns,
            row_stride: 2 * self.row_stride,
            column_stride: 2 * self.column_stride,
        })
    }

    /// Returns the matrix that begins `offset` elements after `self`.
    #[inline(always)]
    pub fn moved(&self, offset: usize) -> Self {
        Self {
            first: self.first.wrapping_add(offset),
            ..*self
        }
    }

    /// Returns the matrix with rows as columns and columns as rows.
    pub fn transposed(&self) -> Self {
        Self {
            first: self.first,
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }

    /// Returns the matrix with the order of its rows reversed.
    pub fn reversed(&self) -> Self {
        Self {
            first: self.address(self.rows.saturating_sub(1), 0),
            row_stride: -self.row_stride,
            ..*self
        }
    }

    /// Returns the address of the element at `row` and `column`. If `row` or `column` is outside
    /// the matrix, the address is invalid.
    #[inline(always)]
    pub fn address(&self, row: usize, column: usize) -> *const T {
        let offset = row as isize * self.row_stride + column as isize * self.column_stride;
        self.first.wrapping_offset(offset)
    }

    /// Returns the element at `row` and `column`.
    ///
    /// # Safety
    ///
    /// `row` and `column` must be within the matrix. The memory of the matrix must be alive and not
    /// written to.
    #[inline(always)]
    pub unsafe fn at(&self, row: usize, column: usize) -> T {
        // SAFETY: by the invariant, the element is in the array's buffer, and has been written.
        unsafe { self.address(row, column).read() }
    }
}

/// A matrix without its element type.
#[derive(Clone, Copy, Debug)]
pub struct AnyMatrix(Matrix<u8>);

impl AnyMatrix {
    /// Returns the matrix of `rows` and `columns` whose first element is at `first`. The strides
    /// are in elements.
    pub fn new(first: *const u8, [rows, columns]: [usize; 2], strides: [isize; 2]) -> Self {
        let [row_stride, column_stride] = strides;
        Self(Matrix {
            first,
            rows,
            columns,
            row_stride,
            column_stride,
        })
    }

    /// Returns the matrix with rows as columns and columns as rows.
    pub fn transposed(&self) -> Self {
        Self(self.0.transposed())
    }

    /// Returns the matrix with element type `T`. The elements must be of `T`.
    #[inline(always)]
    fn typed<T: AnyElement>(&self) -> Matrix<T> {
        self.0.cast()
    }
}

/// Pairs of matrices to multiply.
///
/// Invariant: the inner lengths of a pair are equal.
#[derive(Clone, Copy, Debug)]
pub struct Pairs {
    left: AnyMatrix,
    right: AnyMatrix,
    /// The offsets of each pair's matrices, relative to `left` and `right`.
    places: Walk<2>,
}

impl Pairs {
    /// Returns a single pair.
    ///
    /// # Panics
    ///
    /// Panics if the inner lengths differ.
    pub fn one(left: AnyMatrix, right: AnyMatrix) -> Self {
        assert_eq!(left.0.columns, right.0.rows, "the inner lengths differ");
        Self {
            left,
            right,
            places: Walk::over([0; 2], []),
        }
    }

    /// Returns pairs of matrices. Each pair is `left` and `right`, moved by offsets of `places`.
    pub fn many(left: AnyMatrix, right: AnyMatrix, places: Walk<2>) -> Self {
        Self {
            places,
            ..Self::one(left, right)
        }
    }

    /// Returns the pairs of the transposed products. The left and the right matrices are exchanged,
    /// and both are transposed.
    pub fn transposed(self) -> Self {
        Self {
            left: self.right.transposed(),
            right: self.left.transposed(),
            places: self.places.swapped(),
        }
    }

    /// Returns the number of pairs.
    pub fn count(&self) -> usize {
        self.places.count()
    }

    /// Returns the number of rows, the inner length and the number of columns of each pair.
    pub fn lengths(&self) -> (usize, usize, usize) {
        let (left, right) = (&self.left.0, &self.right.0);
        (left.rows, left.columns, right.columns)
    }

    /// Returns the matrices to which the offsets of a pair are added. The elements must be of `T`.
    pub fn models<T: AnyElement>(&self) -> (Matrix<T>, Matrix<T>) {
        (self.left.typed(), self.right.typed())
    }

    /// Returns a walk over the offsets of each pair's matrices, relative to the
    /// [models](Self::models).
    pub fn walk(&self) -> &Walk<2> {
        &self.places
    }

    /// Returns the pair with index `index`, which must be below `count`. The elements must be of
    /// `T`.
    pub fn get<T: AnyElement>(&self, index: usize) -> (Matrix<T>, Matrix<T>) {
        let [left, right] = self.places.at(index);
        let (first_left, first_right) = self.models();
        (first_left.moved(left), first_right.moved(right))
    }
}
