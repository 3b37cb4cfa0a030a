//! Values of functions of parameters, and their gradients.

use std::cell::Cell;
use std::marker::PhantomData;

use super::parameters::Parameters;
use super::tape::Tape;
use crate::array::{Array, Float, Shape};
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::ops::derivatives::{
    constant, detect_anomalies, is_live, note_constants, steps, tracked,
};
use crate::ops::{Expr, Lazy};
use crate::size::ByteSize;
use crate::sorting::sort_descending;
use crate::sync::OfThisThread;

/// A value whose gradients are computed: an array of rank 0, or an expression of rank 0.
#[diagnostic::on_unimplemented(
    message = "gradients of `{Self}` cannot be computed",
    label = "expected an array or an expression of floats",
    note = "the closure must return an array: if it ends in `.item()?`, remove `.item()?`",
    note = "if the closure returns a `Result` inside of `Ok`, write `?` after the inner `Result`"
)]
pub trait Loss {
    /// The type of the value.
    type Item: Float;

    /// Returns the value.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::Loss;
    ///
    /// let x = Array::from_slice(&[1.0_f64, 2.0], 2)?;
    /// assert_eq!(x.sum()?.into_value()?.item()?, 3.0);
    /// assert_eq!((x.sum()? * 2.0).into_value()?.item()?, 6.0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Lazy::eval`].
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

/// Returns the value of `function` at `parameters`, and the gradient of each parameter. The
/// gradients are in a structure of the type of `parameters`.
///
/// Gradients pass through the values that `function` computes from its argument. If some parameters
/// do not reach the value, their gradients are zeros. If no parameter reaches the value, the call
/// returns an error, because training would have no effect. No gradient passes through these
/// arrays:
///
/// - an array that `function` captures, even if it shares its memory with a parameter. For example,
///   `value_and_grad(&w, |v| (v * &w).sum())` gives the gradient of `v` alone, with `w` as a
///   constant.
/// - an array that is made from numbers. Both `Array::from_vec(y.to_vec()?, shape)` and an array of
///   `y.item()?` are new constants.
/// - indices, such as the results of `argmax`, and booleans, such as the results of `gt`. No
///   gradient passes through values that are computed from these arrays, either.
///
/// A function of slope zero, such as `floor`, passes gradients of zero, and [`stop_gradient`] makes
/// a constant on purpose. If the parameters reach the value only through constants or functions of
/// slope zero, the gradients are zeros. This is not an error. A structure without parameters is not
/// an error, either.
///
/// Calls nest to any depth, also with [`jvp`](super::jvp) and [`hvp`](super::hvp). The outer call
/// differentiates the value and the gradients that the inner call returns, with respect to the
/// outer parameters. The saved values of the inner backward pass stay in memory until the outer
/// backward pass has used them.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::value_and_grad;
///
/// let x = Array::from_slice(&[1.0_f64, 2.0, 3.0], 3)?;
/// // The gradient of a penalty of the gradient: of the sum of (3 x²)².
/// let (_, of_penalty) = value_and_grad(&x, |x| {
///     let (_, slope) = value_and_grad(x, |x| (x * x * x).sum())?;
///     slope.square().sum()
/// })?;
/// assert_eq!(of_penalty.to_vec()?, [36.0, 288.0, 972.0]);
///
/// let (value, gradient) = value_and_grad(&x, |x| (x * x).sum())?;
/// assert_eq!(value.item()?, 14.0);
/// assert_eq!(gradient.to_vec()?, [2.0, 4.0, 6.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The first error of `function`. [`InvalidShape`](ErrorKind::InvalidShape) if the result of
/// `function` is not a single value. [`InvalidArgument`](ErrorKind::InvalidArgument) if no
/// parameter reaches the value. [`Unsupported`](ErrorKind::Unsupported), with the name and line of
/// the operation, for an operation without a derivative. [`Unsupported`](ErrorKind::Unsupported)
/// for an array that another thread computes gradients for.
#[track_caller]
pub fn value_and_grad<P: Parameters, L: Loss>(
    parameters: &P,
    function: impl FnOnce(&P) -> Result<L>,
) -> Result<(Array<L::Item>, P)> {
    let mut tape = Tape::begin_nested("value_and_grad")?;
    let tracked = tape.track(parameters)?;
    let loss = function(&tracked)?;
    tape.all_gradients(loss, &tracked)
}

/// Like [`value_and_grad`], for a function that also returns an additional result. No gradient is
/// computed for the additional result.
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
/// The errors of [`value_and_grad`].
#[track_caller]
pub fn value_and_grad_aux<P: Parameters, L: Loss, A>(
    parameters: &P,
    function: impl FnOnce(&P) -> Result<(L, A)>,
) -> Result<(Array<L::Item>, A, P)> {
    let mut tape = Tape::begin_nested("value_and_grad_aux")?;
    let tracked = tape.track(parameters)?;
    let (loss, aux) = function(&tracked)?;
    let (value, gradients) = tape.all_gradients(loss, &tracked)?;
    Ok((value, aux, gradients))
}

/// Prints the memory that `function` saves for its backward pass at `parameters`, the largest entry
/// first. Each entry has the number of bytes, and the line of the operation that saves them. An
/// array that several operations save is counted once for each operation.
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
/// The errors of [`value_and_grad`], and [`Unsupported`](ErrorKind::Unsupported) inside of a
/// function whose gradients are computed.
#[track_caller]
pub fn print_saved<P: Parameters, L: Loss>(
    parameters: &P,
    function: impl FnOnce(&P) -> Result<L>,
) -> Result<()> {
    let mut tape = Tape::begin_for("print_saved")?;
    let tracked = tape.track(parameters)?;
    let loss = function(&tracked)?.into_value()?;
    tape.check_reached(&loss)?;
    let mut saved = Vec::new();
    steps(&mut |step| saved.push((step.back.saved_bytes, step.call_site)));
    saved.retain(|(bytes, _)| *bytes > 0);
    sort_descending(&mut saved, |(bytes, _)| *bytes);
    for (bytes, call_site) in saved {
        println!("{:>12}  {call_site}", ByteSize(bytes).to_string());
    }
    Ok(())
}

/// Returns an array with the values of `array`. No gradient passes through the returned array.
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
    if is_live() && matches!(tracked(array.buffer()), Ok(Some(_))) {
        note_constants();
    }
    constant(array)
}

