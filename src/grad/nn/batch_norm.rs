//! Normalization of channels over a batch, with running statistics.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::norms::per_channel;
use crate::array::{AnyElement, Array, Float};
use crate::context::scope::enter_uncached;
use crate::error::{Error, ErrorKind, Result};
use crate::grad::Parameters;
use crate::ops::derivatives::{constant, runs_again_later};

/// A batch normalization of channels, the second axis (Ioffe and Szegedy 2015): PyTorch's
/// `BatchNorm1d`, `BatchNorm2d` and `BatchNorm3d`.
///
/// Call [`forward`](Self::forward) in training and [`infer`](Self::infer) in inference. The running
/// statistics are no parameters: they have no gradient, and no optimizer moves them. Files do not
/// contain them either: save [`RunningStatistics::arrays`] beside the model.
#[derive(Clone, Debug, Parameters)]
#[parameters(crate = crate)]
pub struct BatchNorm<T: Float = f32> {
    /// The weight, of shape `[channels]`.
    pub weight: Array<T>,
    /// The bias, of shape `[channels]`.
    pub bias: Array<T>,
    /// The number added to the variance: 10⁻⁵.
    #[parameters(skip)]
    pub epsilon: f64,
    /// The share of each batch in the running statistics: 0.1.
    #[parameters(skip)]
    pub momentum: f64,
    /// The running means and variances, which clones of the layer share.
    #[parameters(skip)]
    pub statistics: RunningStatistics<T>,
}

/// Running means and variances of channels. Clones share them, so that a forward pass with tracked
/// parameters updates the layer's own statistics.
///
/// They are allocated outside of every cache.
#[derive(Clone, Debug)]
pub struct RunningStatistics<T: Float = f32> {
    /// The means and the variances, each of shape `[channels]`.
    arrays: Arc<Mutex<[Array<T>; 2]>>,
}

impl<T: Float> BatchNorm<T> {
    /// Makes a layer with a weight of ones, a bias of zeros, running means of 0 and running
    /// variances of 1.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::nn::BatchNorm;
    ///
    /// let layer = BatchNorm::<f32>::new(3)?;
    /// let (mean, variance) = layer.statistics.arrays();
    /// assert_eq!((mean.to_vec()?, variance.to_vec()?), (vec![0.0; 3], vec![1.0; 3]));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Array::ones`].
    #[track_caller]
    pub fn new(channels: usize) -> Result<Self> {
        let (weight, bias) = (Array::ones(channels)?, Array::zeros(channels)?);
        let _outside = enter_uncached();
        let arrays = [Array::zeros(channels)?, Array::ones(channels)?];
        Ok(Self {
            weight,
            bias,
            epsilon: 1e-5,
            momentum: 0.1,
            statistics: RunningStatistics {
                arrays: Arc::new(Mutex::new(arrays)),
            },
        })
    }

    /// Normalizes each channel of `x`, of shape `[count, channels, ..]`, by its mean and variance
    /// over the batch, and updates the running statistics. They get the unbiased variance.
    ///
    /// In a [`checkpoint`](crate::grad::checkpoint) the statistics are updated once, when the
    /// backward pass calls its function again.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::nn::BatchNorm;
    ///
    /// let layer = BatchNorm::<f64>::new(1)?;
    /// let y = layer.forward(&Array::from_slice(&[1.0, 3.0], [2, 1])?)?.to_vec()?;
    /// assert!((y[0] + 1.0).abs() < 1e-4 && (y[1] - 1.0).abs() < 1e-4);
    /// assert!((layer.statistics.arrays().0.item()? - 0.2).abs() < 1e-12);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](ErrorKind::ShapeMismatch) if `x` has fewer than two axes or another number
    /// of channels, and [`InvalidArgument`](ErrorKind::InvalidArgument) if a channel has fewer than
    /// two elements, of which there is no variance.
    #[track_caller]
    pub fn forward(&self, x: &Array<T>) -> Result<Array<T>> {
        let [weight, bias] = per_channel("BatchNorm", x, [&self.weight, &self.bias])?;
        let count = x.len() / self.weight.len().max(1);
        if count < 2 {
            return Err(too_few(x));
        }
        let axes: Vec<isize> = (0..x.ndim() as isize).filter(|&axis| axis != 1).collect();
        let mean = x.mean_keepdims(&axes[..])?;
        let centred = (x - &mean).eval()?;
        let variance = centred.square().mean_keepdims(&axes[..])?;
        if !runs_again_later() {
            let unbiased = count as f64 / (count - 1) as f64;
            self.statistics
                .mix([&mean, &variance], unbiased, self.momentum)?;
        }
        let epsilon = <T as AnyElement>::from_f64(self.epsilon);
        (centred * ((variance + epsilon).rsqrt() * weight) + bias).eval()
    }

