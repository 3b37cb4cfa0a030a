//! Reducers, which reduce elements to one result, on the host and in CUDA C++.
//!
//! A reducer is a type without values. Its methods are the reduction on the host, and its CUDA
//! source is the reduction on a GPU. The kernels of hosts and GPUs run reducers. The methods of
//! arrays that run reducers are in `cachescope`.

mod exponents;
mod extremes;
pub mod leaves;
pub mod loops;
mod moments;
mod norm;
mod sums;
mod truth;

pub use exponents::{CrossEntropy, Logsumexp};
pub use extremes::{Argmax, Argmin, Max, Min};
pub use moments::{Std, Var};
pub use norm::Norm;
pub use sums::{Compensated, Mean, Prod, Sum};
pub use truth::{All, Any};

use crate::element::scalar::Arithmetic;
use crate::vector::{is_baseline, rolled};
use crate::{AnyElement, Element};

/// The number of accumulators: partial results side by side. The accumulators keep several adders
/// of the longest vectors busy.
pub const ACCUMULATORS: usize = 32;

/// A reduction of elements of `T`, as a type without values.
///
/// `index` counts elements along the reduced axis, or in row-major order of all elements. `FMA` is
/// `true` if the processor has a fused multiply-add. Every function must be inlined; see
/// [`vector`](crate::vector).
pub trait Reducer<T: AnyElement>: Copy + Send + Sync + 'static {
    /// The name of the reduction in error messages.
    const NAME: &'static str;

    /// The rule of the reduction's gradient. If the rule is unknown, the constant is `None`.
    const RULE: Option<ReductionRule> = None;

    /// `true` if the result depends on the indices of elements.
    const POSITIONAL: bool = false;

    /// The reducer in CUDA C++.
    const CUDA: CudaReducer;

    /// The reducer whose loops reduce the elements. Reducers that differ only in
    /// [`finish`](Self::finish) share one inner reducer.
    type Inner: Reducer<T, Partial = Self::Partial, Total = Self::Total>;

    /// `true` if short rows are reduced side by side, by [`reduce_rows`](Self::reduce_rows).
    const BY_ROWS: bool = false;

    /// The type of the result.
    type Output: AnyElement;

    /// The result of some elements of a block.
    type Partial: Copy + Send;

    /// The result of one or more blocks.
    type Total: Copy + Send;

    /// Returns the result of an empty reduction. If there is none, returns `None`.
    fn nothing() -> Option<Self::Output>;

    /// Returns the partial result of one element.
    fn open(value: T, index: usize) -> Self::Partial;

    /// Adds one element to `partial`.
    fn step<const FMA: bool>(partial: Self::Partial, value: T, index: usize) -> Self::Partial;

    /// Returns the partial result of `values`, which must not be empty. The first value has index
    /// `first`.
    fn reduce<const FMA: bool>(values: &[T], first: usize) -> Self::Partial;

    /// Returns the partial results of rows of equal length, which must not be empty. `columns` has
    /// one array per position: the elements of all rows at this position. The first position has
    /// index `first`.
    #[inline(always)]
    fn reduce_rows<const FMA: bool>(
        columns: &[[T; ACCUMULATORS]],
        first: usize,
    ) -> [Self::Partial; ACCUMULATORS] {
        let (head, tail) = columns
            .split_first()
            .expect("a row has at least one element");
        let mut partials = head.map(|value| Self::open(value, first));
        for (position, column) in tail.iter().enumerate() {
            for row in 0..ACCUMULATORS {
                let index = first + 1 + position;
                partials[row] = Self::step::<FMA>(partials[row], column[row], index);
            }
        }
        partials
    }

    /// Returns the total of one block of `count` elements.
    fn total(partial: Self::Partial, count: usize) -> Self::Total;

    /// Merges two totals. All elements of `left` precede all elements of `right`.
    fn merge<const FMA: bool>(left: Self::Total, right: Self::Total) -> Self::Total;

    /// Returns the result of `count` elements.
    fn finish(total: Self::Total, count: usize) -> Self::Output;
}

/// The rules of the gradients of reductions and softmax functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReductionRule {
    Sum,
    Mean,
    Product,
    Largest,
    Logsumexp,
    Norm,
    Variance,
    Deviation,
    Softmax,
    LogSoftmax,
}

