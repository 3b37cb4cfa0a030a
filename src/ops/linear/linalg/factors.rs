//! The Cholesky factorization, and the QR factorization by Householder reflections.

use super::status::{Meaning, check};
use super::{batch_of, filled, gradients, matrices, matrix_of, square};
use crate::array::{AnyArray, Array, Writer};
use crate::error::Result;
#[cfg(feature = "cuda")]
use crate::ops::cuda;
use crate::ops::derivatives::RuledOperation;
use crate::ops::descriptors::Factorized;
use crate::ops::host;
use crate::ops::index::check_size;

#[track_caller]
pub(super) fn cholesky<T: Factorized>(a: &Array<T>) -> Result<Array<T>> {
    square("cholesky", a)?;
    let shape = a.layout().shape();
    check_size("cholesky", shape, T::DTYPE)?;
    let step = RuledOperation::begin_typed("cholesky", &[a])?;
    if a.is_empty() {
        let [empty] = step.finish_empty_typed([Writer::new(a.device(), shape)?.finish()?]);
        return Ok(empty);
    }
    let (lower, status) = on_device!(
        a.device(),
        touching a.buffer(),
        order => host::cholesky_factors(order, a),
        cuda::cholesky_factors(order, a.into()).map(super::typed)
    )?;
    check("cholesky", &status, shape, Meaning::NotPositiveDefinite)?;
    Ok(step.finish_typed(lower.clone(), |saved| {
        let lower = saved.save_typed(&lower);
        move |gradient: AnyArray| gradients::of_cholesky(&lower, &gradient.into_array())
    }))
}

#[track_caller]
pub(super) fn qr<T: Factorized>(a: &Array<T>) -> Result<(Array<T>, Array<T>)> {
    let [m, n] = matrix_of("qr", a)?;
    let (shape, k) = (a.layout().shape(), m.min(n));
    let batch = batch_of(shape);
    let (of_q, of_r) = (matrices(batch, &[m, k]), matrices(batch, &[k, n]));
    check_size("qr", &of_q, T::DTYPE)?;
    check_size("qr", &of_r, T::DTYPE)?;
    let step = RuledOperation::begin_typed("qr", &[a])?;
    if a.is_empty() {
        let zeros = |shape| filled("qr", a, shape, T::zero());
        let [q, r] = step.finish_empty_typed([zeros(&of_q)?, zeros(&of_r)?]);
        return Ok((q, r));
    }
    let ((q, r), status) = on_device!(
        a.device(),
        touching a.buffer(),
        order => host::qr_factors(order, a, &of_q, &of_r),
        cuda::qr_factors(order, a.into())
            .map(|[q, r]| ((q.into_array(), r.into_array()), None))
    )?;
    if let Some(status) = status {
        check("qr", &status, shape, Meaning::Nothing)?;
    }
    let [q, r] = step.finish_all_typed([q, r], |saved, factors| {
        let (a, factors) = (
            saved.save_typed(a),
            factors.each_ref().map(|own| saved.save_typed(own)),
        );
        move |gradients| gradients::of_qr(&a, factors.each_ref(), gradients)
    });
    Ok((q, r))
}
