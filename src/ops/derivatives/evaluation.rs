//! Steps of elementwise expressions, and the expression graphs of their gradients.

use smallvec::SmallVec;

use super::activations::{SavedArray, Source, source_of_graph};
use super::backward::{BackwardStep, Upstream};
use super::forward::{Derived, Forward, tracked_nodes};
use super::reduction::sum_of;
use super::{Gradients, Pause, is_live, record_all};
use crate::array::{AnyArray, AxisSet, Buffer, DType, Layout, Shape};
use crate::context::Device;
use crate::error::{AtCaller, Result};
use crate::ops::dispatch;
use crate::ops::dispatch::{Hoisted, store};
use crate::ops::expression::graph::{ExpressionGraph, MOST_RESULTS, NodeKind, Results};
use crate::ops::expression::template::{GraphTemplate, Placeholder};
use crate::ops::expression::tree::Operand;
use crate::ops::order::aliasing::{Overwritable, Target};

/// Some of the derived operands of an expression graph.
type DerivedList<'a> = SmallVec<[&'a Derived; 4]>;

/// The nodes and saved values from which a step computes the gradients of a graph's operands.
#[derive(Clone, Debug)]
pub(super) struct Derivation<Saved = SavedArray> {
    pub(super) joint: GraphTemplate,
    pub(super) derived: Vec<Derived>,
    /// The saved operands, by operand index. If no gradient reads an operand, its entry is `None`.
    pub(super) saved: Vec<Option<Saved>>,
    /// The shape that all nodes broadcast to.
    pub(super) shape: Shape,
}

impl Derivation {
    pub(super) fn fetch(self) -> Result<Derivation<AnyArray>> {
        let saved = self.saved.into_iter();
        let saved = saved.map(|saved| saved.map(SavedArray::fetch).transpose());
        Ok(Derivation {
            joint: self.joint,
            derived: self.derived,
            saved: saved.collect::<Result<_>>()?,
            shape: self.shape,
        })
    }

    /// Saves the operands that the nodes `derived` and `more` read.
    #[track_caller]
    pub(super) fn new(
        graph: &ExpressionGraph<'_>,
        (joint, derived): (GraphTemplate, Vec<Derived>),
        more: impl Iterator<Item = u32>,
        shape: &Shape,
    ) -> Self {
        Self {
            saved: saved_operands(graph, &joint, &derived, more),
            joint,
            derived,
            shape: *shape,
        }
    }

    /// Returns whether the step passes on or converts the gradient of a narrow result. If this
    /// gradient were rounded first, it would lose digits.
    fn takes_unrounded(&self, results: &[DType]) -> bool {
        let [result] = results else {
            return false;
        };
        let wide = result.computed_in();
        let is_wide = |own: &Derived| self.joint.nodes[own.gradient as usize].dtype == wide;
        wide != *result && (self.derived.iter().any(is_wide) || self.is_copy())
    }

    /// Returns whether the gradient of the only tracked operand is the result's gradient, as for a
    /// copy.
    fn is_copy(&self) -> bool {
        let is_gradient = |own: &Derived| {
            let gradient = &self.joint.nodes[own.gradient as usize].kind;
            matches!(gradient, NodeKind::Array(Placeholder::Gradient(_)))
        };
        matches!(self.derived.as_slice(), [own] if is_gradient(own))
    }

    /// Returns whether the gradients are computed from the result `number`, a
    /// [`Placeholder::Result`].
    pub(super) fn needs_result(&self, number: usize) -> bool {
        let wanted = (self.joint).wanted(self.derived.iter().map(|own| own.gradient));
        let nodes = self.joint.nodes.iter().zip(&wanted);
        nodes
            .filter(|(_, wanted)| **wanted)
            .any(|(node, _)| matches!(node.kind, NodeKind::Array(Placeholder::Result(own)) if own == number))
    }
}

