//! The device of an operation: the device of all its operands.

use std::borrow::Cow;

use crate::array::{AnyArray, Shape};
use crate::context::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::expression::graph::{ExpressionGraph, NodeKind};
use crate::ops::expression::tree::{Operand, Tree};
use crate::ops::order::pause::is_live;
use cachescope_kernels::elementwise::call::MOST_OPERANDS;

/// The name of an operand in error messages, its device and its shape.
pub(in crate::ops) type Located<'a> = (&'a str, &'a Device, &'a Shape);

/// Returns the device that all operands of `operation` are on, or `None` if there are no operands.
///
/// # Errors
///
/// [`DeviceMismatch`](ErrorKind::DeviceMismatch) if the operands are on two devices.
#[track_caller]
pub(in crate::ops) fn device_of<'a>(
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

/// Returns the error for operands on two devices. The error names the first function in `graph`
/// whose operands are on two devices. If only the results are on two devices, the error names
/// `operation` and two results.
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
                        let names = names_of_operands(call.arity());
                        let [one, other] = pair.map(|(position, device)| {
                            let node = node.operands()[position] as usize;
                            (names[position], device, graph.shape_of(node))
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
    let pair =
        two_devices(results.iter().copied(), &devices).expect("the operands are on two devices");
    let names = pair.map(|(position, _)| format!("expression {position}"));
    let [one, other] = [0, 1].map(|at| {
        let (position, device) = pair[at];
        (
            names[at].as_str(),
            device,
            graph.shape_of(results[position]),
        )
    });
    device_mismatch(operation, one, other)
}

/// Finds two of `nodes` on different devices, and returns the position and the device of each.
fn two_devices<'a>(
    nodes: impl Iterator<Item = usize>,
    devices: &[Option<&'a Device>],
) -> Option<[(usize, &'a Device); 2]> {
    let mut located = (nodes.enumerate()).filter_map(|(at, node)| Some((at, devices[node]?)));
    let first = located.next()?;
    let other = located.find(|(_, device)| *device != first.1)?;
    Some([first, other])
}

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

/// Returns the device that `operation` runs on: the device of its operands. If there are no
/// operands, returns the current device.
///
/// # Errors
///
/// As for [`device_of`].
#[track_caller]
pub(in crate::ops) fn device_for<'a>(
    operation: &str,
    graph: &ExpressionGraph<'a>,
) -> Result<Cow<'a, Device>> {
    Ok(match device_of(operation, graph)? {
        Some(device) => Cow::Borrowed(device),
        None => Cow::Owned(Device::current()),
    })
}

/// Checks that two operands are on one device. Error messages use the names of the operands.
///
/// # Errors
///
/// [`DeviceMismatch`](ErrorKind::DeviceMismatch), naming `operation`, the operands, their shapes
/// and devices.
#[track_caller]
pub(in crate::ops) fn same_device(
    operation: &str,
    (one, left): (&str, &AnyArray),
    (other, right): (&str, &AnyArray),
) -> Result<()> {
    if left.device() == right.device() {
        return Ok(());
    }
    let left = (one, left.device(), left.shape());
    let right = (other, right.device(), right.shape());
    Err(device_mismatch(operation, left, right))
}

#[cold]
#[track_caller]
pub(in crate::ops) fn device_mismatch(
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
            "{operation}: {one} {shape} is on {device}, {other} {others} on {place}: move one \
             with `.to_device(&device)`"
        ),
    )
}

/// Returns the array of `tree`, if `tree` is a single array that can be read without an expression
/// graph. The array is contiguous, not empty, and not on a CUDA device. No tape tracks the array.
pub(in crate::ops) fn contiguous_array(tree: &dyn Tree) -> Option<Operand<'_>> {
    let operand = tree.as_operand()?;
    let is_direct = !(is_live() && operand.buffer.value_id().is_some())
        && operand.layout.is_contiguous()
        && operand.layout.len() > 0
        && operand.buffer.device().backend().cuda().is_none();
    is_direct.then_some(operand)
}
