//! The QR factorization.

use faer::dyn_stack::MemStack;
use faer::linalg::householder::{
    apply_block_householder_sequence_on_the_left_in_place_scratch,
    apply_block_householder_sequence_on_the_left_in_place_with_conj,
};
use faer::linalg::qr::no_pivoting::factor::{
    qr_in_place, qr_in_place_scratch, recommended_block_size,
};
use faer::prelude::{Reborrow, ReborrowMut};
use faer::traits::RealField;
use faer::{Conj, MatMut, Spec};

use crate::Outcome;
use crate::workspace::{buffer, parallel, to_rows, workspace};

/// Implements [`Real::qr`](crate::Real::qr).
pub(crate) fn factor<T: RealField + Copy>(
    columns: &mut [T],
    q: &mut [T],
    r: &mut [T],
    [m, n]: [usize; 2],
    threads: usize,
) -> Outcome {
    let size = m.min(n);
    if size == 0 {
        return Ok(());
    }
    let par = parallel(threads);
    let block = recommended_block_size::<T>(m, n);
    let mut coefficients = buffer(block * size, T::zero_impl())?;
    let factoring = qr_in_place_scratch::<T>(m, n, block, par, Spec::default());
    let applying =
        apply_block_householder_sequence_on_the_left_in_place_scratch::<T>(m, block, size);
    let mut memory = workspace(factoring.or(applying))?;
    let stack = MemStack::new(&mut memory);
    let mut matrix = MatMut::from_column_major_slice_mut(columns, m, n);
    let mut coefficients = MatMut::from_column_major_slice_mut(&mut coefficients, block, size);
    qr_in_place(
        matrix.rb_mut(),
        coefficients.rb_mut(),
        par,
        stack,
        Spec::default(),
    );
    let mut columns_of_q = buffer(m * size, T::zero_impl())?;
    let mut unit = MatMut::from_column_major_slice_mut(&mut columns_of_q, m, size);
    unit.rb_mut().diagonal_mut().fill(T::one_impl());
    apply_block_householder_sequence_on_the_left_in_place_with_conj(
        matrix.rb().subcols(0, size),
        coefficients.rb(),
        Conj::No,
        unit,
        par,
        stack,
    );
    to_rows(&columns_of_q, q, m);
    for (row, out) in r.chunks_exact_mut(n).enumerate() {
        for (column, slot) in out.iter_mut().enumerate() {
            *slot = match column < row {
                true => T::zero_impl(),
                false => columns[column * m + row],
            };
        }
    }
    Ok(())
}
