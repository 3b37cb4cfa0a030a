//! Normalization layers, along the last axis or over groups of channels.

use crate::array::{AnyArray, Array, Float, Shape};
use crate::error::{Error, ErrorKind, Result};
use crate::grad::{CastParameters, Parameters};
use crate::ops::{AnyLazy, group_norm, layer_norm, rms_norm, widened};

/// A layer of [`Array::layer_norm`] with a weight and a bias.
#[derive(Clone, Debug, CastParameters, Parameters)]
#[parameters(crate = crate)]
pub struct LayerNorm<T: Float = f32> {
    /// The weight, of shape `[width]`.
    pub weight: Array<T>,
    /// The bias, of shape `[width]`.
    pub bias: Array<T>,
    /// The number added to the variance (default: 10⁻⁵).
    #[parameters(skip)]
    pub epsilon: f64,
}

impl<T: Float> LayerNorm<T> {
    /// Makes a layer with a weight of ones and a bias of zeros.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::nn::LayerNorm;
    ///
    /// let layer = LayerNorm::<f32>::new(3)?;
    /// assert_eq!((layer.weight.to_vec()?, layer.bias.to_vec()?), (vec![1.0; 3], vec![0.0; 3]));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Array::ones`].
    #[track_caller]
    pub fn new(width: usize) -> Result<Self> {
        Ok(Self {
            weight: Array::ones(width)?,
            bias: Array::zeros(width)?,
            epsilon: 1e-5,
        })
    }

    /// Normalizes `x`, of shape `[.., width]`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::nn::LayerNorm;
    ///
    /// let x = Array::from_slice(&[1.0_f32, 3.0], [1, 2])?;
    /// let y = LayerNorm::new(2)?.forward(&x)?.to_vec()?;
    /// assert!((y[0] + 1.0).abs() < 1e-4 && (y[1] - 1.0).abs() < 1e-4);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Array::layer_norm`].
    #[track_caller]
    pub fn forward(&self, x: &Array<T>) -> Result<Array<T>> {
        let operands = [x, &self.weight, &self.bias].map(Array::erased);
        layer_norm("LayerNorm", operands, self.epsilon).map(Array::from_erased)
    }
}

/// A layer of [`Array::rms_norm`] with a weight.
#[derive(Clone, Debug, CastParameters, Parameters)]
#[parameters(crate = crate)]
pub struct RmsNorm<T: Float = f32> {
    /// The weight, of shape `[width]`.
    pub weight: Array<T>,
    /// The number added to the mean of the squares (default: 10⁻⁵).
    #[parameters(skip)]
    pub epsilon: f64,
}

impl<T: Float> RmsNorm<T> {
    /// Makes a layer with a weight of ones.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::nn::RmsNorm;
    ///
    /// assert_eq!(RmsNorm::<f32>::new(3)?.weight.to_vec()?, [1.0; 3]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Array::ones`].
    #[track_caller]
    pub fn new(width: usize) -> Result<Self> {
        Ok(Self {
            weight: Array::ones(width)?,
            epsilon: 1e-5,
        })
    }

    /// Normalizes `x`, of shape `[.., width]`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::nn::RmsNorm;
    ///
    /// let x = Array::full([1, 2], -5.0_f32)?;
    /// let y = RmsNorm::new(2)?.forward(&x)?.to_vec()?;
    /// assert!((y[0] + 1.0).abs() < 1e-4 && y[0] == y[1]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Array::rms_norm`].
    #[track_caller]
    pub fn forward(&self, x: &Array<T>) -> Result<Array<T>> {
        let operands = [x, &self.weight].map(Array::erased);
        rms_norm("RmsNorm", operands, self.epsilon).map(Array::from_erased)
    }
}

/// A normalization of groups of channels (Wu and He 2018). The result for an image does not depend
/// on the other images of the batch. With one group, `GroupNorm` is a layer norm of images. With
/// one group for each channel, it is an instance norm.
#[derive(Clone, Debug, CastParameters, Parameters)]
#[parameters(crate = crate)]
pub struct GroupNorm<T: Float = f32> {
    /// The weight, of shape `[channels]`.
    pub weight: Array<T>,
    /// The bias, of shape `[channels]`.
    pub bias: Array<T>,
    /// The number of groups, which divides the channels.
    #[parameters(skip)]
    pub groups: usize,
    /// The number added to the variance (default: 10⁻⁵).
    #[parameters(skip)]
    pub epsilon: f64,
}

