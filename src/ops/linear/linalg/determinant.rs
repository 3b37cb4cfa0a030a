//! The derivatives of determinants, from products of singular values. Nothing is divided. So the
//! derivatives are right for singular matrices, too, and for any choice of singular vectors.

use super::filled;
use super::gradients::{identity, t, untyped};
use super::solve::{det, inv};
use super::spectral::svd;
use crate::array::{AnyArray, Array, Writer};
use crate::error::Result;
use crate::ops::derivatives::{RuledOperation, constant};
use crate::ops::descriptors::Factorized;
use crate::ops::select;

/// Returns the gradient for the determinant: g times the cofactors.
#[track_caller]
pub(super) fn of_determinant<T: Factorized>(
    a: &Array<T>,
    gradient: &Array<T>,
) -> Result<Vec<AnyArray>> {
    let factor = gradient.unsqueeze(-1)?.unsqueeze(-1)?;
    Ok(untyped(&(cofactors(a)? * factor).eval_unfused()?))
}

/// Returns the determinants of matrices from their LU factors and pivots, which have a row for each
/// matrix. A determinant is the product of the diagonal, with the sign of the permutation. If the
/// product overflows or underflows, the determinant is computed from the sum of the logarithms,
/// which may fit.
#[cfg(feature = "cuda")]
#[track_caller]
pub(super) fn of_factors<T: Factorized>(
    factors: &Array<T>,
    pivots: &Array<i32>,
) -> Result<Array<T>> {
    let [batch @ .., n, _] = factors.shape() else {
        unreachable!("the factors are matrices");
    };
    let n = *n;
    let elements = factors.reshape([pivots.shape()[0], n * n])?;
    let diagonal = elements.layout().part(1, 0..n * n, n + 1)?;
    let diagonal = elements.viewed(diagonal);
    let places = {
        let _current = factors.device().enter();
        Array::<i32>::arange(1, n as i32 + 1, 1)?
    };
    let swaps = pivots.ne(&places).cast::<i32>().sum_axis(-1)?;
    let sign = ((swaps % 2).cast::<T>() * -(T::one() + T::one()) + T::one()).eval()?;
    let product = (diagonal.prod_axis(-1)? * &sign).eval()?;
    let size = diagonal.abs().ln().sum_axis(-1)?.exp();
    let signs = (diagonal.sign().prod_axis(-1)? * &sign).eval()?;
    let fits = product.abs().lt(T::max_value()).and(product.ne(T::zero()));
    let found = select(fits, &product, size * &signs).eval()?;
    found.reshape(batch)
}

/// Returns the matrices of cofactors. For A = U diag(s) Vᵀ, they are U C Vᵀ with the sign of det U
/// det V. C is the diagonal matrix of the products of all other singular values.
#[track_caller]
fn cofactors<T: Factorized>(a: &Array<T>) -> Result<Array<T>> {
    let step = RuledOperation::begin_typed("det", &[a])?;
    let factors = SingularFactors::of(a)?;
    let (before, after) = products_beside(&factors.s)?;
    let scaled = (&factors.u * (before * after).eval_unfused()?.unsqueeze(-2)?).eval_unfused()?;
    let result = (scaled.matmul(&factors.vt)? * &factors.sign).eval_unfused()?;
    Ok(step.finish_typed(result, |saved| {
        let a = saved.save_typed(a);
        move |gradient: AnyArray| {
            let of_a = cofactor_changes(&a, &gradient.into_array())?;
            Ok(untyped(&of_a))
        }
    }))
}

/// Returns the derivative of the cofactors along matrices Y. Let X be Uᵀ Y V, and M\[i, j] the
/// product of all singular values except i and j. The derivative is U (diag(M diag(X)) − M ∘ Xᵀ)
/// Vᵀ, with the sign of det U det V. Between two directions, it is symmetric: the second derivative
/// of the determinant.
#[track_caller]
fn cofactor_changes<T: Factorized>(a: &Array<T>, y: &Array<T>) -> Result<Array<T>> {
    let step = RuledOperation::begin_typed("det", &[a, y])?;
    let SingularFactors { u, s, vt, sign } = SingularFactors::of(a)?;
    let products = products_of_others(&s)?;
    let x = t(&u)?.matmul(&constant(y))?.matmul(&t(&vt)?)?;
    let diagonal = identity(&s, s.shape()[s.ndim() - 1])?;
    let values = (&x * &diagonal).sum_keepdims(-2)?;
    let sums = (&products * values).sum_keepdims(-1)?;
    let inner = (diagonal * sums - products * t(&x)?).eval_unfused()?;
    let result = (u.matmul(&inner)?.matmul(&vt)? * sign).eval_unfused()?;
    let of_a_is_wanted = step.wants(0);
    Ok(step.finish_typed(result, |saved| {
        let (a, y) = (saved.save_typed(a), saved.save_typed(y));
        move |gradient: AnyArray| {
            let gradient = gradient.into_array();
            let of_a = of_a_is_wanted
                .then(|| third(&a, &y, &gradient))
                .transpose()?;
            let of_y = cofactor_changes(&a, &gradient)?;
            let of_a = of_a.map(|of_a| AnyArray::of(&of_a));
            Ok(vec![of_a, Some(AnyArray::of(&of_y))])
        }
    }))
}

