//! Reductions by logical AND and OR.

use super::declare::reductions;
use super::{CudaReducer, Reducer, Unordered, reduce_unordered};
use crate::array::Element;
use crate::array::scalar::convert;
use crate::ops::host::{ReductionTable, reduction_table};

reductions! {
    /// Returns whether every element is true. A number is true unless it is 0, so NaN is true. The
    /// result for nothing is true.
    all, all_axis, all_keepdims: All over Element -> bool, f32 [1.0, 0.0, 3.0, 4.0] => false, [true, false];

    /// Returns whether any element is true. A number is true unless it is 0, so NaN is true. The
    /// result for nothing is false.
    any, any_axis, any_keepdims: Any over Element -> bool, f32 [1.0, 0.0, 3.0, 0.0] => true, [true, false];
}

macro_rules! truth {
    ($($name:literal $reducer:ident: $nothing:literal, |$a:ident, $b:ident| $join:expr, cuda $step:literal, $cuda:literal;)+) => {
        $(
            #[derive(Clone, Copy, Debug)]
            pub(super) struct $reducer;

            impl<T: Element> Reducer<T> for $reducer {
                const LOOPS: &'static ReductionTable = {
                    static LOOPS: ReductionTable = reduction_table!($reducer);
                    &LOOPS
                };
                const NAME: &'static str = $name;
                const CUDA: CudaReducer = CudaReducer {
                    partial: "bool",
                    total: "bool",
                    total_bytes: 1,
                    open: "x != (T)0",
                    step: $step,
                    whole: "a",
                    join: $cuda,
                    finish: "a",
                };
                type Inner = Self;
                type Output = bool;
                type Partial = bool;
                type Total = bool;

                fn nothing() -> Option<bool> {
                    Some($nothing)
                }

                #[inline(always)]
                fn open(value: T, _index: usize) -> bool {
                    convert(value)
                }

                #[inline(always)]
                fn step<const FMA: bool>($a: bool, value: T, _index: usize) -> bool {
                    let $b: bool = convert(value);
                    $join
                }

                #[inline(always)]
                fn reduce<const FMA: bool>(values: &[T], first: usize) -> bool {
                    reduce_unordered::<Self, T, FMA>(values, first)
                }

                #[inline(always)]
                fn total(partial: bool, _count: usize) -> bool {
                    partial
                }

                #[inline(always)]
                fn merge<const FMA: bool>($a: bool, $b: bool) -> bool {
                    $join
                }

                #[inline(always)]
                fn finish(total: bool, _count: usize) -> bool {
                    total
                }
            }

            impl<T: Element> Unordered<T> for $reducer {
                #[inline(always)]
                fn join($a: bool, $b: bool) -> bool {
                    $join
                }
            }
        )+
    };
}

truth! {
    "all" All: true, |a, b| a & b, cuda "a & (x != (T)0)", "a & b";
    "any" Any: false, |a, b| a | b, cuda "a | (x != (T)0)", "a | b";
}
