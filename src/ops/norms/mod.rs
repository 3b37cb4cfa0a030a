//! The normalizations of neural networks, along the last axis or over groups of channels.

mod groups;

pub(crate) use groups::group_norm;

use super::derivatives::{AnyArray, RuledOperation, is_tracked, work_of};
use super::dispatch::same_device;
use super::expression::boxed::BoxedLazy;
use super::precompiled::precompiled;
use crate::array::{Array, DType, Float};
use crate::error::{Error, ErrorCode, ErrorKind, Result};

impl<T: Float> Array<T> {
    /// Returns (x − mean) / √(var + epsilon) · weight + bias along the last axis: PyTorch's
    /// `layer_norm`. The variance divides by the length of the axis; `weight` and `bias` are
    /// vectors of that length. `f16` and `bf16` are computed in `f32`.
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
    /// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) if `weight` or `bias` is no vector of the
    /// length of the last axis, or the array has rank 0,
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `epsilon` is negative or not
    /// finite,
    /// [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch) and
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn layer_norm(&self, weight: &Self, bias: &Self, epsilon: T) -> Result<Self> {
        layer_norm("layer_norm", self, [weight, bias], epsilon.to_f64())
    }

    /// Returns x / √(mean of x² + epsilon) · weight along the last axis: PyTorch's `rms_norm`.
    /// `weight` is a vector as long as the axis. `f16` and `bf16` are computed in `f32`.
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
    /// Those of [`layer_norm`](Self::layer_norm).
    #[track_caller]
    pub fn rms_norm(&self, weight: &Self, epsilon: T) -> Result<Self> {
        rms_norm("rms_norm", self, weight, epsilon.to_f64())
    }
}

/// Like [`Array::layer_norm`], of the layer or function with that name. `epsilon` is not rounded to
/// `T`.
#[track_caller]
pub(crate) fn layer_norm<T: Float>(
    name: &'static str,
    x: &Array<T>,
    [weight, bias]: [&Array<T>; 2],
    epsilon: f64,
) -> Result<Array<T>> {
    check_epsilon(name, epsilon)?;
    precompiled!(layer_normalized::<T>([x], [weight], [bias]; epsilon: f64))
}

/// Like [`Array::rms_norm`], of the layer or function with that name. `epsilon` is not rounded to
/// `T`.
#[track_caller]
pub(crate) fn rms_norm<T: Float>(
    name: &'static str,
    x: &Array<T>,
    weight: &Array<T>,
    epsilon: f64,
) -> Result<Array<T>> {
    check_epsilon(name, epsilon)?;
    precompiled!(rms_normalized::<T>([x], [weight]; epsilon: f64))
}

/// Checks the `epsilon` of a normalization.
#[track_caller]
pub(crate) fn check_epsilon(name: &str, epsilon: f64) -> Result<()> {
    if epsilon >= 0.0 && epsilon.is_finite() {
        return Ok(());
    }
    let text = format!("{name}: epsilon is {epsilon}, expected a finite number of at least 0");
    Err(Error::new(ErrorKind::InvalidArgument, text))
}

/// Returns `epsilon` in the type that a normalization is computed in. It stays above 0 if it was.
pub(crate) fn epsilon_in<A: Float>(epsilon: f64) -> A {
    let least = match A::DTYPE {
        DType::F64 => f64::MIN_POSITIVE,
        _ => f32::MIN_POSITIVE.into(),
    };
    match epsilon > 0.0 {
        true => A::from_f64(epsilon.max(least)),
        false => A::zero(),
    }
}

#[track_caller]
fn layer_normalized<T: Float>(
    x: &Array<T>,
    weight: &Array<T>,
    bias: &Array<T>,
    epsilon: f64,
) -> Result<Array<T>> {
    check("layer_norm", x, "weight", weight)?;
    check("layer_norm", x, "bias", bias)?;
    normalize::<T, T::Computed, _>("layer_norm", [x, weight, bias], epsilon)
}

