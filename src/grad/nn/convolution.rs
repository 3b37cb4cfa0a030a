//! Convolutional layers.

use super::{addend, uniform, with_bias};
use crate::array::{Array, Float};
use crate::error::{Error, ErrorKind, Result};
use crate::grad::{CastParameters, Parameters};
use crate::ops::{ConvOptions, conv2d};

/// A layer of [`Array::conv2d`] with a kernel and a bias.
#[derive(Clone, Debug, CastParameters, Parameters)]
#[parameters(crate = crate)]
pub struct Conv2d<T: Float = f32> {
    /// The kernel, of shape `[outputs, inputs / groups, height, width]`.
    pub weight: Array<T>,
    /// The bias, of shape `[outputs]`.
    pub bias: Option<Array<T>>,
    /// Strides, padding, dilation and groups.
    #[parameters(skip)]
    pub options: ConvOptions,
}

impl<T: Float> Conv2d<T> {
    /// Makes a layer with uniform random parameters from −1 / √n to 1 / √n. n is the number of
    /// input elements from which an output element is computed. Uses the calling thread's
    /// generator.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::ConvOptions;
    /// use cachescope::grad::nn::Conv2d;
    ///
    /// let options = ConvOptions { groups: 2, ..Default::default() };
    /// assert_eq!(Conv2d::<f32>::new((4, 8), [3, 3], options)?.weight.shape(), [8, 2, 3, 3]);
    /// assert!(Conv2d::<f32>::new((3, 8), [3, 3], options).is_err());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Array::rand`], and [`InvalidArgument`](ErrorKind::InvalidArgument) if the
    /// number of groups does not divide the numbers of inputs and outputs.
    #[track_caller]
    pub fn new(
        (inputs, outputs): (usize, usize),
        size: [usize; 2],
        options: ConvOptions,
    ) -> Result<Self> {
        check_groups("Conv2d", (inputs, outputs), options.groups)?;
        let each = inputs / options.groups;
        let count = each.saturating_mul(size[0]).saturating_mul(size[1]);
        Ok(Self {
            weight: uniform(count, [outputs, each, size[0], size[1]])?,
            bias: Some(uniform(count, outputs)?),
            options,
        })
    }

    /// Convolves images of shape `[count, inputs, height, width]`. In `f16` and `bf16`, the bias is
    /// added before the sums are rounded.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::nn::Conv2d;
    /// use cachescope::{Array, ConvOptions};
    ///
    /// let layer = Conv2d {
    ///     weight: Array::<f32>::ones([1, 1, 2, 2])?,
    ///     bias: Some(Array::full(1, 0.5)?),
    ///     options: ConvOptions::default(),
    /// };
    /// let convolved = layer.forward(&Array::ones([1, 1, 3, 3])?)?;
    /// assert_eq!((convolved.shape(), convolved.to_vec()?), ([1, 1, 2, 2].as_slice(), vec![4.5; 4]));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Array::conv2d`].
    #[track_caller]
    pub fn forward(&self, images: &Array<T>) -> Result<Array<T>> {
        let Some(bias) = &self.bias else {
            return images.conv2d(&self.weight, self.options);
        };
        let bias = bias.unsqueeze(1)?.unsqueeze(2)?;
        let (images, weight) = (images.erased(), self.weight.erased());
        let sums = conv2d(images, weight, addend(T::DTYPE, &bias), self.options)?;
        with_bias(T::DTYPE, sums, &bias)
    }
}

/// Returns an error for channels that do not divide into groups.
#[track_caller]
pub(super) fn check_groups(
    layer: &str,
    (inputs, outputs): (usize, usize),
    groups: usize,
) -> Result<()> {
    if groups > 0 && inputs.is_multiple_of(groups) && outputs.is_multiple_of(groups) {
        return Ok(());
    }
    let text = format!(
        "{layer}: {inputs} inputs and {outputs} outputs do not divide into {groups} groups"
    );
    Err(Error::new(ErrorKind::InvalidArgument, text))
}
