//! Least squares, by the singular value decomposition and products.

use super::solve::right_sides;
use super::spectral::svd_for;
use super::{batch_of, filled, gradients, matrices, matrix_of};
use crate::array::{AnyArray, Array};
use crate::error::Result;
use crate::ops::derivatives::{RuledOperation, constant, is_tracked};
use crate::ops::descriptors::Factorized;
use crate::ops::dispatch::same_device;
use crate::ops::index::check_size;
use crate::ops::select;

#[track_caller]
pub(super) fn lstsq<T: Factorized>(a: &Array<T>, b: &Array<T>) -> Result<Array<T>> {
    same_device("lstsq", ("a", a.erased()), ("b", b.erased()))?;
    let [m, n] = matrix_of("lstsq", a)?;
    let (right, shape) = right_sides("lstsq", a, b, m)?;
    let columns = right.shape()[right.ndim() - 1];
    let shape = matrices(batch_of(&shape), &[n, columns]);
    check_size("lstsq", &shape, T::DTYPE)?;
    let step = RuledOperation::begin_typed("lstsq", &[a, b])?;
    if shape.checked_is_empty()? || m == 0 {
        let x = filled("lstsq", a, &shape, T::zero())?;
        let x = if b.ndim() == 1 { x.squeeze(-1)? } else { x };
        let [x] = step.finish_empty_typed([x]);
        return Ok(x);
    }
    let (a, b) = (&constant(a), &constant(b));
    let right = constant(&right);
    let is_vector = b.ndim() == 1;
    let inverse = inverse_factors(a)?;
    let x = inverse.times(&right)?;
    let result = if is_vector { x.squeeze(-1)? } else { x.clone() };
    Ok(step.finish_typed(result, |saved| {
        let (a, right, x) = (
            saved.save_typed(a),
            saved.save_typed(&right),
            saved.save_typed(&x),
        );
        let [u, scales, vt] =
            [&inverse.u, &inverse.inverse, &inverse.vt].map(|own| saved.save_recomputed_typed(own));
        let inverse = Inverse {
            u,
            inverse: scales,
            vt,
        };
        move |gradient: AnyArray| {
            let gradient = gradient.into_array();
            let gradient = if is_vector {
                gradient.unsqueeze(-1)?
            } else {
                gradient
            };
            let inverse = match is_tracked(&a)? {
                true => pseudoinverse(&a)?,
                false => inverse.matrix()?,
            };
            let [of_a, of_b] = gradients::of_least_squares(&a, &inverse, [&right, &x], &gradient)?;
            let of_b = if is_vector { of_b.squeeze(-1)? } else { of_b };
            Ok(vec![AnyArray::of(&of_a), AnyArray::of(&of_b)])
        }
    }))
}

/// Returns the pseudoinverse of `a`, which the tape tracks.
#[track_caller]
fn pseudoinverse<T: Factorized>(a: &Array<T>) -> Result<Array<T>> {
    let step = RuledOperation::begin_typed("lstsq", &[a])?;
    let inverse = inverse_factors(&constant(a))?.matrix()?;
    Ok(step.finish_typed(inverse.clone(), |saved| {
        let (a, inverse) = (saved.save_typed(&constant(a)), saved.save_typed(&inverse));
        move |gradient: AnyArray| {
            let of_a = gradients::of_pseudoinverse(&a, &inverse, &gradient.into_array())?;
            Ok(vec![AnyArray::of(&of_a)])
        }
    }))
}

/// The pseudoinverse, in factors: V diag(inverse) Uᵀ.
#[derive(Clone)]
struct Inverse<T: Factorized> {
    u: Array<T>,
    /// The reciprocals of the singular values, with 0 for values that are zero up to rounding.
    inverse: Array<T>,
    vt: Array<T>,
}

#[track_caller]
fn inverse_factors<T: Factorized>(a: &Array<T>) -> Result<Inverse<T>> {
    let longer = a.shape()[a.ndim() - 2..].iter().max();
    let (u, s, vt) = svd_for("lstsq", a)?;
    let relative = T::epsilon() * T::from_f64(longer.copied().unwrap_or(0) as f64);
    let least = (s.max_keepdims(-1)? * relative).eval_unfused()?;
    let inverse = select(s.gt(&least), s.recip(), T::zero()).eval_unfused()?;
    Ok(Inverse { u, inverse, vt })
}

impl<T: Factorized> Inverse<T> {
    #[track_caller]
    fn times(&self, right: &Array<T>) -> Result<Array<T>> {
        let parts = self.u.swap_axes(-2, -1)?.matmul(right)?;
        let scaled = (self.inverse.unsqueeze(-1)? * parts).eval_unfused()?;
        self.vt.swap_axes(-2, -1)?.matmul(&scaled)
    }

    #[track_caller]
    fn matrix(&self) -> Result<Array<T>> {
        let turned = self.u.swap_axes(-2, -1)?;
        let scaled = (self.inverse.unsqueeze(-1)? * turned).eval_unfused()?;
        self.vt.swap_axes(-2, -1)?.matmul(&scaled)
    }
}
