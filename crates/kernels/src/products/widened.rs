//! Products of `f16` and `bf16`, computed in `f32`. A product can be added to values in memory. In
//! this case, only the sum is rounded.
//!
//! The crate `gemm` has a product for `f16`. If the inner length is large or an operand is a
//! vector, this product rounds intermediate sums to `f16`.

use std::mem::MaybeUninit;

use super::matrix::Matrix;
use super::packed::{PackedResult, gemm_to};
use crate::AnyElement;
use crate::element::scalar::convert;
use crate::vector::{Loop, vectorised};

/// The number of rows of the result that one thread sums at once.
pub const ROWS: usize = 128;
/// The number of columns of the result that are summed at once.
const COLUMNS: usize = 512;
/// The number of terms of a sum that are added at once. The blocks of both operands and the block
/// of sums together fit into the second-level cache.
const DEPTH: usize = 256;

#[derive(Debug, Default)]
struct WideOperands {
    left: Vec<f32>,
    right: Vec<f32>,
    sums: Vec<f32>,
}

/// Writes the product of at most [`ROWS`] rows to all of `out`. If `is_begun`, adds the product
/// instead.
///
/// # Safety
///
/// The memory of both matrices must be alive and not written to. If `is_begun`, all of `out` must
/// be initialised.
pub unsafe fn multiply<T: AnyElement, U: AnyElement>(
    left: &Matrix<T>,
    right: &Matrix<T>,
    out: &mut [MaybeUninit<U>],
    is_begun: bool,
) {
    let mut scratch = WideOperands::default();
    for column in (0..right.columns).step_by(COLUMNS) {
        let width = COLUMNS.min(right.columns - column);
        scratch.sums.clear();
        scratch.sums.resize(left.rows * width, 0.0);
        for step in (0..left.columns).step_by(DEPTH) {
            let depth = DEPTH.min(left.columns - step);
            let sums = PackedResult {
                first: scratch.sums.as_mut_ptr(),
                row_stride: width as isize,
                column_stride: 1,
                is_begun: step > 0,
                factor: 1.0,
            };
            // SAFETY: the parts are within their matrices. By this function's contract, the memory
            // of the matrices is alive and not written to. The sums are writable for the product of
            // the parts.
            unsafe {
                let left = widen(&left.part(0, step, left.rows, depth), &mut scratch.left);
                let right = widen(&right.part(step, column, depth, width), &mut scratch.right);
                gemm_to(&left, &right, sums);
            }
        }
        let lines = out.chunks_exact_mut(right.columns);
        for (line, sums) in lines.zip(scratch.sums.chunks_exact(width)) {
            let slots = &mut line[column..column + width];
            // SAFETY: by this function's contract, `slots` are initialised if `is_begun`.
            unsafe { store(sums, slots, is_begun) };
        }
    }
}

/// Converts the elements of a matrix to `f32` in `scratch`, in the order of memory.
///
/// # Safety
///
/// The memory of the matrix must be alive and not written to.
unsafe fn widen<T: AnyElement>(matrix: &Matrix<T>, scratch: &mut Vec<f32>) -> Matrix<f32> {
    if matrix.row_stride.unsigned_abs() < matrix.column_stride.unsigned_abs() {
        // SAFETY: the caller upholds this function's contract.
        return unsafe { widen(&matrix.transposed(), scratch) }.transposed();
    }
    scratch.clear();
    scratch.resize(matrix.rows * matrix.columns, 0.0);
    vectorised(Widen(matrix), &mut scratch[..]);
    Matrix {
        first: scratch.as_ptr(),
        rows: matrix.rows,
        columns: matrix.columns,
        row_stride: matrix.columns as isize,
        column_stride: 1,
    }
}

/// A matrix that a loop writes as `f32`, row by row.
///
/// Invariant: the matrix's memory is alive and not written to.
struct Widen<'a, T>(&'a Matrix<T>);

impl<T: AnyElement> Loop<[f32]> for Widen<'_, T> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [f32]) {
        let Self(matrix) = self;
        for (row, line) in out.chunks_exact_mut(matrix.columns).enumerate() {
            if matrix.column_stride == 1 {
                // SAFETY: the elements of the row are contiguous. By the invariant, their memory is
                // readable.
                let values =
                    unsafe { std::slice::from_raw_parts(matrix.address(row, 0), matrix.columns) };
                for (slot, &value) in line.iter_mut().zip(values) {
                    *slot = convert(value);
                }
            } else {
                for (column, slot) in line.iter_mut().enumerate() {
                    // SAFETY: the indices are within the matrix. By the invariant, the matrix is
                    // readable.
                    *slot = convert(unsafe { matrix.at(row, column) });
                }
            }
        }
    }
}

/// Writes `sums` to `out`, rounded to the type of `out`. If `is_begun`, adds the sums instead.
///
/// # Safety
///
/// If `is_begun`, all of `out` must be initialised.
pub unsafe fn store<U: AnyElement>(sums: &[f32], out: &mut [MaybeUninit<U>], is_begun: bool) {
    match is_begun {
        true => vectorised(Add(sums), out),
        false => vectorised(Narrow(sums), out),
    }
}

/// Sums that a loop rounds to the type of the output.
struct Narrow<'a>(&'a [f32]);

impl<T: AnyElement> Loop<[MaybeUninit<T>]> for Narrow<'_> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [MaybeUninit<T>]) {
        for (slot, &sum) in out.iter_mut().zip(self.0) {
            slot.write(convert(sum));
        }
    }
}

/// Sums that a loop adds to the values of the output.
///
/// Invariant: the output is initialised.
struct Add<'a>(&'a [f32]);

impl<T: AnyElement> Loop<[MaybeUninit<T>]> for Add<'_> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [MaybeUninit<T>]) {
        for (slot, &sum) in out.iter_mut().zip(self.0) {
            // SAFETY: by the invariant, the slot is initialised.
            let value: f32 = convert(unsafe { slot.assume_init() });
            slot.write(convert(sum + value));
        }
    }
}
