//! The functions that use the LU factorization with partial pivoting.

use faer::linalg::lu::partial_pivoting::{factor, solve};
use faer::prelude::{Reborrow, ReborrowMut};
use faer::traits::RealField;
use faer::{MatMut, Spec};

use crate::workspace::{buffer, parallel, workspace};
use crate::{Failure, Outcome};

pub(crate) fn solve<T: RealField>(
    columns: &mut [T],
    right: &mut [T],
    n: usize,
    threads: usize,
) -> Outcome {
    if n == 0 {
        return Ok(());
    }
    let count = right.len() / n;
    let right = MatMut::from_row_major_slice_mut(right, n, count);
    solve_into(columns, right, n, threads)
}

pub(crate) fn invert<T: RealField>(
    columns: &mut [T],
    inverse: &mut [T],
    n: usize,
    threads: usize,
) -> Outcome {
    if n == 0 {
        return Ok(());
    }
    let mut right = MatMut::from_row_major_slice_mut(inverse, n, n);
    right.fill(T::zero_impl());
    right.rb_mut().diagonal_mut().fill(T::one_impl());
    solve_into(columns, right, n, threads)
}

fn solve_into<T: RealField>(
    columns: &mut [T],
    right: MatMut<'_, T>,
    n: usize,
    threads: usize,
) -> Outcome {
    let par = parallel(threads);
    let mut places = buffer(2 * n, 0_usize)?;
    let (forward, backward) = places.split_at_mut(n);
    let factoring = factor::lu_in_place_scratch::<usize, T>(n, n, par, Spec::default());
    let solving = solve::solve_in_place_scratch::<usize, T>(n, right.ncols(), par);
    let mut memory = workspace(factoring.or(solving))?;
    let stack = faer::dyn_stack::MemStack::new(&mut memory);
    let mut lu = MatMut::from_column_major_slice_mut(columns, n, n);
    let (_, order) =
        factor::lu_in_place(lu.rb_mut(), forward, backward, par, stack, Spec::default());
    let lu = lu.rb();
    if let Some(pivot) = (0..n).find(|&index| lu[(index, index)] == T::zero_impl()) {
        return Err(Failure::Singular(pivot));
    }
    solve::solve_in_place(lu, lu, order, right, par, stack);
    Ok(())
}

/// Writes the pivots to the diagonal of `columns`, and returns the number of row exchanges.
pub(crate) fn pivots<T: RealField>(columns: &mut [T], n: usize, threads: usize) -> Outcome<usize> {
    if n == 0 {
        return Ok(0);
    }
    let par = parallel(threads);
    let mut places = buffer(2 * n, 0_usize)?;
    let (forward, backward) = places.split_at_mut(n);
    let needed = factor::lu_in_place_scratch::<usize, T>(n, n, par, Spec::default());
    let mut memory = workspace(needed)?;
    let stack = faer::dyn_stack::MemStack::new(&mut memory);
    let lu = MatMut::from_column_major_slice_mut(columns, n, n);
    let (info, _) = factor::lu_in_place(lu, forward, backward, par, stack, Spec::default());
    Ok(info.transposition_count)
}
