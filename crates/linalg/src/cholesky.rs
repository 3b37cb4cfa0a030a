//! The Cholesky factorization.

use std::cmp::Ordering;

use faer::dyn_stack::MemStack;
use faer::linalg::cholesky::llt::factor::{LltError, cholesky_in_place, cholesky_in_place_scratch};
use faer::traits::RealField;
use faer::{MatMut, Spec};

use crate::workspace::{parallel, workspace};
use crate::{Failure, Outcome};

/// Implements [`Real::cholesky`](crate::Real::cholesky).
pub(crate) fn factor<T: RealField + Copy>(
    columns: &mut [T],
    lower: &mut [T],
    n: usize,
    threads: usize,
) -> Outcome {
    if n == 0 {
        return Ok(());
    }
    let par = parallel(threads);
    let mut memory = workspace(cholesky_in_place_scratch::<T>(n, par, Spec::default()))?;
    let stack = MemStack::new(&mut memory);
    let matrix = MatMut::from_column_major_slice_mut(columns, n, n);
    let outcome = cholesky_in_place(matrix, Default::default(), par, stack, Spec::default());
    if let Err(LltError::NonPositivePivot { index }) = outcome {
        return Err(Failure::NotPositiveDefinite(index + 1));
    }
    for (row, out) in lower.chunks_exact_mut(n).enumerate() {
        for (column, slot) in out.iter_mut().enumerate() {
            *slot = match column <= row {
                true => columns[column * n + row],
                false => T::zero_impl(),
            };
        }
        // The negated comparison also rejects NaN.
        if out[row].partial_cmp(&T::zero_impl()) != Some(Ordering::Greater) {
            return Err(Failure::NotPositiveDefinite(row + 1));
        }
    }
    Ok(())
}