/// A reducer in CUDA C++, as types and expressions. `T` is the type in which elements are computed,
/// and `R` is the stored type of the result. `A` is the type of sums, and `M` is the type of means.
/// Names that begin with `cs_` are defined in the prelude and in `ops/cuda/states.cuh`.
#[derive(Clone, Copy, Debug)]
pub struct CudaReducer {
    /// The type of a partial result. A thread adds a few elements to it, one by one.
    pub partial: &'static str,
    /// The type of a total.
    pub total: &'static str,
    /// An upper bound of a total's size, for all types. The source asserts that the bound is
    /// sufficient.
    pub total_bytes: usize,
    /// The partial result of the element `x` with index `i`.
    pub open: &'static str,
    /// The partial result `a` after the addition of one element.
    pub step: &'static str,
    /// The total of the partial result `a` of `n` elements.
    pub whole: &'static str,
    /// The merged totals `a` and `b`. Their elements may be in any order.
    pub join: &'static str,
    /// The result of the total `a` of `n` elements.
    pub finish: &'static str,
}

/// A reducer whose result does not depend on the order and grouping of elements. Therefore several
/// accumulators can each reduce some elements.
pub trait Unordered<T: AnyElement>: Reducer<T> {
    /// Merges two partial results of one block.
    fn join(left: Self::Partial, right: Self::Partial) -> Self::Partial;
}

/// Implements [`Reducer::reduce`] with several accumulators.
#[inline(always)]
fn reduce_unordered<F: Unordered<T>, T: AnyElement, const FMA: bool>(
    values: &[T],
    first: usize,
) -> F::Partial {
    let Some((head, tail)) = values.split_first_chunk::<ACCUMULATORS>() else {
        let mut partial = F::open(values[0], first);
        for (index, &value) in values.iter().enumerate().skip(1) {
            partial = F::step::<FMA>(partial, value, first + index);
        }
        return partial;
    };
    let mut accumulators = [F::open(head[0], first); ACCUMULATORS];
    for at in 1..ACCUMULATORS {
        let at = rolled::<FMA>(at);
        accumulators[at] = F::open(head[at], first + at);
    }
    let (chunks, rest) = tail.as_chunks::<ACCUMULATORS>();
    let mut index = first + ACCUMULATORS;
    for chunk in chunks {
        for at in 0..ACCUMULATORS {
            let at = rolled::<FMA>(at);
            accumulators[at] = F::step::<FMA>(accumulators[at], chunk[at], index + at);
        }
        index += ACCUMULATORS;
    }
    let joined = join_accumulators::<_, FMA>(accumulators, F::join);
    match rest.split_first() {
        None => joined,
        Some((&value, rest)) => {
            let mut partial = F::open(value, index);
            for (at, &value) in rest.iter().enumerate() {
                partial = F::step::<FMA>(partial, value, index + 1 + at);
            }
            F::join(joined, partial)
        }
    }
}

/// Returns the larger of two values, or NaN if either is NaN.
#[inline(always)]
fn larger<T: Element, const FMA: bool>(one: T, other: T) -> T {
    <extremes::Max as Reducer<T>>::step::<FMA>(one, other, 0)
}

/// Returns the largest of `values`. If a value is NaN, returns NaN. `values` must not be empty.
#[inline(always)]
pub fn largest<T: Element, const FMA: bool>(values: &[T]) -> T {
    <extremes::Max as Reducer<T>>::reduce::<FMA>(values, 0)
}

/// Returns the sum of all accumulators.
#[inline(always)]
pub fn add_accumulators<A: Arithmetic, const FMA: bool>(accumulators: [A; ACCUMULATORS]) -> A {
    join_accumulators::<_, FMA>(accumulators, A::plus)
}

/// The number of accumulators in one vector.
const FEW: usize = ACCUMULATORS / 4;

