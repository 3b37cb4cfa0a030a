//! Steps of reductions, and of what divides by one, over expressions.

use std::cell::RefCell;

use super::evaluation::{Derivation, followed_terms};
use super::graph::{Given, Graph, TermOf, Value, by_float, is_float};
use super::{AnyArray, Gradients, Pause, is_live, record};
use crate::array::{AxisSet, Buffer, DType, Float, Layout, Shape};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::ops::formula::Formula;
use crate::ops::reductions::sum_of;

/// What was folded: its name, and the axes that the result does not have, or has with a length of 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Folding {
    pub(crate) name: &'static str,
    pub(crate) axes: AxisSet,
    /// The type of the results.
    pub(crate) output: DType,
}

/// A way of passing gradients back through a fold: the gradient of each element from that of the result.
///
/// `g` is the gradient of the result and `r` the result, both broadcast over what was folded; `x` is the element. Some need a
/// sum of their own over the folded axes, `s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Sum,
    Mean,
    Largest,
    Logsumexp,
    Norm,
    Variance,
    Deviation,
    Softmax,
    LogSoftmax,
}

impl Rule {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "sum" => Self::Sum,
            "mean" => Self::Mean,
            "max" | "min" => Self::Largest,
            "logsumexp" => Self::Logsumexp,
            "norm" => Self::Norm,
            "var" => Self::Variance,
            "std" => Self::Deviation,
            "softmax" => Self::Softmax,
            "log_softmax" => Self::LogSoftmax,
            _ => return None,
        })
    }

    /// The gradient of an element.
    fn gradient<'g, T: Float>(self, of: Elements<'g, T>) -> Value<'g, T> {
        let Elements { x, g, r, s, count } = of;
        match self {
            Self::Sum => g,
            Self::Mean => g * (1.0 / count),
            Self::Largest => (g / s).only_where(x.eq(r)),
            Self::Logsumexp => g * (x - r).exp(),
            Self::Norm => (g * x / r).only_where(r.gt(r.constant(0.0))),
            Self::Variance => g * (x - s * (1.0 / count)) * (2.0 / count),
            Self::Deviation => {
                let scaled = g * (x - s * (1.0 / count)) * (1.0 / count) / r;
                scaled.only_where(r.gt(r.constant(0.0)))
            }
            Self::Softmax => r * (g - s),
            Self::LogSoftmax => g - r.exp() * s,
        }
    }

    /// What `s` is the sum of, where it is needed.
    fn summand<'g, T: Float>(self, of: Elements<'g, T>) -> Option<Value<'g, T>> {
        let Elements { x, g, r, .. } = of;
        Some(match self {
            Self::Largest => r.constant(1.0).only_where(x.eq(r)),
            Self::Variance | Self::Deviation => x,
            Self::Softmax => g * r,
            Self::LogSoftmax => g,
            Self::Sum | Self::Mean | Self::Logsumexp | Self::Norm => return None,
        })
    }
}

struct Elements<'g, T> {
    x: Value<'g, T>,
    g: Value<'g, T>,
    r: Value<'g, T>,
    s: Value<'g, T>,
    /// How many elements one result is of.
    count: f64,
}

/// The terms of a rule in a graph.
#[derive(Clone, Copy, Debug)]
struct Terms {
    gradient: u32,
    summand: Option<u32>,
}

const RESULT: Given = Given::Result(0);
const SUM: Given = Given::Result(1);
const GRADIENT: Given = Given::Gradient(0);

fn terms_of(
    graph: &RefCell<Graph>,
    rule: Rule,
    (x, dtype): (usize, DType),
    count: f64,
) -> Option<Terms> {
    let given =
        [GRADIENT, RESULT, SUM].map(|given| graph.borrow_mut().push(TermOf::Given(given), dtype));
    by_float!(dtype, T => {
        let value = |term| Value::<T>::new(graph, term);
        let elements = || Elements {
            x: value(x as u32),
            g: value(given[0]),
            r: value(given[1]),
            s: value(given[2]),
            count,
        };
        Terms {
            gradient: rule.gradient(elements()).term,
            summand: rule.summand(elements()).map(|summand| summand.term),
        }
    })
}

