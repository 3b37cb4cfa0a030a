//! The value of a function of parameters, and its gradient.

use std::cell::Cell;
use std::cmp::Reverse;
use std::marker::PhantomData;

use super::parameters::Parameters;
use super::tape::Tape;
use crate::array::{Array, Float, Shape};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::derivatives::{constant, steps};
use crate::ops::{Expr, Lazy};
use crate::size::ByteSize;

/// What a gradient is computed of: an array of rank 0, or an expression that gives one.
pub trait Loss {
    /// The type of the value.
    type Item: Float;

    /// The value.
    ///
    /// # Errors
    ///
    /// Those of [`Lazy::eval`].
    #[track_caller]
    fn into_value(self) -> Result<Array<Self::Item>>;
}

impl<T: Float> Loss for Array<T> {
    type Item = T;

    fn into_value(self) -> Result<Self> {
        Ok(self)
    }
}

impl<T: Float, E: Expr<Item = T>> Loss for Lazy<E> {
    type Item = T;

    #[track_caller]
    fn into_value(self) -> Result<Array<T>> {
        self.eval()
    }
}

/// The value of `function` at `parameters`, and the gradient of each parameter: in a structure of the same type, zeros where
/// the value does not depend on it.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::value_and_grad;
///
/// let x = Array::from_slice(&[1.0_f64, 2.0, 3.0], 3)?;
/// let (value, gradient) = value_and_grad(&x, |x| (x * x).sum())?;
/// assert_eq!(value.item()?, 14.0);
/// assert_eq!(gradient.to_vec()?, [2.0, 4.0, 6.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The first of `function`; [`InvalidShape`](ErrorKind::InvalidShape) where its value is no single one;
/// [`Unsupported`](ErrorKind::Unsupported) for an operation whose derivative is not known, by name and with its line, for one
/// call inside of another, and for an array that another thread computes gradients for.
#[track_caller]
pub fn value_and_grad<P: Parameters, L: Loss>(
    parameters: &P,
    function: impl FnOnce(&P) -> Result<L>,
) -> Result<(Array<L::Item>, P)> {
    let (value, (), gradients) =
        value_and_grad_aux(parameters, |parameters| Ok((function(parameters)?, ())))?;
    Ok((value, gradients))
}

/// [`value_and_grad`] of a function that gives something beside its value, which no gradient is computed of.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::value_and_grad_aux;
///
/// let x = Array::from_slice(&[3.0, 4.0], 2)?;
/// let (_, squares, gradient) = value_and_grad_aux(&x, |x| {
///     let squares = x.square().eval()?;
///     Ok((squares.sum()?, squares))
/// })?;
/// assert_eq!(squares.to_vec()?, [9.0, 16.0]);
/// assert_eq!(gradient.to_vec()?, [6.0, 8.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// Those of [`value_and_grad`].
#[track_caller]
pub fn value_and_grad_aux<P: Parameters, L: Loss, A>(
    parameters: &P,
    function: impl FnOnce(&P) -> Result<(L, A)>,
) -> Result<(Array<L::Item>, A, P)> {
    let mut tape = Tape::begin()?;
    let followed = tape.follow(parameters)?;
    let (loss, aux) = function(&followed)?;
    let (value, gradients) = tape.gradients(loss, followed)?;
    Ok((value, aux, gradients))
}

/// Prints what the backward pass of `function` at `parameters` will keep, the largest first: bytes, and the line of the operation
/// that keeps them. An array that several keep is counted by each.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::print_saved;
///
/// let w = Array::<f32>::ones([256, 256])?;
/// print_saved(&w, |w| w.matmul(w)?.tanh().sum())?;
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// Those of [`value_and_grad`].
#[track_caller]
pub fn print_saved<P: Parameters, L: Loss>(
    parameters: &P,
    function: impl FnOnce(&P) -> Result<L>,
) -> Result<()> {
    let mut tape = Tape::begin()?;
    let followed = tape.follow(parameters)?;
    let _loss = function(&followed)?.into_value()?;
    let mut saved = Vec::new();
    steps(&mut |step| saved.push((step.back.saved_bytes, step.call_site)));
    saved.retain(|(bytes, _)| *bytes > 0);
    saved.sort_by_key(|(bytes, _)| Reverse(*bytes));
    for (bytes, call_site) in saved {
        println!("{:>12}  {call_site}", ByteSize(bytes).to_string());
    }
    Ok(())
}

/// The same values, which gradients do not pass through: where they are read, they are constants.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::{stop_gradient, value_and_grad};
///
/// let x = Array::from_slice(&[3.0], 1)?;
/// let (_, gradient) = value_and_grad(&x, |x| (x * stop_gradient(x)).sum())?;
/// assert_eq!(gradient.to_vec()?, [3.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[must_use]
#[track_caller]
pub fn stop_gradient<T: Float>(array: &Array<T>) -> Array<T> {
    constant(array)
}

/// Whether the thread's backward passes look for NaN.
pub(super) fn detects_anomalies() -> bool {
    DETECTS_ANOMALIES.get()
}

thread_local! {
    static DETECTS_ANOMALIES: Cell<bool> = const { Cell::new(false) };
}

/// While this lives, backward passes of the thread look for NaN.
#[must_use = "gradients are looked through while this lives"]
#[derive(Debug)]
pub struct AnomalyGuard {
    did: bool,
    /// Of the thread that made it.
    thread: PhantomData<*const ()>,
}

/// From here on, until the guard drops, the calling thread's backward passes fail at the first operation that passes NaN back, with
/// its line, and where a [`checkpoint`](super::checkpoint) gives other values when it is run again. Every gradient is read by the
/// host for that: it is for finding an error, and slow.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::{detect_anomaly, value_and_grad};
///
/// let x = Array::from_slice(&[0.0], 1)?;
/// let _anomalies = detect_anomaly();
/// let error = value_and_grad(&x, |x| (x * x.sqrt()).sum().and_then(|y| (y / x).sum())).unwrap_err();
/// assert!(error.to_string().contains("NaN"));
/// # Ok::<(), cachescope::Error>(())
/// ```
pub fn detect_anomaly() -> AnomalyGuard {
    AnomalyGuard {
        did: DETECTS_ANOMALIES.replace(true),
        thread: PhantomData,
    }
}

impl Drop for AnomalyGuard {
    fn drop(&mut self) {
        // The thread may be ending.
        let _ = DETECTS_ANOMALIES.try_with(|detects| detects.set(self.did));
    }
}

/// Refuses a loss that is no single value.
#[track_caller]
pub(super) fn check_value<T: Float>(loss: &Array<T>) -> Result<()> {
    if loss.ndim() == 0 {
        return Ok(());
    }
    Err(no_value(loss.layout().shape()))
}

#[cold]
#[track_caller]
fn no_value(shape: &Shape) -> Error {
    let text = format!(
        "value_and_grad: the gradient of one value is computed, not of the shape {shape}: sum or average it"
    );
    Error::new(ErrorKind::InvalidShape, text)
}
