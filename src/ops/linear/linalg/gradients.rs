//! The gradients of factorizations, after Giles, "Collected matrix derivative results for forward
//! and reverse mode algorithmic differentiation" (2008). Cholesky follows Murray (2016), and QR
//! follows Walter and Lehmann (2010).
//!
//! The vectors of equal values are an arbitrary basis of their space. They contribute 0 to a
//! gradient that does not depend on the basis, and infinity to any other gradient. Along a known
//! direction, [`adapted`] chooses the basis that has a derivative.
//!
//! [`adapted`]: super::adapted

use super::groups::{Groups, quotients};
use super::solve::solve;
use super::values::{ChosenVectors, of_eigenvalues, of_singular_values};
use super::{filled, last_of};
use crate::array::AnyArray;
use crate::error::Result;
use crate::ops::index::concatenated;

#[track_caller]
pub(super) fn t(a: &AnyArray) -> Result<AnyArray> {
    a.swap_axes(-2, -1)
}

/// Returns (A + Aᵀ) / 2. Symmetric matrices do not change.
#[track_caller]
pub(super) fn symmetric(a: &AnyArray) -> Result<AnyArray> {
    ((a.lazy() + t(a)?.lazy()) * 0.5).eval()
}

/// Returns `gradient`, or zeros of the shape of `like` if `gradient` is `None`.
#[track_caller]
fn or_zeros(gradient: Option<AnyArray>, like: &AnyArray) -> Result<AnyArray> {
    match gradient {
        Some(gradient) => Ok(gradient),
        None => like.zeros(like.shape()),
    }
}

/// Returns the gradients of A and b for x = A⁻¹ b. The gradient of b is A⁻ᵀ g, and the gradient of
/// A is −(A⁻ᵀ g) xᵀ. If b is a vector, x has one vector for each matrix.
#[track_caller]
pub(super) fn of_solution(
    a: &AnyArray,
    x: &AnyArray,
    gradient: &AnyArray,
    is_vector: bool,
) -> Result<Vec<AnyArray>> {
    let (gradient, rows) = match is_vector {
        true => (gradient.unsqueeze(-1)?, x.unsqueeze(-2)?),
        false => (gradient.share(), t(x)?),
    };
    let columns = solve(&t(a)?, &gradient)?;
    let of_b = match is_vector {
        true => columns.squeeze(-1)?,
        false => columns.share(),
    };
    let of_a = (-columns.matmul(&rows)?.lazy()).eval()?;
    Ok(vec![of_a, of_b])
}

/// Returns the gradient of A for X = A⁻¹: −Xᵀ g Xᵀ.
#[track_caller]
pub(super) fn of_inverse(inverse: &AnyArray, gradient: &AnyArray) -> Result<AnyArray> {
    let turned = t(inverse)?;
    let product = turned.matmul(gradient)?.matmul(&turned)?;
    (-product.lazy()).eval()
}

/// Returns the identity matrix of n rows, on the device of `like`.
#[track_caller]
pub(super) fn identity(like: &AnyArray, n: usize) -> Result<AnyArray> {
    filled("identity", like, &n.into(), 1.0)?.diag(0)
}

/// Returns the gradient of A for the factor L of A = L Lᵀ: the symmetric part of L⁻ᵀ Φ(Lᵀ g) L⁻¹. Φ
/// keeps the lower triangle and halves the diagonal.
#[track_caller]
pub(super) fn of_cholesky(lower: &AnyArray, gradient: &AnyArray) -> Result<AnyArray> {
    let turned = t(lower)?;
    let product = turned.matmul(gradient)?;
    let half = ((product.tril(0)?.lazy() + product.tril(-1)?.lazy()) * 0.5).eval()?;
    let left = solve(&turned, &half)?;
    let both = solve(&turned, &t(&left)?)?;
    symmetric(&t(&both)?)
}

