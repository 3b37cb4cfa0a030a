//! Steps of matrix products.

use super::graph::is_float;
use super::{AnyArray, Followed, Gradients, Pause, is_live, record};
use crate::array::{Array, Number, Shape};
use crate::error::{Error, ErrorKind, Result};

/// What `compute` gives, the matrix product of two arrays, with the step that passes gradients back through it.
#[track_caller]
pub(crate) fn multiplied<T: Number>(
    left: &Array<T>,
    right: &Array<T>,
    compute: impl FnOnce() -> Result<Array<T>>,
) -> Result<Array<T>> {
    if !is_live() {
        return compute();
    }
    let of = |array: &Array<T>| Followed::of(array.buffer(), array.layout());
    let (to_left, to_right) = (of(left)?, of(right)?);
    if to_left.is_none() && to_right.is_none() {
        return compute();
    }
    if !is_float(T::DTYPE) {
        let text = format!("matmul: no derivative is known for elements of {}", T::NAME);
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let product = {
        let _paused = Pause::begin();
        compute()?
    };
    // Each is needed for the gradient of the other.
    let kept_left = to_right.map(|_| AnyArray::of(left));
    let kept_right = to_left.map(|_| AnyArray::of(right));
    let ranks = [left.ndim(), right.ndim()];
    let saved: Vec<AnyArray> = [&kept_left, &kept_right]
        .into_iter()
        .flatten()
        .map(AnyArray::share)
        .collect();
    let saved: Vec<Option<&AnyArray>> = saved.iter().map(Some).collect();
    let backward = Box::new(
        move |upstream: &[Option<AnyArray>], gradients: &mut Gradients| {
            let Some(upstream) = &upstream[0] else {
                return Ok(());
            };
            let g = as_matrices::<T>(upstream.share().into_array(), ranks)?;
            if let (Some(to), Some(right)) = (to_left, kept_right) {
                let right = as_column(right.into_array::<T>(), ranks[1])?;
                let gradient = of_left(&g, &right, to.layout.ndim())?;
                let gradient = without_axis(gradient, ranks[0], -2)?;
                gradients.add(to, AnyArray::of(&gradient))?;
            }
            if let (Some(to), Some(left)) = (to_right, kept_left) {
                let left = as_row(left.into_array::<T>(), ranks[0])?;
                let gradient = of_right(&left, &g, to.layout.ndim())?;
                let gradient = without_axis(gradient, ranks[1], -1)?;
                gradients.add(to, AnyArray::of(&gradient))?;
            }
            Ok(())
        },
    );
    let (dtype, layout) = (T::DTYPE, *product.layout());
    let buffer = record((product.into_buffer(), layout, dtype), &saved, backward);
    Ok(Array::from_parts(buffer, layout))
}

/// The gradient of the left operand: `g` times the right one transposed.
#[track_caller]
fn of_left<T: Number>(g: &Array<T>, right: &Array<T>, _rank: usize) -> Result<Array<T>> {
    g.matmul(&right.swap_axes(-1, -2)?)
}

/// The gradient of the right operand: the left one transposed times `g`. Where the right one is a single matrix of many
/// products, all of them are one.
#[track_caller]
fn of_right<T: Number>(left: &Array<T>, g: &Array<T>, rank: usize) -> Result<Array<T>> {
    if rank <= 2 && left.ndim() > 2 {
        let (left, g) = (one_matrix(left)?, one_matrix(g)?);
        return left.transpose()?.matmul(&g);
    }
    left.swap_axes(-1, -2)?.matmul(g)
}

/// The rows of all matrices as those of one.
#[track_caller]
fn one_matrix<T: Number>(array: &Array<T>) -> Result<Array<T>> {
    let columns = array.shape()[array.ndim() - 1];
    let rows: usize = array.shape()[..array.ndim() - 1].iter().product();
    array.reshape([rows, columns])
}

/// A vector on the left is a row.
#[track_caller]
fn as_row<T: Number>(array: Array<T>, rank: usize) -> Result<Array<T>> {
    if rank == 1 {
        array.unsqueeze(0)
    } else {
        Ok(array)
    }
}

/// A vector on the right is a column.
#[track_caller]
fn as_column<T: Number>(array: Array<T>, rank: usize) -> Result<Array<T>> {
    if rank == 1 {
        array.unsqueeze(1)
    } else {
        Ok(array)
    }
}

/// The gradient of a product, with the axes that vectors do not have.
#[track_caller]
fn as_matrices<T: Number>(g: Array<T>, [left, right]: [usize; 2]) -> Result<Array<T>> {
    let mut dims: Vec<usize> = g.shape().to_vec();
    if left == 1 {
        let place = dims.len() - usize::from(right > 1);
        dims.insert(place, 1);
    }
    if right == 1 {
        dims.push(1);
    }
    g.reshape(Shape::from(dims.as_slice()))
}

/// The gradient of an operand of that rank, of which `axis` is one that it has only as a matrix.
#[track_caller]
fn without_axis<T: Number>(array: Array<T>, rank: usize, axis: isize) -> Result<Array<T>> {
    if rank == 1 {
        array.squeeze(axis)
    } else {
        Ok(array)
    }
}
