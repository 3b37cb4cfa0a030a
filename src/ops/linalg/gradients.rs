//! The gradients of factorizations, after Giles, "Collected matrix derivative results for forward
//! and reverse mode algorithmic differentiation" (2008). Cholesky follows Murray (2016), QR follows
//! Walter and Lehmann (2010).
//!
//! Gradients are infinite if there are several solutions, such as the vectors of equal eigenvalues.

use super::filled;
use super::solve::solve;
use crate::array::Array;
use crate::error::Result;
use crate::ops::derivatives::AnyArray;
use crate::ops::descriptors::Factorized;
use crate::ops::select;

/// Returns the transposed matrices.
#[track_caller]
fn t<T: Factorized>(a: &Array<T>) -> Result<Array<T>> {
    a.swap_axes(-2, -1)
}

/// Returns (A + Aᵀ) / 2, which changes only matrices that are not symmetric.
#[track_caller]
fn symmetric<T: Factorized>(a: &Array<T>) -> Result<Array<T>> {
    ((a + t(a)?) * T::from_f64(0.5)).eval()
}

/// Returns an optional gradient with its type, or zeros of the shape of `like` if there is none.
#[track_caller]
fn typed<T: Factorized>(gradient: Option<AnyArray>, like: &Array<T>) -> Result<Array<T>> {
    match gradient {
        Some(gradient) => Ok(gradient.into_array()),
        None => filled("zeros", like, like.layout().shape(), T::zero()),
    }
}

fn untyped<T: Factorized>(array: &Array<T>) -> Vec<AnyArray> {
    vec![AnyArray::of(array)]
}

/// Returns the gradients for x = A⁻¹ b: A⁻ᵀ g for b, and −(A⁻ᵀ g) xᵀ for A. If b is a vector, there
/// is one vector x for each matrix.
#[track_caller]
pub(super) fn of_solution<T: Factorized>(
    a: &Array<T>,
    x: &Array<T>,
    gradient: &Array<T>,
    is_vector: bool,
) -> Result<Vec<AnyArray>> {
    let (gradient, rows) = match is_vector {
        true => (gradient.unsqueeze(-1)?, x.unsqueeze(-2)?),
        false => (gradient.clone(), t(x)?),
    };
    let columns = solve(&t(a)?, &gradient)?;
    let of_b = match is_vector {
        true => columns.squeeze(-1)?,
        false => columns.clone(),
    };
    let of_a = (-columns.matmul(&rows)?).eval()?;
    Ok(vec![AnyArray::of(&of_a), AnyArray::of(&of_b)])
}

/// Returns the gradient for X = A⁻¹: −Xᵀ g Xᵀ.
#[track_caller]
pub(super) fn of_inverse<T: Factorized>(
    inverse: &Array<T>,
    gradient: &Array<T>,
) -> Result<Vec<AnyArray>> {
    let turned = t(inverse)?;
    let product = turned.matmul(gradient)?.matmul(&turned)?;
    Ok(untyped(&(-product).eval()?))
}

/// Returns the gradient for the determinant: g times the cofactors. They are computed from the
/// singular value decomposition, so that they exist for singular matrices, too.
#[track_caller]
pub(super) fn of_determinant<T: Factorized>(
    a: &Array<T>,
    gradient: &Array<T>,
) -> Result<Vec<AnyArray>> {
    let (u, s, vt) = super::spectral::svd(a)?;
    let sign = (super::solve::det(&u)? * super::solve::det(&vt)?).eval()?;
    let others = products_of_others(&s)?;
    let scaled = (u * others.unsqueeze(-2)?).eval()?;
    let factor = (sign * gradient).eval()?.unsqueeze(-1)?.unsqueeze(-1)?;
    Ok(untyped(&(scaled.matmul(&vt)? * factor).eval()?))
}

/// Returns, for each value of the last axis, the product of the others.
#[track_caller]
fn products_of_others<T: Factorized>(s: &Array<T>) -> Result<Array<T>> {
    let n = s.shape()[s.ndim() - 1];
    let diagonal = identity(s, n)?;
    // Row i has a 1 instead of value i.
    let rows = select(diagonal.gt(T::zero()), T::one(), s.unsqueeze(-2)?);
    Ok(rows.eval()?.prod_axis(-1)?.downcast())
}

/// Returns the unit matrix of n rows, on the device of `like`.
#[track_caller]
fn identity<T: Factorized>(like: &Array<T>, n: usize) -> Result<Array<T>> {
    filled("identity", like, &n.into(), T::one())?.diag(0)
}

