//! Reductions of the elements of arrays and of expressions, over all elements or along axes.
//!
//! Each reduction is one type in one of the files here. The file has its reduction on the host, its
//! reduction in CUDA C, and the row that declares its methods.
//!
//! Elements are reduced in blocks. Within a block they are reduced into several partial results
//! side by side, which the compiler turns into vector code; from block to block they are reduced
//! into a total. Totals of long chunks are merged in pairs. The order depends only on the shape and
//! on the memory layout of the operands, so a result is equal on every run and for any number of
//! threads.
//!
//! CUDA devices reduce in these two steps too, in an order that also depends only on shape and
//! layout (`ops/cuda/reduce.rs`), so a result is equal on every run and on every CUDA device.
//! Results that are rounded are within a few units in the last place of the host's. Results that
//! are not rounded are equal to the host's: integers, extremes, positions and truth.

mod cross_entropy;
mod declare;
mod exponents;
mod extremes;
mod moments;
mod norm;
mod sums;
mod truth;

use std::cmp::Reverse;

pub(super) use exponents::Logsumexp;
pub(super) use sums::Compensated;

use super::cuda::ReductionKernels;
use super::derivatives::{AnyArray, DIFFERENTIABLE, TrackedReduction, by_differentiable};
use super::descriptors::{IndexSpace, Lanes};
use super::dispatch::{Hoisted, device_for};
use super::expression::graph::ExpressionGraph;
use super::expression::tree::Tree;
use super::host::{ReductionLoop, ReductionTable, reduction_loop_of};
use super::order::ReadOperands;
use crate::array::scalar::Arithmetic;
use crate::array::{
    AnyElement, Array, Axes, AxisSet, Bits, Buffer, DType, Element, Layout, MAX_RANK, Shape,
    bits_of,
};
use crate::error::{Error, ErrorKind, Result};

/// The number of partial results side by side: enough to keep several adders of the longest vectors
/// busy.
pub(super) const ACCUMULATORS: usize = 32;

/// A way of reducing elements of `T`, as a type without values.
///
/// `index` counts elements along the reduced axis, or in row-major order of all elements. `FMA` is
/// whether the processor multiplies and adds in one instruction. Every function must be inlined,
/// see [`host`](super::host).
pub(super) trait Reducer<T: AnyElement>: Copy + Send + Sync + 'static {
    /// The name in error messages.
    const NAME: &'static str;

    /// `true` if the result depends on the positions of elements.
    const POSITIONAL: bool = false;

    /// The reducer in CUDA C.
    const CUDA: CudaReducer;

    /// The host's loops for some types, compiled with the library.
    const LOOPS: &'static ReductionTable;

    /// The reducer whose loops reduce the elements. Reducers that differ in
    /// [`finish`](Self::finish) alone share one of them.
    type Inner: Reducer<T, Partial = Self::Partial, Total = Self::Total>;

    /// The type of the result.
    type Output: AnyElement;

    /// The result of a part of a block.
    type Partial: Copy + Send;

    /// The result of several blocks.
    type Total: Copy + Send;

    /// Returns the result for no elements, if there is one.
    fn nothing() -> Option<Self::Output>;

    /// Returns the partial result for one element.
    fn open(value: T, index: usize) -> Self::Partial;

    /// Adds one element to `partial`.
    fn step<const FMA: bool>(partial: Self::Partial, value: T, index: usize) -> Self::Partial;

    /// Returns the partial result for `values`, of which there is at least one; the first has index
    /// `first`.
    fn reduce<const FMA: bool>(values: &[T], first: usize) -> Self::Partial;

    /// Returns the total of one block of `count` elements.
    fn total(partial: Self::Partial, count: usize) -> Self::Total;

    /// Merges two totals; all elements of `left` precede all of `right`.
    fn merge<const FMA: bool>(left: Self::Total, right: Self::Total) -> Self::Total;

    /// Returns the result for `count` elements.
    fn finish(total: Self::Total, count: usize) -> Self::Output;
}

