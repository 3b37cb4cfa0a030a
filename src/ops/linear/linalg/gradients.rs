//! The gradients of factorizations, after Giles, "Collected matrix derivative results for forward
//! and reverse mode algorithmic differentiation" (2008). Cholesky follows Murray (2016), QR follows
//! Walter and Lehmann (2010).
//!
//! Vectors of equal values are any basis of a space. They contribute 0 to a gradient that does not
//! depend on the basis, and infinity to any other gradient. Along a known direction, [`adapted`]
//! chooses the basis that has a derivative.
//!
//! [`adapted`]: super::adapted

use super::filled;
use super::groups::{Groups, quotients};
use super::solve::solve;
use super::values::{ChosenVectors, of_eigenvalues, of_singular_values};
use crate::array::{AnyArray, Array};
use crate::error::Result;
use crate::ops::descriptors::Factorized;

/// Returns the transposed matrices.
#[track_caller]
pub(super) fn t<T: Factorized>(a: &Array<T>) -> Result<Array<T>> {
    a.swap_axes(-2, -1)
}

/// Returns (A + Aᵀ) / 2, which changes only matrices that are not symmetric.
#[track_caller]
pub(super) fn symmetric<T: Factorized>(a: &Array<T>) -> Result<Array<T>> {
    ((a + t(a)?) * T::from_f64(0.5)).eval_unfused()
}

/// Returns an optional gradient with its type, or zeros of the shape of `like` if there is none.
#[track_caller]
fn typed<T: Factorized>(gradient: Option<AnyArray>, like: &Array<T>) -> Result<Array<T>> {
    match gradient {
        Some(gradient) => Ok(gradient.into_array()),
        None => filled("zeros", like, like.layout().shape(), T::zero()),
    }
}

pub(super) fn untyped<T: Factorized>(array: &Array<T>) -> Vec<AnyArray> {
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
    let of_a = (-columns.matmul(&rows)?).eval_unfused()?;
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
    Ok(untyped(&(-product).eval_unfused()?))
}

/// Returns the unit matrix of n rows, on the device of `like`.
#[track_caller]
pub(super) fn identity<T: Factorized>(like: &Array<T>, n: usize) -> Result<Array<T>> {
    filled("identity", like, &n.into(), T::one())?.diag(0)
}

/// Returns the gradient for the factor L of A = L Lᵀ: the symmetric part of L⁻ᵀ Φ(Lᵀ g) L⁻¹. Φ
/// takes the lower triangle and half of the diagonal.
#[track_caller]
pub(super) fn of_cholesky<T: Factorized>(
    lower: &Array<T>,
    gradient: &Array<T>,
) -> Result<Vec<AnyArray>> {
    let turned = t(lower)?;
    let product = turned.matmul(gradient)?;
    let half = ((product.tril(0)? + product.tril(-1)?) * T::from_f64(0.5)).eval_unfused()?;
    let left = solve(&turned, &half)?;
    let both = solve(&turned, &t(&left)?)?;
    Ok(untyped(&symmetric(&t(&both)?)?))
}

/// Returns the gradient for the factors of A = Q R: (g_Q + Q copy(M)) R⁻ᵀ with M = R g_Rᵀ − g_Qᵀ Q.
/// The function copy mirrors the lower triangle. For the columns of wide matrices beyond the square
/// part, the gradient is Q times the gradient of R's columns.
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
    let of_q = (of_q + rest.matmul(&t(&of_rest)?)?).eval_unfused()?;
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
    let m = (r.matmul(&t(of_r)?)? - t(of_q)?.matmul(q)?).eval_unfused()?;
    let mirrored = (m.tril(0)? + t(&m.tril(-1)?)?).eval_unfused()?;
    let product = (of_q + q.matmul(&mirrored)?).eval_unfused()?;
    // X R⁻ᵀ is the transpose of R⁻¹ Xᵀ.
    t(&solve(r, &t(&product)?)?)
}

/// Returns values\[j] − values\[i] in row i and column j.
#[track_caller]
fn gaps<T: Factorized>(values: &Array<T>) -> Result<Array<T>> {
    (values.unsqueeze(-2)? - values.unsqueeze(-1)?).eval_unfused()
}

/// Returns the gradient for the eigenvalues w and vectors V of symmetric matrices: V (diag(g_w) +
/// (P − Pᵀ) / 2 ∘ F) Vᵀ, with P = Vᵀ g_V and F the inverse gaps of w.
#[track_caller]
pub(super) fn of_eigen<T: Factorized>(
    [w, v]: [&Array<T>; 2],
    [of_w, of_v]: [Option<AnyArray>; 2],
    choice: &ChosenVectors<T>,
) -> Result<Vec<AnyArray>> {
    let mut whole = of_eigenvalues([w, v], &typed(of_w, w)?, choice)?;
    if let Some(of_v) = of_v {
        let rotated = t(v)?.matmul(&of_v.into_array())?;
        let turns = ((&rotated - t(&rotated)?) * T::from_f64(0.5)).eval_unfused()?;
        let are_equal = Groups::of(w)?.are_equal()?;
        let inner = quotients(&turns, &gaps(w)?, &are_equal, &rotated)?;
        whole = (whole + v.matmul(&inner)?.matmul(&t(v)?)?).eval_unfused()?;
    }
    Ok(untyped(&symmetric(&whole)?))
}

