//! Eigenvectors and singular vectors of equal values that are smooth along a direction.
//!
//! The vectors of equal values are an arbitrary basis of their space. If the matrix changes along a
//! direction, the equal values split, and only one basis is smooth. Its vectors are the vectors of
//! the change that is restricted to that space (Kato 1966, "Perturbation theory for linear
//! operators", II.2). In this basis, values and vectors have derivatives along the direction. So
//! `jvp` and `hvp` are correct for functions that do not depend on the basis.

use super::gradients::{identity, symmetric, t};
use super::groups::{Groups, unit};
use super::last_of;
use super::spectral::{eigh, svd};
use crate::array::AnyArray;
use crate::error::Result;
use crate::ops::AnyLazy;
use crate::ops::derivatives::{change_of, has_direction};

/// Returns eigenvectors of symmetric matrices `a`. The vectors are smooth along the direction of
/// the thread's current directional derivative. The vectors are computed from eigenvectors `v` of
/// the values `w`. Returns `None` if `v` need no change.
#[track_caller]
pub(super) fn eigenvectors(a: &AnyArray, [w, v]: [&AnyArray; 2]) -> Result<Option<AnyArray>> {
    if !has_direction() || !Groups::of(w)?.has_equal()? {
        return Ok(None);
    }
    match change_of(a)? {
        Some(change) => eigenvectors_along(&symmetric(&change)?, [w, v]),
        None => Ok(None),
    }
}

/// Like [`eigenvectors`], along a symmetric change of the matrices.
#[track_caller]
pub(super) fn eigenvectors_along(
    change: &AnyArray,
    [w, v]: [&AnyArray; 2],
) -> Result<Option<AnyArray>> {
    let groups = Groups::of(w)?;
    if !groups.has_equal()? {
        return Ok(None);
    }
    let Some(change) = unit(change)? else {
        return Ok(None);
    };
    let own = t(v)?.matmul(&change)?.matmul(v)?.lazy();
    // The levels separate the groups: they differ by 3, and the eigenvalues of each block are at
    // most 1.
    let zero = AnyLazy::number(w.dtype, 0.0);
    let blocks = AnyLazy::select(groups.are_equal()?.lazy(), own, zero);
    let levels = on_diagonal(&groups.levels()?)?.lazy();
    let [_, turn] = eigh(&(blocks + levels).eval()?)?;
    v.matmul(&turn).map(Some)
}

/// Returns singular vectors U and Vᵀ of matrices `a`. The vectors are smooth along the direction of
/// the thread's current directional derivative. The results are computed from the singular vectors
/// `u` and `vt`. Returns `None` if `u` and `vt` need no change. For values that are 0, the change
/// is restricted to the space outside the other vectors. The results are the singular vectors of
/// this restricted change.
#[track_caller]
pub(super) fn singular_vectors(
    a: &AnyArray,
    [u, s, vt]: [&AnyArray; 3],
) -> Result<Option<[AnyArray; 2]>> {
    if !has_direction() || !Groups::of(s)?.has_equal_or_zero()? {
        return Ok(None);
    }
    match change_of(a)? {
        Some(change) => singular_vectors_along(&change, [u, s, vt]),
        None => Ok(None),
    }
}

/// Like [`singular_vectors`], along a change of the matrices.
#[track_caller]
pub(super) fn singular_vectors_along(
    change: &AnyArray,
    [u, s, vt]: [&AnyArray; 3],
) -> Result<Option<[AnyArray; 2]>> {
    let groups = Groups::of(s)?;
    if !groups.has_equal_or_zero()? {
        return Ok(None);
    }
    let Some(change) = unit(change)? else {
        return Ok(None);
    };
    let zero = || AnyLazy::number(s.dtype, 0.0);
    let own = symmetric(&t(u)?.matmul(&change)?.matmul(&t(vt)?)?)?.lazy();
    let blocks = AnyLazy::select(groups.are_equal()?.lazy(), own, zero());
    let blocks = AnyLazy::select(groups.both_zero()?.lazy(), zero(), blocks);
    let levels = on_diagonal(&groups.levels_down()?)?.lazy();
    let spanned = u.matmul(&(blocks + levels).eval()?)?.matmul(vt)?;
    let rows_are_zero = groups.are_zero.unsqueeze(-2)?.lazy();
    let columns_are_zero = groups.are_zero.unsqueeze(-1)?.lazy();
    let left = AnyLazy::select(rows_are_zero, zero(), u.lazy()).eval()?;
    let right = AnyLazy::select(columns_are_zero, zero(), vt.lazy()).eval()?;
    let inside = left.matmul(&t(&left)?.matmul(&change)?)?;
    let rest = (change.lazy() - inside.lazy()).eval()?;
    let inside = rest.matmul(&t(&right)?)?.matmul(&right)?;
    let rest = (rest.lazy() - inside.lazy()).eval()?;
    let [u, _, vt] = svd(&(spanned.lazy() + rest.lazy()).eval()?)?;
    Ok(Some([u, vt]))
}

/// Returns matrices with the values of the last axis on their diagonals.
#[track_caller]
fn on_diagonal(values: &AnyArray) -> Result<AnyArray> {
    let n = last_of(values);
    (identity(values, n)?.lazy() * values.unsqueeze(-1)?.lazy()).eval()
}