/// A reducer in CUDA C++, as types and expressions. `T` is the type in which elements are computed,
/// `A` the type of their sums, `M` the type of their means, and `R` the stored type of the result.
/// Names with `cs_` are defined in the prelude and in `ops/cuda/states.cuh`.
#[derive(Clone, Copy)]
pub(super) struct CudaReducer {
    /// The type of a partial result, which takes in a few elements one by one.
    pub(super) partial: &'static str,
    /// The type of a total.
    pub(super) total: &'static str,
    /// The size of a total for any types; the text asserts that it suffices.
    pub(super) total_bytes: usize,
    /// The partial result for the element `x` with the number `i`.
    pub(super) open: &'static str,
    /// The partial result `a` with one more element.
    pub(super) step: &'static str,
    /// The total of the partial result `a` of `n` elements.
    pub(super) whole: &'static str,
    /// The merged totals `a` and `b`. Their elements may be in any order.
    pub(super) join: &'static str,
    /// The result of the total `a` of `n` elements.
    pub(super) finish: &'static str,
}

/// A reducer that takes elements in any order and grouping, so that several accumulators can each
/// reduce some of them.
pub(super) trait Unordered<T: AnyElement>: Reducer<T> {
    /// Merges two partial results of one block.
    fn join(left: Self::Partial, right: Self::Partial) -> Self::Partial;
}

/// Does [`Reducer::reduce`] with several accumulators.
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
        accumulators[at] = F::open(head[at], first + at);
    }
    let (chunks, rest) = tail.as_chunks::<ACCUMULATORS>();
    let mut index = first + ACCUMULATORS;
    for chunk in chunks {
        for at in 0..ACCUMULATORS {
            accumulators[at] = F::step::<FMA>(accumulators[at], chunk[at], index + at);
        }
        index += ACCUMULATORS;
    }
    let joined = join_accumulators(accumulators, F::join);
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

/// Returns the largest of `values`, of which there is at least one, or NaN if one is NaN.
#[inline(always)]
pub(super) fn largest<T: Element, const FMA: bool>(values: &[T]) -> T {
    <extremes::Max as Reducer<T>>::reduce::<FMA>(values, 0)
}

/// Returns the sum of all accumulators.
#[inline(always)]
pub(super) fn add_accumulators<A: Arithmetic>(accumulators: [A; ACCUMULATORS]) -> A {
    join_accumulators(accumulators, A::plus)
}

/// The accumulators of one vector.
const FEW: usize = ACCUMULATORS / 4;

/// Merges all accumulators, starting with accumulators that are far apart.
///
/// The last [`FEW`] are merged out of line. Inline, the compiler would split the accumulators into
/// pairs from the beginning, because the end needs pairs. Out of line, they stay whole vectors up
/// to the call. The loop that fills the accumulators must stay inline: a function's arguments are
/// passed in memory, so each of its iterations would write the accumulators to memory.
#[inline(always)]
fn join_accumulators<P: Copy>(accumulators: [P; ACCUMULATORS], join: impl Fn(P, P) -> P) -> P {
    let few = std::array::from_fn(|at| {
        let [a, b, c, d] = [0, 1, 2, 3].map(|part| accumulators[at + part * FEW]);
        join(join(a, c), join(b, d))
    });
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

/// A reducer of elements of one type as a value, so that only its loops are compiled for each
/// reducer and type.
#[derive(Clone, Copy)]
pub(super) struct Reduction {
    /// See [`Reducer::NAME`].
    name: &'static str,
    /// See [`Reducer::POSITIONAL`].
    is_positional: bool,
    /// Returns the bits of the result for no elements, if there is one.
    pub(super) nothing: fn() -> Option<Bits>,
    /// The type of the results.
    pub(super) output: DType,
    /// The host's loop.
    pub(super) host: &'static ReductionLoop,
    /// Returns the reduction for a CUDA device.
    pub(super) cuda: fn() -> ReductionKernels,
}

impl Reduction {
    const fn of<F: Reducer<T>, T: AnyElement>() -> Self {
        Self {
            name: F::NAME,
            is_positional: F::POSITIONAL,
            nothing: || F::nothing().map(bits_of),
            output: <F::Output as AnyElement>::DTYPE,
            host: reduction_loop_of::<F, T>(),
            cuda: ReductionKernels::of::<F, T>,
        }
    }
}

/// The elements to reduce, and their order.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReductionPlan {
    /// The elements are numbered along the outputs' slower axes, then along the reduction, then
    /// along the outputs' faster axes.
    pub(super) space: IndexSpace,
    /// The elements of each output.
    pub(super) lanes: Lanes,
    /// The shape of all outputs.
    pub(super) outputs: Shape,
}

