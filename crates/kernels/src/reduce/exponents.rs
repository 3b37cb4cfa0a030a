//! Sums of exponentials that do not overflow.

use super::{ACCUMULATORS, CudaReducer, Reducer, ReductionRule, add_accumulators, larger, largest};
use crate::element::scalar::pass::Fast;
use crate::element::scalar::{Real, convert, math};
use crate::vector::rolled;
use crate::{AnyElement, Element, Float};

/// The sum of exp(x − `scale`) over several x.
///
/// The scale is the largest x, which may be infinite. If x equals the scale, their difference
/// counts as 0.
#[derive(Clone, Copy, Debug)]
pub struct Exponents<A> {
    scale: A,
    sum: A,
}

impl<A: Real> Exponents<A> {
    /// Returns the sum over the elements of `self` and `other`.
    #[inline(always)]
    fn merge<const FMA: bool>(self, other: Self) -> Self {
        let apart = if other.scale == self.scale {
            A::zero()
        } else {
            other.scale - self.scale
        };
        let ratio = math::exp(&mut Fast::<FMA>::default(), -apart.abs());
        // The ratio multiplies the sum with the smaller scale.
        let (own, others) = (self.sum * ratio, other.sum * ratio);
        if other.scale > self.scale {
            Self {
                scale: other.scale,
                sum: own + other.sum,
            }
        } else {
            Self {
                scale: self.scale,
                sum: self.sum + others,
            }
        }
    }

    /// Returns the sum over `values`, which must not be empty. Finds the largest value first.
    #[inline(always)]
    fn of_all<const FMA: bool, T: Element>(values: &[T]) -> Self
    where
        A: AnyElement,
    {
        let zero = <A as AnyElement>::zero();
        let most: A = convert(largest::<T, FMA>(values));
        let scale = Self::finite(most);
        let mut pass = Fast::<FMA>::default();
        let mut accumulators = [zero; ACCUMULATORS];
        let (chunks, rest) = values.as_chunks::<ACCUMULATORS>();
        for chunk in chunks {
            for index in 0..ACCUMULATORS {
                let index = rolled::<FMA>(index);
                let x: A = convert(chunk[index]);
                accumulators[index] = accumulators[index] + math::exp(&mut pass, x - scale);
            }
        }
        let mut sum = if chunks.is_empty() {
            zero
        } else {
            add_accumulators::<_, FMA>(accumulators)
        };
        for &value in rest {
            let x: A = convert(value);
            sum = sum + math::exp(&mut pass, x - scale);
        }
        Self { scale: most, sum }
    }

    /// Returns the scale of exponentials whose largest x is `most`. If `most` is infinite or NaN,
    /// the scale is 0.
    #[inline(always)]
    fn finite(most: A) -> A {
        if most.is_finite() { most } else { A::zero() }
    }