/// Returns the gradient of A for A = Q R: (g_Q + Q copy(M)) R⁻ᵀ with M = R g_Rᵀ − g_Qᵀ Q. The
/// function copy mirrors the lower triangle. A wide matrix has columns beyond its square part.
/// Their gradient is Q times the gradient of these columns of R.
#[track_caller]
pub(super) fn of_qr(
    a: &AnyArray,
    [q, r]: [&AnyArray; 2],
    [of_q, of_r]: [Option<AnyArray>; 2],
) -> Result<AnyArray> {
    let (of_q, of_r) = (or_zeros(of_q, q)?, or_zeros(of_r, r)?);
    let last = a.layout.ndim() - 1;
    let [rows, columns] = [a.dims()[last - 1], a.dims()[last]];
    if rows >= columns {
        return of_tall_qr([q, r], &of_q, &of_r);
    }
    let part = |array: &AnyArray, from: usize, to: usize| -> Result<AnyArray> {
        Ok(array.viewed(array.layout.part(last, from..to, 1)?))
    };
    let (rest, of_rest) = (part(a, rows, columns)?, part(&of_r, rows, columns)?);
    let of_q = (of_q.lazy() + rest.matmul(&t(&of_rest)?)?.lazy()).eval()?;
    let (square, of_square) = (part(r, 0, rows)?, part(&of_r, 0, rows)?);
    let first = of_tall_qr([q, &square], &of_q, &of_square)?;
    concatenated(&[first, q.matmul(&of_rest)?], -1)
}

#[track_caller]
fn of_tall_qr([q, r]: [&AnyArray; 2], of_q: &AnyArray, of_r: &AnyArray) -> Result<AnyArray> {
    let m = r.matmul(&t(of_r)?)?.lazy() - t(of_q)?.matmul(q)?.lazy();
    let m = m.eval()?;
    let mirrored = (m.tril(0)?.lazy() + t(&m.tril(-1)?)?.lazy()).eval()?;
    let product = (of_q.lazy() + q.matmul(&mirrored)?.lazy()).eval()?;
    // X R⁻ᵀ is the transpose of R⁻¹ Xᵀ.
    t(&solve(r, &t(&product)?)?)
}

/// Returns values\[j] − values\[i] in row i and column j.
#[track_caller]
fn gaps(values: &AnyArray) -> Result<AnyArray> {
    (values.unsqueeze(-2)?.lazy() - values.unsqueeze(-1)?.lazy()).eval()
}

/// Returns the gradient of symmetric matrices for their eigenvalues w and eigenvectors V. The
/// gradient is V (diag(g_w) + (P − Pᵀ) / 2 ∘ F) Vᵀ. P is Vᵀ g_V, and F has the reciprocals of the
/// gaps of w.
#[track_caller]
pub(super) fn of_eigen(
    [w, v]: [&AnyArray; 2],
    [of_w, of_v]: [Option<AnyArray>; 2],
    choice: &ChosenVectors,
) -> Result<AnyArray> {
    let mut whole = of_eigenvalues([w, v], &or_zeros(of_w, w)?, choice)?;
    if let Some(of_v) = of_v {
        let rotated = t(v)?.matmul(&of_v)?;
        let turns = ((rotated.lazy() - t(&rotated)?.lazy()) * 0.5).eval()?;
        let are_equal = Groups::of(w)?.are_equal()?;
        let inner = quotients(&turns, &gaps(w)?, &are_equal, &rotated)?;
        let turned = v.matmul(&inner)?.matmul(&t(v)?)?;
        whole = (whole.lazy() + turned.lazy()).eval()?;
    }
    symmetric(&whole)
}

/// Returns the gradients of A and b for the shortest x that minimizes |A x − b| (Golub and Pereyra
/// 1973). Let P be the pseudoinverse A⁺. The gradient of A is −Pᵀ g xᵀ + (b − A x) (P Pᵀ g)ᵀ + Pᵀ x
/// ((I − P A) g)ᵀ. The gradient of b is Pᵀ g.
#[track_caller]
pub(super) fn of_least_squares(
    a: &AnyArray,
    inverse: &AnyArray,
    [right, x]: [&AnyArray; 2],
    gradient: &AnyArray,
) -> Result<[AnyArray; 2]> {
    let turned = t(inverse)?;
    let of_right = turned.matmul(gradient)?;
    let rest = (right.lazy() - a.matmul(x)?.lazy()).eval()?;
    let spanned = inverse.matmul(&a.matmul(gradient)?)?;
    let free = (gradient.lazy() - spanned.lazy()).eval()?;
    let own = of_right.matmul(&t(x)?)?;
    let outside = rest.matmul(&t(&inverse.matmul(&of_right)?)?)?;
    let shortest = turned.matmul(x)?.matmul(&t(&free)?)?;
    let of_a = (outside.lazy() + shortest.lazy() - own.lazy()).eval()?;
    Ok([of_a, of_right])
}

