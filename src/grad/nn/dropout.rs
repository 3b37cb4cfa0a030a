//! Dropout of elements, channels and whole examples.

use crate::array::{AnyArray, Array, Float, Shape};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::widened;

/// Sets each element of `x` to 0 with the given probability (Srivastava et al. 2014). Divides the
/// other elements by 1 − probability. Uses the calling thread's generator. Use dropout in training
/// only, not in inference.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::nn::dropout;
///
/// let dropped = dropout(&Array::<f32>::ones(100)?, 0.5)?;
/// assert!(dropped.to_vec()?.iter().all(|&value| value == 0.0 || value == 2.0));
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if the probability is not from 0 to 1; the
/// errors of [`Array::dropout_mask`].
#[track_caller]
pub fn dropout<T: Float>(x: &Array<T>, probability: f64) -> Result<Array<T>> {
    check("dropout", probability)?;
    of_leading_axes(x, x.ndim(), probability)
}

/// Sets whole channels of `x`, of shape `[count, channels, ..]`, to 0 with the given probability
/// (Tompson et al. 2015). Divides the other channels by 1 − probability. PyTorch's names are
/// `dropout1d` to `dropout3d`. Use this function in training only.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::nn::dropout_channels;
///
/// let dropped = dropout_channels(&Array::<f32>::ones([4, 8, 2])?, 0.5)?.to_vec()?;
/// assert!(dropped.chunks(2).all(|channel| channel == [0.0; 2] || channel == [2.0; 2]));
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`dropout`].
#[track_caller]
pub fn dropout_channels<T: Float>(x: &Array<T>, probability: f64) -> Result<Array<T>> {
    check("dropout_channels", probability)?;
    of_leading_axes(x, 2, probability)
}

/// Sets whole examples of `x`, along its first axis, to 0 with the given probability. Divides the
/// other examples by 1 − probability. This is the stochastic depth of residual branches (Huang et
/// al. 2016). Use this function in training only.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::nn::drop_path;
///
/// let (x, branch) = (Array::<f32>::ones([4, 3])?, Array::ones([4, 3])?);
/// let sum = (&x + drop_path(&branch, 0.5)?).eval()?.to_vec()?;
/// assert!(sum.chunks(3).all(|row| row == [1.0; 3] || row == [3.0; 3]));
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`dropout`].
#[track_caller]
pub fn drop_path<T: Float>(x: &Array<T>, probability: f64) -> Result<Array<T>> {
    check("drop_path", probability)?;
    of_leading_axes(x, 1, probability)
}

/// Sets elements of `x` to the negative limit of SELU with the given probability (Klambauer et al.
/// 2017). All elements are then scaled and shifted, so that a mean of 0 and a variance of 1 are
/// preserved. Use this function in training only, after SELU.
///
/// # Examples
///
/// ```
/// use cachescope::grad::nn::alpha_dropout;
/// use cachescope::{Array, manual_seed};
///
/// manual_seed(1);
/// let dropped = alpha_dropout(&Array::<f64>::randn(100_000)?, 0.2)?;
/// assert!(dropped.mean()?.item()?.abs() < 0.03);
/// assert!((dropped.var()?.item()? - 1.0).abs() < 0.03);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`dropout`].
#[track_caller]
pub fn alpha_dropout<T: Float>(x: &Array<T>, probability: f64) -> Result<Array<T>> {
    check("alpha_dropout", probability)?;
    if probability == 0.0 {
        return Ok(x.clone());
    }
    to_limit(x.erased(), probability).map(Array::from_erased)
}

/// Computes [`alpha_dropout`], and rounds the result once.
#[track_caller]
fn to_limit(x: &AnyArray, probability: f64) -> Result<AnyArray> {
    /// The negative limit of SELU, λ α.
    const LIMIT: f64 = 1.758_099_340_847_376_6;
    let kept = {
        let _device = x.device().enter();
        Array::bernoulli(1.0 - probability, *x.shape())?
    };
    let scale = ((LIMIT * LIMIT * probability + 1.0) * (1.0 - probability)).powf(-0.5);
    // At a probability of 1, every element is the limit, and centring makes it 0.
    let scale = if scale.is_finite() { scale } else { 0.0 };
    let kept = kept.erased().lazy().cast(x.dtype.computed_in());
    let limit = (kept.clone() - 1.0) * (LIMIT * scale) + LIMIT * scale * probability;
    let dropped = widened(x) * kept * scale + limit;
    dropped.cast(x.dtype).eval()
}

/// Drops whole parts of `x`. A part consists of the elements at one index along the first `axes`
/// axes.
#[track_caller]
fn of_leading_axes<T: Float>(x: &Array<T>, axes: usize, probability: f64) -> Result<Array<T>> {
    if probability == 0.0 {
        return Ok(x.clone());
    }
    let kept = x.shape().iter().take(axes);
    let ones = std::iter::repeat_n(&1, x.ndim().saturating_sub(axes));
    let shape: Shape = kept.chain(ones).collect();
    let _device = x.device().enter();
    if T::DTYPE != T::DTYPE.computed_in() {
        return masked_narrow(x.erased(), shape, probability).map(Array::from_erased);
    }
    (x * Array::dropout_mask(probability, shape)?).eval_unfused()
}

/// Drops elements of a narrow array, and rounds the result once. A mask of the array's type would
/// round the factor 1 / (1 − probability).
#[track_caller]
fn masked_narrow(x: &AnyArray, shape: Shape, probability: f64) -> Result<AnyArray> {
    // `dropout_mask` draws equal numbers, so that a seed drops equal elements in all types.
    let is_dropped = Array::bernoulli(probability, shape)?;
    // At a probability of 1, all elements are dropped, and the factor is not defined.
    let factor = if probability == 1.0 {
        0.0
    } else {
        1.0 / (1.0 - probability)
    };
    let is_dropped = is_dropped.erased().lazy().cast(x.dtype.computed_in());
    let mask = is_dropped * -factor + factor;
    (widened(x) * mask).cast(x.dtype).eval()
}

#[track_caller]
fn check(function: &str, probability: f64) -> Result<()> {
    if (0.0..=1.0).contains(&probability) {
        return Ok(());
    }
    let text = format!("{function}: the probability is {probability}, expected 0 to 1");
    Err(Error::new(ErrorKind::InvalidArgument, text))
}
