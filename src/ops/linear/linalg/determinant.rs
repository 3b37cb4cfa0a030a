//! The derivatives of determinants, from products of singular values. The first and second
//! derivatives do not divide. So they are also correct for singular matrices, and for any choice of
//! singular vectors.

use super::gradients::{identity, t};
use super::solve::{det, inv};
use super::spectral::svd;
use super::{filled, last_of};
use crate::array::{AnyArray, Writer};
#[cfg(feature = "cuda")]
use crate::array::{Array, DType};
use crate::error::Result;
use crate::ops::AnyLazy;
use crate::ops::derivatives::RuledOperation;

/// Returns the gradient of the matrices `a`: the gradient of the determinants times the cofactors.
#[track_caller]
pub(super) fn of_determinant(a: &AnyArray, gradient: &AnyArray) -> Result<AnyArray> {
    let factor = as_matrices(gradient)?;
    (cofactors(a)?.lazy() * factor.lazy()).eval()
}

#[track_caller]
fn as_matrices(values: &AnyArray) -> Result<AnyArray> {
    values.unsqueeze(-1)?.unsqueeze(-1)
}

/// Returns the determinants of matrices from their LU factors and pivots. `pivots` has a row for
/// each matrix. A determinant is the product of the diagonal, with the sign of the permutation. If
/// the product overflows or underflows, the determinant is computed from the sum of the logarithms.
#[cfg(feature = "cuda")]
#[track_caller]
pub(super) fn of_factors(factors: &AnyArray, pivots: &Array<i32>) -> Result<AnyArray> {
    let [batch @ .., n, _] = factors.dims() else {
        unreachable!("the factors are matrices");
    };
    let (n, dtype) = (*n, factors.dtype);
    let elements = factors.reshape(&[pivots.shape()[0], n * n].into())?;
    let diagonal = elements.viewed(elements.layout.part(1, 0..n * n, n + 1)?);
    let places = {
        let _current = factors.device().enter();
        Array::<i32>::arange(1, n as i32 + 1, 1)?
    };
    // The sign has a factor −1 for each exchange of two rows.
    let swaps = pivots.erased().lazy().ne(places.erased().lazy());
    let sign = (swaps.cast(dtype) * -2.0 + 1.0).prod_axis(-1)?.lazy();
    let product = (diagonal.lazy().prod_axis(-1)?.lazy() * sign.clone()).eval()?;
    let size = diagonal.lazy().abs().ln().sum_axis(-1)?.lazy().exp();
    let signs = (diagonal.lazy().sign().prod_axis(-1)?.lazy() * sign).eval()?;
    let largest = match dtype {
        DType::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    };
    let product = product.lazy();
    let [largest, zero] = [largest, 0.0].map(|value| AnyLazy::number(dtype, value));
    let fits = (product.clone().abs().lt(largest)).and(product.clone().ne(zero));
    let found = AnyLazy::select(fits, product, size * signs.lazy()).eval()?;
    found.reshape(&batch.into())
}

/// Returns the matrices of cofactors. For A = U diag(s) Vᵀ, they are U C Vᵀ with the sign of det U
/// det V. C is a diagonal matrix. Each diagonal element is the product of all other singular
/// values.
#[track_caller]
fn cofactors(a: &AnyArray) -> Result<AnyArray> {
    let step = RuledOperation::begin("det", &[a])?;
    let factors = SingularFactors::of(a)?;
    let (before, after) = products_beside(&factors.s)?;
    let products = (before.lazy() * after.lazy()).eval()?.unsqueeze(-2)?;
    let scaled = (factors.u.lazy() * products.lazy()).eval()?;
    let result = (scaled.matmul(&factors.vt)?.lazy() * factors.sign.lazy()).eval()?;
    Ok(step.finish(result, |saved| {
        let a = saved.save(a);
        move |gradient| Ok(vec![cofactor_changes(&a, &gradient)?])
    }))
}

/// Returns the derivative of the cofactors along matrices Y. Let X be Uᵀ Y V, and M\[i, j] the
/// product of all singular values except i and j. The derivative is U (diag(M diag(X)) − M ∘ Xᵀ)
/// Vᵀ, with the sign of det U det V. The derivative of the cofactors is symmetric in two
/// directions, because it is the second derivative of the determinant.
#[track_caller]
fn cofactor_changes(a: &AnyArray, y: &AnyArray) -> Result<AnyArray> {
    let step = RuledOperation::begin("det", &[a, y])?;
    let SingularFactors { u, s, vt, sign } = SingularFactors::of(a)?;
    let products = products_of_others(&s)?;
    let x = t(&u)?.matmul(&y.share().untracked())?.matmul(&t(&vt)?)?;
    let diagonal = identity(&s, last_of(&s))?;
    let values = (x.lazy() * diagonal.lazy()).sum_keepdims(-2)?;
    let sums = (products.lazy() * values.lazy()).sum_keepdims(-1)?;
    let inner = diagonal.lazy() * sums.lazy() - products.lazy() * t(&x)?.lazy();
    let inner = u.matmul(&inner.eval()?)?.matmul(&vt)?;
    let result = (inner.lazy() * sign.lazy()).eval()?;
    let of_a_is_wanted = step.wants(0);
    Ok(step.finish(result, |saved| {
        let (a, y) = (saved.save(a), saved.save(y));
        move |gradient: AnyArray| {
            let of_a = of_a_is_wanted.then(|| third(&a, &y, &gradient));
            let of_y = cofactor_changes(&a, &gradient)?;
            Ok(vec![of_a.transpose()?, Some(of_y)])
        }
    }))
}