/// Returns the third derivative of the determinant of invertible matrices along Y and Z. With B =
/// A⁻¹, it is the gradient of det(A) (tr(B Y) tr(B Z) − tr(B Y B Z)).
#[track_caller]
fn third<T: Factorized>(a: &Array<T>, y: &Array<T>, z: &Array<T>) -> Result<Array<T>> {
    let inverse = inv(a)?;
    let (by, bz) = (inverse.matmul(y)?, inverse.matmul(z)?);
    let trace = |m: &Array<T>| -> Result<Array<T>> {
        let diagonal = identity(m, m.shape()[m.ndim() - 1])?;
        (m * diagonal).sum_keepdims([-2, -1])
    };
    let (of_y, of_z) = (trace(&by)?, trace(&bz)?);
    let (yz, zy) = (by.matmul(&bz)?, bz.matmul(&by)?);
    let of_both = trace(&yz)?;
    let own = (&of_y * &of_z - of_both).eval_unfused()?;
    let diagonal = identity(a, a.shape()[a.ndim() - 1])?;
    let inner = (diagonal * own - by * of_z - bz * of_y + yz + zy).eval_unfused()?;
    let factor = det(a)?.unsqueeze(-1)?.unsqueeze(-1)?;
    (t(&inner.matmul(&inverse)?)? * factor).eval_unfused()
}

/// Singular value decompositions, with the sign of det U det V, as matrices of one element.
struct SingularFactors<T: Factorized> {
    u: Array<T>,
    s: Array<T>,
    vt: Array<T>,
    sign: Array<T>,
}

impl<T: Factorized> SingularFactors<T> {
    /// Returns the factors of `a`, untracked. Large and small singular values alternate. So if the
    /// product of all values is in the type's range, so are products of consecutive values.
    #[track_caller]
    fn of(a: &Array<T>) -> Result<Self> {
        let (u, s, vt) = svd(&constant(a))?;
        let n = s.shape()[s.ndim() - 1];
        let places = n.into();
        let mut order = Writer::new(a.device(), &places)?;
        order.extend((0..n).map(|at| {
            let at = if at % 2 == 0 { at / 2 } else { n - 1 - at / 2 };
            at as i64
        }))?;
        let order = order.finish()?;
        let sign = (det(&u)? * det(&vt)?).eval_unfused()?;
        let sign = select(sign.gt(T::zero()), T::one(), -T::one()).eval_unfused()?;
        Ok(Self {
            u: u.take(&order, -1)?,
            s: s.take(&order, -1)?,
            vt: vt.take(&order, -2)?,
            sign: sign.unsqueeze(-1)?.unsqueeze(-1)?,
        })
    }
}

/// Returns, for each value of the last axis, the product of the values before it and of the values
/// after it.
#[track_caller]
fn products_beside<T: Factorized>(s: &Array<T>) -> Result<(Array<T>, Array<T>)> {
    let n = s.shape()[s.ndim() - 1];
    let ones = filled("det", s, &[n, n].into(), T::one())?;
    let product = |others: &Array<T>| -> Result<Array<T>> {
        // Row i has a 1 instead of each value that is none of the others of value i.
        let rows = select(others.gt(T::zero()), s.unsqueeze(-2)?, T::one());
        Ok(rows.eval_unfused()?.prod_axis(-1)?.downcast())
    };
    Ok((product(&ones.tril(-1)?)?, product(&ones.triu(1)?)?))
}

/// Returns, for each pair of different values of the last axis, the product of all others. The
/// diagonal is 0.
#[track_caller]
fn products_of_others<T: Factorized>(s: &Array<T>) -> Result<Array<T>> {
    let n = s.shape()[s.ndim() - 1];
    let ones = filled("det", s, &[n, n].into(), T::one())?;
    let (before, after) = products_beside(s)?;
    // Row i has the values after i. Its running product up to j − 1 has the values between i and j.
    let is_after = ones.triu(1)?.gt(T::zero()).eval_unfused()?;
    let rows = select(&is_after, s.unsqueeze(-2)?, T::one()).eval_unfused()?;
    let through: Array<T> = rows.cumprod(-1)?.downcast();
    let between = through.roll(1, -1)?;
    let products = before.unsqueeze(-1)? * between * after.unsqueeze(-2)?;
    let upper = select(&is_after, products, T::zero()).eval_unfused()?;
    (&upper + t(&upper)?).eval_unfused()
}