impl ReductionPlan {
    /// Returns the plan that reduces all elements into one output, in memory order unless positions
    /// count.
    #[track_caller]
    fn all(graph: &ExpressionGraph<'_>, is_positional: bool) -> Result<Self> {
        let shape = &graph.first().shape;
        let mut axes: [usize; MAX_RANK] = std::array::from_fn(|axis| axis);
        if !is_positional {
            let reach = graph.reach_of_axes(shape);
            axes[..shape.ndim()].sort_by_key(|&axis| Reverse(reach[axis]));
        }
        Ok(Self {
            space: IndexSpace::reordered(shape, axes),
            lanes: Lanes {
                outer: 1,
                length: shape.checked_len()?,
                inner: 1,
            },
            outputs: Shape::SCALAR,
        })
    }

    /// Returns the plan with one output for each position on the axes that are not `reduced`. The
    /// result `keeps` the reduced axes with a length of 1, or does not have them. If the reduced
    /// elements are closer together in memory than the elements along the last of the other axes,
    /// the reduced axes vary fastest. Otherwise the reduction takes the position of its last axis,
    /// or of its first axis if its last axis comes after all kept axes that are longer than 1.
    fn along(
        graph: &ExpressionGraph<'_>,
        reduced: AxisSet,
        keeps: bool,
        is_positional: bool,
    ) -> Self {
        let shape = &graph.first().shape;
        let (dims, reach) = (shape.dims(), graph.reach_of_axes(shape));
        let mut axes: [usize; MAX_RANK] = std::array::from_fn(|axis| axis);
        let order = &mut axes[..dims.len()];
        let kept = (0..dims.len()).filter(|&axis| !reduced.contains(axis));
        let own = (0..dims.len()).filter(|&axis| reduced.contains(axis));
        let mut count = 0;
        for axis in kept {
            order[count] = axis;
            count += 1;
        }
        order[count..]
            .iter_mut()
            .zip(own)
            .for_each(|(place, axis)| *place = axis);
        let (kept, own) = order.split_at_mut(count);
        let split = split_outputs(dims, &reach, kept, own);
        if !is_positional && own.len() > 1 {
            own.sort_by_key(|&axis| Reverse(reach[axis]));
        }
        let length = |axes: &[usize]| axes.iter().map(|&axis| dims[axis]).product();
        let lanes = Lanes {
            outer: length(&kept[..split]),
            length: length(own),
            inner: length(&kept[split..]),
        };
        if split < count {
            order[split..].rotate_left(count - split);
        }
        let outputs = (0..dims.len()).filter(|&axis| keeps || !reduced.contains(axis));
        let outputs = outputs.map(|axis| {
            if reduced.contains(axis) {
                &1
            } else {
                &dims[axis]
            }
        });
        Self {
            space: IndexSpace::reordered(shape, axes),
            lanes,
            outputs: outputs.collect(),
        }
    }

    /// Reduces `graph` by `reduction`, whose elements have the type of the expression graph.
    #[track_caller]
    fn run(&self, reduction: &Reduction, graph: &ExpressionGraph<'_>) -> Result<(Buffer, Layout)> {
        let shape = &graph.first().shape;
        if self.lanes.length == 0 && (reduction.nothing)().is_none() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "{}: nothing to choose from in the shape {shape}",
                    reduction.name
                ),
            ));
        }
        let device = &*device_for(reduction.name, graph)?;
        let hoisted = Hoisted::of(graph, device, shape)?;
        let graph = &*hoisted.apply(graph);
        let layout = Layout::contiguous(&self.outputs)?;
        let results = on_device!(
            device,
            touching & ReadOperands(graph),
            reduce(reduction, graph, (self, &layout))
        )?;
        Ok((results, layout))
    }
}

/// Returns how many of the `kept` axes vary slower than the `reduced` ones. Outputs are in the
/// order of the kept axes, so nothing else is to be chosen.
fn split_outputs(
    dims: &[usize],
    reach: &[usize; MAX_RANK],
    kept: &[usize],
    reduced: &[usize],
) -> usize {
    let is_long = |axis: &&usize| dims[**axis] > 1;
    let last_kept = kept.iter().rfind(is_long);
    let reduced_reach = reduced
        .iter()
        .filter(is_long)
        .map(|&axis| reach[axis])
        .min();
    match (last_kept, reduced_reach, reduced) {
        (Some(&last_kept), Some(reduced_reach), &[first, .., last])
            if reduced_reach >= reach[last_kept] =>
        {
            let place = if last_kept > last { last } else { first };
            kept.partition_point(|&axis| axis < place)
        }
        (Some(&last_kept), Some(reduced_reach), &[axis]) if reduced_reach >= reach[last_kept] => {
            kept.partition_point(|&other| other < axis)
        }
        _ => kept.len(),
    }
}

