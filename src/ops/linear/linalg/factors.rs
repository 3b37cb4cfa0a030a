//! The Cholesky factorization, and the QR factorization by Householder reflections.

use super::status::{Meaning, check};
use super::{batch_of, filled, gradients, matrices, matrix_of, square};
use crate::array::AnyArray;
use crate::error::Result;
#[cfg(feature = "cuda")]
use crate::ops::cuda;
use crate::ops::derivatives::RuledOperation;
use crate::ops::host;
use crate::ops::index::check_size;

/// See [`cholesky`](crate::linalg::cholesky).
#[track_caller]
pub(super) fn cholesky(a: &AnyArray) -> Result<AnyArray> {
    square("cholesky", a)?;
    let shape = a.shape();
    check_size("cholesky", shape, a.dtype)?;
    let step = RuledOperation::begin("cholesky", &[a])?;
    if a.len() == 0 {
        let [empty] = step.finish_empty([a.zeros(shape)?]);
        return Ok(empty);
    }
    let (lower, status) = on_device!(
        a.device(),
        touching & a.buffer,
        cholesky_factors(a.operand())
    )?;
    check("cholesky", &status, shape, Meaning::NotPositiveDefinite)?;
    Ok(step.finish(lower.share(), |saved| {
        let lower = saved.save(&lower);
        move |gradient| Ok(vec![gradients::of_cholesky(&lower, &gradient)?])
    }))
}

/// See [`qr`](crate::linalg::qr).
#[track_caller]
pub(super) fn qr(a: &AnyArray) -> Result<[AnyArray; 2]> {
    let [m, n] = matrix_of("qr", a)?;
    let (shape, k) = (a.shape(), m.min(n));
    let batch = batch_of(shape);
    let (of_q, of_r) = (matrices(batch, &[m, k]), matrices(batch, &[k, n]));
    check_size("qr", &of_q, a.dtype)?;
    check_size("qr", &of_r, a.dtype)?;
    let step = RuledOperation::begin("qr", &[a])?;
    if a.len() == 0 {
        let zeros = |shape| filled("qr", a, shape, 0.0);
        return Ok(step.finish_empty([zeros(&of_q)?, zeros(&of_r)?]));
    }
    let (factors, status) = on_device!(
        a.device(),
        touching & a.buffer,
        order => host::qr_factors(order, a.operand(), &of_q, &of_r),
        cuda::qr_factors(order, a.operand()).map(|factors| (factors, None))
    )?;
    if let Some(status) = status {
        check("qr", &status, shape, Meaning::Nothing)?;
    }
    Ok(step.finish_all(factors, |saved, factors| {
        let (a, factors) = (saved.save(a), factors.map(|own| saved.save(own)));
        move |gradients| Ok(vec![gradients::of_qr(&a, factors.each_ref(), gradients)?])
    }))
}