/// Returns the third derivative of the determinant of invertible matrices along Y and Z. Let B be
/// A⁻¹. The third derivative is the gradient of det(A) (tr(B Y) tr(B Z) − tr(B Y B Z)).
#[track_caller]
fn third(a: &AnyArray, y: &AnyArray, z: &AnyArray) -> Result<AnyArray> {
    let inverse = inv(a)?;
    let (by, bz) = (inverse.matmul(y)?, inverse.matmul(z)?);
    let diagonal = identity(a, last_of(a))?;
    let trace = |m: &AnyArray| (m.lazy() * diagonal.lazy()).sum_keepdims([-2, -1]);
    let (of_y, of_z) = (trace(&by)?.lazy(), trace(&bz)?.lazy());
    let (yz, zy) = (by.matmul(&bz)?, bz.matmul(&by)?);
    let own = (of_y.clone() * of_z.clone() - trace(&yz)?.lazy()).eval()?;
    let inner = diagonal.lazy() * own.lazy() - by.lazy() * of_z - bz.lazy() * of_y;
    let inner = (inner + yz.lazy() + zy.lazy()).eval()?;
    let factor = as_matrices(&det(a)?)?;
    (t(&inner.matmul(&inverse)?)?.lazy() * factor.lazy()).eval()
}

/// Singular value decompositions, with the sign of det U det V as a matrix of one element.
struct SingularFactors {
    u: AnyArray,
    s: AnyArray,
    vt: AnyArray,
    sign: AnyArray,
}

impl SingularFactors {
    /// Returns the untracked factors of `a`, reordered so that large and small singular values
    /// alternate. So if the product of all values is in the type's range, products of consecutive
    /// values are in the range, too.
    #[track_caller]
    fn of(a: &AnyArray) -> Result<Self> {
        let [u, s, vt] = svd(&a.share().untracked())?;
        let n = last_of(&s);
        let places = n.into();
        let mut order = Writer::new(a.device(), &places)?;
        order.extend((0..n).map(|at| {
            let at = if at % 2 == 0 { at / 2 } else { n - 1 - at / 2 };
            at as i64
        }))?;
        let order = order.finish()?;
        let sign = (det(&u)?.lazy() * det(&vt)?.lazy()).eval()?.lazy();
        let [zero, one, minus] = [0.0, 1.0, -1.0].map(|value| AnyLazy::number(a.dtype, value));
        let sign = AnyLazy::select(sign.gt(zero), one, minus).eval()?;
        Ok(Self {
            u: u.take(&order, -1)?,
            s: s.take(&order, -1)?,
            vt: vt.take(&order, -2)?,
            sign: as_matrices(&sign)?,
        })
    }
}

/// Returns, for each value of the last axis, two products: of the values before it, and of the
/// values after it.
#[track_caller]
fn products_beside(s: &AnyArray) -> Result<(AnyArray, AnyArray)> {
    let n = last_of(s);
    let ones = filled("det", s, &[n, n].into(), 1.0)?;
    let [zero, one] = [0.0, 1.0].map(|value| AnyLazy::number(s.dtype, value));
    let product = |others: AnyArray| {
        // Row i has a 1 in place of each value that is not a factor of product i.
        let are_others = others.lazy().gt(zero.clone());
        let rows = AnyLazy::select(are_others, s.unsqueeze(-2)?.lazy(), one.clone());
        rows.eval()?.lazy().prod_axis(-1)
    };
    Ok((product(ones.tril(-1)?)?, product(ones.triu(1)?)?))
}

/// Returns, for each pair of values of the last axis, the product of all other values. The diagonal
/// is 0.
#[track_caller]
fn products_of_others(s: &AnyArray) -> Result<AnyArray> {
    let n = last_of(s);
    let ones = filled("det", s, &[n, n].into(), 1.0)?;
    let (before, after) = products_beside(s)?;
    let [zero, one] = [0.0, 1.0].map(|value| AnyLazy::number(s.dtype, value));
    // Row i has the values after i. Its running product up to j − 1 has the values between i and j.
    let is_after = ones.triu(1)?.lazy().gt(zero.clone()).eval()?.lazy();
    let rows = AnyLazy::select(is_after.clone(), s.unsqueeze(-2)?.lazy(), one).eval()?;
    let between = rows.cumprod(-1)?.roll(1, -1)?.lazy();
    let products = before.unsqueeze(-1)?.lazy() * between * after.unsqueeze(-2)?.lazy();
    let upper = AnyLazy::select(is_after, products, zero).eval()?;
    (upper.lazy() + t(&upper)?.lazy()).eval()
}
