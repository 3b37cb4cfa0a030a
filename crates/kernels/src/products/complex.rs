//! Products of complex matrices, as four products of their real and imaginary parts. The parts are
//! views of the matrices' memory with twice the strides, so no data is copied.
//!
//! The complex kernels of the crate `gemm` are not used. They would need more compile time than all
//! its other kernels.

use num_complex::Complex;

use super::ProductPlace;
use super::matrix::Matrix;
use super::packed::{Packed, PackedResult, gemm_to};

/// The minimum number of multiplications. Products with fewer multiplications are summed block by
/// block, because four calls of `gemm` would take longer.
pub const LEAST: usize = 1000;

/// Writes the product to `place`.
///
/// # Safety
///
/// The memory of both matrices must be alive and not written to. The place must be writable for the
/// product, and no other code may access it.
pub unsafe fn multiply<U: Packed>(
    left: &Matrix<Complex<U>>,
    right: &Matrix<Complex<U>>,
    place: ProductPlace<Complex<U>>,
) {
    let ([left_re, left_im], [right_re, right_im]) = (left.parts(), right.parts());
    let [out_re, out_im] = [0, 1].map(|part| place.first.cast::<U>().wrapping_add(part));
    let add = |left: &Matrix<U>, right: &Matrix<U>, first, is_begun, factor| {
        let result = PackedResult {
            first,
            row_stride: 2 * place.row_stride as isize,
            column_stride: 2,
            is_begun,
            factor,
        };
        // SAFETY: a complex number is its real part followed by its imaginary part. Therefore the
        // parts are in the memory of the numbers. By this function's contract, the operands are
        // readable and the place is writable.
        unsafe { gemm_to::<U>(left, right, result) };
    };
    add(&left_re, &right_re, out_re, false, U::one());
    add(&left_im, &right_im, out_re, true, -U::one());
    add(&left_re, &right_im, out_im, false, U::one());
    add(&left_im, &right_re, out_im, true, U::one());
}
