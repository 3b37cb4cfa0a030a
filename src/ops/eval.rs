//! Evaluating expressions, and what their operands tell about how.

use std::borrow::Cow;
use std::panic::Location;

use super::derivatives::{Evaluation, is_live};
use super::expr::{Expr, Lazy};
use super::formula::Formula;
use super::hoist::Hoisted;
use super::host;
use super::order::Reading;
use super::tree::{Node, Operand, Tree};
use crate::array::{AnyElement, Array, Buffer, Layout, Shape};
use crate::context::Device;
use crate::error::{Asking, AtCaller, Error, ErrorKind, Result};

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
    /// Those of [`shape`](Self::shape), [`DeviceMismatch`](ErrorKind::DeviceMismatch) where the
    /// operands live on different devices, and
    /// [`OutOfMemory`](ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn eval(&self) -> Result<Array<E::Item>> {
        if E::FUSES
            && let Some((dense, fused)) = Dense::of(&self.expr)
        {
            let layout = dense.layout.starting_at(0);
            let work = (size_of::<E::Item>(), dense.bytes_each);
            if is_live() {
                return followed_evaluation(&self.expr, &layout, || {
                    host::evaluate_fused(&fused, &self.expr, work, dense.device, &layout)
                });
            }
            let buffer = host::evaluate_fused(&fused, &self.expr, work, dense.device, &layout)?;
            return Ok(Array::from_parts(buffer, layout));
        }
        let (buffer, layout) = evaluate_tree(&self.expr)?;
        Ok(Array::from_parts(buffer, layout))
    }
}

/// The elements that `compute` gives, those of `tree`, with the step that passes gradients back.
#[cold]
#[track_caller]
fn followed_evaluation<T: AnyElement>(
    tree: &dyn Tree,
    layout: &Layout,
    compute: impl FnOnce() -> Result<Buffer>,
) -> Result<Array<T>> {
    let evaluation = Evaluation::begin(&Formula::of(tree)?, layout.shape())?;
    let _asking = Asking::at(Location::caller());
    let results = std::iter::once(compute().at_caller()?).collect();
    let mut results = evaluation.finish(results, layout);
    let buffer = results.pop().expect("there is one");
    Ok(Array::from_parts(buffer, *layout))
}

/// The elements of `tree`.
#[track_caller]
fn evaluate_tree(tree: &dyn Tree) -> Result<(Buffer, Layout)> {
    let formula = Formula::of(tree)?;
    let device = device_for("eval", &formula)?;
    evaluate(&formula, &device, &formula.first().shape)
}

/// The elements of `formula`, which has one result, over `shape`, to which it broadcasts.
#[track_caller]
pub(super) fn evaluate(
    formula: &Formula<'_>,
    device: &Device,
    shape: &Shape,
) -> Result<(Buffer, Layout)> {
    let (mut results, layout) = evaluate_all(formula, device, shape)?;
    let buffer = results.pop().expect("a formula has as many results");
    Ok((buffer, layout))
}

/// The same of any number of results, in one pass.
#[track_caller]
pub(super) fn evaluate_all(
    formula: &Formula<'_>,
    device: &Device,
    shape: &Shape,
) -> Result<(host::Results, Layout)> {
    let evaluation = Evaluation::begin(formula, shape)?;
    let layout = Layout::contiguous(shape)?;
    let hoisted = Hoisted::of(formula, device, shape)?;
    let formula = &hoisted.apply(formula);
    let results = on_device!(
        device,
        touching & Reading(&**formula),
        evaluate(formula, &layout)
    )?;
    Ok((evaluation.finish(results, &layout), layout))
}

/// An array's device, and the shape to call it by.
pub(super) type Located<'a> = (&'a Device, &'a Shape);

/// Operands that are on one device, which is the host, and dense, and of one shape.
struct Dense<'a> {
    device: &'a Device,
    layout: &'a Layout,
    // What an element reads.
    bytes_each: usize,
}

impl<'a> Dense<'a> {
    /// Those of `expr`, if they are such and it has a loop of its own. Inline, because nothing takes as long where
    /// arrays are small.
    #[inline]
    fn of<E: Expr>(expr: &'a E) -> Option<(Self, host::Fused<'a, E::Run>)> {
        let mut first: Option<(&Device, &Layout)> = None;
        let mut agree = true;
        let mut bytes_each = 0;
        expr.walk(&mut |node| {
            let Node::Array(operand) = node else { return };
            let (device, layout) = (operand.buffer.device(), operand.layout);
            let (one, other) = *first.get_or_insert((device, layout));
            bytes_each += operand.dtype.bytes();
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

/// The device that all operands of `operation` live on; `None` where there are none.
///
/// # Errors
///
/// [`DeviceMismatch`](ErrorKind::DeviceMismatch) where there are two.
#[track_caller]
pub(super) fn device_of<'a>(operation: &str, formula: &Formula<'a>) -> Result<Option<&'a Device>> {
    let mut places = formula.operands().map(located);
    let Some(first) = places.next() else {
        return Ok(None);
    };
    match places.find(|place| place.0 != first.0) {
        Some(other) => Err(device_mismatch(operation, first, other)),
        None => Ok(Some(first.0)),
    }
}

fn located<'a>(operand: &Operand<'a>) -> Located<'a> {
    (operand.buffer.device(), operand.layout.shape())
}

/// The device that `operation` happens on: that of its operands, or the current one where there are none.
///
/// # Errors
///
/// As for [`device_of`].
#[track_caller]
pub(super) fn device_for<'a>(operation: &str, formula: &Formula<'a>) -> Result<Cow<'a, Device>> {
    Ok(match device_of(operation, formula)? {
        Some(device) => Cow::Borrowed(device),
        None => Cow::Owned(Device::current()),
    })
}

/// # Errors
///
/// [`DeviceMismatch`](ErrorKind::DeviceMismatch), naming `operation`, the shapes and the devices.
#[track_caller]
pub(super) fn same_device<T: AnyElement, U: AnyElement>(
    operation: &str,
    left: &Array<T>,
    right: &Array<U>,
) -> Result<()> {
    if left.device() == right.device() {
        return Ok(());
    }
    let left = (left.device(), left.layout().shape());
    let right = (right.device(), right.layout().shape());
    Err(device_mismatch(operation, left, right))
}

/// Arrays on two devices.
#[cold]
#[track_caller]
pub(super) fn device_mismatch(operation: &str, left: Located<'_>, right: Located<'_>) -> Error {
    let another = if left.0.backend().id() == right.0.backend().id() {
        ", but another one"
    } else {
        ""
    };
    let of = |(device, shape): Located<'_>| format!("the array of shape {shape} is on {device}");
    Error::new(
        ErrorKind::DeviceMismatch,
        format!(
            "{operation}: the arrays are on two devices: {}, {}{another}",
            of(left),
            of(right)
        ),
    )
}
