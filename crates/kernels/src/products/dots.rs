//! Products of a few rows and a matrix whose columns are contiguous, such as the transposed weight
//! of a layer. Each element is a dot product. The crate `gemm` would first transpose the matrix.
//! The transposition would take longer than the product.
//!
//! The order of an element's terms depends only on the inner length. Therefore the number of
//! threads does not change the bits.

use super::ProductPlace;
use super::matrix::Matrix;
use crate::registers::{RegisterFloat, RegisterLoop, VectorOf, with_longest_registers};

/// The maximum number of rows of the left matrix. The first bound is for a right matrix that fits
/// into the first-level cache. The second bound is for a larger right matrix. With more rows, a
/// transposition takes a small part of the time.
const MOST_ROWS: [usize; 2] = [16, 64];
/// The maximum size of a matrix that fits into the first-level cache.
const SMALL_BYTES: usize = 1 << 15;
/// The minimum length of a dot product. For shorter dot products, the final sums of registers take
/// most of the time.
const LEAST_INNER: usize = 64;
/// The number of columns whose sums are in registers at once. Each register of a row is multiplied
/// by each register of a column.
const TILE: usize = 4;

/// Returns whether the matrices suit dot products. The rows of `left` and the columns of `right`
/// must be contiguous. A transposition of `right` must take longer than it would save.
pub fn fit<T>((left, right): (Matrix<T>, Matrix<T>)) -> bool {
    let are_contiguous = left.column_stride == 1 && right.row_stride == 1;
    let is_transposed = right.column_stride != 1 && right.columns >= TILE;
    let bytes = (right.columns.saturating_mul(right.rows)).saturating_mul(size_of::<T>());
    let most_rows = MOST_ROWS[usize::from(bytes > SMALL_BYTES)];
    let are_few = left.rows <= most_rows && left.columns >= LEAST_INNER;
    are_contiguous && is_transposed && are_few
}

/// Writes the product to `place`.
///
/// # Safety
///
/// The matrices must [fit](fit), and their memory must be alive and not written to. The place must
/// be writable for the product, and no other code may access it.
pub unsafe fn multiply<U: RegisterFloat>(
    left: &Matrix<U>,
    right: &Matrix<U>,
    place: ProductPlace<U>,
) {
    assert!(right.columns >= TILE);
    let (left, right) = (*left, *right);
    with_longest_registers(Dots { left, right, place });
}

/// The matrices of [`multiply`], and the memory of their product.
///
/// Invariant: the contract of [`multiply`] holds.
struct Dots<U> {
    left: Matrix<U>,
    right: Matrix<U>,
    place: ProductPlace<U>,
}

impl<U: RegisterFloat> RegisterLoop<U> for Dots<U> {
    #[inline(always)]
    unsafe fn run<V: VectorOf<U>>(self) {
        // With 16 registers, at most eight sums stay in registers. SAFETY: the caller upholds this
        // function's contract.
        unsafe {
            match V::IS_WIDE {
                true => self.run_tiles::<V, 4>(),
                false if V::IS_PLAIN => self.run_tiles::<V, 1>(),
                false => self.run_tiles::<V, 2>(),
            }
        }
    }
}

impl<U: RegisterFloat> Dots<U> {
    /// Computes the whole product, `HEIGHT` rows at once.
    ///
    /// # Safety
    ///
    /// The processor must support the instructions of `V`.
    #[inline(always)]
    unsafe fn run_tiles<V: VectorOf<U>, const HEIGHT: usize>(&self) {
        let (rows, columns) = (self.left.rows, self.right.columns);
        // The columns of a tile stay in the first-level cache while all rows are multiplied by
        // them.
        for column in (0..columns).step_by(TILE) {
            // The last tile may overlap the previous tile. Both tiles write equal elements.
            let column = column.min(columns - TILE);
            // SAFETY: the rows and columns are within the matrices. By this function's contract,
            // the processor supports the instructions of `V`.
            unsafe {
                if rows < HEIGHT {
                    (0..rows).for_each(|row| self.tile::<V, 1>(row, column));
                } else {
                    let rows = (0..rows).step_by(HEIGHT).map(|row| row.min(rows - HEIGHT));
                    rows.for_each(|row| self.tile::<V, HEIGHT>(row, column));
                }
            }
        }
    }

    /// Computes the elements of `ROWS` rows and [`TILE`] columns.
    ///
    /// # Safety
    ///
    /// The rows and columns must be within the matrices. The processor must support the
    /// instructions of `V`.
    #[inline(always)]
    unsafe fn tile<V: VectorOf<U>, const ROWS: usize>(&self, row: usize, column: usize) {
        let inner = self.left.columns;
        let lefts: [*const U; ROWS] = std::array::from_fn(|at| self.left.address(row + at, 0));
        let rights: [*const U; TILE] = std::array::from_fn(|at| self.right.address(0, column + at));
        let whole = inner - inner % V::LANES;
        // SAFETY: by the invariant, the rows and columns have `inner` contiguous elements, and the
        // place is writable. By this function's contract, the processor supports the instructions
        // of `V`.
        unsafe {
            let mut sums = [[V::splat(U::zero()); TILE]; ROWS];
            for at in (0..whole).step_by(V::LANES) {
                let factors = rights.map(|right| V::load(right.add(at)));
                for (sums, left) in sums.iter_mut().zip(lefts) {
                    let value = V::load(left.add(at));
                    for (sum, factor) in sums.iter_mut().zip(factors) {
                        *sum = sum.plus_product(value, factor);
                    }
                }
            }
            for (down, (sums, left)) in sums.into_iter().zip(lefts).enumerate() {
                let first = (row + down) * self.place.row_stride + column;
                let slots = self.place.first.add(first);
                for (along, (sum, right)) in sums.into_iter().zip(rights).enumerate() {
                    let last = (whole..inner).fold(sum.total(), |sum, at| {
                        sum.plus_product(left.add(at).read(), right.add(at).read())
                    });
                    slots.add(along).cast::<U>().write(last);
                }
            }
        }
    }
}
