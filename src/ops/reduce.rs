//! How elements are folded, and the folds that the tables name.
//!
//! Elements are folded in blocks: within a block into several partial results side by side, which
//! the compiler makes vector code of, and from block to block into a total. The order depends on
//! the shape alone, so a result is the same on every run.

use std::cmp::Reverse;

use super::eval::{device_of, reach_of_axes};
use super::expr::{Expr, Lazy};
use super::host::{Frame, fold};
use crate::array::scalar::{Arithmetic, convert};
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

/// A sum and what rounding took from it.
///
/// Within a block at most a few tens of elements follow one another, and from block to block the
/// error is carried along (Knuth's TwoSum), so the error of a sum does not grow with its length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compensated<A> {
    sum: A,
    error: A,
}

impl<A: Arithmetic + PartialEq> Compensated<A> {
    #[inline(always)]
    fn merge(self, other: Self) -> Self {
        let sum = self.sum.plus(other.sum);
        let gained = sum.minus(self.sum);
        let lost = self
            .sum
            .minus(sum.minus(gained))
            .plus(other.sum.minus(gained));
        Self {
            sum,
            error: self.error.plus(other.error).plus(lost),
        }
    }

    #[inline(always)]
    fn value(self) -> A {
        let corrected = self.sum.plus(self.error);
        // An infinite sum makes the error NaN, which says nothing of the sum.
        if is_nan(&self.error) {
            self.sum
        } else {
            corrected
        }
    }
}

#[inline(always)]
#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
fn is_nan<T: PartialEq>(value: &T) -> bool {
    value != value
}