/// Returns the gradients for the shortest x that minimizes |A x − b| (Golub and Pereyra 1973). Let
/// P be the pseudoinverse A⁺. The gradient for A is −Pᵀ g xᵀ + (b − A x) (P Pᵀ g)ᵀ + Pᵀ x ((I − P
/// A) g)ᵀ. The gradient for b is Pᵀ g.
#[track_caller]
pub(super) fn of_least_squares<T: Factorized>(
    a: &Array<T>,
    inverse: &Array<T>,
    [right, x]: [&Array<T>; 2],
    gradient: &Array<T>,
) -> Result<[Array<T>; 2]> {
    let turned = t(inverse)?;
    let of_right = turned.matmul(gradient)?;
    let rest = (right - a.matmul(x)?).eval_unfused()?;
    let free = (gradient - inverse.matmul(&a.matmul(gradient)?)?).eval_unfused()?;
    let own = of_right.matmul(&t(x)?)?;
    let outside = rest.matmul(&t(&inverse.matmul(&of_right)?)?)?;
    let shortest = turned.matmul(x)?.matmul(&t(&free)?)?;
    Ok([(outside + shortest - own).eval_unfused()?, of_right])
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
    let outside = (&gt - a.matmul(&p.matmul(&gt)?)?).eval_unfused()?;
    let outside = outside.matmul(p)?.matmul(&pt)?;
    let free = (&gt - gt.matmul(p)?.matmul(a)?).eval_unfused()?;
    let shortest = pt.matmul(p)?.matmul(&free)?;
    (outside + shortest - own).eval_unfused()
}

/// Returns the gradient for U, s and Vᵀ of A = U diag(s) Vᵀ, with X = Uᵀ g_U and Y = Vᵀ g_V: U
/// (diag(g_s) + T) Vᵀ, plus the components outside the spaces that U and V span. See [`turned`] for
/// T.
#[track_caller]
pub(super) fn of_singular<T: Factorized>(
    [u, s, vt]: [&Array<T>; 3],
    [of_u, of_s, of_vt]: [Option<AnyArray>; 3],
    choice: &ChosenVectors<T>,
) -> Result<Vec<AnyArray>> {
    let n = s.shape()[s.ndim() - 1];
    let mut whole = of_singular_values([u, s, vt], &typed(of_s, s)?, choice)?;
    if of_u.is_none() && of_vt.is_none() {
        return Ok(untyped(&whole));
    }
    let groups = Groups::of(s)?;
    let mut outside = Vec::new();
    // The components of a gradient outside the space of its vectors. If the vectors span the whole
    // space, there are none.
    let rest = |vectors: &Array<T>, of_vectors: &Array<T>, own: &Array<T>| {
        let rest = (of_vectors - vectors.matmul(own)?).eval_unfused()?;
        let columns = s.unsqueeze(-2)?.broadcast_to(*rest.layout().shape())?;
        let are_zero = groups.are_zero.unsqueeze(-2)?;
        quotients(&rest, &columns, &are_zero, of_vectors)
    };
    let x = match of_u {
        Some(of_u) => {
            let of_u = of_u.into_array::<T>();
            let x = t(u)?.matmul(&of_u)?;
            if u.shape()[u.ndim() - 2] > n {
                outside.push(rest(u, &of_u, &x)?.matmul(vt)?);
            }
            Some(x)
        }
        None => None,
    };
    let y = match of_vt {
        Some(of_vt) => {
            let (v, of_v) = (t(vt)?, t(&of_vt.into_array::<T>())?);
            let y = vt.matmul(&of_v)?;
            if v.shape()[v.ndim() - 2] > n {
                outside.push(u.matmul(&t(&rest(&v, &of_v, &y)?)?)?);
            }
            Some(y)
        }
        None => None,
    };
    outside.push(u.matmul(&turned(s, &groups, [x, y])?)?.matmul(vt)?);
    for part in outside {
        whole = (whole + part).eval_unfused()?;
    }
    Ok(untyped(&whole))
}

/// Returns the gradient between different vectors. Let X' be X − Xᵀ, Y' be Y − Yᵀ, and F the
/// inverse gaps of s². The gradient is (F ∘ X') S + S (F ∘ Y'). It equals ((X' + Y') / (s\[j] −
/// s\[i]) + (X' − Y') / (s\[j] + s\[i])) / 2. So only the sums count between equal values.
#[track_caller]
fn turned<T: Factorized>(
    s: &Array<T>,
    groups: &Groups<T>,
    [x, y]: [Option<Array<T>>; 2],
) -> Result<Array<T>> {
    let zeros = || typed(None, &gaps(s)?);
    let [x, y] = match [x, y] {
        [Some(x), Some(y)] => [x, y],
        [Some(x), None] => [x, zeros()?],
        [None, Some(y)] => [zeros()?, y],
        [None, None] => [zeros()?, zeros()?],
    };
    let scale = (x.abs() + y.abs()).eval_unfused()?;
    let (x, y) = ((&x - t(&x)?).eval_unfused()?, (&y - t(&y)?).eval_unfused()?);
    let sums = (s.unsqueeze(-2)? + s.unsqueeze(-1)?).eval_unfused()?;
    let between = quotients(
        &(&x + &y).eval_unfused()?,
        &gaps(s)?,
        &groups.are_equal()?,
        &scale,
    )?;
    let opposite = quotients(
        &(x - y).eval_unfused()?,
        &sums,
        &groups.both_zero()?,
        &scale,
    )?;
    ((between + opposite) * T::from_f64(0.5)).eval_unfused()
}