impl<T: Float> GroupNorm<T> {
    /// Makes a layer with a weight of ones and a bias of zeros.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::nn::GroupNorm;
    ///
    /// assert_eq!(GroupNorm::<f32>::new(2, 6)?.weight.shape(), [6]);
    /// assert!(GroupNorm::<f32>::new(4, 6).is_err());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Array::ones`], and [`InvalidArgument`](ErrorKind::InvalidArgument) if the
    /// channels do not divide into the groups.
    #[track_caller]
    pub fn new(groups: usize, channels: usize) -> Result<Self> {
        check_groups(groups, channels)?;
        Ok(Self {
            weight: Array::ones(channels)?,
            bias: Array::zeros(channels)?,
            groups,
            epsilon: 1e-5,
        })
    }

    /// Normalizes each group of channels of each image of `x`, of shape `[count, channels, ..]`.
    /// `f16` and `bf16` are computed in `f32`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::nn::GroupNorm;
    ///
    /// let x = Array::from_slice(&[1.0_f64, 3.0, 10.0, 30.0], [1, 4])?;
    /// let y = GroupNorm::new(2, 4)?.forward(&x)?.to_vec()?;
    /// assert!((y[0] + 1.0).abs() < 1e-4 && (y[3] - 1.0).abs() < 1e-4);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](ErrorKind::ShapeMismatch) if `x` has fewer than two axes or another number
    /// of channels.
    #[track_caller]
    pub fn forward(&self, x: &Array<T>) -> Result<Array<T>> {
        let operands = [x, &self.weight, &self.bias].map(Array::erased);
        let [x, weight, bias] = operands;
        per_channel("GroupNorm", x, [weight, bias])?;
        check_groups(self.groups, weight.len())?;
        group_norm(operands, (self.groups, self.epsilon)).map(Array::from_erased)
    }
}

/// Returns the mean of `x` along `axes`, the difference of each element from the mean, and the
/// biased variance. `x` has the accumulation type, because the gradient of `x` is a sum of terms
/// that cancel. This gradient is rounded only once, by the gradient of the caller's conversion of
/// `x`.
#[track_caller]
pub(super) fn centred(x: &AnyArray, axes: &[isize]) -> Result<[AnyArray; 3]> {
    let mean = x.lazy().mean_keepdims(axes)?;
    let centred = (x.lazy() - mean.lazy()).eval()?;
    let variance = centred.lazy().square().mean_keepdims(axes)?;
    Ok([mean, centred, variance])
}

/// Returns the differences from the mean, times a scale and a weight, plus a bias.
#[track_caller]
pub(super) fn normalized(
    centred: AnyLazy,
    scale: AnyLazy,
    [weight, bias]: &[AnyArray; 2],
) -> Result<AnyArray> {
    let scale = scale * widened(weight);
    (centred * scale + widened(bias)).cast(weight.dtype).eval()
}

#[track_caller]
fn check_groups(groups: usize, channels: usize) -> Result<()> {
    if groups > 0 && channels.is_multiple_of(groups) {
        return Ok(());
    }
    let text = format!("GroupNorm: {channels} channels do not divide into {groups} groups");
    Err(Error::new(ErrorKind::InvalidArgument, text))
}

/// Returns arrays of one element per channel, in a shape that broadcasts with `x`. The second axis
/// of `x` is the channels.
///
/// # Errors
///
/// [`ShapeMismatch`](ErrorKind::ShapeMismatch) if `x` has another number of channels.
#[track_caller]
pub(super) fn per_channel(
    layer: &str,
    x: &AnyArray,
    arrays: [&AnyArray; 2],
) -> Result<[AnyArray; 2]> {
    let channels = x.dims().get(1).copied();
    for own in arrays {
        if own.layout.ndim() != 1 || Some(own.len()) != channels {
            let (x, own) = (x.shape(), own.shape());
            let text = format!(
                "{layer}: x has the shape {x}, expected [count, channels, ..] for a parameter of shape {own}"
            );
            return Err(Error::new(ErrorKind::ShapeMismatch, text));
        }
    }
    let ones = std::iter::repeat_n(&1, x.layout.ndim() - 2);
    let shape: Shape = std::iter::once(&arrays[0].len()).chain(ones).collect();
    let [first, second] = arrays;
    Ok([first.reshape(&shape)?, second.reshape(&shape)?])
}
