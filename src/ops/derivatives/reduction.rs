//! Steps of reductions, and of softmax functions, over expressions.

use std::cell::RefCell;

use smallvec::SmallVec;

use super::activations::{SavedArray, Source, source_of_graph};
use super::backward::{BackwardStep, Upstream};
use super::evaluation::{Derivation, bytes_of, evaluate};
use super::forward::{Forward, tracked_nodes};
use super::joint_graph::is_differentiable;
use super::logsumexp::pass_back_by_softmax;
use super::products::products_of_others;
use super::values::JointValue;
use super::{Gradients, Pause, is_live, record};
use crate::array::{AnyArray, AxisSet, Buffer, DType, Layout, Shape};
use crate::error::{AtCaller, Error, ErrorCode, Result};
use crate::ops::descriptors::ReductionPlan;
use crate::ops::dispatch::{NORM, Reduction, STD, SUM, reduce};
use crate::ops::expression::graph::{ExpressionGraph, NodeKind};
use crate::ops::expression::template::{GraphTemplate, Placeholder};
use cachescope_kernels::reduce::ReductionRule as Rule;

/// The gradient of each element, as a function of the result's gradient.
///
/// `g` is the gradient of the result, and `r` is the result. Both are broadcast over the reduced
/// axes. `x` is the element. Some rules need sums over the reduced axes. Each sum may read the
/// earlier sums. In the rule of products, the product of the other elements replaces the sum. All
/// nodes have the type of [`DType::computed_in`]. If a narrow result was rounded, it is computed
/// again in this type.
///
/// A rule that subtracts a mean subtracts first the rounded mean, and then the mean of the
/// differences. So the difference is accurate even if elements are nearly equal, or if one of
/// several weights is nearly 1.
trait Derivative: Sized {
    /// Returns the rule's nodes for the element `x` of `dtype`. Returns `None` for complex elements
    /// that the rule does not support. A result reduces `count` elements.
    fn nodes(
        self,
        joint: &RefCell<GraphTemplate>,
        x: (u32, DType),
        count: f64,
    ) -> Option<RuleNodes>;

    /// Returns whether the rule computes a result of `dtype` again, in the type of gradients.
    fn computes_again(self, dtype: DType) -> bool;
}

impl Derivative for Rule {
    fn nodes(
        self,
        joint: &RefCell<GraphTemplate>,
        (x, dtype): (u32, DType),
        count: f64,
    ) -> Option<RuleNodes> {
        let wide = dtype.computed_in();
        let widened = |node| {
            let node = joint.borrow_mut().widened(node);
            JointValue::new(joint, node)
        };
        let saved = |placeholder, dtype| {
            let node = (joint.borrow_mut()).push(NodeKind::Array(placeholder), dtype);
            widened(node)
        };
        let stored = if self.computes_again(dtype) {
            wide
        } else {
            dtype
        };
        let (g, r) = (saved(GRADIENT, dtype), saved(RESULT, stored));
        let x = widened(x);
        let [s, t] = [0, 1].map(|number| saved(sum_number(number), wide));
        let (gradient, summands) = match self {
            Self::Sum => (g, [None, None]),
            Self::Mean => (g * (1.0 / count), [None, None]),
            Self::Product => (g * s.conj(), [Some(x), None]),
            _ if dtype.is_complex() => return None,
            // If the result is NaN, all gradients are NaN.
            Self::Largest => (
                (g / s).only_where(x.eq(r)) + r.only_where(r.ne(r)),
                [Some(r.constant(1.0).only_where(x.eq(r))), None],
            ),
            Self::Logsumexp => {
                let share = (x - r).exp();
                // If the result was rounded, the shares do not sum to 1, so they are divided by
                // their sum.
                let gradient = (g * (share / s)).only_where(x.not_equal(f64::NEG_INFINITY));
                (gradient, [Some(share), None])
            }
            Self::Norm => ((g * (x / r)).only_where(r.not_equal(0.0)), [None, None]),
            // Each summand is multiplied by 1 / `count`, so the sums are means. Without this
            // factor, a sum may be beyond the range of the type.
            Self::Variance => {
                let apart = x - s;
                let gradient = g * ((apart - t) * (2.0 / count));
                (gradient, [x, apart].map(|own| Some(own * (1.0 / count))))
            }
            Self::Deviation => {
                let apart = x - s;
                let scaled = g * ((apart - t) / r * (1.0 / count));
                let gradient = scaled.only_where(r.not_equal(0.0));
                (gradient, [x, apart].map(|own| Some(own * (1.0 / count))))
            }
            Self::Softmax => {
                let apart = g - s;
                (r * (apart - t), [Some(g * r), Some(apart * r)])
            }
            Self::LogSoftmax => {
                // If a share is above ½, 1 − share is computed as the sum of the other shares. The
                // first sum adds a complex number for each other element. Its real part is the
                // element's gradient, and its imaginary part is the element's share. The second sum
                // is the gradient of the element with the share above ½.
                let share = r.exp();
                let most = r.gt(r.constant(MOST));
                let zero = g.constant(0.0);
                let [others, rest] = [g, share].map(|own| own.or_where(most, zero));
                let pair = others.with_imaginary(rest);
                let sums = saved(sum_number(0), pair.dtype());
                let gradient =
                    (g - share * (sums.re() + t)).or_where(most, g * sums.im() - share * sums.re());
                (gradient, [Some(pair), Some(g.only_where(most))])
            }
        };
        Some(RuleNodes {
            gradient: gradient.node,
            summands: summands.into_iter().flatten().map(|own| own.node).collect(),
        })
    }

