//! The normalizations of neural networks, along the last axis or over groups of channels.

mod fused;
mod groups;
mod scale;

pub(crate) use groups::group_norm;
pub(crate) use scale::{scale_of, scale_of_squares};

use crate::array::{AnyArray, Array, Float};
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::ops::derivatives::{RuledOperation, is_any_tracked, work_of};
use crate::ops::dispatch::same_device;
use crate::ops::expression::any_lazy::AnyLazy;
use scale::{centre_and_scale, root_mean_square_scale};

impl<T: Float> Array<T> {
    /// Returns (x − mean) / √(var + epsilon) · weight + bias along the last axis. This is PyTorch's
    /// `layer_norm`. The variance divides by the axis's length. `weight` and `bias` have this
    /// length. `f16` and `bf16` are computed in `f32`. A row whose squares leave the range of the
    /// accumulation type is scaled first. On a CUDA device, this requires operands without gaps,
    /// and rows of at most 8,192 elements (4,096 of `f64`). Otherwise, the result of an infinite
    /// variance is 0 or NaN.
    ///
    /// Lei Ba, Kiros and Hinton, ["Layer Normalization"](https://arxiv.org/abs/1607.06450), 2016.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let x = Array::from_slice(&[1.0, 3.0, -6.0, 6.0], [2, 2])?;
    /// let (weight, bias) = (Array::ones(2)?, Array::full(2, 0.5)?);
    /// let y = x.layer_norm(&weight, &bias, 0.0)?;
    /// assert_eq!(y.to_vec()?, [-0.5, 1.5, -0.5, 1.5]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) if the array has rank 0, or if `weight`
    /// or `bias` is not a vector of the last axis's length.
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `epsilon` is negative or not
    /// finite. [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch) and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn layer_norm(&self, weight: &Self, bias: &Self, epsilon: T) -> Result<Self> {
        let operands = [self, weight, bias].map(Self::erased);
        layer_norm("layer_norm", operands, epsilon.to_f64()).map(Self::from_erased)
    }

    /// Returns x / √(mean of x² + epsilon) · weight along the last axis. This is PyTorch's
    /// `rms_norm`. `weight` is a vector of the length of the axis. `f16` and `bf16` are computed in
    /// `f32`. Large and small rows are computed like in [`layer_norm`](Self::layer_norm).
    ///
    /// Zhang and Sennrich, ["Root Mean Square Layer
    /// Normalization"](https://arxiv.org/abs/1910.07467), 2019.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let x = Array::from_slice(&[2.0, -2.0, -4.0, 4.0], [2, 2])?;
    /// let y = x.rms_norm(&Array::full(2, 10.0)?, 0.0)?;
    /// assert_eq!(y.to_vec()?, [10.0, -10.0, -10.0, 10.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`layer_norm`](Self::layer_norm).
    #[track_caller]
    pub fn rms_norm(&self, weight: &Self, epsilon: T) -> Result<Self> {
        let operands = [self, weight].map(Self::erased);
        rms_norm("rms_norm", operands, epsilon.to_f64()).map(Self::from_erased)
    }
}

/// Like [`Array::layer_norm`], for the operands `[x, weight, bias]`. An error about `epsilon`
/// begins with `name`, the layer or function. `epsilon` is not rounded.
#[track_caller]
pub(crate) fn layer_norm(
    name: &'static str,
    operands: [&AnyArray; 3],
    epsilon: f64,
) -> Result<AnyArray> {
    check_epsilon(name, epsilon)?;
    let [x, weight, bias] = operands;
    check("layer_norm", x, "weight", weight)?;
    check("layer_norm", x, "bias", bias)?;
    normalize("layer_norm", &operands, epsilon)
}

/// Like [`Array::rms_norm`], for the operands `[x, weight]`. An error about `epsilon` begins with
/// `name`, the layer or function. `epsilon` is not rounded.
#[track_caller]
pub(crate) fn rms_norm(
    name: &'static str,
    operands: [&AnyArray; 2],
    epsilon: f64,
) -> Result<AnyArray> {
    check_epsilon(name, epsilon)?;
    let [x, weight] = operands;
    check("rms_norm", x, "weight", weight)?;
    normalize("rms_norm", &operands, epsilon)
}

#[track_caller]
pub(crate) fn check_epsilon(name: &str, epsilon: f64) -> Result<()> {
    if epsilon >= 0.0 && epsilon.is_finite() {
        return Ok(());
    }
    let text = format!("{name}: epsilon is {epsilon}, expected a finite number of at least 0");
    Err(Error::new(ErrorKind::InvalidArgument, text))
}

/// Returns the layer norm of `[x, weight, bias]`, or the RMS norm of `[x, weight]`.
#[track_caller]
fn normalize(operation: &'static str, operands: &[&AnyArray], epsilon: f64) -> Result<AnyArray> {
    let [x, weight] = [operands[0], operands[1]];
    let flops = work_of(&[FLOPS_AN_ELEMENT, x.len()]);
    let step = RuledOperation::begin(operation, operands)?.computed_by(flops, move |operands| {
        let operands: Vec<&AnyArray> = operands.iter().collect();
        Ok(normalized(&operands, epsilon)?.0)
    });
    let (result, (mean, scale)) = normalized(operands, epsilon)?;
    Ok(step.finish(result, |saved| {
        let x = saved.save_releasable(x);
        let rows = NormalizedRows {
            weight: saved.save(weight),
            mean: mean.map(|mean| saved.save_recomputed(&mean)),
            scale: saved.save_recomputed(&scale),
            epsilon,
        };
        move |gradient: AnyArray| rows.back(&x.fetch()?, &gradient)
    }))
}

