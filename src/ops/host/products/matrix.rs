//! Matrices in the host's memory.

use std::ops::Range;

use crate::array::{AnyArray, AnyElement, Layout, Walk};
use crate::device::DevicePtr;
use crate::device::host::host_pointer;

/// A matrix in the host's memory.
///
/// Invariant: its elements lie in the buffer of the array that it was made from, and have been
/// written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrix<T> {
    pub(super) first: *const T,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) row_stride: isize,
    pub(super) column_stride: isize,
}

// SAFETY: a matrix only reads, and it reads plain data that is not written to meanwhile, by the
// contract of the functions here.
unsafe impl<T: Sync> Send for Matrix<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Matrix<T> {}

impl<T: Copy> Matrix<T> {
    pub(super) fn rows(&self, range: Range<usize>) -> Self {
        self.part(range.start, 0, range.len(), self.columns)
    }

    /// Returns `rows` rows from `row` on and `columns` columns from `column` on, which must lie
    /// within the matrix.
    #[inline(always)]
    pub(super) fn part(&self, row: usize, column: usize, rows: usize, columns: usize) -> Self {
        debug_assert!(row + rows <= self.rows && column + columns <= self.columns);
        Self {
            first: self.address(row, column),
            rows,
            columns,
            ..*self
        }
    }

    /// Returns the matrix of elements of `U`, which must be their type.
    pub(super) fn cast<U>(&self) -> Matrix<U> {
        Matrix {
            first: self.first.cast(),
            rows: self.rows,
            columns: self.columns,
            row_stride: self.row_stride,
            column_stride: self.column_stride,
        }
    }

    /// Returns the real and the imaginary parts of elements that are complex numbers of `U`.
    pub(super) fn parts<U>(&self) -> [Matrix<U>; 2] {
        [0, 1].map(|part| Matrix {
            first: self.first.cast::<U>().wrapping_add(part),
            rows: self.rows,
            columns: self.columns,
            row_stride: 2 * self.row_stride,
            column_stride: 2 * self.column_stride,
        })
    }

    /// Returns the matrix that begins `offset` elements after this one.
    #[inline(always)]
    pub(super) fn moved(&self, offset: usize) -> Self {
        Self {
            first: self.first.wrapping_add(offset),
            ..*self
        }
    }

    /// Returns the matrix with rows as columns and columns as rows.
    pub(super) fn transposed(&self) -> Self {
        Self {
            first: self.first,
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }

    /// Returns the matrix with its rows from the last to the first.
    pub(super) fn reversed(&self) -> Self {
        Self {
            first: self.address(self.rows.saturating_sub(1), 0),
            row_stride: -self.row_stride,
            ..*self
        }
    }

    /// Returns the address of the element at `row` and `column`. It is valid only if both are
    /// within the matrix.
    #[inline(always)]
    pub(super) fn address(&self, row: usize, column: usize) -> *const T {
        let offset = row as isize * self.row_stride + column as isize * self.column_stride;
        self.first.wrapping_offset(offset)
    }

    /// Returns the element at `row` and `column`.
    ///
    /// # Safety
    ///
    /// Both must be within the matrix, and its memory alive and not written to.
    #[inline(always)]
    pub(super) unsafe fn at(&self, row: usize, column: usize) -> T {
        // SAFETY: the element lies in the array's buffer, by the invariant, and has been written.
        unsafe { self.address(row, column).read() }
    }
}

/// A matrix whose element type is known at run time.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnyMatrix(Matrix<u8>);

impl AnyMatrix {
    /// Returns the elements of an array of one or two axes; a vector's other axis is `axis`.
    pub(super) fn of(array: &AnyArray, axis: usize) -> Self {
        let layout = &array.layout;
        let (rows, columns, row_stride, column_stride) =
            match (layout.dims(), layout.strides(), axis) {
                (&[columns], &[stride], 0) => (1, columns, 0, stride),
                (&[rows], &[stride], _) => (rows, 1, stride, 0),
                (&[rows, columns], &[down, along], _) => (rows, columns, down, along),
                _ => unreachable!("{layout:?} is no matrix"),
            };
        let offset_bytes = layout.offset() * array.dtype.size_bytes();
        Self(Matrix {
            first: base(array).wrapping_add(offset_bytes),
            rows,
            columns,
            row_stride,
            column_stride,
        })
    }

