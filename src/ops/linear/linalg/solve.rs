//! Equations, inverses and determinants, by the LU factorization.

use super::status::{Meaning, check};
use super::{batch_of, determinant, filled, gradients, matrices, square};
use crate::array::{AnyArray, Array, Shape, Writer, broadcast_shapes};
use crate::error::{Error, ErrorKind, Result};
#[cfg(feature = "cuda")]
use crate::ops::cuda;
use crate::ops::derivatives::RuledOperation;
use crate::ops::descriptors::Factorized;
use crate::ops::dispatch::same_device;
use crate::ops::host;
use crate::ops::index::check_size;

#[track_caller]
pub(super) fn solve<T: Factorized>(a: &Array<T>, b: &Array<T>) -> Result<Array<T>> {
    same_device("solve", ("a", a.erased()), ("b", b.erased()))?;
    let n = square("solve", a)?;
    let (right, shape) = right_sides("solve", a, b, n)?;
    check_size("solve", &shape, T::DTYPE)?;
    let batch = batch_of(&shape);
    let step = RuledOperation::begin_typed("solve", &[a, b])?;
    if shape.checked_is_empty()? {
        // The matrices, broadcast to an empty result, may be too long.
        let x = Writer::new(a.device(), &shape)?.finish()?;
        let x = if b.ndim() == 1 { x.squeeze(-1)? } else { x };
        let [x] = step.finish_empty_typed([x]);
        return Ok(x);
    }
    let of = matrices(batch, &[n, n]);
    let x = {
        let (a, right) = (a.broadcast_to(of)?, right.broadcast_to(shape)?);
        let (x, status) = on_device!(
            a.device(),
            touching & [a.buffer(), right.buffer()],
            order => host::solved(order, &a, &right),
            cuda::solved(order, (&a).into(), (&right).into()).map(super::typed)
        )?;
        check("solve", &status, &of, Meaning::Singular)?;
        x
    };
    let x = if b.ndim() == 1 { x.squeeze(-1)? } else { x };
    let is_vector = b.ndim() == 1;
    Ok(step.finish_typed(x.clone(), |saved| {
        let (a, x) = (saved.save_typed(a), saved.save_typed(&x));
        move |gradient: AnyArray| gradients::of_solution(&a, &x, &gradient.into_array(), is_vector)
    }))
}

/// Returns the right-hand sides as matrices with as many rows as `a` has. Also returns the shape
/// that the right-hand sides and `a` broadcast to.
///
/// # Errors
///
/// [`ShapeMismatch`](ErrorKind::ShapeMismatch).
#[track_caller]
pub(super) fn right_sides<T: Factorized>(
    operation: &str,
    a: &Array<T>,
    b: &Array<T>,
    rows: usize,
) -> Result<(Array<T>, Shape)> {
    let mismatch = |why: &str| {
        let (own, others) = (a.layout().shape(), b.layout().shape());
        format!("{operation}: a {own} and b {others} do not fit: {why}")
    };
    let right = match b.ndim() {
        0 => {
            let text = mismatch("expected a vector or matrices for b");
            return Err(Error::new(ErrorKind::ShapeMismatch, text));
        }
        1 => b.unsqueeze(1)?,
        _ => b.clone(),
    };
    let shape = right.layout().shape();
    let [.., height, columns] = *shape.dims() else {
        unreachable!("the right side has been made matrices");
    };
    if height != rows {
        let why = format!("a has {rows} rows, b has {height}");
        return Err(Error::new(ErrorKind::ShapeMismatch, mismatch(&why)));
    }
    let (before, after) = (
        Shape::from(batch_of(a.layout().shape())),
        Shape::from(batch_of(shape)),
    );
    let Ok(batch) = broadcast_shapes(operation, &[&before, &after]) else {
        let why = format!("before the last two axes, {before} and {after} do not broadcast");
        return Err(Error::new(ErrorKind::ShapeMismatch, mismatch(&why)));
    };
    let shape = matrices(batch.dims(), &[rows, columns]);
    Ok((right, shape))
}

#[track_caller]
pub(super) fn inv<T: Factorized>(a: &Array<T>) -> Result<Array<T>> {
    square("inv", a)?;
    let step = RuledOperation::begin_typed("inv", &[a])?;
    if a.is_empty() {
        let empty = Writer::new(a.device(), a.layout().shape())?.finish()?;
        let [empty] = step.finish_empty_typed([empty]);
        return Ok(empty);
    }
    let (inverse, status) = on_device!(
        a.device(),
        touching a.buffer(),
        order => host::inverted(order, a),
        cuda::inverted(order, a.into()).map(super::typed)
    )?;
    check("inv", &status, a.layout().shape(), Meaning::Singular)?;
    Ok(step.finish_typed(inverse.clone(), |saved| {
        let inverse = saved.save_typed(&inverse);
        move |gradient: AnyArray| gradients::of_inverse(&inverse, &gradient.into_array())
    }))
}

#[track_caller]
pub(super) fn det<T: Factorized>(a: &Array<T>) -> Result<Array<T>> {
    square("det", a)?;
    let shape = a.layout().shape();
    let step = RuledOperation::begin_typed("det", &[a])?;
    if a.is_empty() {
        let ones = filled("det", a, &batch_of(shape).into(), T::one())?;
        let [ones] = step.finish_empty_typed([ones]);
        return Ok(ones);
    }
    let (value, status) = on_device!(
        a.device(),
        touching a.buffer(),
        order => host::determinants(order, a),
        {
            let (factors, pivots) = cuda::lu_factors(order, a.into())?;
            determinant::of_factors(&factors.into_array(), &pivots).map(|value| (value, None))
        }
    )?;
    if let Some(status) = status {
        check("det", &status, shape, Meaning::Nothing)?;
    }
    Ok(step.finish_typed(value, |saved| {
        let a = saved.save_typed(a);
        move |gradient: AnyArray| determinant::of_determinant(&a, &gradient.into_array())
    }))
}