impl Derivation<AnyArray> {
    /// Returns the expression graph of the nodes `results`, over the saved operands and the arrays
    /// that `saved_value` returns.
    #[track_caller]
    pub(super) fn graph<'a>(
        &'a self,
        saved_value: &dyn Fn(Placeholder) -> Option<&'a AnyArray>,
        results: &[u32],
    ) -> Result<ExpressionGraph<'a>> {
        let array_of = |placeholder| {
            let array = match placeholder {
                Placeholder::Operand(number) => self.saved[number].as_ref(),
                own => saved_value(own),
            };
            let array = array.expect("the value was saved, or is an operand");
            array.operand()
        };
        self.joint.filled(&array_of, results)
    }

    /// Adds the gradients of all operands. `spare` is one of the arrays that `saved_value` returns.
    /// If no other handle shares the memory of `spare`, the last gradient may overwrite it.
    #[track_caller]
    pub(super) fn pass_back<'a>(
        &'a self,
        (device, spare): (&Device, Option<&'a AnyArray>),
        saved_value: &dyn Fn(Placeholder) -> Option<&'a AnyArray>,
        gradients: &mut Gradients,
    ) -> Result<()> {
        let is_whole = |own: &&Derived| {
            let layout = &own.tracked.layout;
            *layout.shape() == self.shape && !layout.repeats()
        };
        let (whole, reduced): (DerivedList<'_>, DerivedList<'_>) =
            self.derived.iter().partition(is_whole);
        let (passed, computed): (DerivedList<'_>, DerivedList<'_>) =
            (whole.into_iter()).partition(|own| self.passed(own, saved_value).is_some());
        // One gradient may be stored for one operand, and summed for another operand. If the stored
        // array is not rounded, the sum reads it. All other sums are computed from the saved
        // operands.
        let is_computed = |own: &&Derived| {
            own.wide == own.gradient && computed.iter().any(|of| of.gradient == own.gradient)
        };
        let (mut later, first): (DerivedList<'_>, DerivedList<'_>) =
            reduced.into_iter().partition(is_computed);
        for own in first {
            let graph = self.graph(saved_value, &[own.wide])?;
            gradients.add_unrounded(own.tracked, self.reduced(&graph, own)?)?;
        }
        for own in passed {
            let upstream = self
                .passed(own, saved_value)
                .expect("the gradient is present, as just checked");
            gradients.add(own.tracked, upstream.share())?;
        }
        for (number, some) in computed.chunks(MOST_RESULTS).enumerate() {
            let is_last = (number + 1) * MOST_RESULTS >= computed.len();
            let spare = spare.filter(|_| is_last && !gradients.are_tracked());
            let nodes: SmallVec<[u32; MOST_RESULTS]> =
                some.iter().map(|own| own.gradient).collect();
            let graph = self.graph(saved_value, &nodes)?;
            let arrays = self.evaluated(&graph, device, spare)?;
            for (own, array) in some.iter().zip(arrays) {
                // Each sum is removed from `later`. So it is added once, even if several operands
                // have this gradient.
                let (own_reductions, others): (DerivedList<'_>, DerivedList<'_>) =
                    (later.into_iter()).partition(|of| of.gradient == own.gradient);
                later = others;
                for reduced in own_reductions {
                    let sum = self.reduced(&ExpressionGraph::of(&array.operand())?, reduced)?;
                    gradients.add_unrounded(reduced.tracked, sum)?;
                }
                gradients.add(own.tracked, array)?;
            }
        }
        Ok(())
    }

    /// Returns the result's gradient, if it is also the gradient of the operand `own`.
    fn passed<'a>(
        &self,
        own: &Derived,
        saved_value: &dyn Fn(Placeholder) -> Option<&'a AnyArray>,
    ) -> Option<&'a AnyArray> {
        let NodeKind::Array(upstream) = self.joint.nodes[own.gradient as usize].kind else {
            return None;
        };
        saved_value(upstream).filter(|upstream| *upstream.layout.shape() == self.shape)
    }

    /// Sums `graph` over the axes along which the operand `own` is broadcast.
    #[track_caller]
    fn reduced(&self, graph: &ExpressionGraph<'_>, own: &Derived) -> Result<AnyArray> {
        let axes = reduced_axes(&self.shape, &own.tracked.layout);
        sum_of(graph, &self.shape, axes)
    }

    /// Returns the results of `graph`. A single result overwrites `spare` if their types and shapes
    /// are equal. This also requires that no other handle shares the memory of `spare`. The
    /// expression graph may read `spare` as an operand.
    #[track_caller]
    fn evaluated(
        &self,
        graph: &ExpressionGraph<'_>,
        device: &Device,
        spare: Option<&AnyArray>,
    ) -> Result<SmallVec<[AnyArray; 1]>> {
        let dtypes = graph.results().iter();
        let dtypes: SmallVec<[DType; 1]> = dtypes.map(|&own| graph.nodes()[own].dtype).collect();
        if let (Some(spare), &[dtype]) = (spare, dtypes.as_slice())
            && (spare.dtype, spare.layout.shape()) == (dtype, &self.shape)
        {
            let own = spare.operand();
            let targets = [Target::of(&own)];
            if let Ok(targets) = Overwritable::new(&targets, &[], &[]) {
                let hoisted = Hoisted::of(graph, device, &self.shape)?;
                store(&hoisted.apply(graph), targets)?;
                return Ok(SmallVec::from_iter([spare.share()]));
            }
        }
        evaluated(graph, device, &self.shape)
    }
}

