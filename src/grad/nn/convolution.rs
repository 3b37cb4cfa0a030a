//! Convolutions of images.

use super::uniform;
use crate::array::{Array, Float};
use crate::error::Result;
use crate::grad::Parameters;
use crate::ops::ConvOptions;

/// [`Array::conv2d`] with its kernel and bias.
#[derive(Clone, Debug, Parameters)]
#[parameters(crate = crate)]
pub struct Conv2d<T: Float = f32> {
    /// Of the shape `[outputs, inputs / groups, height, width]`.
    pub weight: Array<T>,
    /// Of the shape `[outputs]`.
    pub bias: Option<Array<T>>,
    /// Strides, padding, dilation and groups.
    #[parameters(skip)]
    pub options: ConvOptions,
}

impl<T: Float> Conv2d<T> {
    /// One of random values from −1 / √n to 1 / √n, where each output is of n elements, by the calling thread's generator.
    ///
    /// # Errors
    ///
    /// Those of [`Array::rand`].
    #[track_caller]
    pub fn new(
        (inputs, outputs): (usize, usize),
        size: [usize; 2],
        options: ConvOptions,
    ) -> Result<Self> {
        let each = inputs / options.groups.max(1);
        let bound = 1.0 / ((each * size[0] * size[1]) as f64).sqrt();
        Ok(Self {
            weight: uniform(bound, [outputs, each, size[0], size[1]])?,
            bias: Some(uniform(bound, outputs)?),
            options,
        })
    }

    /// Images of the shape `[count, inputs, height, width]`, convolved.
    ///
    /// # Errors
    ///
    /// Those of [`Array::conv2d`].
    #[track_caller]
    pub fn forward(&self, images: &Array<T>) -> Result<Array<T>> {
        let mut convolved = images.conv2d(&self.weight, self.options)?;
        if let Some(bias) = &self.bias {
            let bias = bias.unsqueeze(1)?.unsqueeze(2)?;
            convolved.update(|convolved| convolved + bias)?;
        }
        Ok(convolved)
    }
}
