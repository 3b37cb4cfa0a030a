//! Products with a matrix, and rows of one.

use super::uniform;
use crate::array::{Array, Float};
use crate::error::Result;
use crate::grad::Parameters;

/// x Wᵀ + b along the last axis.
#[derive(Clone, Debug, Parameters)]
#[parameters(crate = crate)]
pub struct Linear<T: Float = f32> {
    /// Of the shape `[outputs, inputs]`.
    pub weight: Array<T>,
    /// Of the shape `[outputs]`.
    pub bias: Option<Array<T>>,
}

impl<T: Float> Linear<T> {
    /// One of random values from −1 / √inputs to 1 / √inputs, by the calling thread's generator.
    ///
    /// # Errors
    ///
    /// Those of [`Array::rand`].
    #[track_caller]
    pub fn new(inputs: usize, outputs: usize) -> Result<Self> {
        Ok(Self {
            weight: uniform(inputs, [outputs, inputs])?,
            bias: Some(uniform(inputs, outputs)?),
        })
    }

    /// The same without a bias.
    ///
    /// # Errors
    ///
    /// Those of [`Array::rand`].
    #[track_caller]
    pub fn without_bias(inputs: usize, outputs: usize) -> Result<Self> {
        Ok(Self {
            weight: uniform(inputs, [outputs, inputs])?,
            bias: None,
        })
    }

    /// `x` of the shape `[.., inputs]` as `[.., outputs]`.
    ///
    /// # Errors
    ///
    /// Those of [`Array::matmul`].
    #[track_caller]
    pub fn forward(&self, x: &Array<T>) -> Result<Array<T>> {
        let mut product = x.matmul(&self.weight.transpose()?)?;
        if let Some(bias) = &self.bias {
            product.update(|product| product + bias)?;
        }
        Ok(product)
    }
}

/// A vector for each of `count` things: words, places.
#[derive(Clone, Debug, Parameters)]
#[parameters(crate = crate)]
pub struct Embedding<T: Float = f32> {
    /// Of the shape `[count, width]`.
    pub weight: Array<T>,
}

impl<T: Float> Embedding<T> {
    /// One of normal numbers, by the calling thread's generator.
    ///
    /// # Errors
    ///
    /// Those of [`Array::randn`].
    #[track_caller]
    pub fn new(count: usize, width: usize) -> Result<Self> {
        Ok(Self {
            weight: Array::randn([count, width])?,
        })
    }

    /// The vectors of `things`, of the shape of these and then `[width]`.
    ///
    /// # Errors
    ///
    /// Those of [`Array::take`].
    #[track_caller]
    pub fn forward(&self, things: &Array<i64>) -> Result<Array<T>> {
        let vectors = self.weight.take(things, 0);
        vectors.map_err(|error| error.of("embedding"))
    }
}
