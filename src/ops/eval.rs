//! Evaluating expressions, and what their operands tell about how.

use super::expr::{Expr, Lazy, Operand};
use super::host::{evaluate, evaluate_dense};
use crate::array::{Array, Layout, MAX_RANK, Shape};
use crate::context::Device;
use crate::error::{Error, ErrorKind, Result};

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
        let survey = Survey::of(&self.expr);
        if let (Some(device), Some(layout)) = (survey.device, survey.dense) {
            return evaluate_dense(&self.expr, device, layout.starting_at(0));
        }
        let shape = self.shape()?;
        match survey.one_device()? {
            Some(device) => evaluate(&self.expr, device, &shape),
            // Not in a closure, which would stand as the caller.
            None => evaluate(&self.expr, &Device::current(), &shape),
        }
    }
}

/// What the operands of an expression have in common.
struct Survey<'a> {
    /// The device of the first one.
    device: Option<&'a Device>,
    /// One that is not on that device, if there is one.
    foreign: Option<&'a Device>,
    /// The layout of the first one, if all are on one device, dense, and of one shape.
    dense: Option<&'a Layout>,
}

impl<'a> Survey<'a> {
    #[inline]
    fn of<E: Expr>(expr: &'a E) -> Self {
        let mut survey = Self {
            device: None,
            foreign: None,
            dense: None,
        };
        expr.operands(&mut |operand| survey.meet(&operand));
        survey
    }

    #[inline(always)]
    fn meet(&mut self, operand: &Operand<'a>) {
        let (device, layout) = (operand.buffer.device(), operand.layout);
        let dense = layout.is_contiguous();
        let Some(first) = self.device else {
            self.device = Some(device);
            self.dense = dense.then_some(layout);
            return;
        };
        if *first != *device {
            (self.foreign, self.dense) = (Some(device), None);
        }
        self.dense = self
            .dense
            .filter(|first| dense && first.shape() == layout.shape());
    }

    fn one_device(&self) -> Result<Option<&'a Device>> {
        match (self.device, self.foreign) {
            (Some(one), Some(other)) => Err(device_mismatch(one, other)),
            (common, _) => Ok(common),
        }
    }
}

/// The device that all operands live on; `None` where there are none.
pub(super) fn device_of<E: Expr>(expr: &E) -> Result<Option<&Device>> {
    Survey::of(expr).one_device()
}

/// Operands on two devices.
#[cold]
pub(super) fn device_mismatch(one: &Device, other: &Device) -> Error {
    let (one, other) = (one.backend().id(), other.backend().id());
    let text = if one == other {
        format!("the operands live on two separate devices, both {one}")
    } else {
        format!("the operands live on two devices, {one} and {other}")
    };
    Error::new(ErrorKind::DeviceMismatch, text)
}

/// How far apart in memory the elements along each axis of `shape` stand, summed over all operands:
/// the axes in descending order of this are the order in which memory is read best.
pub(super) fn reach_of_axes<E: Expr>(expr: &E, shape: &Shape) -> [usize; MAX_RANK] {
    let mut reach = [0usize; MAX_RANK];
    expr.operands(&mut |Operand {
                            layout,
                            element_bytes,
                            ..
                        }| {
        let lead = shape.ndim().saturating_sub(layout.ndim());
        let axes = layout.dims().iter().zip(layout.strides());
        for (total, (&length, &stride)) in reach[lead..].iter_mut().zip(axes) {
            if length > 1 {
                let bytes = stride.unsigned_abs().saturating_mul(element_bytes);
                *total = total.saturating_add(bytes);
            }
        }
    });
    reach
}
