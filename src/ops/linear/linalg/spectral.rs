//! Singular values and eigenvalues, with and without vectors.

use super::status::{Meaning, check};
use super::values::ChosenVectors;
use super::{adapted, batch_of, filled, gradients, matrices, matrix_of, square};
use crate::array::{AnyArray, Array, DType, Shape};
use crate::error::Result;
use crate::ops::AnyLazy;
use crate::ops::derivatives::{RuledOperation, is_any_tracked};
use crate::ops::descriptors::SpectralValues;
use crate::ops::index::check_size;

/// See [`svd`](crate::linalg::svd).
#[track_caller]
pub(super) fn svd(a: &AnyArray) -> Result<[AnyArray; 3]> {
    svd_for("svd", a)
}

/// Like [`svd`], for `operation`.
#[track_caller]
pub(super) fn svd_for(operation: &'static str, a: &AnyArray) -> Result<[AnyArray; 3]> {
    let (s, vectors) = singular(operation, a, true)?;
    let [u, vt] = vectors.expect("the vectors were requested");
    Ok([u, s, vt])
}

/// See [`svdvals`](crate::linalg::svdvals).
#[track_caller]
pub(super) fn svdvals(a: &AnyArray) -> Result<AnyArray> {
    Ok(singular("svdvals", a, false)?.0)
}

/// Returns the singular values, and the vectors if `wanted` is set or a tape tracks `a`. Errors
/// name `operation`.
#[track_caller]
pub(super) fn singular(
    operation: &'static str,
    a: &AnyArray,
    wanted: bool,
) -> Result<SpectralValues<2>> {
    // The values alone have no gradient rule, because their gradients are computed from the
    // vectors.
    let wanted = wanted || is_any_tracked(&[a])?;
    let [m, n] = matrix_of(operation, a)?;
    let (shape, k) = (a.shape(), m.min(n));
    let batch = batch_of(shape);
    let shapes = [&[k][..], &[m, k], &[k, n]].map(|matrix| matrices(batch, matrix));
    for shape in &shapes {
        check_size(operation, shape, a.dtype)?;
    }
    let step = RuledOperation::begin(operation, &[a])?;
    if a.len() == 0 {
        let [s, u, vt] = shapes;
        let zeros = |shape: Shape| filled(operation, a, &shape, 0.0);
        let [s, u, vt] = step.finish_empty([zeros(s)?, zeros(u)?, zeros(vt)?]);
        return Ok((s, Some([u, vt])));
    }
    check_finite(operation, a, a)?;
    let (found, status) = on_device!(
        a.device(),
        touching & a.buffer,
        singular_values(a.operand(), &shapes, wanted)
    )?;
    check(operation, &status, shape, Meaning::NotConverged)?;
    let (s, Some([u, vt])) = found else {
        return Ok(found);
    };
    let [u, vt] = match step.wants(0) {
        true => adapted::singular_vectors(a, [&u, &s, &vt])?.unwrap_or([u, vt]),
        false => [u, vt],
    };
    let [u, s, vt] = step.finish_all([u, s, vt], |saved, factors| {
        let factors = factors.map(|own| saved.save(own));
        let choice = ChosenVectors::none();
        move |upstream| {
            let of_a = gradients::of_singular(factors.each_ref(), upstream, &choice)?;
            Ok(vec![of_a])
        }
    });
    Ok((s, Some([u, vt])))
}

/// Rejects `elements` of the matrices of `a` that are not finite, on a CUDA device. On the host,
/// the factorization rejects these elements. cuSOLVER documents no behaviour for them.
#[track_caller]
fn check_finite(operation: &str, a: &AnyArray, elements: &AnyArray) -> Result<()> {
    if a.device().backend().cuda().is_none() {
        return Ok(());
    }
    let sums = (elements.lazy() * 0.0).sum_axis([-2, -1])?;
    let zero = AnyLazy::number(a.dtype, 0.0);
    let status = sums.lazy().ne(zero).cast(DType::I32).eval()?;
    let status = Array::from_erased(status);
    check(operation, &status, a.shape(), Meaning::NotConverged)
}

/// See [`eigh`](crate::linalg::eigh).
#[track_caller]
pub(super) fn eigh(a: &AnyArray) -> Result<[AnyArray; 2]> {
    let (w, v) = eigen("eigh", a, true)?;
    let [v] = v.expect("the vectors were requested");
    Ok([w, v])
}

/// See [`eigvalsh`](crate::linalg::eigvalsh).
#[track_caller]
pub(super) fn eigvalsh(a: &AnyArray) -> Result<AnyArray> {
    Ok(eigen("eigvalsh", a, false)?.0)
}

/// Returns the eigenvalues, and the vectors if `wanted` is set or a tape tracks `a`. Errors name
/// `operation`.
#[track_caller]
fn eigen(operation: &'static str, a: &AnyArray, wanted: bool) -> Result<SpectralValues<1>> {
    let wanted = wanted || is_any_tracked(&[a])?;
    let n = square(operation, a)?;
    let shape = a.shape();
    let of_values = matrices(batch_of(shape), &[n]);
    check_size(operation, shape, a.dtype)?;
    let step = RuledOperation::begin(operation, &[a])?;
    if a.len() == 0 {
        let zeros = |shape: &Shape| filled(operation, a, shape, 0.0);
        let [w, v] = step.finish_empty([zeros(&of_values)?, zeros(shape)?]);
        return Ok((w, Some([v])));
    }
    if a.device().backend().cuda().is_some() {
        check_finite(operation, a, &a.tril(0)?)?;
    }
    let (found, status) = on_device!(
        a.device(),
        touching & a.buffer,
        eigenvalues(a.operand(), &of_values, wanted)
    )?;
    check(operation, &status, shape, Meaning::NotConverged)?;
    let (w, Some([v])) = found else {
        return Ok(found);
    };
    let v = match step.wants(0) {
        true => adapted::eigenvectors(a, [&w, &v])?.unwrap_or(v),
        false => v,
    };
    let [w, v] = step.finish_all([w, v], |saved, factors| {
        let factors = factors.map(|own| saved.save(own));
        let choice = ChosenVectors::none();
        move |upstream| {
            let of_a = gradients::of_eigen(factors.each_ref(), upstream, &choice)?;
            Ok(vec![of_a])
        }
    });
    Ok((w, Some([v])))
}
