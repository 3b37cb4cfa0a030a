//! Least squares by the singular value decomposition.

use super::solve::right_sides;
use super::spectral::svd_for;
use super::{batch_of, epsilon_of, filled, gradients, last_of, matrices, matrix_of};
use crate::array::AnyArray;
use crate::error::Result;
use crate::ops::AnyLazy;
use crate::ops::derivatives::{RuledOperation, is_any_tracked};
use crate::ops::dispatch::same_device;
use crate::ops::index::check_size;

/// See [`lstsq`](crate::linalg::lstsq).
#[track_caller]
pub(super) fn lstsq(a: &AnyArray, b: &AnyArray) -> Result<AnyArray> {
    same_device("lstsq", ("a", a), ("b", b))?;
    let [m, n] = matrix_of("lstsq", a)?;
    let (right, shape) = right_sides("lstsq", a, b, m)?;
    let shape = matrices(batch_of(&shape), &[n, last_of(&right)]);
    check_size("lstsq", &shape, a.dtype)?;
    let step = RuledOperation::begin("lstsq", &[a, b])?;
    let is_vector = b.layout.ndim() == 1;
    let as_b = move |x: AnyArray| match is_vector {
        true => x.squeeze(-1),
        false => Ok(x),
    };
    if shape.checked_is_empty()? || m == 0 {
        let x = as_b(filled("lstsq", a, &shape, 0.0)?)?;
        let [x] = step.finish_empty([x]);
        return Ok(x);
    }
    let (a, right) = (&a.share().untracked(), right.untracked());
    let inverse = Inverse::of(a)?;
    let x = inverse.times(&right)?;
    Ok(step.finish(as_b(x.share())?, |saved| {
        let [a, right, x] = [a, &right, &x].map(|own| saved.save(own));
        let inverse = Inverse {
            u: saved.save_recomputed(&inverse.u),
            inverse: saved.save_recomputed(&inverse.inverse),
            vt: saved.save_recomputed(&inverse.vt),
        };
        move |gradient: AnyArray| {
            let gradient = match is_vector {
                true => gradient.unsqueeze(-1)?,
                false => gradient,
            };
            let inverse = match is_any_tracked(&[&a])? {
                true => pseudoinverse(&a)?,
                false => inverse.matrix()?,
            };
            let [of_a, of_b] = gradients::of_least_squares(&a, &inverse, [&right, &x], &gradient)?;
            Ok(vec![of_a, as_b(of_b)?])
        }
    }))
}

/// Returns the pseudoinverse of `a`. The tape tracks the pseudoinverse.
#[track_caller]
fn pseudoinverse(a: &AnyArray) -> Result<AnyArray> {
    let step = RuledOperation::begin("lstsq", &[a])?;
    let a = a.share().untracked();
    let inverse = Inverse::of(&a)?.matrix()?;
    Ok(step.finish(inverse.share(), |saved| {
        let (a, inverse) = (saved.save(&a), saved.save(&inverse));
        move |gradient| Ok(vec![gradients::of_pseudoinverse(&a, &inverse, &gradient)?])
    }))
}

/// The factors of the pseudoinverse V diag(inverse) Uᵀ.
#[derive(Clone)]
struct Inverse {
    u: AnyArray,
    /// The reciprocals of the singular values, with 0 for values that are zero up to rounding.
    inverse: AnyArray,
    vt: AnyArray,
}

impl Inverse {
    #[track_caller]
    fn of(a: &AnyArray) -> Result<Self> {
        let longer = a.dims()[a.layout.ndim() - 2..].iter().max();
        let [u, s, vt] = svd_for("lstsq", a)?;
        let relative = epsilon_of(a.dtype) * longer.copied().unwrap_or(0) as f64;
        let least = (s.lazy().max_keepdims(-1)?.lazy() * relative).eval()?;
        let zero = AnyLazy::number(s.dtype, 0.0);
        let is_above = s.lazy().gt(least.lazy());
        let inverse = AnyLazy::select(is_above, s.lazy().recip(), zero).eval()?;
        Ok(Self { u, inverse, vt })
    }

    #[track_caller]
    fn times(&self, right: &AnyArray) -> Result<AnyArray> {
        self.scaled(&self.u.swap_axes(-2, -1)?.matmul(right)?)
    }

    #[track_caller]
    fn matrix(&self) -> Result<AnyArray> {
        self.scaled(&self.u.swap_axes(-2, -1)?)
    }

    /// Returns V diag(inverse) times `rows`.
    #[track_caller]
    fn scaled(&self, rows: &AnyArray) -> Result<AnyArray> {
        let scaled = (self.inverse.unsqueeze(-1)?.lazy() * rows.lazy()).eval()?;
        self.vt.swap_axes(-2, -1)?.matmul(&scaled)
    }
}