/// The mean of each row, if it is subtracted, and the factor of each row.
type RowMoments = (Option<AnyArray>, AnyArray);

/// Computes [`normalize`] without a gradient. If there is a bias, the mean is subtracted. Also
/// returns the mean and the factor of each row.
#[track_caller]
fn normalized(operands: &[&AnyArray], epsilon: f64) -> Result<(AnyArray, RowMoments)> {
    if let Some(fused) = fused::normalized(operands, epsilon)? {
        return Ok(fused);
    }
    let (x, weight) = (widened(operands[0]), widened(operands[1]));
    let dtype = operands[0].dtype;
    let Some(bias) = operands.get(2) else {
        let scale = root_mean_square_scale(&x, epsilon)?;
        let normal = x * scale.lazy() * weight;
        return Ok((normal.cast(dtype).eval()?, (None, scale)));
    };
    let (mean, scale) = centre_and_scale(&x, epsilon)?;
    let normal = (x - mean.lazy()) * scale.lazy();
    let normal = normal.mul_add(weight, widened(bias));
    Ok((normal.cast(dtype).eval()?, (Some(mean), scale)))
}

/// The number of floating-point operations of a norm per element, over several passes.
const FLOPS_AN_ELEMENT: usize = 64;

/// The values that the gradients of a normalization are computed from.
#[derive(Clone)]
struct NormalizedRows {
    weight: AnyArray,
    /// The mean that is subtracted from each row, or `None` for `rms_norm`.
    mean: Option<AnyArray>,
    /// The factor of each row.
    scale: AnyArray,
    epsilon: f64,
}

impl NormalizedRows {
    /// Returns the scales and, for `layer_norm`, the means. If a tape tracks `x`, computes them
    /// again. Otherwise, returns the saved values.
    #[track_caller]
    fn statistics(&self, x: &AnyArray) -> Result<RowMoments> {
        if !is_any_tracked(&[x])? {
            return Ok((self.mean.clone(), self.scale.share()));
        }
        if self.mean.is_none() {
            return Ok((None, root_mean_square_scale(&widened(x), self.epsilon)?));
        }
        let (mean, scale) = centre_and_scale(&widened(x), self.epsilon)?;
        Ok((Some(mean), scale))
    }

    /// Returns the gradients of `x`, the weight and, if there is one, the bias. Let n be the
    /// normalized rows, and a the gradient times the weight. The gradient of `x` is scale (a −
    /// mean(a) − n mean(a n)). For `rms_norm`, it is scale (a − n mean(a n)).
    #[track_caller]
    fn back(&self, x: &AnyArray, gradient: &AnyArray) -> Result<Vec<AnyArray>> {
        // The kernels are not tracked.
        if !is_any_tracked(&[x, &self.weight, gradient])? {
            let moments = (self.mean.as_ref(), &self.scale);
            if let Some(fused) = fused::gradients([x, &self.weight, gradient], moments)? {
                return Ok(fused);
            }
        }
        let (width, height) = (self.weight.len(), self.scale.len());
        let rows = |array: &AnyArray| array.reshape(&[height, width].into());
        let columns = |array: AnyArray| array.reshape(&[height, 1].into());
        let (mean, scale) = self.statistics(x)?;
        let (own, dtype) = (*x.shape(), x.dtype);
        let (x, scale) = (widened(&rows(x)?), columns(scale)?);
        let gradient = widened(&rows(gradient)?);
        let mean = mean.map(columns).transpose()?;
        let centred = match &mean {
            Some(mean) => x - mean.lazy(),
            None => x,
        };
        let normal = centred * scale.lazy();
        let scaled = gradient.clone() * widened(&self.weight);
        let products = scaled.clone() * normal.clone();
        let along = -(products.mean_keepdims(-1)?.lazy() * scale.lazy());
        let along = along.eval()?.lazy();
        let rest = match &mean {
            Some(_) => {
                let shift = -(scaled.mean_keepdims(-1)?.lazy() * scale.lazy());
                normal.clone().mul_add(along, shift.eval()?.lazy())
            }
            None => normal.clone() * along,
        };
        let of_x = scaled.mul_add(scale.lazy(), rest).cast(dtype).eval()?;
        // The sums are rounded when the gradients are taken, if the weight was not converted.
        let of_weight = (gradient.clone() * normal).sum_axis(0)?;
        let mut gradients = vec![of_x.reshape(&own)?, of_weight];
        if mean.is_some() {
            gradients.push(gradient.sum_axis(0)?);
        }
        Ok(gradients)
    }
}

/// Returns the elements in the accumulation type.
pub(crate) fn widened(x: &AnyArray) -> AnyLazy {
    x.lazy().cast(x.dtype.computed_in())
}

/// Checks that `vector` is as long as the last axis of `x`. Checks that the two arrays are on one
/// device.
#[track_caller]
fn check(operation: &str, x: &AnyArray, name: &str, vector: &AnyArray) -> Result<()> {
    same_device(operation, ("x", x), (name, vector))?;
    if matches!((x.dims(), vector.dims()), ([.., own], [other]) if own == other) {
        return Ok(());
    }
    let (own, other) = (x.shape(), vector.shape());
    Err(Error::new(
        ErrorCode::Normalized,
        format!(
            "{operation}: {name} {other} does not fit x {own}: expected a vector as long as the last axis of x"
        ),
    ))
}
