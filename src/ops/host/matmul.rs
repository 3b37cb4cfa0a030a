//! Matrix products: packed and vectorised by `matrixmultiply` for `f32` and `f64`, by blocks for the
//! other types.

use std::any::TypeId;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::launch::{Work, launch};
use super::memory::{Output, computed};
use crate::array::scalar::convert;
use crate::array::{Array, Element, Layout, Numeric, Shape};
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::error::Result;
use crate::ops::order::order_read;

/// Rows and columns of the result that are summed at once, and how far: a block of the right
/// operand and the sums together fit the first-level cache.
const BLOCK: usize = 32;

/// A matrix in the host's memory.
///
/// Invariant: its elements lie in the buffer of the array that it was made from.
#[derive(Clone, Copy)]
struct Matrix<T> {
    first: *const T,
    rows: usize,
    columns: usize,
    row_stride: isize,
    column_stride: isize,
}

// SAFETY: a matrix only reads, and what it reads is plain data that is not written to meanwhile, by
// the contract of the functions here.
unsafe impl<T: Sync> Send for Matrix<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Matrix<T> {}

impl<T: Element> Matrix<T> {
    /// What `layout`, of two axes, selects from the memory of `array`.
    fn new(array: &Array<T>, layout: &Layout) -> Self {
        let (dims, strides) = (layout.dims(), layout.strides());
        let within = layout
            .bounds()
            .is_none_or(|(_, highest)| highest < array.buffer().size_bytes() / size_of::<T>());
        assert!(within, "{layout:?} reaches beyond its array");
        let base: *const T = host_pointer(DevicePtr(array.buffer().address())).cast();
        Self {
            first: base.wrapping_add(layout.offset()),
            rows: dims[0],
            columns: dims[1],
            row_stride: strides[0],
            column_stride: strides[1],
        }
    }

    /// Some of its rows.
    fn rows(&self, range: Range<usize>) -> Self {
        Self {
            first: self
                .first
                .wrapping_offset(range.start as isize * self.row_stride),
            rows: range.len(),
            ..*self
        }
    }

    /// The element at `row` and `column`.
    ///
    /// # Safety
    ///
    /// Both must be within the matrix, and its memory alive and not written to.
    #[inline(always)]
    unsafe fn at(&self, row: usize, column: usize) -> T {
        let offset = row as isize * self.row_stride + column as isize * self.column_stride;
        // SAFETY: the element lies in the array's buffer, by the invariant, and has been written.
        unsafe { self.first.offset(offset).read() }
    }
}

/// The product of two matrices, whose inner lengths are equal, as an array of `shape`, which has as
/// many elements as the product.
#[track_caller]
pub(in crate::ops) fn multiply<T: Numeric>(
    (left, left_layout): (&Array<T>, &Layout),
    (right, right_layout): (&Array<T>, &Layout),
    shape: &Shape,
) -> Result<Array<T>> {
    let device = left.device();
    order_read(left.buffer(), device)?;
    let stream = order_read(right.buffer(), device)?;
    let left = Matrix::new(left, left_layout);
    let right = Matrix::new(right, right_layout);
    assert_eq!(left.columns, right.rows, "the inner lengths differ");
    assert_eq!(
        shape.len()?,
        left.rows * right.columns,
        "the outer lengths differ"
    );
    let write = |output: Output<T>| {
        let rows = if right.columns == 0 { 0 } else { left.rows };
        let reads = (left, right);
        launch(
            device,
            stream,
            Work::on_one_thread(rows),
            (&reads, &output),
            |(left, right), output, range| {
                let elements = range.start * right.columns..range.end * right.columns;
                // SAFETY: the memory is alive while a launch runs, and its ranges do not overlap.
                let out = unsafe { output.part(elements) };
                let left = left.rows(range);
                // SAFETY: the stream is ordered after what other streams wrote, so while a launch on it
                // runs, the operands are alive and not written to.
                unsafe { multiply_into(&left, right, out) };
            },
        );
    };
    // SAFETY: the ranges of a launch cover all rows, and `multiply_into` writes all of `out`.
    unsafe { computed(device, shape, write) }
}

