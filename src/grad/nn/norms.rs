//! Normalizations of the last axis.

use crate::array::{AnyElement, Array, Float};
use crate::error::Result;
use crate::grad::Parameters;

/// [`Array::layer_norm`] with its weight and bias.
#[derive(Clone, Debug, Parameters)]
#[parameters(crate = crate)]
pub struct LayerNorm<T: Float = f32> {
    /// Of the shape `[width]`.
    pub weight: Array<T>,
    /// Of the shape `[width]`.
    pub bias: Array<T>,
    /// What is added to the variance: 10⁻⁵.
    #[parameters(skip)]
    pub epsilon: f64,
}

impl<T: Float> LayerNorm<T> {
    /// One of ones and zeros.
    ///
    /// # Errors
    ///
    /// Those of [`Array::ones`].
    #[track_caller]
    pub fn new(width: usize) -> Result<Self> {
        Ok(Self {
            weight: Array::ones(width)?,
            bias: Array::zeros(width)?,
            epsilon: 1e-5,
        })
    }

    /// `x` of the shape `[.., width]`, normalized.
    ///
    /// # Errors
    ///
    /// Those of [`Array::layer_norm`].
    #[track_caller]
    pub fn forward(&self, x: &Array<T>) -> Result<Array<T>> {
        let epsilon = <T as AnyElement>::from_f64(self.epsilon);
        x.layer_norm(&self.weight, &self.bias, epsilon)
    }
}

/// [`Array::rms_norm`] with its weight.
#[derive(Clone, Debug, Parameters)]
#[parameters(crate = crate)]
pub struct RmsNorm<T: Float = f32> {
    /// Of the shape `[width]`.
    pub weight: Array<T>,
    /// What is added to the mean of the squares: 10⁻⁵.
    #[parameters(skip)]
    pub epsilon: f64,
}

impl<T: Float> RmsNorm<T> {
    /// One of ones.
    ///
    /// # Errors
    ///
    /// Those of [`Array::ones`].
    #[track_caller]
    pub fn new(width: usize) -> Result<Self> {
        Ok(Self {
            weight: Array::ones(width)?,
            epsilon: 1e-5,
        })
    }

    /// `x` of the shape `[.., width]`, normalized.
    ///
    /// # Errors
    ///
    /// Those of [`Array::rms_norm`].
    #[track_caller]
    pub fn forward(&self, x: &Array<T>) -> Result<Array<T>> {
        let epsilon = <T as AnyElement>::from_f64(self.epsilon);
        x.rms_norm(&self.weight, epsilon)
    }
}
