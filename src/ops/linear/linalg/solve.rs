//! Solutions of equations, inverses and determinants, by the LU factorization.

use super::status::{Meaning, check};
use super::{batch_of, determinant, filled, gradients, matrices, square};
use crate::array::{AnyArray, Shape, broadcast_shapes};
use crate::error::{Error, ErrorKind, Result};
#[cfg(feature = "cuda")]
use crate::ops::cuda;
use crate::ops::derivatives::RuledOperation;
use crate::ops::dispatch::same_device;
use crate::ops::host;
use crate::ops::index::check_size;

/// See [`solve`](crate::linalg::solve).
#[track_caller]
pub(super) fn solve(a: &AnyArray, b: &AnyArray) -> Result<AnyArray> {
    same_device("solve", ("a", a), ("b", b))?;
    let n = square("solve", a)?;
    let (right, shape) = right_sides("solve", a, b, n)?;
    check_size("solve", &shape, a.dtype)?;
    let step = RuledOperation::begin("solve", &[a, b])?;
    let is_vector = b.layout.ndim() == 1;
    let as_b = move |x: AnyArray| match is_vector {
        true => x.squeeze(-1),
        false => Ok(x),
    };
    if shape.checked_is_empty()? {
        // The result is empty, but the size of the broadcast matrices may overflow.
        let [x] = step.finish_empty([as_b(a.zeros(&shape)?)?]);
        return Ok(x);
    }
    let of = matrices(batch_of(&shape), &[n, n]);
    let x = {
        let (a, right) = (a.broadcast_to(&of)?, right.broadcast_to(&shape)?);
        let (x, status) = on_device!(
            a.device(),
            touching & [&a.buffer, &right.buffer],
            solved(a.operand(), right.operand())
        )?;
        check("solve", &status, &of, Meaning::Singular)?;
        as_b(x)?
    };
    Ok(step.finish(x.share(), |saved| {
        let (a, x) = (saved.save(a), saved.save(&x));
        move |gradient: AnyArray| gradients::of_solution(&a, &x, &gradient, is_vector)
    }))
}

/// Returns the right-hand sides as matrices with as many rows as `a` has. Also returns the shape
/// that the right-hand sides and `a` broadcast to.
///
/// # Errors
///
/// [`ShapeMismatch`](ErrorKind::ShapeMismatch).
#[track_caller]
pub(super) fn right_sides(
    operation: &str,
    a: &AnyArray,
    b: &AnyArray,
    rows: usize,
) -> Result<(AnyArray, Shape)> {
    let mismatch = |why: &str| {
        let (own, others) = (a.shape(), b.shape());
        format!("{operation}: a {own} and b {others} do not fit: {why}")
    };
    let right = match b.layout.ndim() {
        0 => {
            let text = mismatch("expected a vector or matrices for b");
            return Err(Error::new(ErrorKind::ShapeMismatch, text));
        }
        1 => b.unsqueeze(1)?,
        _ => b.share(),
    };
    let shape = right.shape();
    let [.., height, columns] = *shape.dims() else {
        unreachable!("the right side has at least two axes");
    };
    if height != rows {
        let why = format!("a has {rows} rows, b has {height}");
        return Err(Error::new(ErrorKind::ShapeMismatch, mismatch(&why)));
    }
    let (before, after) = (
        Shape::from(batch_of(a.shape())),
        Shape::from(batch_of(shape)),
    );
    let Ok(batch) = broadcast_shapes(operation, &[&before, &after]) else {
        let why = format!("the axes before the last two, {before} and {after}, do not broadcast");
        return Err(Error::new(ErrorKind::ShapeMismatch, mismatch(&why)));
    };
    let shape = matrices(batch.dims(), &[rows, columns]);
    Ok((right, shape))
}

/// See [`inv`](crate::linalg::inv).
#[track_caller]
pub(super) fn inv(a: &AnyArray) -> Result<AnyArray> {
    square("inv", a)?;
    let step = RuledOperation::begin("inv", &[a])?;
    if a.len() == 0 {
        let [empty] = step.finish_empty([a.zeros(a.shape())?]);
        return Ok(empty);
    }
    let (inverse, status) = on_device!(a.device(), touching & a.buffer, inverted(a.operand()))?;
    check("inv", &status, a.shape(), Meaning::Singular)?;
    Ok(step.finish(inverse.share(), |saved| {
        let inverse = saved.save(&inverse);
        move |gradient| Ok(vec![gradients::of_inverse(&inverse, &gradient)?])
    }))
}

/// See [`det`](crate::linalg::det).
#[track_caller]
pub(super) fn det(a: &AnyArray) -> Result<AnyArray> {
    square("det", a)?;
    let shape = a.shape();
    let step = RuledOperation::begin("det", &[a])?;
    if a.len() == 0 {
        let ones = filled("det", a, &batch_of(shape).into(), 1.0)?;
        let [ones] = step.finish_empty([ones]);
        return Ok(ones);
    }
    let (value, status) = on_device!(
        a.device(),
        touching & a.buffer,
        order => host::determinants(order, a.operand()).map(|(value, status)| (value, Some(status))),
        {
            let (factors, pivots) = cuda::lu_factors(order, a.operand())?;
            determinant::of_factors(&factors, &pivots).map(|value| (value, None))
        }
    )?;
    if let Some(status) = status {
        check("det", &status, shape, Meaning::Nothing)?;
    }
    Ok(step.finish(value, |saved| {
        let a = saved.save(a);
        move |gradient| Ok(vec![determinant::of_determinant(&a, &gradient)?])
    }))
}