/// What `compute` gives, a fold of `formula`, with the step that passes gradients back through it.
#[track_caller]
pub(in crate::ops) fn folded(
    formula: &Formula<'_>,
    folding: Folding,
    compute: impl FnOnce() -> Result<(Buffer, Layout)>,
) -> Result<(Buffer, Layout)> {
    if !is_live() {
        return compute();
    }
    let followed = followed_terms(formula)?;
    if followed.is_empty() {
        return compute();
    }
    let Folding { name, axes, output } = folding;
    let (shape, dtype) = (formula.first().shape, formula.first().dtype);
    if !is_float(dtype) || !is_float(output) {
        // A position, a count or a truth: constant but for steps.
        let _paused = Pause::begin();
        return compute();
    }
    let folded = (0..shape.ndim()).filter(|&axis| axes.contains(axis));
    let count: usize = folded.map(|axis| shape.dims()[axis]).product();
    let rule = Rule::of(name).ok_or_else(|| unknown(name)).at_caller()?;
    let mut terms = None;
    let derivation = Derivation::of(formula, &followed, &shape, |graph| {
        let own = terms_of(graph, rule, (formula.results()[0], dtype), count as f64);
        let own = own.ok_or_else(|| unknown(name))?;
        terms = Some(own);
        Ok(vec![(formula.results()[0], own.gradient)])
    })
    .at_caller()?;
    let Some(Terms { summand, .. }) = terms else {
        return compute();
    };
    let (buffer, layout) = {
        let _paused = Pause::begin();
        compute()?
    };
    let kept = derivation.needs_result(0).then(|| AnyArray {
        buffer: buffer.share(),
        layout,
        dtype,
    });
    let saved: Vec<AnyArray> = (derivation.saved.iter().chain([&kept]))
        .flatten()
        .map(AnyArray::share)
        .collect();
    let saved: Vec<Option<&AnyArray>> = saved.iter().map(Some).collect();
    let device = buffer.device().clone();
    let keeps_axes = rule == Rule::Softmax || rule == Rule::LogSoftmax;
    let kept_shape = if keeps_axes {
        shape
    } else {
        Shape::from_iter((0..shape.ndim()).map(|axis| {
            if axes.contains(axis) {
                1
            } else {
                shape.dims()[axis]
            }
        }))
    };
    let backward = Box::new(
        move |upstream: &[Option<AnyArray>], gradients: &mut Gradients| {
            let broadcast = |array: &AnyArray| -> Result<AnyArray> {
                let kept = array.layout.reshape(&kept_shape)?;
                let kept = kept.expect("axes of length 1 are nowhere in memory");
                Ok(AnyArray {
                    layout: kept.broadcast_to(&shape)?,
                    ..array.share()
                })
            };
            let upstream = upstream[0].as_ref().map(broadcast).transpose()?;
            let result = kept.as_ref().map(broadcast).transpose()?;
            let given = |given: Given| match given {
                Given::Gradient(_) => upstream.as_ref(),
                RESULT => result.as_ref(),
                Given::Result(_) => None,
            };
            let sum = summand
                .map(|summand| {
                    let formula = derivation.formula(&given, &[summand])?;
                    let sum = sum_of(&formula, &shape, axes)?;
                    Ok::<_, Error>(AnyArray {
                        layout: sum.layout.broadcast_to(&shape)?,
                        ..sum
                    })
                })
                .transpose()?;
            let given = |own: Given| match own {
                SUM => sum.as_ref(),
                own => given(own),
            };
            derivation.pass_back(&device, &given, gradients)
        },
    );
    Ok((record((buffer, layout, dtype), &saved, backward), layout))
}

/// The same of a softmax or its logarithm along an axis.
#[track_caller]
pub(in crate::ops) fn normalized(
    formula: &Formula<'_>,
    (name, axis): (&'static str, usize),
    compute: impl FnOnce() -> Result<(Buffer, Layout)>,
) -> Result<(Buffer, Layout)> {
    let ndim = formula.first().shape.ndim();
    let axes = AxisSet::of_each(ndim, |own| own == axis);
    let output = formula.first().dtype;
    folded(formula, Folding { name, axes, output }, compute)
}

#[cold]
#[track_caller]
fn unknown(name: &str) -> Error {
    let text = format!("{name}: no derivative is known for these elements");
    Error::new(ErrorKind::Unsupported, text)
}
