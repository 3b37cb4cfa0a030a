//! Reductions of the elements of arrays and of expressions, over all elements or along axes.
//!
//! Each reduction is a type in [`reducers`](cachescope_kernels::reduce), with a row in `rows.rs`
//! that declares its methods.
//!
//! Elements are reduced in blocks. Within a block, they are reduced into several partial results
//! side by side, which the compiler turns into vector code. From block to block, they are reduced
//! into a total. Totals of long chunks are merged in pairs. The order depends only on the shape and
//! on the memory layout of the operands. So a result is equal on every run and for any number of
//! threads.
//!
//! CUDA devices reduce in these two steps, too. Their order also depends only on shape and layout
//! (`ops/cuda/reduce/`). So a result is equal on every run and on every CUDA device. Results that
//! are rounded are within a few units in the last place of the host's. Results that are not rounded
//! are equal to the host's: integers, extremes, positions and truth.

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

/// Reductions in the type that floats are computed in. In `_keepdims`, reduced axes are kept with a
/// length of 1.
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

    /// Returns the mean of all elements, of rank 0.
    #[track_caller]
    pub(in crate::ops) fn mean(&self) -> Result<AnyArray> {
        let buffer = reduce_all(MEAN.at(self.dtype()), self)?;
        Ok(AnyArray::of_shape(buffer, &Shape::SCALAR, self.dtype()))
    }

    /// Returns the Euclidean norm of all elements, of rank 0.
    #[track_caller]
    pub(in crate::ops) fn norm(&self) -> Result<AnyArray> {
        let buffer = reduce_all(NORM.at(self.dtype()), self)?;
        Ok(AnyArray::of_shape(buffer, &Shape::SCALAR, self.dtype()))
    }

    /// Returns whether any element is true, of rank 0.
    #[track_caller]
    pub(crate) fn any(&self) -> Result<AnyArray> {
        static ANY: Reduction = Reduction::of::<Any, bool>();
        assert_eq!(self.dtype(), DType::Bool);
        let buffer = reduce_all(&ANY, self)?;
        Ok(AnyArray::of_shape(buffer, &Shape::SCALAR, DType::Bool))
    }

    /// Like [`sum_keepdims`](Self::sum_keepdims), without the axes.
    #[track_caller]
    pub(crate) fn sum_axis(&self, axes: impl Into<Axes>) -> Result<AnyArray> {
        self.reduced(SUM.at(self.dtype()), &axes.into(), false)
    }

    /// Reduces the elements along `axes`.
    ///
    /// # Panics
    ///
    /// Panics if the elements are not of the type of `reduction`, because its loops read elements
    /// of this type.
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

/// Reductions of the elements of matrices.
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

/// Reduces the elements along `axes`. If `keeps` is `true`, the result has these axes with a length
/// of 1, otherwise it does not have them.
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

/// Reduces `graph` along `axes`.
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

/// Like [`reduced`], of an array that was reduced to `found`.
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

/// Returns true for a deviation in `f64`, which is computed from squares that may be beyond its
/// range.
#[inline]
fn has_squares(reduction: &Reduction) -> bool {
    let (_, rule, _) = reduction.step();
    rule == Some(ReductionRule::Deviation) && reduction.element() == DType::F64
}
