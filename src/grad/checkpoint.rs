//! Recomputation in the backward pass, which saves memory.

use super::parameters::Parameters;
use super::place::map_erased;
use crate::array::{Array, Float};
use crate::error::{AtCaller, Result};
use crate::ops::checkpointed;
use crate::ops::derivatives::detects_anomalies;

/// Returns the value of `function` at `inputs`, and saves no intermediate value of `function`. The
/// backward pass calls `function` again, with the random numbers of the first call (Griewank and
/// Walther 2000; Chen et al. 2016).
///
/// Gradients pass to `inputs`, and to tracked arrays that the function captures. If no input is
/// tracked, the function is called once, and its intermediate values are saved. Therefore pass
/// every array that needs a gradient in `inputs`, including parameters.
///
/// The function must return equal values for equal inputs. If it uses a
/// [`Generator`](crate::Generator), it must create a new generator in each call.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::{checkpoint, value_and_grad};
///
/// let (w, x) = (Array::<f32>::eye(4)?, Array::<f32>::ones([8, 4])?);
/// let (_, gradient) = value_and_grad(&w, |w| {
///     // Of the two products and the tanh between, nothing stays in memory.
///     let y = checkpoint(&(w.clone(), x.clone()), |(w, x)| {
///         x.matmul(w)?.tanh().eval()?.matmul(w)
///     })?;
///     y.sum()
/// })?;
/// assert_eq!(gradient.shape(), [4, 4]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The first error of `function`. [`InvalidArgument`](crate::ErrorKind::InvalidArgument) in the
/// backward pass, if the second call returns another shape or, under
/// [`detect_anomaly`](super::detect_anomaly), other values.
#[track_caller]
pub fn checkpoint<P: Parameters + 'static, T: Float>(
    inputs: &P,
    function: impl Fn(&P) -> Result<Array<T>> + 'static,
) -> Result<Array<T>> {
    // The new `inputs` are handles that share the memory and the variables of the caller's arrays.
    let (mut held, mut bytes) = (Vec::new(), 0);
    let inputs = map_erased(inputs, |array| {
        held.push((array.buffer.share(), array.layout));
        bytes += (array.layout.len() * array.dtype.size_bytes()) as u64;
        Ok(array)
    });
    let inputs = inputs.at_caller()?;
    let how = (bytes, detects_anomalies());
    checkpointed(&held, how, move || function(&inputs))
}