pub(super) fn has_anomaly_guard() -> bool {
    DETECTS_ANOMALIES.get()
}

thread_local! {
    static DETECTS_ANOMALIES: Cell<bool> = const { Cell::new(false) };
}

/// A guard that makes backward passes check for NaN, from [`detect_anomaly`].
#[must_use = "gradients are checked only until this guard drops"]
#[derive(Debug)]
pub struct AnomalyGuard {
    did: bool,
    /// Marker that makes the guard `!Send`.
    thread: OfThisThread,
}

/// Makes backward passes of the calling thread fail at the first operation that passes NaN back.
/// The error has the line of the operation. If a [`checkpoint`](super::checkpoint) returns other
/// values when it runs again, the backward pass fails, too.
///
/// If the guard is alive at any time during the forward pass, the backward pass is checked.
/// Therefore a guard inside of the closure of [`value_and_grad`] covers the closure's backward
/// pass, although it drops before this pass. The statement `detect_anomaly();` drops its guard at
/// once, so write `let _anomalies = detect_anomaly();`.
///
/// The host reads every gradient to check it, which is slow. Use the guard only to find an error.
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
    detect_anomalies();
    AnomalyGuard {
        did: DETECTS_ANOMALIES.replace(true),
        thread: PhantomData,
    }
}

impl Drop for AnomalyGuard {
    fn drop(&mut self) {
        // The thread's locals may be destroyed already.
        let _ = DETECTS_ANOMALIES.try_with(|detects| detects.set(self.did));
    }
}

/// Returns an error if the loss is not a single value. The error names the public function
/// `function`.
#[track_caller]
pub(super) fn check_value<T: Float>(function: &str, loss: &Array<T>) -> Result<()> {
    if loss.ndim() == 0 {
        return Ok(());
    }
    Err(no_value(function, loss.layout().shape()))
}

#[cold]
#[track_caller]
fn no_value(function: &str, shape: &Shape) -> Error {
    let text = format!(
        "{function}: the loss has the shape {shape}, expected one value: sum or average it"
    );
    Error::new(ErrorKind::InvalidShape, text)
}

/// Returns the error of a loss that no parameter reaches.
#[cold]
#[track_caller]
pub(super) fn unreached(function: &str) -> Error {
    let text = format!(
        "{function}: the loss depends on no parameter, so all gradients would be zeros: compute \
         it from the tracked parameters (the argument of the closure, or the result of \
         `Tape::track`), not from captured arrays or from numbers that `to_vec` or `item` read"
    );
    Error::new(ErrorCode::Unreached, text)
}
