//! Running statistics of a normalization layer.

use std::any::Any;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::array::{AnyArray, AnyElement, Array, Float};
use crate::context::scope::enter_uncached;
use crate::error::{Error, ErrorKind, Result};
use crate::grad::{CastParameters, MapBuffers};
use crate::ops::derivatives::constant;

/// Running means and variances of channels, in the accumulation type: `f64` for `f64`, and
/// otherwise `f32`. Clones share the statistics, so that a forward pass with tracked parameters
/// updates the layer's own statistics. A layer that was [converted](CastParameters::cast) updates
/// and reads the statistics of its source layer. If the accumulation types of the two layers
/// differ, the converted layer also stores rounded copies of the statistics.
///
/// The statistics are allocated outside of every cache.
#[derive(Clone, Debug)]
pub struct RunningStatistics<T: Float = f32> {
    arrays: Arc<Mutex<StatisticArrays<T::Computed>>>,
    /// The source of rounded copies: the statistics of another accumulation type.
    source: Option<Arc<dyn Statistics>>,
    /// True if the layer was converted from another layer.
    is_converted: bool,
}

#[derive(Clone, Debug)]
struct StatisticArrays<A: Float> {
    /// The means and the variances, each of shape `[channels]`.
    moments: [Array<A>; 2],
    /// The number of batches, of rank 0.
    batches: Array<i64>,
}

/// Type-erased running statistics.
trait Statistics: Debug + Send + Sync {
    /// Mixes the mean and the biased variance of a batch into the statistics, with a share for
    /// each.
    fn mix(&self, batch: &[AnyArray; 2], shares: [f64; 2]) -> Result<()>;

    /// Returns the means, the variances and the number of batches. If there is a source, they are
    /// from the source.
    fn exact(&self) -> ([AnyArray; 2], Array<i64>);
}

impl<T: Float> RunningStatistics<T> {
    /// Makes means of 0 and variances of 1.
    #[track_caller]
    pub(super) fn new(channels: usize) -> Result<Self> {
        let _outside = enter_uncached();
        Ok(Self::of(StatisticArrays {
            moments: [Array::zeros(channels)?, Array::ones(channels)?],
            batches: Array::zeros([])?,
        }))
    }

    fn of(arrays: StatisticArrays<T::Computed>) -> Self {
        Self {
            arrays: Arc::new(Mutex::new(arrays)),
            source: None,
            is_converted: false,
        }
    }

    /// Returns the means and the variances, each of shape `[channels]`. The handles share memory
    /// with the statistics until the next update.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::nn::BatchNorm;
    ///
    /// let (trained, other) = (BatchNorm::<f32>::new(3)?, BatchNorm::<f32>::new(3)?);
    /// other.statistics.set(trained.statistics.arrays())?;
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn arrays(&self) -> (Array<T::Computed>, Array<T::Computed>) {
        let [mean, variance] = &self.lock().moments;
        (mean.clone(), variance.clone())
    }