/// Returns the gradient of A for its pseudoinverse P (Golub and Pereyra 1973). The gradient is −Pᵀ
/// g Pᵀ + (I − A P) gᵀ P Pᵀ + Pᵀ P gᵀ (I − P A).
#[track_caller]
pub(super) fn of_pseudoinverse(
    a: &AnyArray,
    inverse: &AnyArray,
    gradient: &AnyArray,
) -> Result<AnyArray> {
    let (p, pt, gt) = (inverse, t(inverse)?, t(gradient)?);
    let own = pt.matmul(gradient)?.matmul(&pt)?;
    let outside = (gt.lazy() - a.matmul(&p.matmul(&gt)?)?.lazy()).eval()?;
    let outside = outside.matmul(p)?.matmul(&pt)?;
    let free = (gt.lazy() - gt.matmul(p)?.matmul(a)?.lazy()).eval()?;
    let shortest = pt.matmul(p)?.matmul(&free)?;
    (outside.lazy() + shortest.lazy() - own.lazy()).eval()
}

/// Returns the gradient of A for U, s and Vᵀ of A = U diag(s) Vᵀ. The gradient is U (diag(g_s) + T)
/// Vᵀ, plus the components outside the spaces that U and V span. [`turned`] computes T from X = Uᵀ
/// g_U and Y = Vᵀ g_V.
#[track_caller]
pub(super) fn of_singular(
    [u, s, vt]: [&AnyArray; 3],
    [of_u, of_s, of_vt]: [Option<AnyArray>; 3],
    choice: &ChosenVectors,
) -> Result<AnyArray> {
    let n = last_of(s);
    let mut whole = of_singular_values([u, s, vt], &or_zeros(of_s, s)?, choice)?;
    if of_u.is_none() && of_vt.is_none() {
        return Ok(whole);
    }
    let groups = Groups::of(s)?;
    let mut outside = Vec::new();
    // Computes the components of a gradient outside the space that its vectors span. If the vectors
    // span the whole space, the components are 0.
    let rest = |vectors: &AnyArray, of_vectors: &AnyArray, own: &AnyArray| {
        let rest = (of_vectors.lazy() - vectors.matmul(own)?.lazy()).eval()?;
        let columns = s.unsqueeze(-2)?.broadcast_to(rest.shape())?;
        let are_zero = groups.are_zero.unsqueeze(-2)?;
        quotients(&rest, &columns, &are_zero, of_vectors)
    };
    let spans = |vectors: &AnyArray| vectors.dims()[vectors.layout.ndim() - 2] <= n;
    let x = match of_u {
        Some(of_u) => {
            let x = t(u)?.matmul(&of_u)?;
            if !spans(u) {
                outside.push(rest(u, &of_u, &x)?.matmul(vt)?);
            }
            Some(x)
        }
        None => None,
    };
    let y = match of_vt {
        Some(of_vt) => {
            let (v, of_v) = (t(vt)?, t(&of_vt)?);
            let y = vt.matmul(&of_v)?;
            if !spans(&v) {
                outside.push(u.matmul(&t(&rest(&v, &of_v, &y)?)?)?);
            }
            Some(y)
        }
        None => None,
    };
    outside.push(u.matmul(&turned(s, &groups, [x, y])?)?.matmul(vt)?);
    for part in outside {
        whole = (whole.lazy() + part.lazy()).eval()?;
    }
    Ok(whole)
}

/// Returns T, the gradient between different vectors. Let X' be X − Xᵀ and Y' be Y − Yᵀ. F has the
/// reciprocals of the gaps of s². T is (F ∘ X') S + S (F ∘ Y'). T equals ((X' + Y') / (s\[j] −
/// s\[i]) + (X' − Y') / (s\[j] + s\[i])) / 2. So between equal values, only X' + Y' is divided by
/// 0.
#[track_caller]
fn turned(s: &AnyArray, groups: &Groups, [x, y]: [Option<AnyArray>; 2]) -> Result<AnyArray> {
    let gaps = gaps(s)?;
    let (x, y) = (or_zeros(x, &gaps)?, or_zeros(y, &gaps)?);
    let scale = (x.lazy().abs() + y.lazy().abs()).eval()?;
    let x = (x.lazy() - t(&x)?.lazy()).eval()?.lazy();
    let y = (y.lazy() - t(&y)?.lazy()).eval()?.lazy();
    let sums = (s.unsqueeze(-2)?.lazy() + s.unsqueeze(-1)?.lazy()).eval()?;
    let together = (x.clone() + y.clone()).eval()?;
    let between = quotients(&together, &gaps, &groups.are_equal()?, &scale)?;
    let apart = (x - y).eval()?;
    let opposite = quotients(&apart, &sums, &groups.both_zero()?, &scale)?;
    ((between.lazy() + opposite.lazy()) * 0.5).eval()
}
