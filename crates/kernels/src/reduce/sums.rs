//! Sums, means and products.

use super::{CudaReducer, Reducer, ReductionRule, Unordered, reduce_unordered};
use crate::AnyElement;
use crate::element::scalar::{Arithmetic, convert};

/// A sum and its rounding error.
///
/// Within a block, an accumulator adds at most a few tens of elements. Between blocks, the rounding
/// error of the sum is accumulated separately (Knuth's TwoSum). Therefore the error of a sum does
/// not grow with its length.
#[derive(Clone, Copy, Debug)]
pub struct Compensated<A> {
    sum: A,
    error: A,
}

impl<A: AnyElement + Arithmetic> Compensated<A> {
    #[inline(always)]
    pub fn new(sum: A) -> Self {
        Self {
            sum,
            error: A::zero(),
        }
    }

    #[inline(always)]
    pub fn merge(self, other: Self) -> Self {
        let error = self.error.plus(other.error);
        Self { error, ..self }.with(other.sum)
    }

    /// Adds a value to the sum, and the rounding error of this addition to `error`.
    #[inline(always)]
    pub fn with(self, value: A) -> Self {
        let sum = self.sum.plus(value);
        let gained = sum.minus(self.sum);
        let lost = self.sum.minus(sum.minus(gained)).plus(value.minus(gained));
        Self {
            sum,
            error: self.error.plus(lost),
        }
    }

    #[inline(always)]
    pub fn value(self) -> A {
        let corrected = self.sum.plus(self.error);
        // If the sum is infinite, the error is NaN, and must not be added.
        if is_nan(&self.error) {
            self.sum
        } else {
            corrected
        }
    }
}

#[inline(always)]
#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
pub(super) fn is_nan<T: PartialEq>(value: &T) -> bool {
    value != value
}

/// The type in which the mean of elements of `T` is computed.
pub(super) type MeanOf<T> = <<T as AnyElement>::Average as AnyElement>::Accumulator;

/// Declares the reducers that add elements. Each row has the types of the sum and the result.
macro_rules! sums {
    ($(
        $name:literal $reducer:ident by $rule:ident in $accumulator:ty as $output:ty:
        $nothing:expr, |$sum:ident, $count:ident| $finish:expr, cuda $sums:literal, $cuda:literal;
    )+) => {
        $(
            #[derive(Clone, Copy, Debug)]
            pub struct $reducer;

            impl<T: AnyElement> Reducer<T> for $reducer {
                const NAME: &'static str = $name;
                const RULE: Option<ReductionRule> = Some(ReductionRule::$rule);
                const CUDA: CudaReducer = {
                    const TOTAL: &str = concat!("cs_sum<", $sums, ">");
                    // A thread's elements are far apart in memory, so large elements of both signs
                    // may cancel in the thread's sum. Therefore the thread's sum is compensated,
                    // for which a GPU has spare time. A wider accumulator than `T` needs no
                    // compensation: its additional digits hold the rounding errors of a few
                    // elements.
                    let [partial, open, step, whole] = if size_of::<T>() < size_of::<$accumulator>() {
                        [
                            $sums,
                            concat!("(", $sums, ")x"),
                            concat!("cs_add(a, (", $sums, ")x)"),
                            concat!("cs_sum<", $sums, ">{a}"),
                        ]
                    } else {
                        [
                            TOTAL,
                            concat!("cs_sum<", $sums, ">{(", $sums, ")x}"),
                            concat!("cs_with(a, (", $sums, ")x)"),
                            "a",
                        ]
                    };
                    CudaReducer {
                        partial,
                        total: TOTAL,
                        total_bytes: if size_of::<$accumulator>() > 8 { 32 } else { 16 },
                        open,
                        step,
                        whole,
                        join: "cs_merge(a, b)",
                        finish: $cuda,
                    }
                };
                type Inner = Self;
                type Output = $output;
                type Partial = $accumulator;
                type Total = Compensated<$accumulator>;

                fn nothing() -> Option<$output> {
                    Some($nothing)
                }

                #[inline(always)]
                fn open(value: T, _index: usize) -> $accumulator {
                    convert(value)
                }

                #[inline(always)]
                fn step<const FMA: bool>(
                    partial: $accumulator,
                    value: T,
                    _index: usize,
                ) -> $accumulator {
                    partial.plus(convert(value))
                }

                #[inline(always)]
                fn reduce<const FMA: bool>(values: &[T], first: usize) -> $accumulator {
                    reduce_unordered::<Self, T, FMA>(values, first)
                }

                #[inline(always)]
                fn total(sum: $accumulator, _count: usize) -> Self::Total {
                    Compensated::new(sum)
                }

                #[inline(always)]
                fn merge<const FMA: bool>(left: Self::Total, right: Self::Total) -> Self::Total {
                    left.merge(right)
                }

                #[inline(always)]
                fn finish(total: Self::Total, $count: usize) -> $output {
                    let $sum = total.value();
                    convert($finish)
                }
            }

            impl<T: AnyElement> Unordered<T> for $reducer {
                #[inline(always)]
                fn join(left: $accumulator, right: $accumulator) -> $accumulator {
                    left.plus(right)
                }
            }
        )+
    };
}

sums! {
    "sum" Sum by Sum in T::Accumulator as T::Total:
        T::Total::zero(), |sum, _count| sum, cuda "A", "cs_cast<R>(cs_value(a))";

    "mean" Mean by Mean in MeanOf<T> as T::Average:
        T::Average::from_f64(f64::NAN), |sum, count| sum.over(convert(count as u64)),
        cuda "M", "cs_cast<R>(cs_value(a) / (M)n)";
}

#[derive(Clone, Copy, Debug)]
pub struct Prod;

impl<T: AnyElement> Reducer<T> for Prod {
    const NAME: &'static str = "prod";
    const RULE: Option<ReductionRule> = Some(ReductionRule::Product);
    const CUDA: CudaReducer = CudaReducer {
        partial: "A",
        total: "A",
        total_bytes: if size_of::<T::Accumulator>() > 8 {
            16
        } else {
            8
        },
        open: "(A)x",
        step: "cs_mul(a, (A)x)",
        whole: "a",
        join: "cs_mul(a, b)",
        finish: "cs_cast<R>(a)",
    };
    type Inner = Self;
    type Output = T::Total;
    type Partial = T::Accumulator;
    type Total = T::Accumulator;

    fn nothing() -> Option<T::Total> {
        Some(T::Total::one())
    }

    #[inline(always)]
    fn open(value: T, _index: usize) -> T::Accumulator {
        convert(value)
    }

    #[inline(always)]
    fn step<const FMA: bool>(partial: T::Accumulator, value: T, _index: usize) -> T::Accumulator {
        partial.times(convert(value))
    }

    #[inline(always)]
    fn reduce<const FMA: bool>(values: &[T], first: usize) -> T::Accumulator {
        reduce_unordered::<Self, T, FMA>(values, first)
    }

    #[inline(always)]
    fn total(product: T::Accumulator, _count: usize) -> T::Accumulator {
        product
    }

    #[inline(always)]
    fn merge<const FMA: bool>(left: T::Accumulator, right: T::Accumulator) -> T::Accumulator {
        left.times(right)
    }

    #[inline(always)]
    fn finish(product: T::Accumulator, _count: usize) -> T::Total {
        convert(product)
    }
}

impl<T: AnyElement> Unordered<T> for Prod {
    #[inline(always)]
    fn join(left: T::Accumulator, right: T::Accumulator) -> T::Accumulator {
        left.times(right)
    }
}
