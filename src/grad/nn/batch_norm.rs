//! Normalization of channels over a batch, with running statistics.

use std::any::Any;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::norms::{centred, normalized, per_channel};
use crate::array::{AnyElement, Array, DType, Float};
use crate::context::scope::enter_uncached;
use crate::error::{Error, ErrorKind, Result};
use crate::grad::{CastParameters, Parameters};
use crate::ops::derivatives::{AnyArray, constant, runs_again_later};
use crate::ops::{check_epsilon, widened};

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
/// parameters updates the layer's own statistics. A layer that was
/// [converted](CastParameters::cast) updates and reads the statistics of the layer that it was
/// converted from, and has rounded copies of them.
///
/// They are allocated outside of every cache.
#[derive(Clone, Debug)]
pub struct RunningStatistics<T: Float = f32> {
    /// The means and the variances, each of shape `[channels]`.
    arrays: Arc<Mutex<[Array<T>; 2]>>,
    /// The statistics that these were converted from.
    source: Option<Arc<dyn Statistics>>,
}

/// Running statistics of any type.
trait Statistics: Debug + Send + Sync {
    /// Mixes the mean and the biased variance of a batch in, with a share for each.
    fn mix(&self, batch: &[AnyArray; 2], shares: [f64; 2]) -> Result<()>;

    /// Returns the means and the variances, before any conversion.
    fn exact(&self) -> [AnyArray; 2];
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
                source: None,
            },
        })
    }

    /// Normalizes each channel of `x`, of shape `[count, channels, ..]`, by its mean and variance
    /// over the batch, and updates the running statistics. They get the unbiased variance. Half
    /// precision is computed in `f32`.
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
    /// two elements, of which there is no variance, or if `epsilon` is negative or not finite.
    #[track_caller]
    pub fn forward(&self, x: &Array<T>) -> Result<Array<T>> {
        check_epsilon("BatchNorm", self.epsilon)?;
        match const { T::DTYPE as u8 == DType::F64 as u8 } {
            true => self.forward_in::<f64>(x),
            false => self.forward_in::<f32>(x),
        }
    }

    /// Applies the layer, computed in `A`.
    #[track_caller]
    fn forward_in<A: Float>(&self, x: &Array<T>) -> Result<Array<T>> {
        let parameters = per_channel("BatchNorm", x, [&self.weight, &self.bias])?;
        let count = x.len() / self.weight.len().max(1);
        if count < 2 {
            let shape = x.layout().shape();
            let text = format!(
                "BatchNorm: a channel of x, of shape {shape}, has fewer than 2 elements: its variance is not known"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let axes: Vec<isize> = (0..x.ndim() as isize).filter(|&axis| axis != 1).collect();
        let (mean, centred, variance) = centred::<T, A>(x, &axes)?;
        if !runs_again_later() {
            let unbiased = count as f64 / (count - 1) as f64;
            let shares = [self.momentum, self.momentum * unbiased];
            let batch = [&mean, &variance].map(|own| AnyArray::of(&constant(own)));
            self.statistics.mix(&batch, shares)?;
        }
        let variance = variance.lazy().boxed();
        normalized(centred, variance, (&parameters, self.epsilon))
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
    /// [`ShapeMismatch`](ErrorKind::ShapeMismatch), and
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for `epsilon`, as for
    /// [`forward`](Self::forward).
    #[track_caller]
    pub fn infer(&self, x: &Array<T>) -> Result<Array<T>> {
        check_epsilon("BatchNorm", self.epsilon)?;
        match const { T::DTYPE as u8 == DType::F64 as u8 } {
            true => self.infer_in::<f64>(x),
            false => self.infer_in::<f32>(x),
        }
    }

    /// Applies the running statistics, computed in `A`.
    #[track_caller]
    fn infer_in<A: Float>(&self, x: &Array<T>) -> Result<Array<T>> {
        let [mean, variance] = self.statistics.exact();
        let mean = mean.converted(A::DTYPE)?.into_array::<A>();
        let variance = variance.converted(A::DTYPE)?.into_array::<A>();
        let parameters = per_channel("BatchNorm", x, [&self.weight, &self.bias])?;
        let [mean, variance] = per_channel("BatchNorm", x, [&mean, &variance])?;
        let centred = (widened::<T, A>(x) - mean).boxed();
        let variance = variance.lazy().boxed();
        normalized(centred, variance, (&parameters, self.epsilon))
    }
}

impl<T: Float> CastParameters for BatchNorm<T> {
    type Cast<U: Float> = BatchNorm<U>;

    #[track_caller]
    fn cast<U: Float>(&self) -> Result<BatchNorm<U>> {
        Ok(BatchNorm {
            weight: CastParameters::cast(&self.weight)?,
            bias: CastParameters::cast(&self.bias)?,
            epsilon: self.epsilon,
            momentum: self.momentum,
            statistics: self.statistics.converted()?,
        })
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
    /// [`ShapeMismatch`](ErrorKind::ShapeMismatch) if one has another number of channels, and
    /// [`Unsupported`](ErrorKind::Unsupported) if the layer was converted from another one, whose
    /// statistics must be set.
    #[track_caller]
    pub fn set(&self, (mean, variance): (Array<T>, Array<T>)) -> Result<()> {
        if self.source.is_some() {
            let text = "RunningStatistics::set: the layer was converted from another one: set the statistics of that layer";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
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

    /// Returns the statistics for a layer of another type.
    #[track_caller]
    fn converted<U: Float>(&self) -> Result<RunningStatistics<U>> {
        if let Some(own) = (self as &dyn Any).downcast_ref::<RunningStatistics<U>>() {
            return Ok(own.clone());
        }
        let _outside = enter_uncached();
        let [mean, variance] = &*self.lock();
        let arrays = [CastParameters::cast(mean)?, CastParameters::cast(variance)?];
        Ok(RunningStatistics {
            arrays: Arc::new(Mutex::new(arrays)),
            source: Some(Arc::new(self.clone())),
        })
    }

    fn lock(&self) -> MutexGuard<'_, [Array<T>; 2]> {
        // A panic leaves two valid arrays.
        self.arrays.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Float> Statistics for RunningStatistics<T> {
    #[track_caller]
    fn mix(&self, batch: &[AnyArray; 2], shares: [f64; 2]) -> Result<()> {
        let of = |value: f64| <T as AnyElement>::from_f64(value);
        let new = match &self.source {
            Some(source) => {
                source.mix(batch, shares)?;
                source.exact()
            }
            None => batch.each_ref().map(AnyArray::share),
        };
        let _outside = enter_uncached();
        let mut own = self.lock();
        for ((own, new), share) in own.iter_mut().zip(new).zip(shares) {
            let new = new.converted(T::DTYPE)?.into_array::<T>();
            let new = new.reshape(own.len())?;
            // In place, so that a graph that captures the step writes to the statistics.
            match self.source {
                Some(_) => own.assign(&new)?,
                None => own.update(|own| own * of(1.0 - shares[0]) + new * of(share))?,
            }
        }
        Ok(())
    }

    fn exact(&self) -> [AnyArray; 2] {
        match &self.source {
            Some(source) => source.exact(),
            None => self.lock().each_ref().map(AnyArray::of),
        }
    }
}
