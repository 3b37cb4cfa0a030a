//! Products of a matrix and a vector. If the columns of the matrix are contiguous, the product is
//! summed along the columns, otherwise along the rows.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use super::is;
use super::matrix::Matrix;
use crate::Number;
use crate::element::scalar::convert;
use crate::reduce::{ACCUMULATORS, add_accumulators};
use crate::vector::{Loop, rolled, vectorised};

/// The number of elements of the vector that are multiplied at once. As `f64`, they fit into the
/// first-level cache together with a part of the matrix.
const DEPTH: usize = 1024;

/// The number of results that are summed at once. The results fit into the first-level cache.
pub const HEIGHT: usize = 256;

/// Writes the product of `matrix` and the row `vector` to all of `out`. The sums are in `A`, and
/// the results in `U`.
///
/// # Safety
///
/// `vector` must have one row, and as many columns as `matrix`. `out` must be as long as `matrix`
/// has rows. The memory of both matrices must be alive and not written to.
pub unsafe fn matrix_vector<T: Number, A: Number, U: Number>(
    matrix: &Matrix<T>,
    vector: &Matrix<T>,
    out: &mut [MaybeUninit<U>],
) {
    assert!(vector.rows == 1 && vector.columns == matrix.columns && out.len() == matrix.rows);
    let work = MatrixVector {
        matrix,
        vector,
        sums: PhantomData::<A>,
    };
    vectorised(work, out);
}

/// The matrices of [`matrix_vector`]. The sums of the product are in `A`.
///
/// Invariant: the contract of [`matrix_vector`] holds.
struct MatrixVector<'a, T, A> {
    matrix: &'a Matrix<T>,
    vector: &'a Matrix<T>,
    sums: PhantomData<A>,
}

impl<T: Number, A: Number, U: Number> Loop<[MaybeUninit<U>]> for MatrixVector<'_, T, A> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [MaybeUninit<U>]) {
        // SAFETY: by the invariant, the contract of [`multiply`] holds.
        unsafe { multiply::<T, A, U, FMA>(self.matrix, self.vector, out) };
    }
}

/// # Safety
///
/// The contract of [`matrix_vector`] must hold.
#[inline(always)]
unsafe fn multiply<T: Number, A: Number, U: Number, const FMA: bool>(
    matrix: &Matrix<T>,
    vector: &Matrix<T>,
    out: &mut [MaybeUninit<U>],
) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        if matrix.row_stride == 1 && matrix.rows > 1 {
            let mut sums = [A::zero(); HEIGHT];
            for (index, out) in out.chunks_mut(HEIGHT).enumerate() {
                let matrix = matrix.rows(index * HEIGHT..index * HEIGHT + out.len());
                by_columns::<T, A, FMA>(&matrix, vector, &mut sums[..out.len()]);
                write_all(&sums, out);
            }
        } else if is_stored_as::<T, A>(vector) {
            let factors = std::slice::from_raw_parts(vector.first.cast(), vector.columns);
            for (row, slot) in out.iter_mut().enumerate() {
                let sum = sum_row::<T, A, FMA>(&matrix.part(row, 0, 1, matrix.columns), factors);
                slot.write(convert(sum));
            }
        } else {
            let mut sums = [A::zero(); HEIGHT];
            for (index, out) in out.chunks_mut(HEIGHT).enumerate() {
                let matrix = matrix.rows(index * HEIGHT..index * HEIGHT + out.len());
                by_rows::<T, A, FMA>(&matrix, vector, &mut sums[..out.len()]);
                write_all(&sums, out);
            }
        }
    }
}

#[inline(always)]
fn is_stored_as<T: Number, A: Number>(row: &Matrix<T>) -> bool {
    is::<T, A>() && row.column_stride == 1
}

#[inline(always)]
fn write_all<A: Number, U: Number>(sums: &[A], out: &mut [MaybeUninit<U>]) {
    for (slot, &sum) in out.iter_mut().zip(sums) {
        slot.write(convert(sum));
    }
}

/// Sets `sums` to the product of `matrix` and `vector`. The columns of `matrix` must be contiguous.
///
/// # Safety
///
/// The contract of [`matrix_vector`] must hold.
#[inline(always)]
unsafe fn by_columns<T: Number, A: Number, const FMA: bool>(
    matrix: &Matrix<T>,
    vector: &Matrix<T>,
    sums: &mut [A],
) {
    sums.fill(A::zero());
    let rows = sums.len();
    let mut column = 0;
    while column + 4 <= matrix.columns {
        // SAFETY: the four columns are within the matrix and contiguous. By this function's
        // contract, the operands are readable.
        let ((a, p), (b, q), (c, r), (d, s)) = unsafe {
            (
                factor_and_values::<T, A>(matrix, vector, column, rows),
                factor_and_values::<T, A>(matrix, vector, column + 1, rows),
                factor_and_values::<T, A>(matrix, vector, column + 2, rows),
                factor_and_values::<T, A>(matrix, vector, column + 3, rows),
            )
        };
        for index in 0..rows {
            let index = rolled::<FMA>(index);
            let first = a.times(convert(p[index])).plus(b.times(convert(q[index])));
            let second = c.times(convert(r[index])).plus(d.times(convert(s[index])));
            sums[index] = sums[index].plus(first.plus(second));
        }
        column += 4;
    }
    for column in column..matrix.columns {
        // SAFETY: the column is within the matrix and contiguous. By this function's contract, the
        // operands are readable.
        let (factor, values) = unsafe { factor_and_values::<T, A>(matrix, vector, column, rows) };
        for index in 0..rows {
            let index = rolled::<FMA>(index);
            sums[index] = sums[index].plus(factor.times(convert(values[index])));
        }
    }
}

