//! Products of integers and of small complex matrices, block by block. Integers wrap, so the order
//! of the terms and the width of the sums' type do not change the results.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::matrix::Matrix;
use crate::Number;
use crate::element::scalar::convert;
use crate::vector::{Loop, vectorised};

/// The number of rows and columns of the result that are summed at once. The constant is also the
/// number of terms of a sum that are added at once. A block of the right operand and the block of
/// sums together fit into the first-level cache.
pub const BLOCK: usize = 32;

type PackedResult<T> = [[T; BLOCK]; BLOCK];

/// Fills `out` with the product. The sums of the product are in `A`.
///
/// # Safety
///
/// The memory of both matrices must be alive and not written to.
pub unsafe fn multiply<T: Number, A: Number>(
    left: &Matrix<T>,
    right: &Matrix<T>,
    out: &mut [MaybeUninit<T>],
) {
    let sums = PhantomData::<A>;
    vectorised(BlockProduct { left, right, sums }, out);
}

/// The matrices of [`multiply`]. The sums of the product are in `A`.
///
/// Invariant: the contract of [`multiply`] holds.
struct BlockProduct<'a, T, A> {
    left: &'a Matrix<T>,
    right: &'a Matrix<T>,
    sums: PhantomData<A>,
}

impl<T: Number, A: Number> Loop<[MaybeUninit<T>]> for BlockProduct<'_, T, A> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [MaybeUninit<T>]) {
        let (left, right) = (self.left, self.right);
        for row in (0..left.rows).step_by(BLOCK) {
            for column in (0..right.columns).step_by(BLOCK) {
                let rows = row..(row + BLOCK).min(left.rows);
                let columns = column..(column + BLOCK).min(right.columns);
                let mut sums = [[A::zero(); BLOCK]; BLOCK];
                // SAFETY: the block is within the product. By the invariant, the operands are alive
                // and not written to.
                unsafe { sum_block(left, right, rows.clone(), columns.clone(), &mut sums) };
                for (row, sums) in rows.zip(&sums) {
                    let start = row * right.columns;
                    let line = &mut out[start + columns.start..start + columns.end];
                    for (slot, &sum) in line.iter_mut().zip(sums) {
                        slot.write(convert(sum));
                    }
                }
            }
        }
    }
}

/// Adds the elements of the product in `rows` and `columns` to `sums`. There are at most [`BLOCK`]
/// rows and at most [`BLOCK`] columns.
///
/// # Safety
///
/// `rows` and `columns` must be within the product. The memory of both matrices must be alive and
/// not written to.
#[inline(always)]
unsafe fn sum_block<T: Number, A: Number>(
    left: &Matrix<T>,
    right: &Matrix<T>,
    rows: Range<usize>,
    columns: Range<usize>,
    sums: &mut PackedResult<A>,
) {
    let mut packed = [[A::zero(); BLOCK]; BLOCK];
    for start in (0..left.columns).step_by(BLOCK) {
        let depth = BLOCK.min(left.columns - start);
        for (step, line) in packed[..depth].iter_mut().enumerate() {
            for (slot, column) in line.iter_mut().zip(columns.clone()) {
                // SAFETY: `start + step` is below the inner length. By this function's contract,
                // the column is within the product and the matrix is readable.
                *slot = convert(unsafe { right.at(start + step, column) });
            }
        }
        for (sums, row) in sums.iter_mut().zip(rows.clone()) {
            let mut line = *sums;
            for (step, values) in packed[..depth].iter().enumerate() {
                // SAFETY: `start + step` is below the inner length. By this function's contract,
                // the row is within the product and the matrix is readable.
                let factor: A = convert(unsafe { left.at(row, start + step) });
                for (sum, &value) in line.iter_mut().zip(values) {
                    *sum = sum.plus(factor.times(value));
                }
            }
            *sums = line;
        }
    }
}