/// Returns the gradient for the factor L of A = L Lᵀ: the symmetric part of L⁻ᵀ Φ(Lᵀ g) L⁻¹, where
/// Φ takes the lower triangle and half of the diagonal.
#[track_caller]
pub(super) fn of_cholesky<T: Factorized>(
    lower: &Array<T>,
    gradient: &Array<T>,
) -> Result<Vec<AnyArray>> {
    let turned = t(lower)?;
    let product = turned.matmul(gradient)?;
    let half = ((product.tril(0)? + product.tril(-1)?) * T::from_f64(0.5)).eval()?;
    let left = solve(&turned, &half)?;
    let both = solve(&turned, &t(&left)?)?;
    Ok(untyped(&symmetric(&t(&both)?)?))
}

/// Returns the gradient for the factors of A = Q R: (g_Q + Q copy(M)) R⁻ᵀ with M = R g_Rᵀ − g_Qᵀ Q,
/// where copy mirrors the lower triangle. For the columns of wide matrices beyond the square part,
/// it is Q times the gradient of R's columns.
#[track_caller]
pub(super) fn of_qr<T: Factorized>(
    a: &Array<T>,
    [q, r]: [&Array<T>; 2],
    [of_q, of_r]: [Option<AnyArray>; 2],
) -> Result<Vec<AnyArray>> {
    let (of_q, of_r) = (typed(of_q, q)?, typed(of_r, r)?);
    let [rows, columns] = [a.shape()[a.ndim() - 2], a.shape()[a.ndim() - 1]];
    if rows >= columns {
        return Ok(untyped(&of_tall_qr([q, r], &of_q, &of_r)?));
    }
    let part = |array: &Array<T>, from: usize, to: usize| -> Result<Array<T>> {
        let last = array.ndim() - 1;
        Ok(array.viewed(array.layout().part(last, from..to, 1)?))
    };
    let (rest, of_rest) = (part(a, rows, columns)?, part(&of_r, rows, columns)?);
    let of_q = (of_q + rest.matmul(&t(&of_rest)?)?).eval()?;
    let (square, of_square) = (part(r, 0, rows)?, part(&of_r, 0, rows)?);
    let first = of_tall_qr([q, &square], &of_q, &of_square)?;
    let whole = crate::ops::concat(&[&first, &q.matmul(&of_rest)?], -1)?;
    Ok(untyped(&whole))
}

#[track_caller]
fn of_tall_qr<T: Factorized>(
    [q, r]: [&Array<T>; 2],
    of_q: &Array<T>,
    of_r: &Array<T>,
) -> Result<Array<T>> {
    let m = (r.matmul(&t(of_r)?)? - t(of_q)?.matmul(q)?).eval()?;
    let mirrored = (m.tril(0)? + t(&m.tril(-1)?)?).eval()?;
    let product = (of_q + q.matmul(&mirrored)?).eval()?;
    // X R⁻ᵀ is the transpose of R⁻¹ Xᵀ.
    t(&solve(r, &t(&product)?)?)
}

/// Returns 1 / (values\[j] − values\[i]) in row i and column j, and 0 on the diagonal.
#[track_caller]
fn inverse_gaps<T: Factorized>(values: &Array<T>) -> Result<Array<T>> {
    let n = values.shape()[values.ndim() - 1];
    let diagonal = identity(values, n)?;
    let gaps = values.unsqueeze(-2)? - values.unsqueeze(-1)? + &diagonal;
    // The diagonal is 0 / 1, because the derivative of 1 / 0 would be NaN.
    (select(diagonal.gt(T::zero()), T::zero(), T::one()) / gaps).eval()
}

/// Returns the gradient for the eigenvalues w and vectors V of symmetric matrices: V (diag(g_w) + F
/// ∘ (Vᵀ g_V)) Vᵀ, with F the inverse gaps of w.
#[track_caller]
pub(super) fn of_eigen<T: Factorized>(
    [w, v]: [&Array<T>; 2],
    [of_w, of_v]: [Option<AnyArray>; 2],
) -> Result<Vec<AnyArray>> {
    let n = w.shape()[w.ndim() - 1];
    let of_w = typed(of_w, w)?;
    let mut inner = (identity(w, n)? * of_w.unsqueeze(-1)?).eval()?;
    if let Some(of_v) = of_v {
        let rotated = t(v)?.matmul(&of_v.into_array())?;
        inner = (inner + rotated * inverse_gaps(w)?).eval()?;
    }
    let whole = v.matmul(&inner)?.matmul(&t(v)?)?;
    Ok(untyped(&symmetric(&whole)?))
}

