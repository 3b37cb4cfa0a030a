//! The variance and the standard deviation.

use super::sums::{Mean, MeanOf};
use super::{ACCUMULATORS, CudaReducer, Reducer, ReductionRule, add_accumulators};
use crate::element::scalar::{Arithmetic, convert};
use crate::vector::rolled;
use crate::{AnyElement, Element};

/// The sums of the distances of a block's elements from `shift`, and of the squares of the
/// distances. `shift` is near the elements or equal to one of them, so the squares are small. Both
/// sums are in `f64`, because the sums of `f32` elements may exceed the range of `f32`.
#[derive(Clone, Copy, Debug)]
pub struct BlockMoments<A> {
    shift: A,
    sum: f64,
    squares: f64,
}

/// The lower bound of accurate sums of squares. A sum above the bound is accurate even if some of
/// the squares underflow.
const LEAST_SQUARES: f64 = 1e-28;

impl<A: AnyElement + Arithmetic> BlockMoments<A> {
    #[inline(always)]
    fn step<T: AnyElement>(self, value: T) -> Self {
        let distance = convert::<A, T>(value).minus(self.shift);
        Self {
            shift: self.shift,
            sum: self.sum + distance.to_f64(),
            squares: self.squares + square(distance),
        }
    }

    /// Returns the sums of `values` around `shift`, which is the mean of the values.
    #[inline(always)]
    fn around<const FMA: bool, T: AnyElement>(shift: A, values: &[T]) -> Self {
        let zero = A::zero();
        let (mut sums, mut squares) = ([zero; ACCUMULATORS], [zero; ACCUMULATORS]);
        let (chunks, rest) = values.as_chunks::<ACCUMULATORS>();
        for chunk in chunks {
            for at in 0..ACCUMULATORS {
                let at = rolled::<FMA>(at);
                let distance = convert::<A, T>(chunk[at]).minus(shift);
                sums[at] = sums[at].plus(distance);
                squares[at] = squares[at].plus(distance.times(distance));
            }
        }
        let mut block = Self {
            shift,
            sum: 0.0,
            squares: 0.0,
        };
        if !chunks.is_empty() {
            let [sum, squares] = [sums, squares].map(add_accumulators::<_, FMA>);
            (block.sum, block.squares) = (sum.to_f64(), squares.to_f64());
        }
        for &value in rest {
            block = block.step(value);
        }
        match block.squares >= LEAST_SQUARES && block.squares < f64::INFINITY {
            true => block,
            false => Self::around_in_f64(values),
        }
    }

    /// Returns the sums of `values` around their mean. If the squares overflow or underflow in `A`,
    /// this function is used.
    #[cold]
    fn around_in_f64<T: AnyElement>(values: &[T]) -> Self {
        let elements = || values.iter().map(|&value| convert::<A, T>(value).to_f64());
        let shift = A::from_f64(elements().sum::<f64>() / values.len() as f64);
        let block = Self {
            shift,
            sum: 0.0,
            squares: 0.0,
        };
        values.iter().fold(block, |block, &value| block.step(value))
    }
}

#[inline(always)]
fn square<A: AnyElement>(distance: A) -> f64 {
    let distance = distance.to_f64();
    distance * distance
}

/// The number of elements, their mean, and the sum of their squared distances from the mean.
///
/// The fields are in `f64` for every type. The means of blocks differ by little, and these
/// differences matter.
#[derive(Clone, Copy, Debug)]
pub struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    #[inline(always)]
    fn of<A: AnyElement>(block: BlockMoments<A>, count: usize) -> Self {
        let (count, sum) = (count as f64, block.sum);
        let mean = sum / count;
        Self {
            count,
            mean: block.shift.to_f64() + mean,
            // Rounding must not make the sum of squares negative. A NaN remains NaN.
            squares: not_negative(block.squares - sum * mean),
        }
    }

    #[inline(always)]
    fn merge(self, other: Self) -> Self {
        let count = self.count + other.count;
        let apart = other.mean - self.mean;
        let share = other.count / count;
        Self {
            count,
            mean: self.mean + apart * share,
            squares: self.squares + other.squares + apart * apart * self.count * share,
        }
    }

    #[inline(always)]
    fn variance(self) -> f64 {
        self.squares / self.count
    }
}

#[inline(always)]
fn not_negative(value: f64) -> f64 {
    if value < 0.0 { 0.0 } else { value }
}

macro_rules! moments {
    ($($name:literal $reducer:ident by $rule:ident: |$moments:ident| $finish:expr, cuda $cuda:literal;)+) => {
        $(
            #[derive(Clone, Copy, Debug)]
            pub struct $reducer;

            impl<T: Element> Reducer<T> for $reducer {
                const NAME: &'static str = $name;
                const RULE: Option<ReductionRule> = Some(ReductionRule::$rule);
                const CUDA: CudaReducer = CudaReducer {
                    partial: "cs_block<M>",
                    total: "cs_moments",
                    total_bytes: 32,
                    open: "cs_opened((M)x)",
                    step: "cs_stepped(a, (M)x)",
                    whole: "cs_moments_of(a, n)",
                    join: "cs_merge(a, b)",
                    finish: $cuda,
                };
                type Inner = Var;
                type Output = T::Average;
                type Partial = BlockMoments<MeanOf<T>>;
                type Total = Moments;

                fn nothing() -> Option<T::Average> {
                    Some(T::Average::from_f64(f64::NAN))
                }

                #[inline(always)]
                fn open(value: T, _index: usize) -> Self::Partial {
                    let shift: MeanOf<T> = convert(value);
                    // If the element is infinite or NaN, the difference is NaN, not 0.
                    let distance = shift.minus(shift);
                    BlockMoments {
                        shift,
                        sum: distance.to_f64(),
                        squares: distance.to_f64(),
                    }
                }

                #[inline(always)]
                fn step<const FMA: bool>(
                    partial: Self::Partial,
                    value: T,
                    _index: usize,
                ) -> Self::Partial {
                    partial.step(value)
                }

                #[inline(always)]
                fn reduce<const FMA: bool>(values: &[T], first: usize) -> Self::Partial {
                    let sum = <Mean as Reducer<T>>::reduce::<FMA>(values, first);
                    BlockMoments::around::<FMA, _>(sum.over(convert(values.len() as u64)), values)
                }

                #[inline(always)]
                fn total(partial: Self::Partial, count: usize) -> Moments {
                    Moments::of(partial, count)
                }

                #[inline(always)]
                fn merge<const FMA: bool>(left: Moments, right: Moments) -> Moments {
                    left.merge(right)
                }

                #[inline(always)]
                fn finish(total: Moments, _count: usize) -> T::Average {
                    let $moments = total;
                    T::Average::from_f64($finish)
                }
            }
        )+
    };
}

moments! {
    "var" Var by Variance: |moments| moments.variance(), cuda "cs_cast<R>(a.squares / a.count)";
    "std" Std by Deviation: |moments| moments.variance().sqrt(), cuda "cs_cast<R>(sqrt(a.squares / a.count))";
}