/// Writes the product to all of `out`, row by row.
///
/// # Safety
///
/// The memory of both matrices must be alive and not written to.
unsafe fn multiply_into<T: Numeric>(
    left: &Matrix<T>,
    right: &Matrix<T>,
    out: &mut [MaybeUninit<T>],
) {
    assert_eq!(out.len(), left.rows * right.columns);
    if left.columns == 0 {
        out.fill(MaybeUninit::new(T::zero()));
    } else if TypeId::of::<T>() == TypeId::of::<f32>() {
        // SAFETY: `T` is `f32`, and the caller keeps this contract.
        unsafe { gemm(matrixmultiply::sgemm, (0.0, 1.0), left, right, out) };
    } else if TypeId::of::<T>() == TypeId::of::<f64>() {
        // SAFETY: `T` is `f64`, and the caller keeps this contract.
        unsafe { gemm(matrixmultiply::dgemm, (0.0, 1.0), left, right, out) };
    } else if TypeId::of::<T::Mean>() == TypeId::of::<T>() {
        // SAFETY: the caller keeps this contract.
        unsafe { multiply_blocks::<T, T::Accumulator>(left, right, out) };
    } else {
        // Wrapping to fewer digits at the end or at each step is the same.
        // SAFETY: the caller keeps this contract.
        unsafe { multiply_blocks::<T, T>(left, right, out) };
    }
}

/// `matrixmultiply`'s way of calling a product: lengths, then a factor, the left operand with its
/// strides, the right one, another factor, and the result with its strides.
type Gemm<U> = unsafe fn(
    usize,
    usize,
    usize,
    U,
    *const U,
    isize,
    isize,
    *const U,
    isize,
    isize,
    U,
    *mut U,
    isize,
    isize,
);

/// Writes the product to all of `out` by `function`.
///
/// # Safety
///
/// `T` must be `U`, and the memory of both matrices alive and not written to.
unsafe fn gemm<T: Element, U: Copy>(
    function: Gemm<U>,
    (zero, one): (U, U),
    left: &Matrix<T>,
    right: &Matrix<T>,
    out: &mut [MaybeUninit<T>],
) {
    // SAFETY: every element that the lengths and strides reach is one of a matrix, by its invariant;
    // `out` has the product's length and is borrowed exclusively. With a factor of 0 for what `out`
    // held, it is not read.
    unsafe {
        function(
            left.rows,
            left.columns,
            right.columns,
            one,
            left.first.cast(),
            left.row_stride,
            left.column_stride,
            right.first.cast(),
            right.row_stride,
            right.column_stride,
            zero,
            out.as_mut_ptr().cast(),
            right.columns as isize,
            1,
        );
    }
}

/// Writes the product to all of `out`, a block at a time, summing in `A`.
///
/// # Safety
///
/// The memory of both matrices must be alive and not written to.
unsafe fn multiply_blocks<T: Numeric, A: Numeric>(
    left: &Matrix<T>,
    right: &Matrix<T>,
    out: &mut [MaybeUninit<T>],
) {
    for row in (0..left.rows).step_by(BLOCK) {
        for column in (0..right.columns).step_by(BLOCK) {
            let height = BLOCK.min(left.rows - row);
            let width = BLOCK.min(right.columns - column);
            // SAFETY: the block lies within the product, and the caller keeps the rest.
            let sums = unsafe {
                sum_block::<T, A>(left, right, row..row + height, column..column + width)
            };
            for (line, sums) in sums[..height].iter().enumerate() {
                let start = (row + line) * right.columns + column;
                for (slot, &sum) in out[start..start + width].iter_mut().zip(sums) {
                    slot.write(convert(sum));
                }
            }
        }
    }
}

/// One block of a product, or of an operand.
type Block<A> = [[A; BLOCK]; BLOCK];

/// The elements of the product in `rows` and `columns`, at most [`BLOCK`] of each, as `A`.
///
/// # Safety
///
/// Both ranges must lie within the product, and the memory of both matrices must be alive and not
/// written to.
unsafe fn sum_block<T: Numeric, A: Numeric>(
    left: &Matrix<T>,
    right: &Matrix<T>,
    rows: Range<usize>,
    columns: Range<usize>,
) -> Block<A> {
    let mut sums = [[A::zero(); BLOCK]; BLOCK];
    let mut packed = sums;
    for start in (0..left.columns).step_by(BLOCK) {
        let depth = BLOCK.min(left.columns - start);
        for (step, line) in packed[..depth].iter_mut().enumerate() {
            for (slot, column) in line.iter_mut().zip(columns.clone()) {
                // SAFETY: `start + step` is below the inner length, the rest is this contract.
                *slot = convert(unsafe { right.at(start + step, column) });
            }
        }
        for (sums, row) in sums.iter_mut().zip(rows.clone()) {
            for (step, line) in packed[..depth].iter().enumerate() {
                // SAFETY: as above.
                let factor: A = convert(unsafe { left.at(row, start + step) });
                for (sum, &value) in sums.iter_mut().zip(line) {
                    *sum = sum.plus(factor.times(value));
                }
            }
        }
    }
    sums
}
