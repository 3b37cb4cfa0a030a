//! The ways of folding that the table of reductions names.

use super::reduce::{LANES, Reducer};
use crate::array::Element;
use crate::array::scalar::{Arithmetic, convert};

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