    pub(super) fn transposed(&self) -> Self {
        Self(self.0.transposed())
    }

    /// Returns the matrix of elements of `T`, which must be their type.
    #[inline(always)]
    fn typed<T: AnyElement>(&self) -> Matrix<T> {
        self.0.cast()
    }
}

/// Returns the address that the offsets of an array's layouts count from.
fn base(array: &AnyArray) -> *const u8 {
    host_pointer(DevicePtr(array.buffer.address()))
}

/// Returns a matrix at the beginning of an array's memory, and the layout of the offsets of the
/// matrices that `layout` selects from there; its last two axes are the axes of a matrix.
fn stack(array: &AnyArray, layout: &Layout) -> (AnyMatrix, Layout) {
    let within = layout
        .bounds()
        .is_none_or(|(_, highest)| highest < array.buffer.size_bytes() / array.dtype.size_bytes());
    assert!(within, "{layout:?} reaches beyond its array");
    let (places, matrix) = layout.split_at(layout.ndim() - 2);
    let (dims, strides) = (matrix.dims(), matrix.strides());
    let model = AnyMatrix(Matrix {
        first: base(array),
        rows: dims[0],
        columns: dims[1],
        row_stride: strides[0],
        column_stride: strides[1],
    });
    (model, places)
}

/// Pairs of matrices to be multiplied.
///
/// Invariant: the inner lengths of a pair are equal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pairs {
    left: AnyMatrix,
    right: AnyMatrix,
    /// The offsets of each pair from these two.
    places: Walk<2>,
}

impl Pairs {
    pub(super) fn one(left: AnyMatrix, right: AnyMatrix) -> Self {
        assert_eq!(left.0.columns, right.0.rows, "the inner lengths differ");
        Self {
            left,
            right,
            places: Walk::over([0; 2], []),
        }
    }

    pub(super) fn many(left: (&AnyArray, &Layout), right: (&AnyArray, &Layout)) -> Self {
        let (left, left_places) = stack(left.0, left.1);
        let (right, right_places) = stack(right.0, right.1);
        assert_eq!(left_places.len(), right_places.len(), "the numbers differ");
        Self {
            places: Walk::new([&left_places, &right_places]),
            ..Self::one(left, right)
        }
    }

    /// Returns the pairs with the right matrix on the left, and both matrices transposed.
    pub(super) fn transposed(self) -> Self {
        Self {
            left: self.right.transposed(),
            right: self.left.transposed(),
            places: self.places.swapped(),
        }
    }

    /// Returns the number of pairs.
    pub(super) fn count(&self) -> usize {
        self.places.count()
    }

    /// Returns the number of rows, the inner length and the number of columns of each pair.
    pub(super) fn lengths(&self) -> (usize, usize, usize) {
        let (left, right) = (&self.left.0, &self.right.0);
        (left.rows, left.columns, right.columns)
    }

    /// Returns matrices at the beginnings of the arrays' memory, to which the offsets of a pair are
    /// added. The elements must be of `T`.
    pub(super) fn models<T: AnyElement>(&self) -> (Matrix<T>, Matrix<T>) {
        (self.left.typed(), self.right.typed())
    }

    /// Returns a walk over the offsets of each pair from the [models](Self::models).
    pub(super) fn walk(&self) -> &Walk<2> {
        &self.places
    }

    /// Returns the pair with the number `index`, which must be below the count. The elements must
    /// be of `T`.
    pub(super) fn get<T: AnyElement>(&self, index: usize) -> (Matrix<T>, Matrix<T>) {
        let [left, right] = self.places.at(index);
        let (first_left, first_right) = self.models();
        (first_left.moved(left), first_right.moved(right))
    }
}