/// Merges all accumulators. The first merges join accumulators that are far apart.
///
/// The merge of the last [`FEW`] accumulators is not inlined, so that accumulators remain whole
/// vectors up to the call. Otherwise, the compiler would split the accumulators into pairs from the
/// beginning, because the last merges need pairs. The loop that fills the accumulators must be
/// inlined. A function's arguments are passed in memory, so each iteration would write the
/// accumulators to memory.
#[inline(always)]
fn join_accumulators<P: Copy, const FMA: bool>(
    accumulators: [P; ACCUMULATORS],
    join: impl Fn(P, P) -> P,
) -> P {
    let joined = |at: usize| {
        let [a, b, c, d] = [0, 1, 2, 3].map(|part| accumulators[at + part * FEW]);
        join(join(a, c), join(b, d))
    };
    if !is_baseline::<FMA>() {
        return join_few(std::array::from_fn(joined), join);
    }
    let mut few = [accumulators[0]; FEW];
    for at in 0..FEW {
        let at = rolled::<FMA>(at);
        few[at] = joined(at);
    }
    join_few(few, join)
}

#[inline(never)]
fn join_few<P: Copy>(mut accumulators: [P; FEW], join: impl Fn(P, P) -> P) -> P {
    let mut width = FEW / 2;
    while width > 0 {
        for at in 0..width {
            accumulators[at] = join(accumulators[at], accumulators[at + width]);
        }
        width /= 2;
    }
    accumulators[0]
}

/// A visitor of the reducers of elements of `T`.
#[cfg(any(test, feature = "testing"))]
pub trait Visit<T: AnyElement> {
    fn visit<F: Reducer<T>>(&mut self);
}

/// Visits the reducers that support every element type.
#[cfg(any(test, feature = "testing"))]
pub fn visit_sums<T: AnyElement>(visitor: &mut impl Visit<T>) {
    visitor.visit::<sums::Sum>();
    visitor.visit::<sums::Mean>();
    visitor.visit::<sums::Prod>();
}

/// Visits all reducers for elements with an order. [`Logsumexp`] is not among them, because it
/// supports only floats.
#[cfg(any(test, feature = "testing"))]
pub fn visit_reducers<T: Element>(visitor: &mut impl Visit<T>) {
    visit_sums(visitor);
    visitor.visit::<extremes::Max>();
    visitor.visit::<extremes::Min>();
    visitor.visit::<extremes::Argmax>();
    visitor.visit::<extremes::Argmin>();
    visitor.visit::<moments::Var>();
    visitor.visit::<moments::Std>();
    visitor.visit::<norm::Norm>();
    visitor.visit::<truth::All>();
    visitor.visit::<truth::Any>();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the identifiers in an expression of CUDA C++.
    fn names(text: &str) -> Vec<&str> {
        text.split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .filter(|word| word.starts_with(|c: char| c.is_alphabetic()))
            .collect()
    }

    fn uses_its_operands<F: Reducer<f32>>() {
        let cuda = F::CUDA;
        let known = ["T", "A", "M", "R", "f64", "i64", "sqrt", "log"];
        let is_field = |name: &str| name.len() > 1 && !known.contains(&name);
        for (text, wanted, allowed) in [
            (cuda.open, &["x"][..], &["x", "i"][..]),
            (cuda.step, &["a", "x"], &["a", "x", "i"]),
            (cuda.whole, &["a"], &["a", "n"]),
            (cuda.join, &["a", "b"], &["a", "b"]),
            (cuda.finish, &["a"], &["a", "n"]),
        ] {
            let names = names(text);
            let operands = names
                .iter()
                .filter(|name| !known.contains(name) && !is_field(name));
            for name in operands {
                assert!(allowed.contains(name), "{}: {name} in {text}", F::NAME);
            }
            for name in wanted {
                assert!(names.contains(name), "{}: no {name} in {text}", F::NAME);
            }
            let (opened, closed) = (text.matches('(').count(), text.matches(')').count());
            assert_eq!(opened, closed, "{}: {text}", F::NAME);
        }
        assert!(!cuda.partial.is_empty() && !cuda.total.is_empty());
    }

    #[test]
    fn cuda_forms_use_their_operands() {
        struct Each;
        impl Visit<f32> for Each {
            fn visit<F: Reducer<f32>>(&mut self) {
                uses_its_operands::<F>();
            }
        }
        visit_reducers(&mut Each);
        Each.visit::<Logsumexp>();
    }
}
