//! The singular value decomposition.

use faer::diag::DiagMut;
use faer::dyn_stack::MemStack;
use faer::linalg::svd::{ComputeSvdVectors, svd, svd_scratch};
use faer::traits::RealField;
use faer::{MatMut, MatRef, Spec};

use crate::workspace::{buffer, parallel, to_rows, workspace};
use crate::{Failure, Outcome};

/// Implements [`Real::svd`](crate::Real::svd).
pub(crate) fn factor<T: RealField + Copy>(
    rows: &[T],
    values: &mut [T],
    vectors: Option<[&mut [T]; 2]>,
    [m, n]: [usize; 2],
    threads: usize,
) -> Outcome {
    let size = m.min(n);
    if size == 0 {
        return Ok(());
    }
    if !rows.iter().all(|element| T::is_finite_impl(element)) {
        return Err(Failure::NotConverged);
    }
    let par = parallel(threads);
    let wanted = match vectors {
        Some(_) => ComputeSvdVectors::Thin,
        None => ComputeSvdVectors::No,
    };
    // The rows of a matrix are the columns of its transpose. Therefore the transpose is factorized:
    // if a = u s vᵀ, then aᵀ = v s uᵀ.
    let needed = svd_scratch::<T>(n, m, wanted, wanted, par, Spec::default());
    let mut memory = workspace(needed)?;
    let stack = MemStack::new(&mut memory);
    let transposed = MatRef::from_column_major_slice(rows, n, m);
    let values = DiagMut::from_slice_mut(values);
    let Some([u, vt]) = vectors else {
        return svd(transposed, values, None, None, par, stack, Spec::default())
            .map_err(|_| Failure::NotConverged);
    };
    let mut columns = buffer(m * size, T::zero_impl())?;
    let left = MatMut::from_column_major_slice_mut(vt, n, size);
    let right = MatMut::from_column_major_slice_mut(&mut columns, m, size);
    svd(
        transposed,
        values,
        Some(left),
        Some(right),
        par,
        stack,
        Spec::default(),
    )
    .map_err(|_| Failure::NotConverged)?;
    to_rows(&columns, u, m);
    Ok(())
}
