//! Products of `f32` and `f64` by the crates [`gemm_f32`] and [`gemm_f64`]. The crate `gemm` also
//! contains products of complex numbers, which take longer to compile than all its other code. So
//! the two crates are used directly.

use gemm_common::Parallelism;

use super::ProductPlace;
use super::matrix::Matrix;

/// Products of fewer multiplications are summed in the order of memory: packing would cost more.
const TINY: usize = 100;

/// Types whose matrices are multiplied by packing them.
pub trait Packed: num_traits::Float + 'static {
    /// Sets `result` to `left right`, or adds the product to it.
    ///
    /// # Safety
    ///
    /// As for [`gemm_to`].
    unsafe fn gemm(left: &Matrix<Self>, right: &Matrix<Self>, result: PackedResult<Self>);
}

macro_rules! packed {
    ($($type:ident by $gemm:expr;)+) => {
        $(
            impl Packed for $type {
                unsafe fn gemm(
                    left: &Matrix<Self>,
                    right: &Matrix<Self>,
                    result: PackedResult<Self>,
                ) {
                    // The kernels require contiguous columns of the result, but its rows are
                    // contiguous. So the transposed product is computed from the transposed
                    // matrices.
                    let (rows, inner, columns) = (right.columns, right.rows, left.rows);
                    // SAFETY: by this function's contract.
                    unsafe {
                        $gemm(
                            rows,
                            columns,
                            inner,
                            result.first,
                            result.row_stride,
                            result.column_stride,
                            result.is_begun,
                            right.first,
                            right.row_stride,
                            right.column_stride,
                            left.first,
                            left.row_stride,
                            left.column_stride,
                            1.0,
                            result.factor,
                            false,
                            false,
                            false,
                            Parallelism::None,
                        );
                    }
                }
            }
        )+
    };
}

packed! {
    f32 by gemm_f32::gemm::f32::get_gemm_fn();
    f64 by gemm_f64::gemm::f64::get_gemm_fn();
}

/// Writes the product to `place`.
///
/// # Safety
///
/// The memory of both matrices must be alive and not written to. The place must have room for the
/// product, and nobody else may hold it.
pub unsafe fn multiply<U: Packed>(left: &Matrix<U>, right: &Matrix<U>, place: ProductPlace<U>) {
    // Operands that are broadcast may be longer than any memory.
    let steps = (left.rows * right.columns).saturating_mul(left.columns);
    // SAFETY: the caller keeps this contract.
    unsafe {
        if steps <= TINY {
            return multiply_tiny(left, right, place);
        }
        let result = PackedResult {
            first: place.first.cast(),
            row_stride: place.row_stride as isize,
            column_stride: 1,
            is_begun: false,
            factor: U::one(),
        };
        gemm_to(left, right, result);
    }
}

/// The memory that a product is written to.
#[derive(Clone, Copy, Debug)]
pub struct PackedResult<U> {
    pub first: *mut U,
    pub row_stride: isize,
    pub column_stride: isize,
    /// `true` if the product is added to the values in memory. Otherwise, the values are not read.
    pub is_begun: bool,
    /// The factor of the product.
    pub factor: U,
}

/// Writes the product to `result`.
///
/// # Safety
///
/// `U` must be `f32` or `f64`. The memory of both matrices must be alive and not written to. The
/// memory of the result must be the caller's to write to. If the result is begun, it must also be
/// readable.
pub unsafe fn gemm_to<U: Packed>(left: &Matrix<U>, right: &Matrix<U>, result: PackedResult<U>) {
    debug_assert_eq!(left.columns, right.rows);
    let (mut left, mut right) = (*left, *right);
    if right.row_stride < 0 {
        // Sums go from the last term to the first, so that the strides of the right matrix are
        // positive.
        left = left.transposed().reversed().transposed();
        right = right.reversed();
    }
    // SAFETY: the lengths and strides reach only elements of the matrices, by their invariant, and
    // of the result, by this function's contract.
    unsafe { U::gemm(&left, &right, result) };
}

/// Like [`multiply`], row by row.
///
/// # Safety
///
/// As for [`multiply`].
unsafe fn multiply_tiny<U: num_traits::Float>(
    left: &Matrix<U>,
    right: &Matrix<U>,
    place: ProductPlace<U>,
) {
    for row in 0..left.rows {
        for column in 0..right.columns {
            let mut sum = U::zero();
            for step in 0..left.columns {
                // SAFETY: the indices are within the matrices, and the caller keeps the rest.
                let (x, y) = unsafe { (left.at(row, step), right.at(step, column)) };
                sum = sum + x * y;
            }
            // SAFETY: there is room for the product, by the caller's contract.
            unsafe {
                let slot = place.first.add(row * place.row_stride + column);
                slot.cast::<U>().write(sum);
            }
        }
    }
}