/// Where the first of `values` that is `wanted` stands, which there must be: a block of them is
/// looked at whole, without a branch.
#[inline]
fn position<T>(values: &[T], wanted: impl Fn(&T) -> bool) -> usize {
    let (blocks, _) = values.as_chunks::<LANES>();
    let before = blocks
        .iter()
        .take_while(|block| {
            !block
                .iter()
                .fold(false, |found, value| found | wanted(value))
        })
        .count();
    let skipped = before * LANES;
    let rest = values[skipped..].iter().position(wanted);
    skipped + rest.unwrap_or(0)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Sum;

impl<T: Element> Reducer<T> for Sum {
    const NAME: &'static str = "sum";
    type Output = T::Sum;
    type Partial = T::Accumulator;
    type Total = Compensated<T::Accumulator>;

    fn nothing() -> Option<T::Sum> {
        Some(T::Sum::zero())
    }

    #[inline(always)]
    fn open(value: T, _index: usize) -> T::Accumulator {
        convert(value)
    }

    #[inline(always)]
    fn step(partial: T::Accumulator, value: T, _index: usize) -> T::Accumulator {
        partial.plus(convert(value))
    }

    #[inline(always)]
    fn join(left: T::Accumulator, right: T::Accumulator) -> T::Accumulator {
        left.plus(right)
    }

    #[inline(always)]
    fn total(sum: T::Accumulator) -> Self::Total {
        Compensated {
            sum,
            error: T::Accumulator::zero(),
        }
    }

    #[inline(always)]
    fn merge(left: Self::Total, right: Self::Total) -> Self::Total {
        left.merge(right)
    }

    #[inline(always)]
    fn finish(total: Self::Total, _count: usize) -> T::Sum {
        convert(total.value())
    }
}

/// What the mean of a `T` is computed in.
type MeanOf<T> = <<T as Element>::Mean as Element>::Accumulator;

#[derive(Clone, Copy, Debug)]
pub(super) struct Mean;

impl<T: Element> Reducer<T> for Mean {
    const NAME: &'static str = "mean";
    type Output = T::Mean;
    type Partial = MeanOf<T>;
    type Total = Compensated<MeanOf<T>>;

    fn nothing() -> Option<T::Mean> {
        Some(T::Mean::from_f64(f64::NAN))
    }

    #[inline(always)]
    fn open(value: T, _index: usize) -> MeanOf<T> {
        convert(value)
    }

    #[inline(always)]
    fn step(partial: MeanOf<T>, value: T, _index: usize) -> MeanOf<T> {
        partial.plus(convert(value))
    }

    #[inline(always)]
    fn join(left: MeanOf<T>, right: MeanOf<T>) -> MeanOf<T> {
        left.plus(right)
    }

    #[inline(always)]
    fn total(sum: MeanOf<T>) -> Self::Total {
        Compensated {
            sum,
            error: MeanOf::<T>::zero(),
        }
    }

    #[inline(always)]
    fn merge(left: Self::Total, right: Self::Total) -> Self::Total {
        left.merge(right)
    }

    #[inline(always)]
    fn finish(total: Self::Total, count: usize) -> T::Mean {
        convert(total.value().over(convert(count as u64)))
    }
}

/// The reducers that keep the one element which is better than all others; the first NaN is better
/// than everything.
macro_rules! extreme {
    ($($name:literal $value:ident, $index_name:literal $index:ident: $better:tt;)+) => {
        $(
            #[derive(Clone, Copy, Debug)]
            pub(super) struct $value;

            impl $value {
                #[inline(always)]
                fn of<T: Element>(left: T, right: T) -> T {
                    if right $better left || is_nan(&right) { right } else { left }
                }
            }

            impl<T: Element> Reducer<T> for $value {
                const NAME: &'static str = $name;
                type Output = T;
                type Partial = T;
                type Total = T;

                fn nothing() -> Option<T> {
                    None
                }

                #[inline(always)]
                fn open(value: T, _index: usize) -> T {
                    value
                }

                #[inline(always)]
                fn step(partial: T, value: T, _index: usize) -> T {
                    Self::of(partial, value)
                }

                #[inline(always)]
                fn join(left: T, right: T) -> T {
                    Self::of(left, right)
                }

                #[inline(always)]
                fn total(partial: T) -> T {
                    partial
                }

                #[inline(always)]
                fn merge(left: T, right: T) -> T {
                    Self::of(left, right)
                }

                #[inline(always)]
                fn finish(total: T, _count: usize) -> T {
                    total
                }
            }

            #[derive(Clone, Copy, Debug)]
            pub(super) struct $index;

            impl<T: Element> Reducer<T> for $index {
                const NAME: &'static str = $index_name;
                const POSITIONAL: bool = true;
                type Output = i64;
                type Partial = (T, i64);
                type Total = (T, i64);

                fn nothing() -> Option<i64> {
                    None
                }

                #[inline(always)]
                fn open(value: T, index: usize) -> (T, i64) {
                    (value, index as i64)
                }

                #[inline(always)]
                fn step(partial: (T, i64), value: T, index: usize) -> (T, i64) {
                    let better = value $better partial.0 || (is_nan(&value) && !is_nan(&partial.0));
                    if better { (value, index as i64) } else { partial }
                }

                // Blocks come in order, so `left` has the lower numbers, and keeps a tie.
                #[inline(always)]
                fn join(left: (T, i64), right: (T, i64)) -> (T, i64) {
                    Self::step(left, right.0, right.1 as usize)
                }

                #[inline(always)]
                fn total(partial: (T, i64)) -> (T, i64) {
                    partial
                }

                #[inline(always)]
                fn merge(left: (T, i64), right: (T, i64)) -> (T, i64) {
                    Self::step(left, right.0, right.1 as usize)
                }

                #[inline(always)]
                fn finish(total: (T, i64), _count: usize) -> i64 {
                    total.1
                }

                /// Finds the value first, which takes vector code, and then where it stands.
                #[inline]
                fn fold(values: &[T], first: usize) -> (T, i64) {
                    let best = $value::fold(values, first);
                    let position = if is_nan(&best) {
                        position(values, is_nan)
                    } else {
                        position(values, |value| *value == best)
                    };
                    (best, (first + position) as i64)
                }
            }
        )+
    };
}

extreme! {
    "max" Max, "argmax" Argmax: >;
    "min" Min, "argmin" Argmin: <;
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
        match device_of(&lazy.expr)? {
            Some(device) => fold::<F, E>(&lazy.expr, device, self),
            None => Device::with_current(|device| fold::<F, E>(&lazy.expr, device, self)),
        }
    }
}

/// Folds all elements to an array of rank 0.
pub(super) fn all<F: Reducer<E::Item>, E: Expr>(lazy: &Lazy<E>) -> Result<Array<F::Output>> {
    let shape = lazy.shape()?;
    Plan::all::<F, E>(&lazy.expr, &shape)?.run::<F, E>(lazy)
}

/// Folds the elements along `axis`, which is removed.
pub(super) fn along<F: Reducer<E::Item>, E: Expr>(
    lazy: &Lazy<E>,
    axis: isize,
) -> Result<Array<F::Output>> {
    let shape = lazy.shape()?;
    let axis = shape.axis(F::NAME, axis)?;
    Plan::along(&lazy.expr, &shape, axis).run::<F, E>(lazy)
}
