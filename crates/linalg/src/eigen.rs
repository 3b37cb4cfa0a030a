//! The eigenvalues and eigenvectors of symmetric matrices.

use faer::diag::DiagMut;
use faer::dyn_stack::MemStack;
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::traits::RealField;
use faer::{MatMut, MatRef, Spec};

use crate::workspace::{buffer, parallel, to_rows, workspace};
use crate::{Failure, Outcome};

/// Implements [`Real::eigh`](crate::Real::eigh).
pub(crate) fn factor<T: RealField + Copy>(
    rows: &[T],
    values: &mut [T],
    vectors: Option<&mut [T]>,
    n: usize,
    threads: usize,
) -> Outcome {
    if n == 0 {
        return Ok(());
    }
    let mut lower = (rows.chunks_exact(n).enumerate()).flat_map(|(row, of)| &of[..=row]);
    if !lower.all(|element| T::is_finite_impl(element)) {
        return Err(Failure::NotConverged);
    }
    let par = parallel(threads);
    let wanted = match vectors {
        Some(_) => ComputeEigenvectors::Yes,
        None => ComputeEigenvectors::No,
    };
    let needed = self_adjoint_evd_scratch::<T>(n, wanted, par, Spec::default());
    let mut memory = workspace(needed)?;
    let stack = MemStack::new(&mut memory);
    let matrix = MatRef::from_row_major_slice(rows, n, n);
    let values = DiagMut::from_slice_mut(values);
    let mut columns = match vectors {
        Some(_) => buffer(n * n, T::zero_impl())?,
        None => Vec::new(),
    };
    let found = match vectors {
        Some(_) => Some(MatMut::from_column_major_slice_mut(&mut columns, n, n)),
        None => None,
    };
    self_adjoint_evd(matrix, values, found, par, stack, Spec::default())
        .map_err(|_| Failure::NotConverged)?;
    if let Some(vectors) = vectors {
        to_rows(&columns, vectors, n);
    }
    Ok(())
}