#[track_caller]
fn evaluated(
    graph: &ExpressionGraph<'_>,
    device: &Device,
    shape: &Shape,
) -> Result<SmallVec<[AnyArray; 1]>> {
    let buffers = evaluate_all(graph, device, shape)?;
    let dtypes = graph.results().iter().map(|&own| graph.nodes()[own].dtype);
    let arrays = buffers.into_iter().zip(dtypes);
    Ok(arrays
        .map(|(buffer, dtype)| AnyArray::of_shape(buffer, shape, dtype))
        .collect())
}

/// Returns the axes of `shape` along which `layout` repeats one element.
pub(super) fn reduced_axes(shape: &Shape, layout: &Layout) -> AxisSet {
    let lead = shape.ndim() - layout.ndim();
    AxisSet::of_each(shape.ndim(), |axis| {
        let Some(own) = axis.checked_sub(lead) else {
            return true;
        };
        shape.dims()[axis] != layout.dims()[own]
            || (layout.dims()[own] > 1 && layout.strides()[own] == 0)
    })
}

/// Returns the operands of `graph` that the gradients, and the nodes `more`, are computed from.
#[track_caller]
fn saved_operands(
    graph: &ExpressionGraph<'_>,
    joint: &GraphTemplate,
    derived: &[Derived],
    more: impl Iterator<Item = u32>,
) -> Vec<Option<SavedArray>> {
    let wanted = joint.wanted(derived.iter().map(|own| own.gradient).chain(more));
    let arrays = graph.nodes().iter().filter_map(|node| match &node.kind {
        NodeKind::Array(operand) => Some(operand),
        _ => None,
    });
    let arrays: SmallVec<[_; 4]> = arrays.collect();
    let mut saved: Vec<Option<SavedArray>> = arrays.iter().map(|_| None).collect();
    for (node, wanted) in joint.nodes.iter().zip(wanted) {
        let NodeKind::Array(Placeholder::Operand(number)) = node.kind else {
            continue;
        };
        let Operand {
            buffer,
            layout,
            dtype,
        } = *arrays[number];
        saved[number] = wanted.then(|| SavedArray::new(buffer, layout, dtype));
    }
    saved
}

/// An evaluation of an expression graph. While the evaluation runs, the tape is paused.
/// [`finish`](Self::finish) records the step that passes gradients back.
#[must_use]
pub(in crate::ops) struct Evaluation(Option<Box<RunningEvaluation>>);

struct RunningEvaluation {
    forward: Forward,
    derivation: Derivation,
    dtypes: SmallVec<[DType; 1]>,
    source: Option<Source>,
    _pause: Pause,
}

impl Evaluation {
    /// Begins an evaluation of `graph` over `shape`.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported), naming the function, if a derivative is not
    /// known.
    #[inline]
    #[track_caller]
    pub(in crate::ops) fn begin(graph: &ExpressionGraph<'_>, shape: &Shape) -> Result<Self> {
        if !is_live() {
            return Ok(Self(None));
        }
        RunningEvaluation::begin(graph, shape).map(Self)
    }

    /// Returns whether the expression graph reads a tracked value.
    pub(in crate::ops) fn is_tracked(&self) -> bool {
        self.0.is_some()
    }

    #[inline]
    #[track_caller]
    pub(in crate::ops) fn finish(self, buffers: Results, layout: &Layout) -> Results {
        match self.0 {
            None => buffers,
            Some(running) => running.finish(buffers, layout),
        }
    }
}

