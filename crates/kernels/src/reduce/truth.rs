//! Reductions by logical AND and OR.

use super::{CudaReducer, Reducer};
use crate::Element;
use crate::element::scalar::convert;

macro_rules! truth {
    ($($name:literal $reducer:ident: $nothing:literal, |$a:ident, $b:ident| $join:expr, cuda $step:literal, $cuda:literal;)+) => {
        $(
            #[derive(Clone, Copy, Debug)]
            pub struct $reducer;

            impl<T: Element> Reducer<T> for $reducer {
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
                fn reduce<const FMA: bool>(values: &[T], _first: usize) -> bool {
                    // One accumulator is enough, because the compiler knows that the order does not
                    // matter.
                    let mut decided = false;
                    for &value in values {
                        decided |= convert::<bool, T>(value) != $nothing;
                    }
                    decided != $nothing
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
        )+
    };
}

truth! {
    "all" All: true, |a, b| a & b, cuda "a & (x != (T)0)", "a & b";
    "any" Any: false, |a, b| a | b, cuda "a | (x != (T)0)", "a | b";
}
