//! Vectors of equal values that are smooth along a direction.
//!
//! The vectors of equal values are any basis of a space. If the matrix changes along a direction,
//! its values split, and one basis fits. This basis consists of the vectors of the change in that
//! space (Kato 1966, "Perturbation theory for linear operators", II.2). In this basis, values and
//! vectors have derivatives along the direction. So `jvp` and `hvp` are right for functions that do
//! not depend on the basis.

use super::gradients::{identity, symmetric, t};
use super::groups::{Groups, unit};
use super::spectral::{eigh, svd};
use crate::array::Array;
use crate::error::Result;
use crate::ops::derivatives::{change_of, has_direction};
use crate::ops::descriptors::Factorized;
use crate::ops::select;

/// Returns the eigenvectors of symmetric matrices `a` that are smooth along the direction of this
/// thread. They are computed from eigenvectors `v` of the values `w`. Returns `None` if `v` are as
/// good.
#[track_caller]
pub(super) fn eigenvectors<T: Factorized>(
    a: &Array<T>,
    [w, v]: [&Array<T>; 2],
) -> Result<Option<Array<T>>> {
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
pub(super) fn eigenvectors_along<T: Factorized>(
    change: &Array<T>,
    [w, v]: [&Array<T>; 2],
) -> Result<Option<Array<T>>> {
    let groups = Groups::of(w)?;
    if !groups.has_equal()? {
        return Ok(None);
    }
    let Some(change) = unit(change)? else {
        return Ok(None);
    };
    let own = t(v)?.matmul(&change)?.matmul(v)?;
    // The levels separate the groups: the values of each block are at most 1.
    let blocks = select(&groups.are_equal()?, own, T::zero());
    let levels = on_diagonal(&groups.levels()?)?;
    let (_, turn) = eigh(&(blocks + levels).eval_unfused()?)?;
    v.matmul(&turn).map(Some)
}

/// Returns the singular vectors U and Vᵀ of matrices `a` that are smooth along the direction of
/// this thread. They are computed from the singular vectors `u` and `vt`. Returns `None` if these
/// are as good. For values that are 0, the results are the singular vectors of the change outside
/// the spaces of the others.
#[track_caller]
pub(super) fn singular_vectors<T: Factorized>(
    a: &Array<T>,
    [u, s, vt]: [&Array<T>; 3],
) -> Result<Option<[Array<T>; 2]>> {
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
pub(super) fn singular_vectors_along<T: Factorized>(
    change: &Array<T>,
    [u, s, vt]: [&Array<T>; 3],
) -> Result<Option<[Array<T>; 2]>> {
    let groups = Groups::of(s)?;
    if !groups.has_equal_or_zero()? {
        return Ok(None);
    }
    let Some(change) = unit(change)? else {
        return Ok(None);
    };
    let own = symmetric(&t(u)?.matmul(&change)?.matmul(&t(vt)?)?)?;
    let blocks = select(groups.are_equal()?, own, T::zero());
    let blocks = select(groups.both_zero()?, T::zero(), blocks);
    let levels = on_diagonal(&groups.levels_down()?)?;
    let spanned = u.matmul(&(blocks + levels).eval_unfused()?)?.matmul(vt)?;
    let left = select(groups.are_zero.unsqueeze(-2)?, T::zero(), u).eval_unfused()?;
    let right = select(groups.are_zero.unsqueeze(-1)?, T::zero(), vt).eval_unfused()?;
    let rest = (&change - left.matmul(&t(&left)?.matmul(&change)?)?).eval_unfused()?;
    let rest = (&rest - rest.matmul(&t(&right)?)?.matmul(&right)?).eval_unfused()?;
    let (u, _, vt) = svd(&(spanned + rest).eval_unfused()?)?;
    Ok(Some([u, vt]))
}

/// Returns matrices with the values of the last axis on their diagonals.
#[track_caller]
fn on_diagonal<T: Factorized>(values: &Array<T>) -> Result<Array<T>> {
    let n = values.shape()[values.ndim() - 1];
    (identity(values, n)? * values.unsqueeze(-1)?).eval_unfused()
}
