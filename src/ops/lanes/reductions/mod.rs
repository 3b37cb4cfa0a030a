//! Reductions of the elements of arrays and of expressions, over all elements or along axes.
//!
//! Each reduction is a type in [`reducers`](cachescope_kernels::reduce), with a row in `rows.rs`
//! that declares its methods.
//!
//! Elements are reduced in blocks. A block is reduced into several independent partial results, so
//! that the compiler generates vector code. A chunk is a number of consecutive blocks. One thread
//! reduces a chunk into a total. The totals of chunks are merged in pairs. The order of these steps
//! depends only on the shape and the memory layout of the operands. So a result is equal on every
//! run and for any number of threads.
//!
//! CUDA devices also reduce blocks, and then merge the totals (`ops/cuda/reduce/`). The order of
//! these steps also depends only on the shape and the memory layout. So a result is equal on every
//! run and on every CUDA device. Rounded results differ from the host's results by at most a few
//! units in the last place. Integers, extremes, positions and truth values are not rounded. They
//! are equal to the host's results.

mod cross_entropy;
mod declare;
mod range;
mod rows;

use crate::array::{AnyArray, AnyElement, Array, Axes, AxisSet, Buffer, DType, Shape};
use crate::error::Result;
use crate::ops::derivatives::TrackedReduction;
use crate::ops::descriptors::{Lanes, ReductionPlan, lanes_along_all, outputs_of};
#[cfg(feature = "linalg")]
use crate::ops::dispatch::{MAX, MIN, PROD};
use crate::ops::dispatch::{
    MEAN, NORM, Reduction, SUM, VAR, contiguous_array, reduce, reduce_contiguous,
};
use crate::ops::expression::any_lazy::AnyLazy;
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::expression::tree::{Operand, Tree};
use cachescope_kernels::reduce::loops::Compiled;
use cachescope_kernels::reduce::{Any, Reducer, ReductionRule};
use range::deviations_in_range;

/// Reductions of expressions in the accumulation type. The methods `*_keepdims` keep the reduced
/// axes, with length 1.
impl AnyLazy {
    #[track_caller]
    pub(crate) fn sum_keepdims(&self, axes: impl Into<Axes>) -> Result<AnyArray> {
        self.reduced(SUM.at(self.dtype()), &axes.into(), true)
    }

    #[track_caller]
    pub(crate) fn mean_keepdims(&self, axes: impl Into<Axes>) -> Result<AnyArray> {
        self.reduced(MEAN.at(self.dtype()), &axes.into(), true)
    }

    #[track_caller]
    pub(crate) fn var_keepdims(&self, axes: impl Into<Axes>) -> Result<AnyArray> {
        self.reduced(VAR.at(self.dtype()), &axes.into(), true)
    }

    #[track_caller]
    pub(in crate::ops) fn mean(&self) -> Result<AnyArray> {
        let buffer = reduce_all(MEAN.at(self.dtype()), self)?;
        Ok(AnyArray::of_shape(buffer, &Shape::SCALAR, self.dtype()))
    }

    #[track_caller]
    pub(in crate::ops) fn norm(&self) -> Result<AnyArray> {
        let buffer = reduce_all(NORM.at(self.dtype()), self)?;
        Ok(AnyArray::of_shape(buffer, &Shape::SCALAR, self.dtype()))
    }

    #[track_caller]
    pub(crate) fn any(&self) -> Result<AnyArray> {
        static ANY: Reduction = Reduction::of::<Any, bool>();
        assert_eq!(self.dtype(), DType::Bool);
        let buffer = reduce_all(&ANY, self)?;
        Ok(AnyArray::of_shape(buffer, &Shape::SCALAR, DType::Bool))
    }

    /// Like [`sum_keepdims`](Self::sum_keepdims), but the result lacks the reduced axes.
    #[track_caller]
    pub(crate) fn sum_axis(&self, axes: impl Into<Axes>) -> Result<AnyArray> {
        self.reduced(SUM.at(self.dtype()), &axes.into(), false)
    }

    /// Reduces the elements along `axes`.
    ///
    /// # Panics
    ///
    /// Panics if the elements are not of the type of `reduction`. The loops of `reduction` rely on
    /// this check.
    #[track_caller]
    pub(in crate::ops) fn reduced(
        &self,
        reduction: &'static Reduction,
        axes: &Axes,
        keeps: bool,
    ) -> Result<AnyArray> {
        assert_eq!(self.dtype(), reduction.element(), "{}", reduction.name);
        let (buffer, shape) = reduce_along(reduction, self, axes, keeps)?;
        let (_, _, dtype) = reduction.step();
        Ok(AnyArray::of_shape(buffer, &shape, dtype))
    }
}

/// Reductions for linear algebra.
#[cfg(feature = "linalg")]
impl AnyLazy {
    #[track_caller]
    pub(in crate::ops) fn max_keepdims(&self, axes: impl Into<Axes>) -> Result<AnyArray> {
        self.reduced(MAX.at(self.dtype()), &axes.into(), true)
    }

    #[track_caller]
    pub(in crate::ops) fn max_axis(&self, axes: impl Into<Axes>) -> Result<AnyArray> {
        self.reduced(MAX.at(self.dtype()), &axes.into(), false)
    }

    #[track_caller]
    pub(in crate::ops) fn min_keepdims(&self, axes: impl Into<Axes>) -> Result<AnyArray> {
        self.reduced(MIN.at(self.dtype()), &axes.into(), true)
    }

