//! Reductions of expression graphs.

use super::devices::device_for;
use super::hoist::Hoisted;
use crate::array::{AnyElement, Buffer, DType, Shape};
use crate::error::{Error, ErrorKind, Result};
#[cfg(feature = "cuda")]
use crate::ops::cuda::{self, ReductionKernels};
use crate::ops::descriptors::{Lanes, ReductionPlan};
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::expression::tree::Operand;
use crate::ops::host;
use crate::ops::order::ReadOperands;
use cachescope_kernels::reduce::loops::{Compiled, ReductionLoops, reduction_loops_of};
use cachescope_kernels::reduce::{Reducer, ReductionRule};

/// A type-erased reducer of elements of one type. Only the reducer's loops are compiled for each
/// reducer and type.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Reduction {
    /// See [`Reducer::NAME`].
    pub(in crate::ops) name: &'static str,
    /// See [`Reducer::RULE`].
    rule: Option<ReductionRule>,
    /// See [`Reducer::POSITIONAL`].
    pub(in crate::ops) is_positional: bool,
    host: &'static ReductionLoops,
    #[cfg(feature = "cuda")]
    cuda: &'static ReductionKernels,
}

impl Reduction {
    /// Returns the name, the rule and the type of results, for the step on a tape.
    pub(in crate::ops) fn step(&self) -> (&'static str, Option<ReductionRule>, DType) {
        (self.name, self.rule, self.host.output)
    }

    pub(in crate::ops) fn element(&self) -> DType {
        self.host.element
    }

    pub(in crate::ops) const fn of<F: Reducer<T> + Compiled, T: AnyElement>() -> Self {
        Self {
            name: F::NAME,
            rule: F::RULE,
            is_positional: F::POSITIONAL,
            host: reduction_loops_of::<F, T>(),
            #[cfg(feature = "cuda")]
            cuda: const { &ReductionKernels::of::<F, T>() },
        }
    }
}

/// Reduces `graph` by `reduction`, which is for elements of the graph's type. The results have the
/// shape `plan.outputs`.
#[track_caller]
pub(in crate::ops) fn reduce(
    reduction: &Reduction,
    plan: &ReductionPlan,
    graph: &ExpressionGraph<'_>,
) -> Result<Buffer> {
    let shape = graph.shape();
    if plan.lanes.length == 0 && (reduction.host.nothing)().is_none() {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "{}: the shape {shape} has no elements to choose from",
                reduction.name
            ),
        ));
    }
    let device = &*device_for(reduction.name, graph)?;
    let hoisted = Hoisted::of(graph, device, shape)?;
    let graph = &*hoisted.apply(graph);
    plan.outputs.checked_len()?;
    on_device!(
        device,
        touching & ReadOperands(graph),
        order => host::reduce(order, reduction.host, graph, plan),
        cuda::reduce(order, reduction.cuda, graph, plan)
    )
}

/// Like [`reduce`], for a contiguous array on the host, but without an expression graph. The lanes
/// are in the order of the array's elements.
#[track_caller]
pub(in crate::ops) fn reduce_contiguous(
    reduction: &Reduction,
    operand: &Operand<'_>,
    (lanes, outputs): (Lanes, &Shape),
) -> Result<Buffer> {
    host::reduce_contiguous(reduction.host, operand, (lanes, outputs))
}
