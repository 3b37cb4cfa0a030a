//! Evaluation of expressions: by a fused loop, or from their expression graph.

use std::borrow::Cow;
use std::panic::Location;

use super::derivatives::{Evaluation, is_live};
use super::expression::expr::{Expr, Lazy};
use super::expression::graph::{ExpressionGraph, NodeKind};
use super::expression::tree::{MOST_OPERANDS, Node, Tree};
use super::hoist::Hoisted;
use super::host;
use super::order::ReadOperands;
use crate::array::{AnyElement, Array, Buffer, Layout, Shape};
use crate::context::Device;
use crate::error::{AtCaller, CallSiteOverride, Error, ErrorKind, Result};

impl<E: Expr> Lazy<E> {
    /// Evaluates the expression: one pass over its operands and one allocation, whatever its
    /// length, on the operands' device.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let (a, b) = (Array::from_slice(&[1.0, 2.0], 2)?, Array::from_slice(&[3.0, 4.0], 2)?);
    /// let y = (&a * &b + 1.0).eval()?;
    /// assert_eq!(y.to_vec()?, [4.0, 9.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`shape`](Self::shape)'s errors, [`DeviceMismatch`](ErrorKind::DeviceMismatch) if the
    /// operands are on different devices, and [`OutOfMemory`](ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn eval(&self) -> Result<Array<E::Item>> {
        if E::FUSES
            && let Some((dense, fused)) = Dense::of(&self.expr)
        {
            let layout = dense.layout.starting_at(0);
            let work = (size_of::<E::Item>(), dense.bytes_each);
            if is_live() {
                let buffer = tracked_evaluation(&self.expr, &layout, &mut || {
                    host::evaluate_fused(&fused, &self.expr, work, dense.device, &layout)
                })?;
                return Ok(Array::from_parts(buffer, layout));
            }
            let buffer = host::evaluate_fused(&fused, &self.expr, work, dense.device, &layout)?;
            return Ok(Array::from_parts(buffer, layout));
        }
        let (buffer, layout) = evaluate_tree(&self.expr)?;
        Ok(Array::from_parts(buffer, layout))
    }
}

/// Returns the elements of `tree`, which `compute` computes, with the step that passes gradients
/// back.
#[cold]
#[track_caller]
fn tracked_evaluation(
    tree: &dyn Tree,
    layout: &Layout,
    compute: &mut dyn FnMut() -> Result<Buffer>,
) -> Result<Buffer> {
    let evaluation = Evaluation::begin(&ExpressionGraph::of(tree)?, layout.shape())?;
    let _call_site = CallSiteOverride::at(Location::caller());
    let results = std::iter::once(compute().at_caller()?).collect();
    let mut results = evaluation.finish(results, layout);
    Ok(results.pop().expect("there is one"))
}

/// Evaluates `tree`.
#[track_caller]
fn evaluate_tree(tree: &dyn Tree) -> Result<(Buffer, Layout)> {
    let graph = ExpressionGraph::of(tree)?;
    let device = device_for("eval", &graph)?;
    evaluate(&graph, &device, &graph.first().shape)
}

/// Evaluates `graph`, which has one result, over `shape`, to which it broadcasts.
#[track_caller]
pub(super) fn evaluate(
    graph: &ExpressionGraph<'_>,
    device: &Device,
    shape: &Shape,
) -> Result<(Buffer, Layout)> {
    let (mut results, layout) = evaluate_all(graph, device, shape)?;
    let buffer = results.pop().expect("the graph has one result");
    Ok((buffer, layout))
}

/// Evaluates `graph`, with any number of results, in one pass over `shape`.
#[track_caller]
pub(super) fn evaluate_all(
    graph: &ExpressionGraph<'_>,
    device: &Device,
    shape: &Shape,
) -> Result<(host::Results, Layout)> {
    let evaluation = Evaluation::begin(graph, shape)?;
    let layout = Layout::contiguous(shape)?;
    let hoisted = Hoisted::of(graph, device, shape)?;
    let graph = &hoisted.apply(graph);
    let results = on_device!(
        device,
        touching & ReadOperands(&**graph),
        evaluate(graph, &layout)
    )?;
    Ok((evaluation.finish(results, &layout), layout))
}

/// An operand with its name in messages, its device and its shape.
pub(super) type Located<'a> = (&'a str, &'a Device, &'a Shape);

/// The common device and layout of operands that are on one host device, dense, and of one shape.
struct Dense<'a> {
    device: &'a Device,
    layout: &'a Layout,
    // The bytes that one element of the result reads.
    bytes_each: usize,
}

impl<'a> Dense<'a> {
    /// Returns the common device and layout of the operands of `expr`, if there are such and it has
    /// a fused loop. Inline, because a call would dominate the time for small arrays.
    #[inline]
    fn of<E: Expr>(expr: &'a E) -> Option<(Self, host::Fused<'a, E::Run>)> {
        let mut first: Option<(&Device, &Layout)> = None;
        let mut agree = true;
        let mut bytes_each = 0;
        expr.walk(&mut |node| {
            let Node::Array(operand) = node else { return };
            let (device, layout) = (operand.buffer.device(), operand.layout);
            let (one, other) = *first.get_or_insert((device, layout));
            bytes_each += operand.dtype.size_bytes();
            agree &= layout.is_contiguous() && layout.shape() == other.shape() && device == one;
        });
        let (device, layout) = first?;
        if !agree || device.backend().cuda().is_some() {
            return None;
        }
        let dense = Self {
            device,
            layout,
            bytes_each,
        };
        Some((dense, host::Fused::new(expr.dense(), expr, layout.shape())?))
    }
}

