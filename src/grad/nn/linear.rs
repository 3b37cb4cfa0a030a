//! Linear and embedding layers.

use super::{product_with_bias, uniform};
use crate::array::{Array, Float};
use crate::error::Result;
use crate::grad::{CastParameters, Parameters};

/// A linear layer: x Wᵀ + b along the last axis.
#[derive(Clone, Debug, CastParameters, Parameters)]
#[parameters(crate = crate)]
pub struct Linear<T: Float = f32> {
    /// The weight W, of shape `[outputs, inputs]`.
    pub weight: Array<T>,
    /// The bias b, of shape `[outputs]`.
    pub bias: Option<Array<T>>,
}

impl<T: Float> Linear<T> {
    /// Makes a layer with uniform random parameters from −1 / √inputs to 1 / √inputs, by the
    /// calling thread's generator.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::nn::Linear;
    ///
    /// let layer = Linear::<f32>::new(4, 2)?;
    /// assert_eq!(layer.weight.shape(), [2, 4]);
    /// assert!(layer.weight.abs().max()?.item()? <= 0.5);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Array::rand`].
    #[track_caller]
    pub fn new(inputs: usize, outputs: usize) -> Result<Self> {
        Ok(Self {
            weight: uniform(inputs, [outputs, inputs])?,
            bias: Some(uniform(inputs, outputs)?),
        })
    }

    /// Makes a layer without a bias. The weight is initialised like in [`new`](Self::new).
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::nn::Linear;
    ///
    /// let layer = Linear::<f32>::without_bias(4, 2)?;
    /// assert!(layer.bias.is_none());
    /// assert_eq!(layer.forward(&Array::zeros([1, 4])?)?.to_vec()?, [0.0, 0.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Array::rand`].
    #[track_caller]
    pub fn without_bias(inputs: usize, outputs: usize) -> Result<Self> {
        Ok(Self {
            weight: uniform(inputs, [outputs, inputs])?,
            bias: None,
        })
    }

    /// Applies the layer to `x`, of shape `[.., inputs]`. The result has the shape `[.., outputs]`.
    /// In `f16` and `bf16`, the bias is added before the product is rounded.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::nn::Linear;
    ///
    /// let weight = Array::from_slice(&[1.0_f32, 2.0, 3.0, 4.0], [2, 2])?;
    /// let layer = Linear { weight, bias: Some(Array::ones(2)?) };
    /// let x = Array::from_slice(&[1.0, 10.0], [1, 2])?;
    /// assert_eq!(layer.forward(&x)?.to_vec()?, [22.0, 44.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Array::matmul`].
    #[track_caller]
    pub fn forward(&self, x: &Array<T>) -> Result<Array<T>> {
        let weight = self.weight.transpose()?;
        let Some(bias) = &self.bias else {
            return x.matmul(&weight);
        };
        product_with_bias(x.erased(), weight.erased(), bias)
    }
}

/// An embedding layer: a vector for each of `count` items, such as words or positions.
#[derive(Clone, Debug, CastParameters, Parameters)]
#[parameters(crate = crate)]
pub struct Embedding<T: Float = f32> {
    /// The vectors, of shape `[count, width]`.
    pub weight: Array<T>,
}

impl<T: Float> Embedding<T> {
    /// Makes a layer with normally distributed vectors, by the calling thread's generator.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::nn::Embedding;
    ///
    /// assert_eq!(Embedding::<f32>::new(10, 4)?.weight.shape(), [10, 4]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Array::randn`].
    #[track_caller]
    pub fn new(count: usize, width: usize) -> Result<Self> {
        Ok(Self {
            weight: Array::randn([count, width])?,
        })
    }

    /// Returns the vectors of `indices`. The result has the shape of `indices`, and an additional
    /// last axis of length `width`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::nn::Embedding;
    ///
    /// let layer = Embedding { weight: Array::<f32>::eye(3)? };
    /// let vectors = layer.forward(&Array::from_slice(&[2, 0], 2)?)?;
    /// assert_eq!(vectors.to_vec()?, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Array::take`].
    #[track_caller]
    pub fn forward(&self, indices: &Array<i64>) -> Result<Array<T>> {
        let vectors = self.weight.take(indices, 0);
        vectors.map_err(|error| error.of("embedding"))
    }
}
