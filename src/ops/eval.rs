//! Evaluating expressions, and what their operands tell about how.

use super::expr::{Expr, Lazy, Operand};
use crate::array::{Array, Element, Layout, MAX_RANK, Shape};
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
        if let (Some((device, _)), Some(layout)) = (survey.first, survey.dense) {
            let layout = layout.starting_at(0);
            return on_device!(device, evaluate_dense(&self.expr, device, layout));
        }
        let shape = self.shape()?;
        match survey.one_device("eval")? {
            Some(device) => on_device!(device, evaluate(&self.expr, device, &shape)),
            // Not in a closure, which would stand as the caller.
            None => {
                let device = Device::current();
                on_device!(device, evaluate(&self.expr, &device, &shape))
            }
        }
    }
}

/// An array's device, and the shape to call it by.
pub(super) type Place<'a> = (&'a Device, &'a Shape);

/// What the operands of an expression have in common.
struct Survey<'a> {
    /// The first one.
    first: Option<Place<'a>>,
    /// One that is not on its device, if there is one.
    foreign: Option<Place<'a>>,
    /// The layout of the first one, if all are on one device, dense, and of one shape.
    dense: Option<&'a Layout>,
}

impl<'a> Survey<'a> {
    #[inline]
    fn of<E: Expr>(expr: &'a E) -> Self {
        let mut survey = Self {
            first: None,
            foreign: None,
            dense: None,
        };
        expr.operands(&mut |operand| survey.meet(&operand));
        survey
    }

    #[inline(always)]
    fn meet(&mut self, operand: &Operand<'a>) {
        let layout = operand.layout;
        let place = (operand.buffer.device(), layout.shape());
        let dense = layout.is_contiguous();
        let Some((device, shape)) = self.first else {
            self.first = Some(place);
            self.dense = dense.then_some(layout);
            return;
        };
        if *device != *place.0 {
            (self.foreign, self.dense) = (Some(place), None);
        }
        self.dense = self.dense.filter(|_| dense && shape == place.1);
    }

    fn one_device(&self, operation: &str) -> Result<Option<&'a Device>> {
        match (self.first, self.foreign) {
            (Some(one), Some(other)) => Err(device_mismatch(operation, one, other)),
            (first, _) => Ok(first.map(|(device, _)| device)),
        }
    }
}

/// The device that all operands of `operation` live on; `None` where there are none.
pub(super) fn device_of<'a, E: Expr>(operation: &str, expr: &'a E) -> Result<Option<&'a Device>> {
    Survey::of(expr).one_device(operation)
}

/// # Errors
///
/// [`DeviceMismatch`](ErrorKind::DeviceMismatch), naming `operation`, the shapes and the devices.
pub(super) fn same_device<T: Element, U: Element>(
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
pub(super) fn device_mismatch(operation: &str, left: Place<'_>, right: Place<'_>) -> Error {
    let another = if left.0.backend().id() == right.0.backend().id() {
        ", but another one"
    } else {
        ""
    };
    let of = |(device, shape): Place<'_>| format!("the array of shape {shape} is on {device}");
    Error::new(
        ErrorKind::DeviceMismatch,
        format!(
            "{operation}: the arrays are on two devices: {}, {}{another}",
            of(left),
            of(right)
        ),
    )
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
