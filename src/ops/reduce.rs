//! How elements are folded.
//!
//! Elements are folded in blocks: within a block into several partial results side by side, which
//! the compiler makes vector code of, and from block to block into a total. The order depends on
//! the shape alone, so a result is the same on every run.

use std::cmp::Reverse;

use super::eval::{device_of, reach_of_axes};
use super::expr::{Expr, Lazy};
use super::host::{Frame, fold};
use crate::array::{Array, Element, MAX_RANK, Shape};
use crate::context::Device;
use crate::error::{Error, ErrorKind, Result};

/// Partial results side by side: enough for the longest vectors of today's processors.
pub(super) const LANES: usize = 16;

/// A way of folding elements of `T`, as a type without values.
///
/// `index` counts elements along the folded axis, or in row-major order of all.
pub(super) trait Reducer<T: Element>: Copy + Send + Sync + 'static {
    /// What error messages call it.
    const NAME: &'static str;

    /// Whether the result depends on where elements stand.
    const POSITIONAL: bool = false;

    /// The type of the result.
    type Output: Element;

    /// A result within a block.
    type Partial: Copy + Send;

    /// A result over blocks.
    type Total: Copy + Send;

    /// The result for no elements, if there is one.
    fn nothing() -> Option<Self::Output>;

    /// The partial result for one element.
    fn open(value: T, index: usize) -> Self::Partial;

    /// `partial` with one more element.
    fn step(partial: Self::Partial, value: T, index: usize) -> Self::Partial;

    /// Two partial results of one block as one.
    fn join(left: Self::Partial, right: Self::Partial) -> Self::Partial;

    /// The total of one block.
    fn total(partial: Self::Partial) -> Self::Total;

    /// Two totals as one.
    fn merge(left: Self::Total, right: Self::Total) -> Self::Total;

    /// The result for `count` elements.
    fn finish(total: Self::Total, count: usize) -> Self::Output;

    /// The partial result for `values`, of which there is at least one; the first has number
    /// `first`.
    #[inline]
    fn fold(values: &[T], first: usize) -> Self::Partial {
        let Some((head, tail)) = values.split_first_chunk::<LANES>() else {
            let mut partial = Self::open(values[0], first);
            for (index, &value) in values.iter().enumerate().skip(1) {
                partial = Self::step(partial, value, first + index);
            }
            return partial;
        };
        let mut lanes: [_; LANES] =
            std::array::from_fn(|lane| Self::open(head[lane], first + lane));
        let (chunks, rest) = tail.as_chunks::<LANES>();
        let mut index = first + LANES;
        for chunk in chunks {
            for lane in 0..LANES {
                lanes[lane] = Self::step(lanes[lane], chunk[lane], index + lane);
            }
            index += LANES;
        }
        for (lane, &value) in rest.iter().enumerate() {
            lanes[lane] = Self::step(lanes[lane], value, index + lane);
        }
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                lanes[lane] = Self::join(lanes[lane], lanes[lane + width]);
            }
            width /= 2;
        }
        lanes[0]
    }
}

/// What to fold, in which order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// The elements are numbered along the outputs' slower axes, then along the fold, then along the
    /// outputs' faster axes.
    pub(super) frame: Frame,
    /// How many elements make one output.
    pub(super) length: usize,
    /// How many outputs the faster axes have; 1 where the elements of an output stand together.
    pub(super) inner: usize,
    /// The shape of all outputs.
    pub(super) outputs: Shape,
}

impl Plan {
    /// Everything becomes one output, in the order of memory unless positions count.
    fn all<F: Reducer<E::Item>, E: Expr>(expr: &E, shape: &Shape) -> Result<Self> {
        let mut axes: [usize; MAX_RANK] = std::array::from_fn(|axis| axis);
        if !F::POSITIONAL {
            let reach = reach_of_axes(expr, shape);
            axes[..shape.ndim()].sort_by_key(|&axis| Reverse(reach[axis]));
        }
        Ok(Self {
            frame: Frame::reordered(shape, axes),
            length: shape.len()?,
            inner: 1,
            outputs: Shape::SCALAR,
        })
    }

    /// One output for each position on the other axes. The fold takes the fastest place where its
    /// elements stand closer together than those of the last of these, and its own place otherwise.
    fn along<E: Expr>(expr: &E, shape: &Shape, axis: usize) -> Self {
        let reach = reach_of_axes(expr, shape);
        let dims = shape.dims();
        let mut others = (0..dims.len()).rev().filter(|&other| other != axis);
        let last = others.find(|&other| dims[other] > 1);
        let mut axes: [usize; MAX_RANK] = std::array::from_fn(|axis| axis);
        let inner = if last.is_none_or(|last| reach[axis] < reach[last]) {
            axes[axis..dims.len()].rotate_left(1);
            1
        } else {
            dims[axis + 1..].iter().product()
        };
        Self {
            frame: Frame::reordered(shape, axes),
            length: dims[axis],
            inner,
            outputs: shape.without(axis),
        }
    }

    /// Folds `expr`.
    #[track_caller]
    fn run<F: Reducer<E::Item>, E: Expr>(&self, lazy: &Lazy<E>) -> Result<Array<F::Output>> {
        if self.length == 0 && F::nothing().is_none() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "{}: nothing to choose from in the shape {}",
                    F::NAME,
                    lazy.shape()?
                ),
            ));
        }
        match device_of(F::NAME, &lazy.expr)? {
            Some(device) => fold::<F, E>(&lazy.expr, device, self),
            // Not in a closure, which would stand as the caller.
            None => fold::<F, E>(&lazy.expr, &Device::current(), self),
        }
    }
}

/// Folds all elements to an array of rank 0.
#[track_caller]
pub(super) fn all<F: Reducer<E::Item>, E: Expr>(lazy: &Lazy<E>) -> Result<Array<F::Output>> {
    let shape = lazy.shape()?;
    Plan::all::<F, E>(&lazy.expr, &shape)?.run::<F, E>(lazy)
}

/// Folds the elements along `axis`, which is removed.
#[track_caller]
pub(super) fn along<F: Reducer<E::Item>, E: Expr>(
    lazy: &Lazy<E>,
    axis: isize,
) -> Result<Array<F::Output>> {
    let shape = lazy.shape()?;
    let axis = shape.axis(F::NAME, axis)?;
    Plan::along(&lazy.expr, &shape, axis).run::<F, E>(lazy)
}
