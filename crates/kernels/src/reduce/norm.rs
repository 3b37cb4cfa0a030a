//! The Euclidean norm.

use std::any::TypeId;

use super::{
    ACCUMULATORS, CudaReducer, Reducer, ReductionRule, Unordered, add_accumulators,
    reduce_unordered,
};
use crate::vector::rolled;
use crate::{AnyElement, Element};

/// The bound above which elements are scaled down before they are squared.
const LARGE: f64 = f64::from_bits((1023 + 486) << 52);
/// The bound below which elements are scaled up before they are squared.
const SMALL: f64 = f64::from_bits((1023 - 511) << 52);
/// The scale factor of the elements above [`LARGE`].
const DOWN: f64 = f64::from_bits((1023 - 538) << 52);
/// The scale factor of the elements below [`SMALL`].
const UP: f64 = f64::from_bits((1023 + 537) << 52);

/// The sums of squares of large, middle and small elements. Each of the three sums has a separate
/// scale.
#[derive(Clone, Copy, Debug, Default)]
pub struct Squares {
    large: f64,
    middle: f64,
    small: f64,
}

impl Squares {
    /// Returns whether squares of values of `T` may exceed the range of `f64`. This is the case
    /// only for `f64`.
    #[inline(always)]
    fn are_scaled<T: Element>() -> bool {
        TypeId::of::<T>() == TypeId::of::<f64>()
    }

    /// Returns whether `x`, a converted value of `T`, must be scaled. The squares of scaled values
    /// are not added to `middle`.
    #[inline(always)]
    fn is_scaled<T: Element>(x: f64) -> bool {
        let is_extreme = (x.abs() > LARGE) | ((x.abs() < SMALL) & (x != 0.0));
        Self::are_scaled::<T>() & is_extreme
    }

    #[inline(always)]
    fn and<T: Element>(self, value: T) -> Self {
        let x = value.to_f64().abs();
        if !Self::are_scaled::<T>() {
            return Self {
                middle: self.middle + x * x,
                ..self
            };
        }
        // NaN is neither large nor small, so its square is added to `middle`.
        let large = if x > LARGE { x * DOWN } else { 0.0 };
        let small = if x < SMALL { x * UP } else { 0.0 };
        let middle = if (large == 0.0) & (small == 0.0) {
            x
        } else {
            0.0
        };
        Self {
            large: self.large + large * large,
            middle: self.middle + middle * middle,
            small: self.small + small * small,
        }
    }

    #[inline(always)]
    fn merge(self, other: Self) -> Self {
        Self {
            large: self.large + other.large,
            middle: self.middle + other.middle,
            small: self.small + other.small,
        }
    }

    fn root(self) -> f64 {
        // The condition `!= 0.0` also holds for NaN.
        if self.large != 0.0 {
            // If there are large elements, small elements do not change the result.
            return (self.large + self.middle * DOWN * DOWN).sqrt() / DOWN;
        }
        let middle = self.middle.sqrt();
        if self.small != 0.0 {
            let small = self.small.sqrt() / UP;
            let (less, more) = if small < middle {
                (small, middle)
            } else {
                (middle, small)
            };
            let ratio = less / more;
            return more * (1.0 + ratio * ratio).sqrt();
        }
        middle
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Norm;

impl<T: Element> Reducer<T> for Norm {
    const NAME: &'static str = "norm";
    const RULE: Option<ReductionRule> = Some(ReductionRule::Norm);
    const CUDA: CudaReducer = CudaReducer {
        partial: "cs_squares",
        total: "cs_squares",
        total_bytes: 24,
        open: "cs_square(cs_squares{0.0, 0.0, 0.0}, x)",
        step: "cs_square(a, x)",
        whole: "a",
        join: "cs_merge(a, b)",
        finish: "cs_cast<R>(cs_root(a))",
    };
    type Inner = Self;
    type Output = T::Average;
    type Partial = Squares;
    type Total = Squares;

    fn nothing() -> Option<T::Average> {
        Some(T::Average::zero())
    }

    #[inline(always)]
    fn open(value: T, _index: usize) -> Squares {
        Squares::default().and(value)
    }

    #[inline(always)]
    fn step<const FMA: bool>(partial: Squares, value: T, _index: usize) -> Squares {
        partial.and(value)
    }

    /// Sums the squares without scaling. If an element must be scaled, starts again with scaling.
    #[inline(always)]
    fn reduce<const FMA: bool>(values: &[T], first: usize) -> Squares {
        let (chunks, rest) = values.as_chunks::<ACCUMULATORS>();
        let mut accumulators = [0.0; ACCUMULATORS];
        for chunk in chunks {
            let mut is_scaled = false;
            for at in 0..ACCUMULATORS {
                let at = rolled::<FMA>(at);
                let x = chunk[at].to_f64();
                accumulators[at] += x * x;
                is_scaled |= Squares::is_scaled::<T>(x);
            }
            if is_scaled {
                return reduce_unordered::<Self, T, FMA>(values, first);
            }
        }
        let middle = if chunks.is_empty() {
            0.0
        } else {
            add_accumulators::<_, FMA>(accumulators)
        };
        let squares = Squares {
            middle,
            ..Squares::default()
        };
        rest.iter()
            .fold(squares, |squares, &value| squares.and(value))
    }

    #[inline(always)]
    fn total(partial: Squares, _count: usize) -> Squares {
        partial
    }

    #[inline(always)]
    fn merge<const FMA: bool>(left: Squares, right: Squares) -> Squares {
        left.merge(right)
    }

    #[inline(always)]
    fn finish(total: Squares, _count: usize) -> T::Average {
        T::Average::from_f64(total.root())
    }
}

impl<T: Element> Unordered<T> for Norm {
    #[inline(always)]
    fn join(left: Squares, right: Squares) -> Squares {
        left.merge(right)
    }
}