#[track_caller]
fn rms_normalized<T: Float>(x: &Array<T>, weight: &Array<T>, epsilon: f64) -> Result<Array<T>> {
    check("rms_norm", x, "weight", weight)?;
    normalize::<T, T::Computed, _>("rms_norm", [x, weight], epsilon)
}

/// Returns the norm of `[x, weight, bias]`, or of `[x, weight]` without a mean, computed in `A`.
#[track_caller]
fn normalize<T: Float, A: Float, const N: usize>(
    operation: &'static str,
    operands: [&Array<T>; N],
    epsilon: f64,
) -> Result<Array<T>> {
    let [x, weight] = [operands[0], operands[1]];
    let flops = work_of(&[FLOPS_AN_ELEMENT, x.len()]);
    let step = RuledOperation::begin(operation, &operands)?
        .computed_from(flops, move |operands: [&Array<T>; N]| {
            Ok(normalized::<T, A>(&operands, epsilon)?.0)
        });
    let (result, (mean, scale)) = normalized::<T, A>(&operands, epsilon)?;
    Ok(step.finish(result, |saved| {
        let x = saved.save_releasable(x);
        let rows = NormalizedRows {
            weight: saved.save(weight),
            mean: mean.map(|mean| saved.save_recomputed(&mean)),
            scale: saved.save_recomputed(&scale),
            epsilon,
        };
        move |gradient: AnyArray| rows.back(&x.fetch()?.into_array(), &gradient.into_array())
    }))
}

/// The mean of each row, where it is subtracted, and the factor of each row.
type RowMoments<A> = (Option<Array<A>>, Array<A>);

/// Returns the norm of the operands of [`normalize`], which is centred if there is a bias.
#[track_caller]
fn normalized<T: Float, A: Float>(
    operands: &[&Array<T>],
    epsilon: f64,
) -> Result<(Array<T>, RowMoments<A>)> {
    let [wide, weight] = [0, 1].map(|at| widened::<T, A>(operands[at]));
    let Some(bias) = operands.get(2) else {
        let scale = root_mean_square_scale(&wide, epsilon)?;
        let normal = wide * &scale * weight;
        return Ok((narrowed(&normal.boxed())?, (None, scale)));
    };
    let (mean, scale) = centre_and_scale(&wide, epsilon)?;
    let normal = (wide - &mean) * &scale;
    let normal = normal.mul_add(weight, widened::<T, A>(bias));
    Ok((narrowed(&normal.boxed())?, (Some(mean), scale)))
}

/// The floating-point operations of a norm for an element, over several passes.
const FLOPS_AN_ELEMENT: usize = 64;

/// Returns the mean of each row, and the factor that `layer_norm` multiplies the row with.
#[track_caller]
fn centre_and_scale<A: Float>(wide: &BoxedLazy<A>, epsilon: f64) -> Result<(Array<A>, Array<A>)> {
    let variance = wide.var_keepdims(-1)?;
    let scale = (variance + epsilon_in::<A>(epsilon))
        .rsqrt()
        .eval_unfused()?;
    Ok((wide.mean_keepdims(-1)?, scale))
}

/// Returns the factor that `rms_norm` multiplies each row with.
#[track_caller]
fn root_mean_square_scale<A: Float>(wide: &BoxedLazy<A>, epsilon: f64) -> Result<Array<A>> {
    let squares = wide.square().mean_keepdims(-1)?;
    (squares + epsilon_in::<A>(epsilon)).rsqrt().eval_unfused()
}

/// The values that the gradients of a normalization are computed from.
#[derive(Clone)]
struct NormalizedRows<T: Float, A: Float> {
    weight: Array<T>,
    /// The mean subtracted from each row; `None` for `rms_norm`.
    mean: Option<Array<A>>,
    /// The factor of each row.
    scale: Array<A>,
    epsilon: f64,
}

