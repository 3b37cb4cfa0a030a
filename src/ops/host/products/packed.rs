//! Products of `f32` and `f64` by the [`gemm`] crate.

use std::mem::MaybeUninit;

use gemm::Parallelism;

use super::matrix::Matrix;
use crate::ops::host::launch::has_company;

/// Multiplications from which threads pay: about 40 µs of one.
pub(super) const SHARED: usize = 1 << 22;

/// Products of fewer multiplications are summed in the order of memory: packing would cost more.
const TINY: usize = 100;

/// Writes the product to all of `out`.
///
/// # Safety
///
/// `T` must be `U`, which is `f32` or `f64`, and the memory of both matrices alive and not written
/// to.
pub(super) unsafe fn multiply<T: Copy, U: num_traits::Float + 'static>(
    left: &Matrix<T>,
    right: &Matrix<T>,
    out: &mut [MaybeUninit<T>],
) {
    assert_eq!(size_of::<T>(), size_of::<U>());
    // Operands that are broadcast may be longer than any memory.
    let steps = (left.rows * right.columns).saturating_mul(left.columns);
    // SAFETY: the caller keeps this contract.
    unsafe {
        if steps <= TINY {
            return multiply_tiny::<T, U>(left, right, out);
        }
        let threads = if steps >= SHARED && has_company() {
            Parallelism::Rayon(0)
        } else {
            Parallelism::None
        };
        let result = Block {
            first: out.as_mut_ptr().cast(),
            row_stride: right.columns as isize,
            is_begun: false,
        };
        gemm_to::<U>(&left.cast(), &right.cast(), result, threads);
    }
}

/// Where a product is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<U> {
    pub(super) first: *mut U,
    pub(super) row_stride: isize,
    /// Whether the product is added to what stands there; else that is not read.
    pub(super) is_begun: bool,
}

/// Writes the product to `result`, whose columns stand together.
///
/// # Safety
///
/// `U` must be `f32` or `f64`; the memory of both matrices must be alive and not written to, and that
/// of the result be the caller's to write to, or to read too where it is begun.
pub(super) unsafe fn gemm_to<U: num_traits::Float + 'static>(
    left: &Matrix<U>,
    right: &Matrix<U>,
    result: Block<U>,
    threads: Parallelism,
) {
    debug_assert_eq!(left.columns, right.rows);
    // SAFETY: every element that the lengths and strides reach is one of a matrix, by its invariant,
    // or of the result, by this function's contract.
    unsafe {
        gemm::gemm(
            left.rows,
            right.columns,
            left.columns,
            result.first,
            1,
            result.row_stride,
            result.is_begun,
            left.first,
            left.column_stride,
            left.row_stride,
            right.first,
            right.column_stride,
            right.row_stride,
            U::one(),
            U::one(),
            false,
            false,
            false,
            threads,
        );
    }
}

/// As [`multiply`], row by row.
///
/// # Safety
///
/// As for [`multiply`].
unsafe fn multiply_tiny<T: Copy, U: num_traits::Float>(
    left: &Matrix<T>,
    right: &Matrix<T>,
    out: &mut [MaybeUninit<T>],
) {
    let (left, right) = (left.cast::<U>(), right.cast::<U>());
    for (row, line) in out.chunks_exact_mut(right.columns).enumerate() {
        for (column, slot) in line.iter_mut().enumerate() {
            let mut sum = U::zero();
            for step in 0..left.columns {
                // SAFETY: the indices are within the matrices, and the caller keeps the rest.
                let (x, y) = unsafe { (left.at(row, step), right.at(step, column)) };
                sum = sum + x * y;
            }
            // SAFETY: `U` is `T`, by the caller's contract.
            *slot = unsafe { std::mem::transmute_copy(&sum) };
        }
    }
}
