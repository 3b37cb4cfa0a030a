//! Convolutions of images.

use super::uniform;
use crate::array::{Array, Float};
use crate::error::{Error, ErrorKind, Result};
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
    /// One of random values from −1 / √n to 1 / √n, where each output is of n elements, by the
    /// calling thread's generator.
    ///
    /// # Errors
    ///
    /// Those of [`Array::rand`], and [`InvalidArgument`](ErrorKind::InvalidArgument) where inputs
    /// or outputs do not divide into the groups.
    #[track_caller]
    pub fn new(
        (inputs, outputs): (usize, usize),
        size: [usize; 2],
        options: ConvOptions,
    ) -> Result<Self> {
        let groups = options.groups;
        if groups == 0 || !inputs.is_multiple_of(groups) || !outputs.is_multiple_of(groups) {
            let text = format!("Conv2d: {inputs} inputs and {outputs} outputs in {groups} groups");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let each = inputs / groups;
        let count = each.saturating_mul(size[0]).saturating_mul(size[1]);
        Ok(Self {
            weight: uniform(count, [outputs, each, size[0], size[1]])?,
            bias: Some(uniform(count, outputs)?),
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