    fn computes_again(self, dtype: DType) -> bool {
        let rounds = matches!(
            self,
            Self::Norm | Self::Deviation | Self::Softmax | Self::LogSoftmax
        );
        rounds && dtype != dtype.computed_in()
    }
}

/// A bound just above ln ½. At most one share has a logarithm above this bound.
const MOST: f64 = -0.69;

/// The estimated floating-point operations of softmax per element: several passes, and an
/// exponential.
const SOFTMAX_FLOPS: usize = 128;

#[derive(Clone, Debug)]
struct RuleNodes {
    gradient: u32,
    summands: Summands,
}

/// The summands of the sums that a rule needs.
type Summands = SmallVec<[u32; 2]>;

pub(super) const RESULT: Placeholder = Placeholder::Result(0);

/// Returns the placeholder of the rule's sum `number`.
pub(super) const fn sum_number(number: usize) -> Placeholder {
    Placeholder::Result(1 + number)
}

pub(super) const GRADIENT: Placeholder = Placeholder::Gradient(0);

/// A function that returns the softmax, or its logarithm, of an expression graph of floats along an
/// axis.
pub(in crate::ops) type SoftmaxOf = fn(&ExpressionGraph<'_>, usize) -> Result<AnyArray>;

/// A reduction of an expression graph. While the reduction runs, the tape is paused.
/// [`finish`](Self::finish) records the step that passes gradients back.
#[must_use]
pub(in crate::ops) struct TrackedReduction(Option<RunningReduction>);

enum RunningReduction {
    /// A reduction to a position, a count or a truth value. The reduction is piecewise constant, so
    /// it has no gradient.
    Constant(#[expect(dead_code, reason = "held for its drop")] Pause),
    DerivedReduction(Box<DerivedReduction>),
}

struct DerivedReduction {
    derivation: Derivation,
    rule: Rule,
    summands: Summands,
    /// The node of the elements in the type of gradients, from which a rounded result is computed
    /// again.
    again: Option<u32>,
    softmax: Option<SoftmaxOf>,
    /// The expression graph with its tracked operands, for `logsumexp`.
    forward: Option<Forward>,
    dtype: DType,
    axes: AxisSet,
    /// The shape of the result with all axes. An axis that the result lacks has length 1.
    kept_shape: Shape,
    source: Option<Source>,
    _pause: Pause,
}

impl TrackedReduction {
    /// Begins the reduction `name` along `axes`, with the gradient rule `rule` and results of the
    /// type `output`.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported), naming the function, if a derivative is not
    /// known.
    #[inline]
    #[track_caller]
    pub(in crate::ops) fn begin(
        graph: &ExpressionGraph<'_>,
        (name, rule, output): (&'static str, Option<Rule>, DType),
        axes: AxisSet,
    ) -> Result<Self> {
        if !is_live() {
            return Ok(Self(None));
        }
        RunningReduction::begin(graph, (name, rule, output), axes).map(Self)
    }

    /// Sets the function that reduces `graph` again.
    pub(in crate::ops) fn computed_by(
        mut self,
        graph: &ExpressionGraph<'_>,
        run: impl Fn(&ExpressionGraph<'_>) -> Result<(Buffer, Shape)> + 'static,
    ) -> Self {
        if let Some(RunningReduction::DerivedReduction(running)) = &mut self.0 {
            let dtype = running.dtype;
            let shape = graph.shape();
            let flops_each = match running.rule {
                Rule::Softmax | Rule::LogSoftmax => SOFTMAX_FLOPS,
                _ => 0,
            };
            running.source = source_of_graph(graph, (shape, flops_each), move |graph, _, _| {
                let (buffer, shape) = run(graph)?;
                Ok(std::iter::once(AnyArray::of_shape(buffer, &shape, dtype)).collect())
            });
        }
        self
    }

    /// Sets the function that computes a narrow softmax again, in the type of its gradient.
    pub(in crate::ops) fn with_softmax(mut self, softmax: SoftmaxOf) -> Self {
        if let Some(RunningReduction::DerivedReduction(running)) = &mut self.0 {
            running.softmax = Some(softmax);
        }
        self
    }

    /// Ends the reduction with the result `buffer` of the shape `shape`. Returns the tracked
    /// result.
    #[inline]
    #[track_caller]
    pub(in crate::ops) fn finish(self, buffer: Buffer, shape: &Shape) -> Buffer {
        match self.0 {
            Some(RunningReduction::DerivedReduction(running)) => {
                running.finish(buffer, &Layout::row_major(shape))
            }
            Some(RunningReduction::Constant(_)) | None => buffer,
        }
    }
}

impl RunningReduction {
    #[cold]
    #[track_caller]
    fn begin(
        graph: &ExpressionGraph<'_>,
        (name, rule, output): (&'static str, Option<Rule>, DType),
        axes: AxisSet,
    ) -> Result<Option<Self>> {
        let tracked = tracked_nodes(graph)?;
        if tracked.is_empty() {
            return Ok(None);
        }
        let (shape, dtype) = (*graph.shape(), graph.first().dtype);
        if !is_differentiable(dtype) || !is_differentiable(output) {
            return Ok(Some(Self::Constant(Pause::begin())));
        }
        let reduced = (0..shape.ndim()).filter(|&axis| axes.contains(axis));
        let count: usize = reduced.map(|axis| shape.dims()[axis]).product();
        let Some(rule) = rule else {
            return Err(unknown(name));
        };
        let mut summands = Summands::new();
        let mut again = None;
        let forward = Forward::of(graph, tracked);
        let result = forward.results[0];
        let derived = forward.derive(|joint| {
            let own = rule.nodes(joint, (result as u32, dtype), count as f64);
            let own = own.ok_or_else(|| unknown(name))?;
            summands = own.summands;
            again = rule
                .computes_again(dtype)
                .then(|| joint.borrow_mut().widened(result as u32));
            Ok(std::iter::once((result, own.gradient)).collect())
        });
        let derived = derived.at_caller()?;
        let keeps_axes = rule == Rule::Softmax || rule == Rule::LogSoftmax;
        let length = |axis: usize| {
            let is_one = axes.contains(axis) && !keeps_axes;
            if is_one { 1 } else { shape.dims()[axis] }
        };
        Ok(Some(Self::DerivedReduction(Box::new(DerivedReduction {
            derivation: Derivation::new(
                graph,
                derived,
                summands.iter().copied().chain(again),
                &shape,
            ),
            rule,
            summands,
            again,
            softmax: None,
            forward: (rule == Rule::Logsumexp).then_some(forward),
            dtype,
            axes,
            kept_shape: (0..shape.ndim()).map(length).collect(),
            source: None,
            _pause: Pause::begin(),
        }))))
    }
}

impl DerivedReduction {
    #[cold]
    #[track_caller]
    fn finish(self, buffer: Buffer, layout: &Layout) -> Buffer {
        let Self {
            derivation,
            rule,
            summands,
            again,
            softmax,
            forward,
            dtype,
            axes,
            kept_shape,
            source,
            _pause,
        } = self;
        let (layout, shape) = (*layout, derivation.shape);
        // Summands may read the result, too.
        let needs_result = again.is_none() && (!summands.is_empty() || derivation.needs_result(0));
        let device = buffer.device().clone();
        record((buffer, &layout, dtype), source, |buffer| {
            let kept = needs_result.then(|| SavedArray::new(buffer, &layout, dtype));
            let saved_bytes = bytes_of(derivation.saved.iter().chain([&kept]));
            let backward = move |mut upstream: Upstream, gradients: &mut Gradients| {
                let derivation = derivation.fetch()?;
                let kept = kept.map(SavedArray::fetch).transpose()?;
                let broadcast = |array: AnyArray| -> Result<AnyArray> {
                    let kept = array.layout.reshape(&kept_shape)?;
                    let kept = kept.expect("axes of length 1 do not change the memory order");
                    Ok(AnyArray {
                        layout: kept.broadcast_to(&shape)?,
                        ..array
                    })
                };
                let upstream = upstream[0].take().map(broadcast).transpose()?;
                let result = match again {
                    Some(elements) => {
                        let graph = derivation.graph(&|_| None, &[elements])?;
                        Some(reduced_again((rule, softmax), &graph, (&shape, axes))?)
                    }
                    None => kept,
                };
                let result = result.map(broadcast).transpose()?;
                if let (Some(forward), true) = (&forward, is_live()) {
                    let values = (upstream, result);
                    let along = (&device, axes);
                    return pass_back_by_softmax((derivation, forward), along, values, gradients);
                }
                let upstream = match (upstream, &result) {
                    (Some(own), Some(softmax)) if rule == Rule::Softmax && is_live() => {
                        Some(centred(&own, softmax, axes)?)
                    }
                    (upstream, _) => upstream,
                };
                let mut sums = SmallVec::<[AnyArray; 2]>::new();
                for &summand in &summands {
                    let saved_value = |own: Placeholder| given(own, &upstream, &result, &sums);
                    let graph = derivation.graph(&saved_value, &[summand])?;
                    let sum = match rule {
                        Rule::Product => {
                            let buffer = evaluate(&graph, &device, &shape)?;
                            let elements = AnyArray::of_shape(buffer, &shape, dtype.computed_in());
                            products_of_others(elements, axes)?
                        }
                        _ => {
                            let sum = sum_of(&graph, &shape, axes)?;
                            AnyArray {
                                layout: sum.layout.broadcast_to(&shape)?,
                                ..sum
                            }
                        }
                    };
                    drop(graph);
                    sums.push(sum);
                }
                let saved_value = |own: Placeholder| given(own, &upstream, &result, &sums);
                derivation.pass_back((&device, upstream.as_ref()), &saved_value, gradients)
            };
            BackwardStep {
                backward: Box::new(backward),
                saved_bytes,
                runs_again: false,
                takes_unrounded: false,
                only_once: None,
            }
        })
    }
}

/// Subtracts from `gradient` its mean along `axes`, weighted by `softmax`. The gradient of the
/// softmax's operand does not depend on this mean. The subtraction is a separate step of the tape.
/// So derivatives of the gradient also subtract both means of the rule.
#[track_caller]
fn centred(gradient: &AnyArray, softmax: &AnyArray, axes: AxisSet) -> Result<AnyArray> {
    let all = 0..gradient.layout.ndim();
    let own: Vec<isize> = all
        .filter(|&axis| axes.contains(axis))
        .map(|axis| axis as isize)
        .collect();
    let wide = || gradient.lazy().cast(gradient.dtype.computed_in());
    let mean = (wide() * softmax.lazy()).sum_keepdims(own)?;
    (wide() - mean.lazy()).cast(gradient.dtype).eval()
}

/// Returns the array of a placeholder of a rule.
pub(super) fn given<'a>(
    placeholder: Placeholder,
    upstream: &'a Option<AnyArray>,
    result: &'a Option<AnyArray>,
    sums: &'a [AnyArray],
) -> Option<&'a AnyArray> {
    match placeholder {
        GRADIENT => upstream.as_ref(),
        RESULT => result.as_ref(),
        Placeholder::Result(number) => sums.get(number - 1),
        _ => None,
    }
}

/// Returns the result of the rule's reduction of `graph` along `axes`. `graph` has float elements
/// and the shape `shape`.
#[track_caller]
fn reduced_again(
    (rule, softmax): (Rule, Option<SoftmaxOf>),
    graph: &ExpressionGraph<'_>,
    (shape, axes): (&Shape, AxisSet),
) -> Result<AnyArray> {
    if let Some(softmax) = softmax {
        let mut all = 0..shape.ndim();
        let axis = all.find(|&axis| axes.contains(axis));
        return softmax(graph, axis.expect("a softmax has one axis"));
    }
    let reduction = match rule {
        Rule::Norm => &NORM,
        _ => &STD,
    };
    reduced_by(reduction.at(graph.first().dtype), graph, (shape, axes))
}

/// Returns the sums of `graph` along `axes`. In the result, these axes have length 1. `graph` has
/// the shape `shape` and a type that gradients are computed in.
#[track_caller]
pub(super) fn sum_of(
    graph: &ExpressionGraph<'_>,
    shape: &Shape,
    axes: AxisSet,
) -> Result<AnyArray> {
    reduced_by(SUM.at(graph.first().dtype), graph, (shape, axes))
}

#[track_caller]
fn reduced_by(
    reduction: &'static Reduction,
    graph: &ExpressionGraph<'_>,
    (shape, axes): (&Shape, AxisSet),
) -> Result<AnyArray> {
    debug_assert_eq!(*graph.shape(), *shape);
    let dtype = graph.first().dtype;
    let tracked_reduction = TrackedReduction::begin(graph, reduction.step(), axes)?;
    let plan = ReductionPlan::along(graph, axes, true, false);
    let buffer = tracked_reduction.finish(reduce(reduction, &plan, graph)?, &plan.outputs);
    Ok(AnyArray::of_shape(buffer, &plan.outputs, dtype))
}

#[cold]
#[track_caller]
fn unknown(name: &str) -> Error {
    let text = format!("{name}: no derivative is known for these elements");
    Error::new(ErrorCode::Gradient, text)
}
