//! Writing in place.

use super::eval::{device_mismatch, device_of};
use super::expr::{Expr, IntoExpr, Lazy};
use super::host;
use crate::array::{Array, Element, Shape, broadcast_shapes};
use crate::error::{Error, ErrorKind, Result};

impl<T: Element> Array<T> {
    /// Sets the elements to those of `value`, which broadcasts to this array's shape.
    ///
    /// They are written where they stand, so that the address stays, unless other arrays or
    /// expressions share the memory: those keep their values, and this array gets memory of its own.
    /// Handles inside `value` do not count as sharing: `w.assign(&w - &step)` copies nothing. Only
    /// where `value` reads this array in another order than it is written is it computed aside first.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let mut w = Array::from_slice(&[1.0, 2.0, 3.0], 3)?;
    /// let address = w.address();
    /// w.assign(&w * 0.5)?;
    /// assert_eq!((w.to_vec()?, w.address()), (vec![0.5, 1.0, 1.5], address));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Lazy::eval`], and [`ShapeMismatch`](ErrorKind::ShapeMismatch) where the value's
    /// shape does not broadcast to this array's. Nothing has been written then.
    #[track_caller]
    pub fn assign<R: IntoExpr<T>>(&mut self, value: R) -> Result<()> {
        assign(self, &value.into_lazy())
    }

    /// Sets the elements to those of an expression of this array, as [`assign`](Self::assign) does;
    /// for where the borrow checker does not let the array be named twice.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let mut weights = vec![Array::from_slice(&[1.0, 2.0], 2)?];
    /// weights[0].update(|w| w - 0.5)?;
    /// assert_eq!(weights[0].to_vec()?, [0.5, 1.5]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`assign`](Self::assign).
    #[track_caller]
    pub fn update<R: IntoExpr<T>>(&mut self, value: impl FnOnce(&Self) -> R) -> Result<()> {
        let value = value(self);
        self.assign(value)
    }

    /// Sets every element to `value`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let mut x = Array::from_slice(&[1, 2], 2)?;
    /// x.fill(7)?;
    /// assert_eq!(x.to_vec()?, [7, 7]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`assign`](Self::assign).
    #[track_caller]
    pub fn fill(&mut self, value: T) -> Result<()> {
        self.assign(value)
    }
}

#[track_caller]
fn assign<T: Element, E: Expr<Item = T>>(target: &mut Array<T>, value: &Lazy<E>) -> Result<()> {
    check_shape(target.layout().shape(), &value.shape()?)?;
    let place = (target.device(), target.layout().shape());
    let other = device_of("assign", &value.expr)?.filter(|&other| other != place.0);
    if let Some(other) = other {
        return Err(device_mismatch("assign", place, (other, &value.shape()?)));
    }
    if target.device().backend().cuda().is_none() {
        return host::store(&value.expr, target);
    }
    // A handle of its own, because the array is borrowed exclusively.
    let device = target.device().clone();
    on_device!(device, store(&value.expr, target))
}

/// Whether a value of shape `value` broadcasts to `target`.
fn check_shape(target: &Shape, value: &Shape) -> Result<()> {
    if value == target || broadcast_shapes("assign", &[target, value])? == *target {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::ShapeMismatch,
        format!("assign: the shape {value} does not broadcast to {target}"),
    ))
}