    /// Normalizes each channel of `x` by the running statistics, which stay as they are.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::nn::BatchNorm;
    ///
    /// let layer = BatchNorm::<f64>::new(1)?;
    /// let y = layer.infer(&Array::from_slice(&[1.0, 3.0], [2, 1])?)?;
    /// assert!((y.to_vec()?[1] - 3.0).abs() < 1e-4); // a mean of 0, a variance of 1
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](ErrorKind::ShapeMismatch), as for [`forward`](Self::forward).
    #[track_caller]
    pub fn infer(&self, x: &Array<T>) -> Result<Array<T>> {
        let (mean, variance) = self.statistics.arrays();
        let [weight, bias] = per_channel("BatchNorm", x, [&self.weight, &self.bias])?;
        let [mean, variance] = per_channel("BatchNorm", x, [&mean, &variance])?;
        let epsilon = <T as AnyElement>::from_f64(self.epsilon);
        ((x - mean) * ((variance + epsilon).rsqrt() * weight) + bias).eval()
    }
}

impl<T: Float> RunningStatistics<T> {
    /// Returns the means and the variances, each of shape `[channels]`. The handles share memory
    /// with the statistics until the next update.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::nn::BatchNorm;
    ///
    /// let (trained, other) = (BatchNorm::<f32>::new(3)?, BatchNorm::new(3)?);
    /// // Also what a file of `arrays()` is restored by.
    /// other.statistics.set(trained.statistics.arrays())?;
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn arrays(&self) -> (Array<T>, Array<T>) {
        let [mean, variance] = &*self.lock();
        (mean.clone(), variance.clone())
    }

    /// Sets the means and the variances, for all layers that share the statistics.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::nn::BatchNorm;
    ///
    /// let layer = BatchNorm::<f32>::new(1)?;
    /// layer.statistics.set((Array::full(1, 5.0)?, Array::full(1, 4.0)?))?;
    /// let y = layer.infer(&Array::full([1, 1], 7.0)?)?;
    /// assert!((y.item()? - 1.0).abs() < 1e-5);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](ErrorKind::ShapeMismatch) if one has another number of channels.
    #[track_caller]
    pub fn set(&self, (mean, variance): (Array<T>, Array<T>)) -> Result<()> {
        let mut own = self.lock();
        for (own, new) in own.iter().zip([&mean, &variance]) {
            if own.shape() != new.shape() {
                let [own, new] = [own, new].map(|array| *array.layout().shape());
                let text = format!("RunningStatistics::set: the shape is {new}, expected {own}");
                return Err(Error::new(ErrorKind::ShapeMismatch, text));
            }
        }
        *own = [constant(&mean), constant(&variance)];
        Ok(())
    }

    /// Mixes the mean and the biased variance of a batch in, with the share `momentum`.
    #[track_caller]
    fn mix(&self, batch: [&Array<T>; 2], unbiased: f64, momentum: f64) -> Result<()> {
        let of = |value: f64| <T as AnyElement>::from_f64(value);
        let kept = of(1.0 - momentum);
        let shares = [momentum, momentum * unbiased].map(of);
        let [mean, variance] = batch.map(constant);
        let _outside = enter_uncached();
        let mut own = self.lock();
        for (own, (batch, share)) in own.iter_mut().zip([mean, variance].into_iter().zip(shares)) {
            let batch = batch.reshape(own.len())?;
            // In place, so that a graph that captures the step writes to the statistics.
            own.update(|own| own * kept + batch * share)?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, [Array<T>; 2]> {
        // A panic leaves two valid arrays.
        self.arrays.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cold]
#[track_caller]
fn too_few<T: Float>(x: &Array<T>) -> Error {
    let shape = x.layout().shape();
    let text = format!(
        "BatchNorm: a channel of x, of shape {shape}, has fewer than 2 elements: its variance is not known"
    );
    Error::new(ErrorKind::InvalidArgument, text)
}