/// Reduces all elements of `tree`, which have type `T`, to an array of rank 0.
#[track_caller]
fn all<F: Reducer<T>, T: AnyElement>(tree: &dyn Tree) -> Result<Array<F::Output>> {
    let (buffer, layout) = reduce_all(const { &Reduction::of::<F, T>() }, tree)?;
    Ok(Array::from_parts(buffer, layout))
}

#[track_caller]
fn reduce_all(reduction: &'static Reduction, tree: &dyn Tree) -> Result<(Buffer, Layout)> {
    let graph = ExpressionGraph::of(tree)?;
    let axes = AxisSet::of_each(graph.first().shape.ndim(), |_| true);
    let tracked_reduction =
        TrackedReduction::begin(&graph, (reduction.name, reduction.output), axes)?;
    let tracked_reduction = tracked_reduction.computed_by(&graph, |graph| {
        ReductionPlan::all(graph, reduction.is_positional)?.run(reduction, graph)
    });
    let plan = ReductionPlan::all(&graph, reduction.is_positional)?;
    let (buffer, layout) = plan.run(reduction, &graph)?;
    Ok((tracked_reduction.finish(buffer, &layout), layout))
}

/// Returns the sums of `graph`, of floats or complex numbers, along `axes`, which the result
/// keeps with a length of 1. The expression graph has the shape `shape`.
#[track_caller]
pub(super) fn sum_of(
    graph: &ExpressionGraph<'_>,
    shape: &Shape,
    axes: AxisSet,
) -> Result<AnyArray> {
    let dtype = graph.first().dtype;
    let reduction = by_differentiable!(dtype, T => const { &Reduction::of::<sums::Sum, T>() });
    let reduction: &'static Reduction = reduction.expect(DIFFERENTIABLE);
    debug_assert_eq!(graph.first().shape, *shape);
    let tracked_reduction =
        TrackedReduction::begin(graph, (reduction.name, reduction.output), axes)?;
    let (buffer, layout) = ReductionPlan::along(graph, axes, true, false).run(reduction, graph)?;
    Ok(AnyArray {
        buffer: tracked_reduction.finish(buffer, &layout),
        layout,
        dtype,
    })
}

/// Reduces the elements along `axes`, which the result `keeps` with a length of 1, or does not
/// have.
#[track_caller]
fn along<F: Reducer<T>, T: AnyElement>(
    tree: &dyn Tree,
    axes: &Axes,
    keeps: bool,
) -> Result<Array<F::Output>> {
    let (buffer, layout) = reduce_along(const { &Reduction::of::<F, T>() }, tree, axes, keeps)?;
    Ok(Array::from_parts(buffer, layout))
}

#[track_caller]
fn reduce_along(
    reduction: &'static Reduction,
    tree: &dyn Tree,
    axes: &Axes,
    keeps: bool,
) -> Result<(Buffer, Layout)> {
    let graph = ExpressionGraph::of(tree)?;
    let axes = axes.of(reduction.name, &graph.first().shape)?;
    let tracked_reduction =
        TrackedReduction::begin(&graph, (reduction.name, reduction.output), axes)?;
    let tracked_reduction = tracked_reduction.computed_by(&graph, move |graph| {
        let plan = ReductionPlan::along(graph, axes, keeps, reduction.is_positional);
        plan.run(reduction, graph)
    });
    let plan = ReductionPlan::along(&graph, axes, keeps, reduction.is_positional);
    let (buffer, layout) = plan.run(reduction, &graph)?;
    Ok((tracked_reduction.finish(buffer, &layout), layout))
}

/// A visitor of the reducers of elements of `T`.
#[cfg(test)]
pub(super) trait Visit<T: AnyElement> {
    fn visit<F: Reducer<T>>(&mut self);
}

/// Visits the reducers that every element type has.
#[cfg(test)]
pub(super) fn visit_sums<T: AnyElement>(visitor: &mut impl Visit<T>) {
    visitor.visit::<sums::Sum>();
    visitor.visit::<sums::Mean>();
    visitor.visit::<sums::Prod>();
}

/// Visits every reducer except [`Logsumexp`], which is for floats alone.
#[cfg(test)]
pub(super) fn visit_reducers<T: Element>(visitor: &mut impl Visit<T>) {
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

    /// Returns the names that an expression of CUDA C uses.
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
