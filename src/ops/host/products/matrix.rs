//! Matrices in the host's memory.

use std::ops::Range;

use crate::array::{AnyElement, Array, Layout, Walk};
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::ops::host::blocked::coordinates;

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

// SAFETY: a matrix only reads, and what it reads is plain data that is not written to meanwhile, by
// the contract of the functions here.
unsafe impl<T: Sync> Send for Matrix<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Matrix<T> {}

impl<T: Copy> Matrix<T> {
    /// Some of its rows.
    pub(super) fn rows(&self, range: Range<usize>) -> Self {
        self.part(range.start, 0, range.len(), self.columns)
    }

    /// `rows` rows from `row` on and `columns` columns from `column` on, which must lie within the
    /// matrix.
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

    /// The same elements under the name of another type, which must be the same one.
    pub(super) fn cast<U>(&self) -> Matrix<U> {
        Matrix {
            first: self.first.cast(),
            rows: self.rows,
            columns: self.columns,
            row_stride: self.row_stride,
            column_stride: self.column_stride,
        }
    }

    /// The real and the imaginary parts of elements that are complex numbers of `U`.
    pub(super) fn parts<U>(&self) -> [Matrix<U>; 2] {
        [0, 1].map(|part| Matrix {
            first: self.first.cast::<U>().wrapping_add(part),
            rows: self.rows,
            columns: self.columns,
            row_stride: 2 * self.row_stride,
            column_stride: 2 * self.column_stride,
        })
    }

    /// The matrix that begins `offset` elements after this one.
    #[inline(always)]
    pub(super) fn moved(&self, offset: usize) -> Self {
        Self {
            first: self.first.wrapping_add(offset),
            ..*self
        }
    }

    /// Rows as columns and columns as rows.
    pub(super) fn transposed(&self) -> Self {
        Self {
            first: self.first,
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }

    /// The rows from the last to the first.
    pub(super) fn reversed(&self) -> Self {
        Self {
            first: self.address(self.rows.saturating_sub(1), 0),
            row_stride: -self.row_stride,
            ..*self
        }
    }

    /// The address of the element at `row` and `column`, which must be within the matrix for it to
    /// be one.
    #[inline(always)]
    pub(super) fn address(&self, row: usize, column: usize) -> *const T {
        let offset = row as isize * self.row_stride + column as isize * self.column_stride;
        self.first.wrapping_offset(offset)
    }

    /// The element at `row` and `column`.
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

impl<T: AnyElement> Matrix<T> {
    /// The elements of an array of one or two axes; a vector's other axis is `axis`.
    pub(super) fn of(array: &Array<T>, axis: usize) -> Self {
        let layout = array.layout();
        let (rows, columns, row_stride, column_stride) =
            match (layout.dims(), layout.strides(), axis) {
                (&[columns], &[stride], 0) => (1, columns, 0, stride),
                (&[rows], &[stride], _) => (rows, 1, stride, 0),
                (&[rows, columns], &[down, along], _) => (rows, columns, down, along),
                _ => unreachable!("{layout:?} is no matrix"),
            };
        Self {
            first: base(array).wrapping_add(layout.offset()),
            rows,
            columns,
            row_stride,
            column_stride,
        }
    }
}

/// The address that the offsets of an array's layouts count from.
fn base<T: AnyElement>(array: &Array<T>) -> *const T {
    host_pointer(DevicePtr(array.buffer().address())).cast()
}

/// Many matrices that stand alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stack<T> {
    /// As if one began where the array does.
    model: Matrix<T>,
    /// Where each begins.
    places: Layout,
}

impl<T: AnyElement> Stack<T> {
    /// What `layout` selects from the memory of `array`; its last two axes are those of a matrix.
    pub(super) fn new(array: &Array<T>, layout: &Layout) -> Self {
        let within = layout
            .bounds()
            .is_none_or(|(_, highest)| highest < array.buffer().size_bytes() / size_of::<T>());
        assert!(within, "{layout:?} reaches beyond its array");
        let (places, matrix) = layout.split_at(layout.ndim() - 2);
        let (dims, strides) = (matrix.dims(), matrix.strides());
        let model = Matrix {
            first: base(array),
            rows: dims[0],
            columns: dims[1],
            row_stride: strides[0],
            column_stride: strides[1],
        };
        Self { model, places }
    }
}

/// Pairs of matrices to be multiplied.
///
/// Invariant: the inner lengths of a pair are equal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pairs<T> {
    left: Matrix<T>,
    right: Matrix<T>,
    /// Where each begins, counted from these two, if there are several.
    places: Option<(Layout, Layout)>,
    count: usize,
}

impl<T: AnyElement> Pairs<T> {
    pub(super) fn one(left: Matrix<T>, right: Matrix<T>) -> Self {
        assert_eq!(left.columns, right.rows, "the inner lengths differ");
        Self {
            left,
            right,
            places: None,
            count: 1,
        }
    }

    pub(super) fn many(left: Stack<T>, right: Stack<T>) -> Self {
        let count = left.places.len();
        assert_eq!(count, right.places.len(), "the numbers differ");
        Self {
            places: Some((left.places, right.places)),
            count,
            ..Self::one(left.model, right.model)
        }
    }

    /// Each with the right matrix on the left, and both with their rows as columns.
    pub(super) fn transposed(self) -> Self {
        Self {
            left: self.right.transposed(),
            right: self.left.transposed(),
            places: self.places.map(|(left, right)| (right, left)),
            count: self.count,
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Rows, inner length and columns of each.
    pub(super) fn lengths(&self) -> (usize, usize, usize) {
        (self.left.rows, self.left.columns, self.right.columns)
    }

    /// Both as if they began where their arrays do.
    pub(super) fn models(&self) -> (Matrix<T>, Matrix<T>) {
        (self.left, self.right)
    }

    /// Where those of each number begin, counted from the [models](Self::models).
    pub(super) fn walk(&self) -> Walk<2> {
        match &self.places {
            None => Walk::over([0; 2], []),
            Some((left, right)) => Walk::new([left, right]),
        }
    }

    /// The pair of number `index`, below the count.
    pub(super) fn get(&self, index: usize) -> (Matrix<T>, Matrix<T>) {
        match &self.places {
            None => (self.left, self.right),
            Some((left, right)) => (
                self.left.moved(coordinates(left, index).1),
                self.right.moved(coordinates(right, index).1),
            ),
        }
    }
}
