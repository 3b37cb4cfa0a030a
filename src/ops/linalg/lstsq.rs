//! Least squares, of the singular value decomposition and products.

use super::solve::right_sides;
use super::spectral::svd_for;
use super::{Factorized, batch_of, filled, matrices, matrix_of};
use crate::array::Array;
use crate::error::Result;
use crate::ops::eval::same_device;
use crate::ops::index::check_size;
use crate::ops::select;

/// See [`lstsq`](crate::linalg::lstsq).
#[track_caller]
pub(super) fn lstsq<T: Factorized>(a: &Array<T>, b: &Array<T>) -> Result<Array<T>> {
    same_device("lstsq", a, b)?;
    let [m, n] = matrix_of("lstsq", a)?;
    let (right, shape) = right_sides("lstsq", a, b, m)?;
    let columns = right.shape()[right.ndim() - 1];
    let shape = matrices(batch_of(&shape), &[n, columns]);
    check_size::<T>("lstsq", &shape)?;
    let x = if shape.is_empty()? || m == 0 {
        filled("lstsq", a, &shape, T::zero())?
    } else {
        shortest(a, &right)?
    };
    if b.ndim() == 1 { x.squeeze(-1) } else { Ok(x) }
}

/// `v diag(1 / s) uᵀ right`, without the singular values that count as zero.
#[track_caller]
fn shortest<T: Factorized>(a: &Array<T>, right: &Array<T>) -> Result<Array<T>> {
    let longer = a.shape()[a.ndim() - 2..].iter().max();
    let (u, s, vt) = svd_for("lstsq", a)?;
    let relative = T::epsilon() * T::from_f64(longer.copied().unwrap_or(0) as f64);
    let least = (s.max_keepdims(-1)? * relative).eval()?;
    let inverse = select(s.gt(&least), s.recip(), T::zero()).eval()?;
    let parts = u.swap_axes(-2, -1)?.matmul(right)?;
    let scaled = (inverse.unsqueeze(-1)? * parts).eval()?;
    vt.swap_axes(-2, -1)?.matmul(&scaled)
}