/// Returns an element of `vector`, and the column of `matrix` that it multiplies.
///
/// # Safety
///
/// The column must be within `matrix` and `vector`, and its `rows` elements must be contiguous. The
/// memory of `matrix` and `vector` must be alive and not written to.
#[inline(always)]
unsafe fn factor_and_values<'a, T: Number, A: Number>(
    matrix: &Matrix<T>,
    vector: &Matrix<T>,
    column: usize,
    rows: usize,
) -> (A, &'a [T]) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        let values = std::slice::from_raw_parts(matrix.address(0, column), rows);
        (convert(vector.at(0, column)), values)
    }
}

/// Sets `sums` to the product of `matrix` and `vector`, row by row. Converts the vector to `A`, one
/// part after another.
///
/// # Safety
///
/// The contract of [`matrix_vector`] must hold.
#[inline(always)]
unsafe fn by_rows<T: Number, A: Number, const FMA: bool>(
    matrix: &Matrix<T>,
    vector: &Matrix<T>,
    sums: &mut [A],
) {
    let mut factors_memory = [A::zero(); DEPTH];
    for start in (0..matrix.columns).step_by(DEPTH) {
        let depth = DEPTH.min(matrix.columns - start);
        let factors = &mut factors_memory[..depth];
        for (column, slot) in factors.iter_mut().enumerate() {
            // SAFETY: the column is within the vector, which is readable by this function's
            // contract.
            *slot = convert(unsafe { vector.at(0, start + column) });
        }
        for (row, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the part is within the matrix, which is readable by this function's contract.
            let more = unsafe { sum_row::<T, A, FMA>(&matrix.part(row, start, 1, depth), factors) };
            *sum = if start == 0 { more } else { sum.plus(more) };
        }
    }
}

/// Returns the sum of the products of a row's elements and `factors`. `factors` must be as long as
/// the row.
///
/// # Safety
///
/// The memory of the row must be alive and not written to.
#[inline(always)]
unsafe fn sum_row<T: Number, A: Number, const FMA: bool>(row: &Matrix<T>, factors: &[A]) -> A {
    assert_eq!(row.columns, factors.len());
    if row.column_stride == 1 {
        // SAFETY: the elements of the row are contiguous, and readable by this function's contract.
        return sum_products::<T, A, FMA>(
            unsafe { std::slice::from_raw_parts(row.first, row.columns) },
            factors,
        );
    }
    let mut sum = A::zero();
    for column in 0..factors.len() {
        let column = rolled::<FMA>(column);
        // SAFETY: the column is within the row, which is readable by this function's contract.
        let value: A = convert(unsafe { row.at(0, column) });
        sum = sum.plus(factors[column].times(value));
    }
    sum
}

#[inline(always)]
fn sum_products<T: Number, A: Number, const FMA: bool>(values: &[T], factors: &[A]) -> A {
    let (value_blocks, last_values) = values.as_chunks::<ACCUMULATORS>();
    let (factor_blocks, last_factors) = factors.as_chunks::<ACCUMULATORS>();
    let mut accumulators = [A::zero(); ACCUMULATORS];
    for (values, factors) in value_blocks.iter().zip(factor_blocks) {
        for at in 0..ACCUMULATORS {
            let at = rolled::<FMA>(at);
            accumulators[at] = accumulators[at].plus(factors[at].times(convert(values[at])));
        }
    }
    add_accumulators::<_, FMA>(accumulators).plus(sum_last::<T, A, FMA>(last_values, last_factors))
}

/// Returns the sum like [`sum_products`], for fewer than [`ACCUMULATORS`] elements.
#[inline(always)]
fn sum_last<T: Number, A: Number, const FMA: bool>(values: &[T], factors: &[A]) -> A {
    let (value_blocks, last_values) = values.as_chunks::<8>();
    let (factor_blocks, last_factors) = factors.as_chunks::<8>();
    let mut accumulators = [A::zero(); 8];
    for (values, factors) in value_blocks.iter().zip(factor_blocks) {
        for at in 0..8 {
            let at = rolled::<FMA>(at);
            accumulators[at] = accumulators[at].plus(factors[at].times(convert(values[at])));
        }
    }
    let mut sum = A::zero();
    for at in accumulators {
        sum = sum.plus(at);
    }
    for (&value, &factor) in last_values.iter().zip(last_factors) {
        sum = sum.plus(factor.times(convert(value)));
    }
    sum
}
