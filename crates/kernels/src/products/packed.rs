//! Products of `f32` and `f64` by the crates [`gemm_f32`] and [`gemm_f64`]. The crate `gemm` also
//! contains products of complex numbers. These products need more compile time than all its other
//! code. Therefore `gemm_f32` and `gemm_f64` are used directly.

use gemm_common::Parallelism;

use super::ProductPlace;
use super::matrix::Matrix;

/// The maximum number of multiplications of a product that is computed without packing. For such
/// products, packing would take longer.
const TINY: usize = 100;

/// Types whose matrices can be packed and multiplied.
pub trait Packed: num_traits::Float + 'static {
    /// Sets `result` to `left right`, or adds `left right` to it.
    ///
    /// # Safety
    ///
    /// The contract of [`gemm_to`] must hold.
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
                    // The kernels require contiguous columns of the result, but the result has
                    // contiguous rows. Therefore the kernels multiply the transposed matrices, and
                    // return the transposed product.
                    let (rows, inner, columns) = (right.columns, right.rows, left.rows);
                    // SAFETY: the caller upholds this function's contract.
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
/// The memory of both matrices must be alive and not written to. The place must be writable for the
/// product, and no other code may access it.
pub unsafe fn multiply<U: Packed>(left: &Matrix<U>, right: &Matrix<U>, place: ProductPlace<U>) {
    // The multiplication saturates, because broadcast operands may have more elements than any
    // memory.
    let steps = (left.rows * right.columns).saturating_mul(left.columns);
    // SAFETY: the caller upholds this function's contract.
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

/// The memory that a product is written to, and the factor of the product.
#[derive(Clone, Copy, Debug)]
pub struct PackedResult<U> {
    pub first: *mut U,
    pub row_stride: isize,
    pub column_stride: isize,
    /// `true` if the product is added to the values in memory. Otherwise, the values are not read.
    pub is_begun: bool,
    /// The factor that the product is multiplied by.
    pub factor: U,
}

/// Writes the product to `result`.
///
/// # Safety
///
/// `U` must be `f32` or `f64`. The memory of both matrices must be alive and not written to. Only
/// the caller may access the memory of the result, which must be writable. If `is_begun` is `true`,
/// the memory must also be readable.
pub unsafe fn gemm_to<U: Packed>(left: &Matrix<U>, right: &Matrix<U>, result: PackedResult<U>) {
    debug_assert_eq!(left.columns, right.rows);
    let (mut left, mut right) = (*left, *right);
    if right.row_stride < 0 {
        // The terms of a sum are added in reverse order. Then the row stride of the right matrix is
        // positive.
        left = left.transposed().reversed().transposed();
        right = right.reversed();
    }
    // SAFETY: by the invariant of the matrices, the lengths and strides reach only their elements.
    // By this function's contract, the result is writable.
    unsafe { U::gemm(&left, &right, result) };
}

/// Multiplies like [`multiply`], row by row.
///
/// # Safety
///
/// The contract of [`multiply`] must hold.
unsafe fn multiply_tiny<U: num_traits::Float>(
    left: &Matrix<U>,
    right: &Matrix<U>,
    place: ProductPlace<U>,
) {
    for row in 0..left.rows {
        for column in 0..right.columns {
            let mut sum = U::zero();
            for step in 0..left.columns {
                // SAFETY: the indices are within the matrices. By this function's contract, the
                // matrices are readable.
                let (x, y) = unsafe { (left.at(row, step), right.at(step, column)) };
                sum = sum + x * y;
            }
            // SAFETY: by this function's contract, the place is writable for the product.
            unsafe {
                let slot = place.first.add(row * place.row_stride + column);
                slot.cast::<U>().write(sum);
            }
        }
    }
}