    #[track_caller]
    pub(in crate::ops) fn prod_axis(&self, axes: impl Into<Axes>) -> Result<AnyArray> {
        self.reduced(PROD.at(self.dtype()), &axes.into(), false)
    }

    #[track_caller]
    pub(in crate::ops) fn norm_axis(&self, axes: impl Into<Axes>) -> Result<AnyArray> {
        self.reduced(NORM.at(self.dtype()), &axes.into(), false)
    }
}

#[track_caller]
fn all<F: Reducer<T> + Compiled, T: AnyElement>(tree: &dyn Tree) -> Result<Array<F::Output>> {
    let buffer = reduce_all(const { &Reduction::of::<F, T>() }, tree)?;
    Ok(Array::of_shape(buffer, &Shape::SCALAR))
}

#[track_caller]
fn reduce_all(reduction: &'static Reduction, tree: &dyn Tree) -> Result<Buffer> {
    if let Some(operand) = contiguous_array(tree) {
        let lanes = Lanes {
            outer: 1,
            length: operand.layout.len(),
            inner: 1,
        };
        let buffer = reduce_contiguous(reduction, &operand, (lanes, &Shape::SCALAR))?;
        let axes = AxisSet::of_each(operand.layout.ndim(), |_| true);
        return in_range_of_array(reduction, &operand, axes, (buffer, &Shape::SCALAR));
    }
    let graph = ExpressionGraph::of(tree)?;
    let axes = AxisSet::of_each(graph.shape().ndim(), |_| true);
    let tracked_reduction = TrackedReduction::begin(&graph, reduction.step(), axes)?;
    let tracked_reduction = tracked_reduction.computed_by(&graph, move |graph| {
        let plan = ReductionPlan::all(graph, reduction.is_positional)?;
        Ok((reduced(reduction, (&plan, axes), graph)?, plan.outputs))
    });
    let plan = ReductionPlan::all(&graph, reduction.is_positional)?;
    let buffer = reduced(reduction, (&plan, axes), &graph)?;
    Ok(tracked_reduction.finish(buffer, &Shape::SCALAR))
}

/// Reduces the elements along `axes`. If `keeps` is set, the result has these axes with length 1.
/// Otherwise, the result lacks these axes.
#[track_caller]
fn along<F: Reducer<T> + Compiled, T: AnyElement>(
    tree: &dyn Tree,
    axes: &Axes,
    keeps: bool,
) -> Result<Array<F::Output>> {
    let (buffer, shape) = reduce_along(const { &Reduction::of::<F, T>() }, tree, axes, keeps)?;
    Ok(Array::of_shape(buffer, &shape))
}

#[track_caller]
fn reduce_along(
    reduction: &'static Reduction,
    tree: &dyn Tree,
    axes: &Axes,
    keeps: bool,
) -> Result<(Buffer, Shape)> {
    if let Some(operand) = contiguous_array(tree) {
        let shape = operand.layout.shape();
        let axes = axes.of(reduction.name, shape)?;
        if let Some(lanes) = lanes_along_all(axes, shape) {
            let outputs = outputs_of(shape, axes, keeps);
            let buffer = reduce_contiguous(reduction, &operand, (lanes, &outputs))?;
            let buffer = in_range_of_array(reduction, &operand, axes, (buffer, &outputs))?;
            return Ok((buffer, outputs));
        }
    }
    let graph = ExpressionGraph::of(tree)?;
    let axes = axes.of(reduction.name, graph.shape())?;
    let tracked_reduction = TrackedReduction::begin(&graph, reduction.step(), axes)?;
    let tracked_reduction = tracked_reduction.computed_by(&graph, move |graph| {
        let plan = ReductionPlan::along(graph, axes, keeps, reduction.is_positional);
        Ok((reduced(reduction, (&plan, axes), graph)?, plan.outputs))
    });
    let plan = ReductionPlan::along(&graph, axes, keeps, reduction.is_positional);
    let buffer = reduced(reduction, (&plan, axes), &graph)?;
    Ok((
        tracked_reduction.finish(buffer, &plan.outputs),
        plan.outputs,
    ))
}

/// Reduces `graph` along `axes`. Deviations whose squares left the range of `f64` are computed
/// again.
#[track_caller]
fn reduced(
    reduction: &'static Reduction,
    (plan, axes): (&ReductionPlan, AxisSet),
    graph: &ExpressionGraph<'_>,
) -> Result<Buffer> {
    let buffer = reduce(reduction, plan, graph)?;
    match has_squares(reduction) {
        true => deviations_in_range(graph, axes, (buffer, &plan.outputs)),
        false => Ok(buffer),
    }
}

/// Like [`reduced`], for `operand`, whose reduction has the result `found`.
#[inline]
#[track_caller]
fn in_range_of_array(
    reduction: &'static Reduction,
    operand: &Operand<'_>,
    axes: AxisSet,
    found: (Buffer, &Shape),
) -> Result<Buffer> {
    match has_squares(reduction) {
        true => deviations_in_range(&ExpressionGraph::of(operand)?, axes, found),
        false => Ok(found.0),
    }
}

/// Returns true for a deviation in `f64`. The squares of its elements may be beyond the range of
/// `f64`.
#[inline]
fn has_squares(reduction: &Reduction) -> bool {
    let (_, rule, _) = reduction.step();
    rule == Some(ReductionRule::Deviation) && reduction.element() == DType::F64
}