/// Returns the device that all operands of `operation` are on; `None` if there are no operands.
///
/// # Errors
///
/// [`DeviceMismatch`](ErrorKind::DeviceMismatch) if there are two.
#[track_caller]
pub(super) fn device_of<'a>(
    operation: &str,
    graph: &ExpressionGraph<'a>,
) -> Result<Option<&'a Device>> {
    let mut devices = graph.operands().map(|operand| operand.buffer.device());
    let Some(first) = devices.next() else {
        return Ok(None);
    };
    match devices.all(|device| device == first) {
        true => Ok(Some(first)),
        false => Err(mixed_devices(operation, graph)),
    }
}

/// Returns the error for the first function in `graph` whose operands are on two devices. If each
/// result is on one device, the error names `operation` and two results.
#[cold]
#[track_caller]
fn mixed_devices(operation: &str, graph: &ExpressionGraph<'_>) -> Error {
    let nodes = graph.nodes();
    let mut devices: Vec<Option<&Device>> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let device = match &node.kind {
            NodeKind::Array(operand) => Some(operand.buffer.device()),
            NodeKind::Scalar(_) => None,
            NodeKind::Call(call, _) => {
                let operands = node.operands().iter().map(|&operand| operand as usize);
                match two_devices(operands.clone(), &devices) {
                    Some(pair) => {
                        let names = names_of_operands(call.arity);
                        let [one, other] = pair.map(|(position, device)| {
                            let node = node.operands()[position] as usize;
                            (names[position], device, &nodes[node].shape)
                        });
                        return device_mismatch(call.name, one, other);
                    }
                    None => operands.into_iter().find_map(|operand| devices[operand]),
                }
            }
        };
        devices.push(device);
    }
    let results = graph.results();
    let pair = two_devices(results.iter().copied(), &devices).expect("the devices are two");
    let names = pair.map(|(position, _)| format!("expression {position}"));
    let [one, other] = [0, 1].map(|at| {
        let (position, device) = pair[at];
        (names[at].as_str(), device, &nodes[results[position]].shape)
    });
    device_mismatch(operation, one, other)
}

/// Finds two of `nodes` that are on different devices, and returns their positions.
fn two_devices<'a>(
    nodes: impl Iterator<Item = usize>,
    devices: &[Option<&'a Device>],
) -> Option<[(usize, &'a Device); 2]> {
    let mut located = (nodes.enumerate()).filter_map(|(at, node)| Some((at, devices[node]?)));
    let first = located.next()?;
    let other = located.find(|(_, device)| *device != first.1)?;
    Some([first, other])
}

/// Returns the names of the operands of a function with this many.
fn names_of_operands(count: usize) -> [&'static str; MOST_OPERANDS] {
    match count {
        2 => ["the left operand", "the right operand", "", ""],
        _ => [
            "the first operand",
            "the second operand",
            "the third operand",
            "the fourth operand",
        ],
    }
}

/// Returns the device that `operation` runs on: the device of its operands, or the current one if
/// there are no operands.
///
/// # Errors
///
/// As for [`device_of`].
#[track_caller]
pub(super) fn device_for<'a>(
    operation: &str,
    graph: &ExpressionGraph<'a>,
) -> Result<Cow<'a, Device>> {
    Ok(match device_of(operation, graph)? {
        Some(device) => Cow::Borrowed(device),
        None => Cow::Owned(Device::current()),
    })
}

/// Checks that two operands are on one device. Each is given with the name that messages use.
///
/// # Errors
///
/// [`DeviceMismatch`](ErrorKind::DeviceMismatch), naming `operation`, the operands, their shapes
/// and devices.
#[track_caller]
pub(super) fn same_device<T: AnyElement, U: AnyElement>(
    operation: &str,
    (one, left): (&str, &Array<T>),
    (other, right): (&str, &Array<U>),
) -> Result<()> {
    if left.device() == right.device() {
        return Ok(());
    }
    let left = (one, left.device(), left.layout().shape());
    let right = (other, right.device(), right.layout().shape());
    Err(device_mismatch(operation, left, right))
}

/// Returns the error for operands on two devices.
#[cold]
#[track_caller]
pub(super) fn device_mismatch(
    operation: &str,
    (one, device, shape): Located<'_>,
    (other, there, others): Located<'_>,
) -> Error {
    let place = match device.backend().name() == there.backend().name() {
        true => format!("another {there} device"),
        false => there.to_string(),
    };
    Error::new(
        ErrorKind::DeviceMismatch,
        format!(
            "{operation}: {one} {shape} is on {device}, {other} {others} on {place}; move one with `.to_device(&device)`"
        ),
    )
}
