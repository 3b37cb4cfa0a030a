//! Evaluation of expressions: by a fused loop, or from their expression graph.

use std::panic::Location;

use crate::array::{AnyArray, AnyElement, Array, Buffer, DType, Layout, Shape};
use crate::context::Device;
use crate::error::{AtCaller, CallSiteOverride, Result};
use crate::ops::derivatives::{Evaluation, evaluate, is_live};
use crate::ops::dispatch::device_for;
use crate::ops::expression::any_lazy::AnyLazy;
use crate::ops::expression::expr::{Expr, Lazy};
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::expression::tree::{Node, Operand, Tree, operands};
use crate::ops::host;

impl<E: Expr> Lazy<E> {
    /// Evaluates the expression on the operands' device. An expression of any length takes one pass
    /// over its operands and one allocation.
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
    /// The errors of [`shape`](Self::shape), [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch)
    /// if the operands are on different devices, and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn eval(&self) -> Result<Array<E::Item>> {
        if E::FUSES
            && let Some((dense, fused)) = Dense::of(&self.expr)
        {
            let Dense { device, layout, .. } = dense;
            let shape = layout.shape();
            let work = (size_of::<E::Item>(), dense.bytes_each);
            let buffer = if dense.was_tracked && is_live() {
                tracked_evaluation(&self.expr, &layout.starting_at(0), &mut || {
                    host::evaluate_fused(&fused, &self.expr, work, device, shape)
                })?
            } else {
                // This call is not in the closure, because the closure would then be reported as
                // the caller.
                host::evaluate_fused(&fused, &self.expr, work, device, shape)?
            };
            return Ok(Array::dense(buffer, layout));
        }
        let by_blocks = match E::FUSES {
            true => evaluate_by_blocks(&self.expr, size_of::<E::Item>())?,
            false => None,
        };
        let (buffer, shape) = match by_blocks {
            Some(result) => result,
            None => evaluate_tree(&self.expr)?,
        };
        Ok(Array::of_shape(buffer, &shape))
    }

    /// Like [`eval`](Self::eval), but by the loops of the library, so that no loop is compiled for
    /// the expression. The library evaluates its own expressions by this method.
    #[track_caller]
    pub(crate) fn eval_unfused(&self) -> Result<Array<E::Item>> {
        evaluate_any(&self.expr, <E::Item as AnyElement>::DTYPE).map(Array::from_erased)
    }
}

impl AnyLazy {
    /// Evaluates the expression like [`Lazy::eval`].
    #[track_caller]
    pub(crate) fn eval(&self) -> Result<AnyArray> {
        evaluate_any(self, self.dtype())
    }
}

/// Returns the elements of `tree`, which `compute` computes with the layout `layout`. Records the
/// step for gradients.
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
    Ok(results.pop().expect("the evaluation has one result"))
}

/// Evaluates an expression by its loop, block by block, and returns the elements and their shape.
/// Returns `None` unless the operands are on one host device, broadcast to the shape of one
/// operand, and are not tracked.
#[track_caller]
fn evaluate_by_blocks(
    value: &dyn host::Fusing,
    element_bytes: usize,
) -> Result<Option<(Buffer, Shape)>> {
    let mut largest: Option<Operand<'_>> = None;
    let (mut are_together, mut was_tracked, mut bytes_each) = (true, false, 0);
    operands(value, &mut |operand| {
        let other = *largest.get_or_insert(operand);
        are_together &= operand.buffer.device() == other.buffer.device();
        was_tracked |= operand.buffer.value_id().is_some();
        bytes_each += operand.dtype.size_bytes();
        if operand.layout.len() > other.layout.len() {
            largest = Some(operand);
        }
    });
    let Some(largest) = largest.filter(|_| are_together && !(was_tracked && is_live())) else {
        return Ok(None);
    };
    let (device, shape) = (largest.buffer.device(), largest.layout.shape());
    if device.backend().cuda().is_some() {
        return Ok(None);
    }
    let Some(operands) = host::OperandBlocks::of(value, shape) else {
        return Ok(None);
    };
    let work = (element_bytes, bytes_each);
    let buffer = host::evaluate_blocks(value, &operands, work, device, shape)?;
    Ok(buffer.map(|buffer| (buffer, *shape)))
}

/// Returns a copy of the elements of `array`, in row-major order.
#[track_caller]
pub(in crate::ops) fn copy_of(array: &AnyArray) -> Result<AnyArray> {
    evaluate_any(&array.operand(), array.dtype)
}

#[track_caller]
fn evaluate_any(tree: &dyn Tree, dtype: DType) -> Result<AnyArray> {
    let (buffer, shape) = evaluate_tree(tree)?;
    Ok(AnyArray::of_shape(buffer, &shape, dtype))
}

#[track_caller]
fn evaluate_tree(tree: &dyn Tree) -> Result<(Buffer, Shape)> {
    // The graph is built in place, because a move would copy the whole graph.
    let mut graph = ExpressionGraph::empty();
    graph.append(tree)?;
    let device = device_for("eval", &graph)?;
    Ok((evaluate(&graph, &device, graph.shape())?, *graph.shape()))
}

/// The common device and layout of operands that are on one host device, dense, and of one shape.
struct Dense<'a> {
    device: &'a Device,
    layout: &'a Layout,
    // The number of bytes that are read for one element of the result.
    bytes_each: usize,
    // True if an operand has a value id: a tape tracks the operand, or tracked it before.
    was_tracked: bool,
}

impl<'a> Dense<'a> {
    /// Returns the common device and layout of the operands of `expr`, if both exist and `expr` has
    /// a fused loop. The function is inlined, because a call would dominate the time for small
    /// arrays.
    #[inline]
    fn of<E: Expr>(expr: &'a E) -> Option<(Self, host::Fused<'a, E::Run>)> {
        let mut first: Option<(&Device, &Layout)> = None;
        let (mut agree, mut was_tracked) = (true, false);
        let mut bytes_each = 0;
        expr.walk(&mut |node| {
            let Node::Array(operand) = node else { return };
            let (device, layout) = (operand.buffer.device(), operand.layout);
            let (one, other) = *first.get_or_insert((device, layout));
            bytes_each += operand.dtype.size_bytes();
            was_tracked |= operand.buffer.value_id().is_some();
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
            was_tracked,
        };
        Some((dense, host::Fused::new(expr.dense(), expr, layout.shape())?))
    }
}