impl<T: Float, A: Float> NormalizedRows<T, A> {
    /// Returns the means, for `layer_norm`, and the scales: the saved ones, or, if a tape tracks
    /// `x`, computed again.
    #[track_caller]
    fn statistics(&self, x: &Array<T>) -> Result<RowMoments<A>> {
        if !is_tracked(x)? {
            return Ok((self.mean.clone(), self.scale.clone()));
        }
        let wide = widened::<T, A>(x);
        if self.mean.is_none() {
            return Ok((None, root_mean_square_scale(&wide, self.epsilon)?));
        }
        let (mean, scale) = centre_and_scale(&wide, self.epsilon)?;
        Ok((Some(mean), scale))
    }

    /// Returns the gradients of `x`, the weight and, if there is one, the bias. With n the
    /// normalized rows, and a the gradient times the weight, the gradient of `x` is scale (a −
    /// mean(a) − n mean(a n)). For `rms_norm`, it is scale (a − n mean(a n)).
    #[track_caller]
    fn back(&self, x: &Array<T>, gradient: &Array<T>) -> Result<Vec<AnyArray>> {
        let width = self.weight.len();
        let height = self.scale.len();
        let rows = |array: &Array<T>| array.reshape([height, width]);
        let columns = |array: &Array<A>| array.reshape([height, 1]);
        let (mean, scale) = self.statistics(x)?;
        let own = x.layout().shape();
        let (x, scale) = (widened::<T, A>(&rows(x)?), columns(&scale)?);
        let gradient = widened::<T, A>(&rows(gradient)?);
        let mean = mean.as_ref().map(columns).transpose()?;
        let centred = match &mean {
            Some(mean) => (x - mean).boxed(),
            None => x,
        };
        let normal = (centred * &scale).boxed();
        let scaled = (&gradient * widened::<T, A>(&self.weight)).boxed();
        let along = -((&scaled * &normal).mean_keepdims(-1)? * &scale);
        let along = along.eval_unfused()?;
        let rest = match &mean {
            Some(_) => {
                let shift = -(scaled.mean_keepdims(-1)? * &scale);
                normal.clone().mul_add(along, shift.eval_unfused()?).boxed()
            }
            None => (&normal * along).boxed(),
        };
        let of_x = narrowed::<T, A>(&scaled.mul_add(scale, rest).boxed())?;
        let of_weight = (&gradient * normal).sum_axis(0)?.downcast::<A>();
        let mut gradients = vec![of_x.reshape(*own)?, narrowed(&of_weight.lazy().boxed())?];
        if mean.is_some() {
            let of_bias = gradient.sum_axis(0)?.downcast::<A>();
            gradients.push(narrowed(&of_bias.lazy().boxed())?);
        }
        Ok(gradients.iter().map(AnyArray::of).collect())
    }
}

/// Returns the elements in the type that they are computed in.
pub(crate) fn widened<T: Float, A: Float>(x: &Array<T>) -> BoxedLazy<A> {
    if T::DTYPE == A::DTYPE {
        return x.downcast_ref::<A>().lazy().boxed();
    }
    x.cast::<A>().boxed()
}

/// Evaluates values that were computed in `A`, rounded once.
#[track_caller]
pub(crate) fn narrowed<T: Float, A: Float>(normal: &BoxedLazy<A>) -> Result<Array<T>> {
    if T::DTYPE == A::DTYPE {
        return Ok(normal.eval_unfused()?.downcast());
    }
    normal.cast::<T>().eval_unfused()
}

/// Checks that `vector` is as long as the last axis of `x`, and that both are on one device.
#[track_caller]
fn check<T: Float>(operation: &str, x: &Array<T>, name: &str, vector: &Array<T>) -> Result<()> {
    same_device(operation, ("x", x), (name, vector))?;
    if matches!((x.shape(), vector.shape()), ([.., own], [other]) if own == other) {
        return Ok(());
    }
    let (own, other) = (x.layout().shape(), vector.layout().shape());
    Err(Error::new(
        ErrorCode::Normalized,
        format!(
            "{operation}: {name} {other} does not fit x {own}: expected a vector as long as the last axis of x"
        ),
    ))
}
