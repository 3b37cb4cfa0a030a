//! Singular values and eigenvalues, with their vectors and without.

use super::status::{Meaning, check};
use super::values::ChosenVectors;
use super::{adapted, batch_of, filled, gradients, matrices, matrix_of, square};
use crate::array::{Array, Shape};
use crate::error::Result;
#[cfg(feature = "cuda")]
use crate::ops::cuda;
use crate::ops::derivatives::{RuledOperation, is_tracked};
use crate::ops::descriptors::{Eigen, Factorized, Singular};
use crate::ops::host;
use crate::ops::index::check_size;

#[track_caller]
pub(super) fn svd<T: Factorized>(a: &Array<T>) -> Result<(Array<T>, Array<T>, Array<T>)> {
    svd_for("svd", a)
}

#[track_caller]
pub(super) fn svd_for<T: Factorized>(
    operation: &'static str,
    a: &Array<T>,
) -> Result<(Array<T>, Array<T>, Array<T>)> {
    let (s, vectors) = singular(operation, a, true)?;
    let [u, vt] = vectors.expect("the vectors were asked for");
    Ok((u, s, vt))
}

#[track_caller]
pub(super) fn svdvals<T: Factorized>(a: &Array<T>) -> Result<Array<T>> {
    Ok(singular("svdvals", a, false)?.0)
}

/// Returns the singular values for `operation`, and the vectors if they are `wanted`.
#[track_caller]
pub(super) fn singular<T: Factorized>(
    operation: &'static str,
    a: &Array<T>,
    wanted: bool,
) -> Result<Singular<T>> {
    // The values alone have no gradient rule, because their gradients are computed from the
    // vectors.
    let wanted = wanted || is_tracked(a)?;
    let [m, n] = matrix_of(operation, a)?;
    let (shape, k) = (a.layout().shape(), m.min(n));
    let batch = batch_of(shape);
    let shapes = [&[k][..], &[m, k], &[k, n]].map(|matrix| matrices(batch, matrix));
    for shape in &shapes {
        check_size(operation, shape, T::DTYPE)?;
    }
    let step = RuledOperation::begin_typed(operation, &[a])?;
    if a.is_empty() {
        let [s, u, vt] = shapes;
        let zeros = |shape: Shape| filled(operation, a, &shape, T::zero());
        let [s, u, vt] = step.finish_empty_typed([zeros(s)?, zeros(u)?, zeros(vt)?]);
        return Ok((s, Some([u, vt])));
    }
    check_finite(operation, a, a)?;
    let (found, status) = on_device!(
        a.device(),
        touching a.buffer(),
        order => host::singular_values(order, a, &shapes, wanted),
        cuda::singular_values(order, a.into(), &shapes, wanted).map(|((s, vectors), status)| {
            let vectors = vectors.map(|vectors| vectors.map(Array::from_erased));
            ((s.into_array(), vectors), status)
        })
    )?;
    check(operation, &status, shape, Meaning::NotConverged)?;
    let (s, Some([u, vt])) = found else {
        return Ok(found);
    };
    let [u, vt] = match step.wants(0) {
        true => adapted::singular_vectors(a, [&u, &s, &vt])?.unwrap_or([u, vt]),
        false => [u, vt],
    };
    let [u, s, vt] = step.finish_all_typed([u, s, vt], |saved, factors| {
        let factors = factors.each_ref().map(|own| saved.save_typed(own));
        let choice = ChosenVectors::none();
        move |gradients| gradients::of_singular(factors.each_ref(), gradients, &choice)
    });
    Ok((s, Some([u, vt])))
}

/// Rejects `elements` of the matrices of `a` that are not finite, on a CUDA device. On the host,
/// the factorization rejects them. cuSOLVER does not document what it does with such elements.
#[track_caller]
fn check_finite<T: Factorized>(operation: &str, a: &Array<T>, elements: &Array<T>) -> Result<()> {
    if a.device().backend().cuda().is_none() {
        return Ok(());
    }
    let zero = (elements * T::zero()).sum_axis([-2, -1])?;
    let status = zero.ne(T::zero()).cast::<i32>().eval_unfused()?;
    check(
        operation,
        &status,
        a.layout().shape(),
        Meaning::NotConverged,
    )
}

#[track_caller]
pub(super) fn eigh<T: Factorized>(a: &Array<T>) -> Result<(Array<T>, Array<T>)> {
    let (w, v) = eigen("eigh", a, true)?;
    Ok((w, v.expect("the vectors were asked for")))
}

#[track_caller]
pub(super) fn eigvalsh<T: Factorized>(a: &Array<T>) -> Result<Array<T>> {
    Ok(eigen("eigvalsh", a, false)?.0)
}

/// Returns the eigenvalues for `operation`, and the vectors if they are `wanted`.
#[track_caller]
fn eigen<T: Factorized>(operation: &'static str, a: &Array<T>, wanted: bool) -> Result<Eigen<T>> {
    let wanted = wanted || is_tracked(a)?;
    let n = square(operation, a)?;
    let shape = a.layout().shape();
    let of_values = matrices(batch_of(shape), &[n]);
    check_size(operation, shape, T::DTYPE)?;
    let step = RuledOperation::begin_typed(operation, &[a])?;
    if a.is_empty() {
        let zeros = |shape: &Shape| filled(operation, a, shape, T::zero());
        let [w, v] = step.finish_empty_typed([zeros(&of_values)?, zeros(shape)?]);
        return Ok((w, Some(v)));
    }
    if a.device().backend().cuda().is_some() {
        check_finite(operation, a, &a.tril(0)?)?;
    }
    let (found, status) = on_device!(
        a.device(),
        touching a.buffer(),
        order => host::eigenvalues(order, a, &of_values, wanted),
        cuda::eigenvalues(order, a.into(), &of_values, wanted).map(|((w, vectors), status)| {
            let v = vectors.map(|[v]| v.into_array());
            ((w.into_array(), v), status)
        })
    )?;
    check(operation, &status, shape, Meaning::NotConverged)?;
    let (w, Some(v)) = found else {
        return Ok(found);
    };
    let v = match step.wants(0) {
        true => adapted::eigenvectors(a, [&w, &v])?.unwrap_or(v),
        false => v,
    };
    let [w, v] = step.finish_all_typed([w, v], |saved, factors| {
        let factors = factors.each_ref().map(|own| saved.save_typed(own));
        let choice = ChosenVectors::none();
        move |gradients| gradients::of_eigen(factors.each_ref(), gradients, &choice)
    });
    Ok((w, Some(v)))
}
