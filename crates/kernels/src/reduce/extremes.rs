//! The largest and the smallest element, and their positions.

use super::sums::is_nan;
use super::{
    ACCUMULATORS, CudaReducer, Reducer, ReductionRule, Unordered, join_accumulators,
    reduce_unordered,
};
use crate::Element;
use crate::vector::rolled;

/// Returns the index of the first value that equals `wanted`, where NaN equals NaN. One of the
/// values must equal `wanted`. Values are compared in blocks, without a branch inside a block.
#[inline(always)]
fn position<T: Element>(values: &[T], wanted: T) -> usize {
    let (blocks, _) = values.as_chunks::<ACCUMULATORS>();
    let mut skipped = 0;
    for block in blocks {
        let mut found = false;
        for value in block {
            found |= is_same(*value, wanted);
        }
        if found {
            break;
        }
        skipped += ACCUMULATORS;
    }
    while !is_same(values[skipped], wanted) {
        skipped += 1;
    }
    skipped
}

/// The number of elements of a block: two elements for each accumulator.
const BLOCK: usize = 2 * ACCUMULATORS;

/// Returns the best element of `blocks`. If the blocks have a NaN, returns the first NaN. A
/// comparison with NaN is always `false`, so a separate loop searches for NaN. One instruction
/// tests two elements.
#[inline(always)]
fn best_of<const FMA: bool, T: Element>(
    blocks: &[[T; BLOCK]],
    best: impl Fn(T, T) -> T + Copy,
) -> Option<T> {
    let first = blocks.first()?;
    let mut accumulators: [T; ACCUMULATORS] = std::array::from_fn(|at| first[at]);
    for block in blocks {
        let mut found = false;
        for at in 0..ACCUMULATORS {
            let at = rolled::<FMA>(at);
            accumulators[at] = best(accumulators[at], block[at]);
        }
        for at in 0..ACCUMULATORS {
            let at = rolled::<FMA>(at);
            accumulators[at] = best(accumulators[at], block[at + ACCUMULATORS]);
        }
        for at in 0..ACCUMULATORS {
            let at = rolled::<FMA>(at);
            found |= is_nan(&block[at]) | is_nan(&block[at + ACCUMULATORS]);
        }
        if found {
            return block.iter().copied().find(is_nan);
        }
    }
    Some(join_accumulators::<_, FMA>(accumulators, best))
}

#[inline(always)]
fn is_same<T: Element>(left: T, right: T) -> bool {
    (left == right) | (is_nan(&left) & is_nan(&right))
}

/// Declares the reducers that return the best element or its index. The first NaN is better than
/// every other element.
macro_rules! extreme {
    ($(
        $name:literal $value:ident, $index_name:literal $index:ident: $better:tt,
        cuda $cuda:literal, $cuda_step:literal, $cuda_place:literal;
    )+) => {
        $(
            #[derive(Clone, Copy, Debug)]
            pub struct $value;

            impl $value {
                #[inline(always)]
                fn of<T: Element>(left: T, right: T) -> T {
                    if (right $better left) | is_nan(&right) { right } else { left }
                }
            }

            impl<T: Element> Reducer<T> for $value {
                const NAME: &'static str = $name;
                const RULE: Option<ReductionRule> = Some(ReductionRule::Largest);
                const CUDA: CudaReducer = CudaReducer {
                    partial: "T",
                    total: "T",
                    total_bytes: 8,
                    open: "x",
                    step: $cuda_step,
                    whole: "a",
                    join: $cuda,
                    finish: "cs_cast<R>(a)",
                };
                type Inner = Self;
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
                fn step<const FMA: bool>(partial: T, value: T, _index: usize) -> T {
                    Self::of(partial, value)
                }

                /// Uses [`best_of`] for types whose elements compare in one instruction.
                #[inline(always)]
                fn reduce<const FMA: bool>(values: &[T], first: usize) -> T {
                    let is_computed = size_of::<T>() == size_of::<T::Accumulator>();
                    let (blocks, rest) = if is_computed {
                        values.as_chunks::<BLOCK>()
                    } else {
                        (&[][..], values)
                    };
                    let best = |left, right| if right $better left { right } else { left };
                    match best_of::<FMA, _>(blocks, best) {
                        None => reduce_unordered::<Self, T, FMA>(rest, first),
                        Some(best) if rest.is_empty() => best,
                        Some(best) => {
                            Self::of(best, reduce_unordered::<Self, T, FMA>(rest, first))
                        }
                    }
                }

                #[inline(always)]
                fn total(partial: T, _count: usize) -> T {
                    partial
                }

                #[inline(always)]
                fn merge<const FMA: bool>(left: T, right: T) -> T {
                    Self::of(left, right)
                }

                #[inline(always)]
                fn finish(total: T, _count: usize) -> T {
                    total
                }
            }

            impl<T: Element> Unordered<T> for $value {
                #[inline(always)]
                fn join(left: T, right: T) -> T {
                    Self::of(left, right)
                }
            }

            #[derive(Clone, Copy, Debug)]
            pub struct $index;

            impl<T: Element> Reducer<T> for $index {
                const NAME: &'static str = $index_name;
                const POSITIONAL: bool = true;
                const CUDA: CudaReducer = CudaReducer {
                    partial: "cs_place<T>",
                    total: "cs_place<T>",
                    total_bytes: 16,
                    open: "cs_place<T>{x, (i64)i}",
                    step: concat!($cuda_place, "(a, cs_place<T>{x, (i64)i})"),
                    whole: "a",
                    join: concat!($cuda_place, "(a, b)"),
                    finish: "a.index",
                };
                type Inner = Self;
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
                fn step<const FMA: bool>(
                    partial: (T, i64),
                    value: T,
                    index: usize,
                ) -> (T, i64) {
                    let better = value $better partial.0 || (is_nan(&value) && !is_nan(&partial.0));
                    if better { (value, index as i64) } else { partial }
                }

                /// Finds the best value in vector code, and then its position.
                #[inline(always)]
                fn reduce<const FMA: bool>(values: &[T], first: usize) -> (T, i64) {
                    let best = $value::reduce::<FMA>(values, first);
                    (best, (first + position(values, best)) as i64)
                }

                #[inline(always)]
                fn total(partial: (T, i64), _count: usize) -> (T, i64) {
                    partial
                }

                // `left` has the lower positions, so `left` is the result of a tie.
                #[inline(always)]
                fn merge<const FMA: bool>(left: (T, i64), right: (T, i64)) -> (T, i64) {
                    Self::step::<FMA>(left, right.0, right.1 as usize)
                }

                #[inline(always)]
                fn finish(total: (T, i64), _count: usize) -> i64 {
                    total.1
                }
            }
        )+
    };
}

extreme! {
    "max" Max, "argmax" Argmax: >,
        cuda "b > a || b != b ? b : a", "x > a || x != x ? x : a", "cs_first_max";
    "min" Min, "argmin" Argmin: <,
        cuda "b < a || b != b ? b : a", "x < a || x != x ? x : a", "cs_first_min";
}
