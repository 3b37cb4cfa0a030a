//! Normalization layers, along the last axis.

use crate::array::{AnyElement, Array, Float};
use crate::error::Result;
use crate::grad::Parameters;

/// A layer of [`Array::layer_norm`] with a weight and a bias.
#[derive(Clone, Debug, Parameters)]
#[parameters(crate = crate)]
pub struct LayerNorm<T: Float = f32> {
    /// The weight, of shape `[width]`.
    pub weight: Array<T>,
    /// The bias, of shape `[width]`.
    pub bias: Array<T>,
    /// The number added to the variance: 10⁻⁵.
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
        let epsilon = <T as AnyElement>::from_f64(self.epsilon);
        x.layer_norm(&self.weight, &self.bias, epsilon)
    }
}

/// A layer of [`Array::rms_norm`] with a weight.
#[derive(Clone, Debug, Parameters)]
#[parameters(crate = crate)]
pub struct RmsNorm<T: Float = f32> {
    /// The weight, of shape `[width]`.
    pub weight: Array<T>,
    /// The number added to the mean of the squares: 10⁻⁵.
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
        let epsilon = <T as AnyElement>::from_f64(self.epsilon);
        x.rms_norm(&self.weight, epsilon)
    }
}