/// Returns the gradients for the shortest x that minimizes |A x − b|, with P = A⁺ the pseudoinverse
/// (Golub and Pereyra 1973): −Pᵀ g xᵀ + (b − A x) (P Pᵀ g)ᵀ + Pᵀ x ((I − P A) g)ᵀ for A, and Pᵀ g
/// for b.
#[track_caller]
pub(super) fn of_least_squares<T: Factorized>(
    a: &Array<T>,
    inverse: &Array<T>,
    [right, x]: [&Array<T>; 2],
    gradient: &Array<T>,
) -> Result<[Array<T>; 2]> {
    let turned = t(inverse)?;
    let of_right = turned.matmul(gradient)?;
    let rest = (right - a.matmul(x)?).eval()?;
    let free = (gradient - inverse.matmul(&a.matmul(gradient)?)?).eval()?;
    let own = of_right.matmul(&t(x)?)?;
    let outside = rest.matmul(&t(&inverse.matmul(&of_right)?)?)?;
    let shortest = turned.matmul(x)?.matmul(&t(&free)?)?;
    Ok([(outside + shortest - own).eval()?, of_right])
}

/// Returns the gradient for A of its pseudoinverse P, by the gradient g of P (Golub and Pereyra
/// 1973): −Pᵀ g Pᵀ + (I − A P) gᵀ P Pᵀ + Pᵀ P gᵀ (I − P A).
#[track_caller]
pub(super) fn of_pseudoinverse<T: Factorized>(
    a: &Array<T>,
    inverse: &Array<T>,
    gradient: &Array<T>,
) -> Result<Array<T>> {
    let (p, pt, gt) = (inverse, t(inverse)?, t(gradient)?);
    let own = pt.matmul(gradient)?.matmul(&pt)?;
    let outside = (&gt - a.matmul(&p.matmul(&gt)?)?).eval()?;
    let outside = outside.matmul(p)?.matmul(&pt)?;
    let free = (&gt - gt.matmul(p)?.matmul(a)?).eval()?;
    let shortest = pt.matmul(p)?.matmul(&free)?;
    (outside + shortest - own).eval()
}

/// Returns the gradient for U, s and Vᵀ of A = U diag(s) Vᵀ. With X = Uᵀ g_U, Y = Vᵀ g_V and F the
/// inverse gaps of s², it is U ((F ∘ (X − Xᵀ)) S + S (F ∘ (Y − Yᵀ)) + diag(g_s)) Vᵀ, plus the
/// components outside the spaces that U and V span.
#[track_caller]
pub(super) fn of_singular<T: Factorized>(
    [u, s, vt]: [&Array<T>; 3],
    [of_u, of_s, of_vt]: [Option<AnyArray>; 3],
) -> Result<Vec<AnyArray>> {
    let n = s.shape()[s.ndim() - 1];
    let of_s = typed(of_s, s)?;
    let mut inner = (identity(s, n)? * of_s.unsqueeze(-1)?).eval()?;
    let (columns, rows) = (s.unsqueeze(-2)?, s.unsqueeze(-1)?);
    let mut outside: Option<Array<T>> = None;
    if let Some(of_u) = of_u {
        let of_u: Array<T> = of_u.into_array();
        let x = t(u)?.matmul(&of_u)?;
        let gaps = inverse_gaps(&s.square().eval()?)?;
        inner = (inner + gaps * (&x - t(&x)?) * &columns).eval()?;
        // If U is square, it spans the whole space.
        if u.shape()[u.ndim() - 2] > n {
            let left = ((of_u - u.matmul(&x)?) / &columns).eval()?;
            outside = Some(left.matmul(vt)?);
        }
    }
    if let Some(of_vt) = of_vt {
        let of_v = t(&of_vt.into_array::<T>())?;
        let v = t(vt)?;
        let y = vt.matmul(&of_v)?;
        let gaps = inverse_gaps(&s.square().eval()?)?;
        inner = (inner + gaps * (&y - t(&y)?) * &rows).eval()?;
        if v.shape()[v.ndim() - 2] > n {
            let right = ((of_v - v.matmul(&y)?) / &columns).eval()?;
            let own = u.matmul(&t(&right)?)?;
            outside = Some(match outside {
                Some(other) => (other + own).eval()?,
                None => own,
            });
        }
    }
    let whole = u.matmul(&inner)?.matmul(vt)?;
    Ok(untyped(&match outside {
        Some(outside) => (whole + outside).eval()?,
        None => whole,
    }))
}