    /// Returns the number of batches that updated the statistics, an array of rank 0. The handle
    /// shares memory with the statistics until the next update.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::nn::BatchNorm;
    ///
    /// let layer = BatchNorm::<f32>::new(3)?;
    /// layer.forward(&Array::randn([4, 3])?)?;
    /// assert_eq!(layer.statistics.batches().item()?, 1);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn batches(&self) -> Array<i64> {
        self.lock().batches.clone()
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
    /// let y = layer.forward_inference(&Array::full([1, 1], 7.0)?)?;
    /// assert!((y.item()? - 1.0).abs() < 1e-5);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](ErrorKind::ShapeMismatch) if an array has another number of channels.
    /// [`Unsupported`](ErrorKind::Unsupported) if the layer was converted from another layer: set
    /// the statistics of the source layer.
    #[track_caller]
    pub fn set(&self, (mean, variance): (Array<T::Computed>, Array<T::Computed>)) -> Result<()> {
        if self.is_converted {
            let text = "RunningStatistics::set: the layer was converted from another layer: set \
                        the statistics of that layer";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let mut own = self.lock();
        for (own, new) in own.moments.iter().zip([&mean, &variance]) {
            check_shape("RunningStatistics::set", own, new)?;
        }
        own.moments = [constant(&mean), constant(&variance)];
        Ok(())
    }

    /// Returns the means and the variances for a computation. If the layer was converted, they are
    /// from the source layer, and [`arrays`](Self::arrays) may return rounded copies.
    #[track_caller]
    pub(super) fn moments(&self) -> Result<[Array<T::Computed>; 2]> {
        let Some(source) = &self.source else {
            return Ok(self.lock().moments.clone());
        };
        let ([mean, variance], _) = source.exact();
        let of = <T::Computed as AnyElement>::DTYPE;
        Ok([
            mean.converted(of)?.into_array(),
            variance.converted(of)?.into_array(),
        ])
    }

    /// Mixes the mean and the biased variance of a batch into the statistics, with a share for
    /// each.
    #[track_caller]
    pub(super) fn mix(&self, batch: &[AnyArray; 2], shares: [f64; 2]) -> Result<()> {
        Statistics::mix(self, batch, shares)
    }

    /// Calls `map` with each buffer. If `map` replaces a buffer, returns statistics that no other
    /// layer shares.
    #[track_caller]
    pub(super) fn mapped<M: MapBuffers>(&self, map: &mut M) -> Result<Option<Self>> {
        let mut arrays = self.lock().clone();
        let [mean, variance] = &mut arrays.moments;
        let mut is_replaced = map_buffer("running_mean", mean, map)?;
        is_replaced |= map_buffer("running_var", variance, map)?;
        is_replaced |= map_buffer("num_batches_tracked", &mut arrays.batches, map)?;
        Ok(is_replaced.then(|| Self::of(arrays)))
    }

    /// Returns the statistics for a layer of another type.
    #[track_caller]
    pub(super) fn converted<U: Float>(&self) -> Result<RunningStatistics<U>> {
        if let Some(own) = (self as &dyn Any).downcast_ref::<RunningStatistics<U>>() {
            return Ok(own.clone());
        }
        if let Some(arrays) = (&self.arrays as &dyn Any).downcast_ref() {
            return Ok(RunningStatistics {
                arrays: Arc::clone(arrays),
                source: self.source.clone(),
                is_converted: true,
            });
        }
        let _outside = enter_uncached();
        let own = self.lock();
        let [mean, variance] = &own.moments;
        let arrays = StatisticArrays {
            moments: [CastParameters::cast(mean)?, CastParameters::cast(variance)?],
            batches: own.batches.lazy().eval_unfused()?,
        };
        Ok(RunningStatistics {
            arrays: Arc::new(Mutex::new(arrays)),
            source: Some(Arc::new(self.clone())),
            is_converted: true,
        })
    }

    fn lock(&self) -> MutexGuard<'_, StatisticArrays<T::Computed>> {
        // After a panic, the arrays are still valid.
        self.arrays.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Float> Statistics for RunningStatistics<T> {
    #[track_caller]
    fn mix(&self, batch: &[AnyArray; 2], shares: [f64; 2]) -> Result<()> {
        let of = |value: f64| <T::Computed as AnyElement>::from_f64(value);
        let (new, batches) = match &self.source {
            Some(source) => {
                source.mix(batch, shares)?;
                let (moments, batches) = source.exact();
                (moments, Some(batches))
            }
            None => (batch.each_ref().map(AnyArray::share), None),
        };
        let _outside = enter_uncached();
        let mut own = self.lock();
        // The arrays are updated in place, so that a graph that captures the step writes to the
        // statistics.
        for ((own, new), share) in own.moments.iter_mut().zip(new).zip(shares) {
            let new = new.converted(<T::Computed as AnyElement>::DTYPE)?;
            let new = new.into_array::<T::Computed>().reshape(own.len())?;
            match self.source {
                Some(_) => own.assign(&new)?,
                None => own.update(|own| own * of(1.0 - shares[0]) + new * of(share))?,
            }
        }
        match batches {
            Some(batches) => own.batches.assign(&batches),
            None => own.batches.update(|own| own + 1),
        }
    }

    fn exact(&self) -> ([AnyArray; 2], Array<i64>) {
        match &self.source {
            Some(source) => source.exact(),
            None => {
                let own = self.lock();
                (
                    own.moments.each_ref().map(AnyArray::of),
                    own.batches.clone(),
                )
            }
        }
    }
}

/// Calls `map` with a buffer. Returns true if `map` replaced the buffer.
#[track_caller]
fn map_buffer<A: AnyElement>(
    name: &str,
    own: &mut Array<A>,
    map: &mut impl MapBuffers,
) -> Result<bool> {
    map.enter(&name);
    let new = map.map(own)?;
    map.leave();
    let Some(new) = new else {
        return Ok(false);
    };
    check_shape("BatchNorm::map_buffers", own, &new)?;
    *own = constant(&new);
    Ok(true)
}

#[track_caller]
fn check_shape<A: AnyElement>(operation: &str, own: &Array<A>, new: &Array<A>) -> Result<()> {
    if own.shape() == new.shape() {
        return Ok(());
    }
    let [own, new] = [own, new].map(|array| *array.layout().shape());
    let text = format!("{operation}: the shape is {new}, expected {own}");
    Err(Error::new(ErrorKind::ShapeMismatch, text))
}