impl RunningEvaluation {
    #[cold]
    #[track_caller]
    fn begin(graph: &ExpressionGraph<'_>, shape: &Shape) -> Result<Option<Box<Self>>> {
        let tracked = tracked_nodes(graph)?;
        if tracked.is_empty() {
            return Ok(None);
        }
        let forward = Forward::of(graph, tracked);
        let dtypes = graph.results().iter().map(|&own| graph.nodes()[own].dtype);
        let dtypes: SmallVec<[DType; 1]> = dtypes.collect();
        let derived = forward
            .derive_results(|own| Some(dtypes[own]))
            .at_caller()?;
        Ok(Some(Box::new(Self {
            derivation: Derivation::new(graph, derived, std::iter::empty(), shape),
            forward,
            dtypes,
            source: source_of_graph(graph, (shape, 0), evaluated),
            _pause: Pause::begin(),
        })))
    }

    #[cold]
    #[track_caller]
    fn finish(self, buffers: Results, layout: &Layout) -> Results {
        let Self {
            forward,
            derivation,
            dtypes,
            source,
            _pause,
        } = self;
        if derivation.derived.is_empty() {
            return buffers;
        }
        let layout = *layout;
        let device = buffers[0].device().clone();
        let takes_unrounded = derivation.takes_unrounded(&dtypes);
        let results = buffers.into_iter().zip(dtypes.iter().copied());
        let results = results
            .map(|(buffer, dtype)| (buffer, &layout, dtype))
            .collect();
        record_all(results, source, |buffers| {
            let mut kept = Vec::new();
            for (number, buffer) in buffers.iter().enumerate() {
                let needs_result = derivation.needs_result(number);
                kept.push(needs_result.then(|| SavedArray::new(buffer, &layout, dtypes[number])));
            }
            let saved_bytes = bytes_of(derivation.saved.iter().chain(&kept));
            let backward = move |upstream: Upstream, gradients: &mut Gradients| {
                let mut derivation = derivation.fetch()?;
                let kept = kept
                    .into_iter()
                    .map(|own| own.map(SavedArray::fetch).transpose());
                let kept = kept.collect::<Result<Vec<_>>>()?;
                let gradient_of = |number: usize| Some(upstream[number].as_ref()?.dtype);
                if (0..dtypes.len()).any(|number| gradient_of(number) != Some(dtypes[number])) {
                    // The nodes are derived again in two cases. A result without a gradient must
                    // not contribute, because a zero gradient times an infinite derivative would be
                    // NaN. An unrounded gradient has another type than its result.
                    (derivation.joint, derivation.derived) = forward.derive_results(gradient_of)?;
                }
                let saved_value = |placeholder: Placeholder| match placeholder {
                    Placeholder::Result(number) => kept[number].as_ref(),
                    Placeholder::Gradient(number) => upstream[number].as_ref(),
                    Placeholder::Operand(_) => None,
                };
                let last = upstream.iter().flatten().next_back();
                derivation.pass_back((&device, last), &saved_value, gradients)
            };
            BackwardStep {
                backward: Box::new(backward),
                saved_bytes,
                runs_again: false,
                takes_unrounded,
                only_once: None,
            }
        })
    }
}

pub(in crate::ops) fn bytes_of<'a>(arrays: impl Iterator<Item = &'a Option<SavedArray>>) -> u64 {
    arrays.flatten().map(SavedArray::size_bytes).sum()
}

/// Returns the single result of `graph`, broadcast to `shape`. Records the step that passes
/// gradients back.
#[track_caller]
pub(in crate::ops) fn evaluate(
    graph: &ExpressionGraph<'_>,
    device: &Device,
    shape: &Shape,
) -> Result<Buffer> {
    let mut results = evaluate_all(graph, device, shape)?;
    Ok(results.pop().expect("the graph has one result"))
}

/// Returns all results of `graph`, like [`evaluate`].
#[track_caller]
pub(in crate::ops) fn evaluate_all(
    graph: &ExpressionGraph<'_>,
    device: &Device,
    shape: &Shape,
) -> Result<Results> {
    shape.checked_len()?;
    let evaluation = Evaluation::begin(graph, shape)?;
    let results = dispatch::evaluate_all(graph, device, shape)?;
    Ok(match evaluation.0 {
        None => results,
        Some(running) => running.finish(results, &Layout::row_major(shape)),
    })
}
