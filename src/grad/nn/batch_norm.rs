//! Normalization of channels over a batch, with running statistics.

use super::norms::{centred, normalized, per_channel};
use super::statistics::RunningStatistics;
use crate::array::{Array, Float};
use crate::context::scope::enter_uncached;
use crate::error::{Error, ErrorKind, Result};
use crate::grad::{CastParameters, MapArrays, MapBuffers, Parameters, ZipArrays};
use crate::ops::derivatives::runs_again_later;
use crate::ops::{check_epsilon, scale_of, scale_of_squares, widened};

/// A batch normalization of channels, the second axis (Ioffe and Szegedy 2015): PyTorch's
/// `BatchNorm1d`, `BatchNorm2d` and `BatchNorm3d`.
///
/// Call [`forward`](Self::forward) in training and [`forward_inference`](Self::forward_inference)
/// in inference. The running statistics are [buffers](Parameters::map_buffers), not parameters:
/// they have no gradient, and no optimizer changes them. [`files`](crate::grad::files) contain them
/// under PyTorch's names, `running_mean`, `running_var` and `num_batches_tracked`.
#[derive(Clone, Debug)]
pub struct BatchNorm<T: Float = f32> {
    /// The weight, of shape `[channels]`.
    pub weight: Array<T>,
    /// The bias, of shape `[channels]`.
    pub bias: Array<T>,
    /// The number added to the variance, finite and not negative (default: 10⁻⁵).
    pub epsilon: f64,
    /// The weight of each batch in the running statistics, from 0 to 1 (default: 0.1).
    pub momentum: f64,
    /// The running means and variances, which clones of the layer share.
    pub statistics: RunningStatistics<T>,
}

impl<T: Float> BatchNorm<T> {
    /// Makes a layer with weights of 1, biases of 0, running means of 0 and running variances of 1.
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
        Ok(Self {
            weight: Array::ones(channels)?,
            bias: Array::zeros(channels)?,
            epsilon: 1e-5,
            momentum: 0.1,
            statistics: RunningStatistics::new(channels)?,
        })
    }

    /// Normalizes each channel of `x`, of shape `[count, channels, ..]`, by its mean and variance
    /// over the batch. Also updates the running statistics, with the unbiased variance. Half
    /// precision is computed in `f32`.
    ///
    /// In a [`checkpoint`](crate::grad::checkpoint) the statistics are updated once, when the
    /// backward pass calls the checkpoint's function again.
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
    /// of channels. [`InvalidArgument`](ErrorKind::InvalidArgument) if a channel has fewer than two
    /// elements, which have no variance. [`InvalidArgument`](ErrorKind::InvalidArgument) if
    /// [`epsilon`](Self::epsilon) or [`momentum`](Self::momentum) is outside of its range.
    #[track_caller]
    pub fn forward(&self, x: &Array<T>) -> Result<Array<T>> {
        self.check_settings()?;
        let own = [&self.weight, &self.bias].map(Array::erased);
        let parameters = per_channel("BatchNorm", x.erased(), own)?;
        let count = x.len() / self.weight.len().max(1);
        if count < 2 {
            let shape = x.layout().shape();
            let text = format!(
                "BatchNorm: each channel of x of shape {shape} has fewer than 2 elements, \
                 expected at least 2"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let axes: Vec<isize> = (0..x.ndim() as isize).filter(|&axis| axis != 1).collect();
        let x = x.erased().share();
        let wide = x.dtype.computed_in();
        let [mean, centred, variance] = centred(&x.converted(wide)?, &axes)?;
        if !runs_again_later() {
            let unbiased = count as f64 / (count - 1) as f64;
            let shares = [self.momentum, self.momentum * unbiased];
            let batch = [&mean, &variance].map(|own| own.share().untracked());
            self.statistics.mix(&batch, shares)?;
        }
        let centred = centred.lazy();
        let scale = scale_of_squares(&centred, (variance, &axes), self.epsilon)?;
        let normal = normalized(centred, scale, &parameters);
        normal.map(Array::from_erased)
    }

    /// Normalizes each channel of `x` by the running statistics, which do not change.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::nn::BatchNorm;
    ///
    /// let layer = BatchNorm::<f64>::new(1)?;
    /// let y = layer.forward_inference(&Array::from_slice(&[1.0, 3.0], [2, 1])?)?;
    /// assert!((y.to_vec()?[1] - 3.0).abs() < 1e-4); // a mean of 0, a variance of 1
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](ErrorKind::ShapeMismatch) if `x` has fewer than two axes or another number
    /// of channels. [`InvalidArgument`](ErrorKind::InvalidArgument) if [`epsilon`](Self::epsilon)
    /// or [`momentum`](Self::momentum) is outside of its range.
    #[track_caller]
    pub fn forward_inference(&self, x: &Array<T>) -> Result<Array<T>> {
        self.check_settings()?;
        let [mean, variance] = &self.statistics.moments()?;
        let (x, own) = (x.erased(), [&self.weight, &self.bias].map(Array::erased));
        let parameters = per_channel("BatchNorm", x, own)?;
        let moments = [mean, variance].map(Array::erased);
        let [mean, variance] = per_channel("BatchNorm", x, moments)?;
        let centred = widened(x) - mean.lazy();
        let scale = scale_of(&variance.lazy(), self.epsilon);
        let normal = normalized(centred, scale, &parameters);
        normal.map(Array::from_erased)
    }

    #[track_caller]
    fn check_settings(&self) -> Result<()> {
        check_epsilon("BatchNorm", self.epsilon)?;
        let momentum = self.momentum;
        if (0.0..=1.0).contains(&momentum) {
            return Ok(());
        }
        let text = format!("BatchNorm: momentum is {momentum}, expected a number from 0 to 1");
        Err(Error::new(ErrorKind::InvalidArgument, text))
    }
}

/// This implementation is hand-written, because a derived implementation would add the name of the
/// field `statistics` to the buffers' names. PyTorch's names do not contain it.
impl<T: Float> Parameters for BatchNorm<T> {
    fn map_arrays<M: MapArrays>(&self, map: &mut M) -> Result<Self> {
        map.enter(&"weight");
        let weight = map.map(&self.weight)?;
        map.leave();
        map.enter(&"bias");
        let bias = map.map(&self.bias)?;
        map.leave();
        Ok(Self {
            weight,
            bias,
            statistics: self.statistics.clone(),
            ..*self
        })
    }

    fn zip_arrays<Z: ZipArrays>(&mut self, other: &Self, zip: &mut Z) -> Result<()> {
        zip.enter(&"weight");
        zip.zip(&mut self.weight, &other.weight)?;
        zip.leave();
        zip.enter(&"bias");
        zip.zip(&mut self.bias, &other.bias)?;
        zip.leave();
        Ok(())
    }

    fn map_buffers<M: MapBuffers>(&mut self, map: &mut M) -> Result<()> {
        let _outside = enter_uncached();
        if let Some(replaced) = self.statistics.mapped(map)? {
            self.statistics = replaced;
        }
        Ok(())
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