    /// Sums like [`of_all`](Self::of_all), for several rows side by side.
    #[inline(always)]
    fn of_rows<const FMA: bool, T: Element>(columns: &[[T; ACCUMULATORS]]) -> [Self; ACCUMULATORS]
    where
        A: AnyElement,
    {
        let mut most = columns[0];
        for column in &columns[1..] {
            for row in 0..ACCUMULATORS {
                most[row] = larger::<T, FMA>(most[row], column[row]);
            }
        }
        let most = most.map(|most| convert::<A, T>(most));
        let scales = most.map(Self::finite);
        let mut pass = Fast::<FMA>::default();
        let mut sums = [<A as AnyElement>::zero(); ACCUMULATORS];
        for column in columns {
            for row in 0..ACCUMULATORS {
                let x: A = convert(column[row]);
                sums[row] = sums[row] + math::exp(&mut pass, x - scales[row]);
            }
        }
        std::array::from_fn(|row| Self {
            scale: most[row],
            sum: sums[row],
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Logsumexp;

impl<T: Float> Reducer<T> for Logsumexp {
    const NAME: &'static str = "logsumexp";
    const RULE: Option<ReductionRule> = Some(ReductionRule::Logsumexp);
    const BY_ROWS: bool = true;
    const CUDA: CudaReducer = CudaReducer {
        partial: "cs_exponents<A>",
        total: "cs_exponents<f64>",
        total_bytes: 16,
        open: "cs_exponents<A>{(A)x, (A)1}",
        step: "cs_merge(a, cs_exponents<A>{(A)x, (A)1})",
        whole: "cs_exponents<f64>{(f64)a.scale, (f64)a.sum}",
        join: "cs_merge(a, b)",
        finish: "cs_cast<R>(a.scale + log(a.sum))",
    };
    type Inner = Self;
    type Output = T;
    type Partial = Exponents<T::Accumulator>;
    // The total is in `f64` for every type, because there may be many partial results.
    type Total = Exponents<f64>;

    fn nothing() -> Option<T> {
        Some(T::from_f64(f64::NEG_INFINITY))
    }

    #[inline(always)]
    fn open(value: T, _index: usize) -> Self::Partial {
        Exponents {
            scale: convert(value),
            sum: <T::Accumulator as AnyElement>::one(),
        }
    }

    #[inline(always)]
    fn step<const FMA: bool>(partial: Self::Partial, value: T, index: usize) -> Self::Partial {
        partial.merge::<FMA>(Self::open(value, index))
    }

    #[inline(always)]
    fn reduce<const FMA: bool>(values: &[T], _first: usize) -> Self::Partial {
        Exponents::of_all::<FMA, T>(values)
    }

    #[inline(always)]
    fn reduce_rows<const FMA: bool>(
        columns: &[[T; ACCUMULATORS]],
        _first: usize,
    ) -> [Self::Partial; ACCUMULATORS] {
        Exponents::of_rows::<FMA, T>(columns)
    }

    #[inline(always)]
    fn total(partial: Self::Partial, _count: usize) -> Self::Total {
        Exponents {
            scale: partial.scale.to_f64(),
            sum: partial.sum.to_f64(),
        }
    }

    #[inline(always)]
    fn merge<const FMA: bool>(left: Self::Total, right: Self::Total) -> Self::Total {
        left.merge::<FMA>(right)
    }

    #[inline(always)]
    fn finish(total: Self::Total, _count: usize) -> T {
        let sum = math::ln(&mut Fast::<false>::default(), total.sum);
        T::from_f64(total.scale + sum)
    }
}

/// [`Logsumexp`] with results in `f64`. An `f64` has enough digits when a logit is subtracted.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy;

impl<T: Float> Reducer<T> for CrossEntropy {
    const NAME: &'static str = "cross_entropy";
    const CUDA: CudaReducer = <Logsumexp as Reducer<T>>::CUDA;
    type Inner = Logsumexp;
    type Output = f64;
    type Partial = Exponents<T::Accumulator>;
    type Total = Exponents<f64>;

    fn nothing() -> Option<f64> {
        Some(f64::NEG_INFINITY)
    }

    #[inline(always)]
    fn open(value: T, index: usize) -> Self::Partial {
        Logsumexp::open(value, index)
    }

    #[inline(always)]
    fn step<const FMA: bool>(partial: Self::Partial, value: T, index: usize) -> Self::Partial {
        <Logsumexp as Reducer<T>>::step::<FMA>(partial, value, index)
    }

    #[inline(always)]
    fn reduce<const FMA: bool>(values: &[T], first: usize) -> Self::Partial {
        Logsumexp::reduce::<FMA>(values, first)
    }

    #[inline(always)]
    fn total(partial: Self::Partial, count: usize) -> Self::Total {
        <Logsumexp as Reducer<T>>::total(partial, count)
    }

    #[inline(always)]
    fn merge<const FMA: bool>(left: Self::Total, right: Self::Total) -> Self::Total {
        <Logsumexp as Reducer<T>>::merge::<FMA>(left, right)
    }

    #[inline(always)]
    fn finish(total: Self::Total, _count: usize) -> f64 {
        <Logsumexp as Reducer<f64>>::finish(total, 0)
    }
}
