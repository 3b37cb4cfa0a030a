//! Buckets: arrays of consecutive gradients, which the ranks exchange as a whole.
//!
//! All ranks divide the gradients into identical buckets. Before the backward pass begins, the tape
//! determines the order in which gradients will be complete. In the first step, rank 0 broadcasts
//! its order. If the order changes later, a bucket is exchanged when its last gradient is complete.

use std::any::Any;

use super::layout::{BucketLayout, BucketShape, Slot};
use crate::array::{AnyArray, AnyElement, Array, Buffer, DType, Float, Layout, Shape};
use crate::collective::call::Operation;
use crate::collective::{Group, Reduce};
use crate::context::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::grad::{MapArrays, Parameters};
use crate::ops::derivatives::GlobalNorm;
use ndarray::s;

/// Evaluates `$value`, with `$T` as the float type of a bucket.
macro_rules! with_float {
    (@arm $U:ty, $T:ident => $value:expr) => {{
        type $T = $U;
        $value
    }};
    ($dtype:expr, $T:ident => $value:expr) => {
        match $dtype {
            $crate::array::DType::F32 => with_float!(@arm f32, $T => $value),
            $crate::array::DType::F64 => with_float!(@arm f64, $T => $value),
            $crate::array::DType::F16 => with_float!(@arm half::f16, $T => $value),
            $crate::array::DType::Bf16 => with_float!(@arm half::bf16, $T => $value),
            _ => unreachable!("the elements of parameters are floats"),
        }
    };
}

pub(super) use with_float;

/// The exchange of a full bucket between the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exchange {
    /// An exchange in which each rank gets all means.
    Average,
    /// An exchange in which each rank gets the means of its part.
    AveragePart,
    /// No exchange, because more gradients will be added.
    Accumulate,
}

/// Buckets that a backward pass fills.
///
/// Invariant: every rank exchanges the buckets in the order of the layout. The first `exchanged`
/// buckets have been exchanged.
pub(super) struct Buckets {
    pub(super) layout: BucketLayout,
    /// One [`Array`] per bucket, of the bucket's type or of its accumulation type.
    arrays: Vec<Option<Box<dyn Any>>>,
    /// This rank's part of each exchanged bucket.
    parts: Vec<Option<Box<dyn Any>>>,
    /// The number of gradients that are not complete, per bucket.
    missing: Vec<usize>,
    exchanged: usize,
    /// True if new gradients are added to earlier gradients.
    adds: bool,
    /// True if the buckets outlive the scope of the pass, and are allocated outside of every cache.
    outlives_pass: bool,
    /// True if several passes add to the buckets. Until the exchange, their arrays then have the
    /// accumulation type.
    is_wide: bool,
}

impl Buckets {
    /// Creates empty buckets. Each bucket is allocated when its first gradient is complete.
    pub(super) fn new(layout: BucketLayout, exchange: Exchange) -> Self {
        let count = layout.buckets.len();
        Self {
            missing: layout.members_each(),
            arrays: (0..count).map(|_| None).collect(),
            parts: (0..count).map(|_| None).collect(),
            exchanged: 0,
            adds: false,
            outlives_pass: exchange == Exchange::Accumulate,
            is_wide: exchange == Exchange::Accumulate,
            layout,
        }
    }

    /// Prepares accumulated buckets for another pass, which adds its gradients to the earlier
    /// gradients. If `layout` differs from the buckets' layout, first moves the gradients into
    /// buckets of `layout`.
    #[track_caller]
    pub(super) fn resumed(mut self, layout: Option<&BucketLayout>) -> Result<Self> {
        match layout {
            Some(layout) if *layout != self.layout => self.moved_to(layout),
            _ => {
                self.again();
                Ok(self)
            }
        }
    }

    fn again(&mut self) {
        self.missing = self.layout.members_each();
        self.exchanged = 0;
        self.adds = true;
    }

    /// Moves the gradients into buckets of another layout of the same parameters.
    #[track_caller]
    fn moved_to(self, layout: &BucketLayout) -> Result<Self> {
        let mut moved = Self {
            is_wide: self.is_wide,
            ..Self::new(layout.clone(), Exchange::Average)
        };
        for (bucket, shape) in layout.buckets.iter().enumerate() {
            with_float!(accumulation(shape.dtype), W => {
                for &number in &shape.members {
                    let from = self.view::<W>(number)?;
                    let own = moved.array_of::<W>(bucket, from.device())?;
                    let elements = layout.slots[number].elements.clone();
                    own.slice_mut(s![elements])?.assign(&from)?;
                }
            });
        }
        moved.again();
        Ok(moved)
    }

    /// Returns a gradient as a one-dimensional view of its bucket.
    #[track_caller]
    fn view<T: Float>(&self, number: usize) -> Result<Array<T>> {
        let Slot { bucket, elements } = self.layout.slots[number].clone();
        let own = self.arrays[bucket].as_ref();
        let own = own.and_then(|own| own.downcast_ref::<Array<T>>());
        own.ok_or_else(others)?.slice(s![elements])
    }

    /// Returns the slot of a gradient, so that the backward pass writes it in place. Returns `None`
    /// if an earlier gradient may be in the slot.
    #[track_caller]
    pub(super) fn place_of(&mut self, number: usize, like: &AnyArray) -> Result<Option<AnyArray>> {
        // The backward pass writes only the gradient's type.
        let is_wider = self.is_wide && accumulation(like.dtype) != like.dtype;
        if self.adds || is_wider {
            return Ok(None);
        }
        let Slot { bucket, elements } = self.layout.slots[number].clone();
        with_float!(like.dtype, T => {
            let own = self.array_of::<T>(bucket, like.buffer.device())?;
            let place = own.slice(s![elements])?.reshape(*like.layout.shape())?;
            Ok(Some(AnyArray::of(&place)))
        })
    }

    /// Copies or adds a gradient into its slot, unless it was written in place. Exchanges the
    /// buckets that are now full.
    #[track_caller]
    pub(super) fn put<T: Float>(
        &mut self,
        number: usize,
        gradient: &Array<T>,
        (group, exchange): (&Group, Exchange),
    ) -> Result<()> {
        match self.is_wide {
            true => self.put_in::<T, T::Computed>(number, gradient)?,
            false => self.put_in::<T, T>(number, gradient)?,
        }
        self.missing[self.layout.slots[number].bucket] -= 1;
        if exchange != Exchange::Accumulate {
            self.exchange_full(group, exchange)?;
        }
        Ok(())
    }

    /// Copies or adds a gradient into its slot, unless it was written in place. The bucket is of
    /// the type `W`.
    #[track_caller]
    fn put_in<T: Float, W: Float>(&mut self, number: usize, gradient: &Array<T>) -> Result<()> {
        let Slot { bucket, elements } = self.layout.slots[number].clone();
        let adds = self.adds;
        let own = self.array_of::<W>(bucket, gradient.device())?;
        let is_there =
            gradient.buffer().is_same(own.buffer()) && gradient.layout().offset() == elements.start;
        if is_there {
            return Ok(());
        }
        let mut place = own.slice_mut(s![elements])?;
        let gradient = gradient.reshape(gradient.len())?;
        match (adds, T::DTYPE == W::DTYPE) {
            (false, true) => place.assign(gradient.downcast_ref::<W>()),
            (true, true) => place.update(|before| before + gradient.downcast_ref::<W>()),
            (false, false) => place.assign(gradient.cast::<W>()),
            (true, false) => place.update(|before| before + gradient.cast::<W>()),
        }
    }

    #[track_caller]
    fn exchange_full(&mut self, group: &Group, exchange: Exchange) -> Result<()> {
        while self.missing.get(self.exchanged) == Some(&0) {
            let bucket = self.exchanged;
            self.exchanged += 1;
            with_float!(self.layout.buckets[bucket].dtype, T => {
                match self.is_wide {
                    true => self.exchange::<T, <T as Float>::Computed>(bucket, (group, exchange))?,
                    false => self.exchange::<T, T>(bucket, (group, exchange))?,
                }
            });
        }
        Ok(())
    }

    /// Exchanges a full bucket of the type `W`, and rounds the result to the type `T` of its
    /// gradients.
    #[track_caller]
    fn exchange<T: Float, W: Float>(
        &mut self,
        bucket: usize,
        (group, exchange): (&Group, Exchange),
    ) -> Result<()> {
        let own = self.arrays[bucket].as_mut();
        let own: Option<&mut Array<W>> = own.and_then(|own| own.downcast_mut());
        let own = own.expect("the bucket is full");
        if exchange == Exchange::Average {
            // `all_reduce_in_place` would copy the bucket, because the backward pass may still have
            // a handle of the bucket's last gradient.
            group.in_place(own, Operation::AllReduce(Reduce::Mean))?;
            if T::DTYPE != W::DTYPE {
                let rounded = own.cast::<T>().eval_unfused()?;
                self.arrays[bucket] = Some(Box::new(rounded));
            }
        } else {
            let part = group.reduce_scatter(own, Reduce::Mean)?;
            self.arrays[bucket] = None;
            self.parts[bucket] = Some(match T::DTYPE == W::DTYPE {
                true => Box::new(part),
                false => Box::new(part.cast::<T>().eval_unfused()?),
            });
        }
        Ok(())
    }

    /// Returns the bucket as an array, and allocates it at the first use.
    #[track_caller]
    fn array_of<T: Float>(&mut self, bucket: usize, device: &Device) -> Result<&mut Array<T>> {
        let own = &mut self.arrays[bucket];
        if own.is_none() {
            let array = fresh::<T>(&self.layout.buckets[bucket], device, self.outlives_pass)?;
            *own = Some(Box::new(array));
        }
        let own = own.as_mut().and_then(|own| own.downcast_mut());
        own.ok_or_else(others)
    }

    /// Returns the norm of this rank's parts.
    #[track_caller]
    pub(super) fn norm(&self) -> Result<Array<f64>> {
        let mut norm = GlobalNorm::default();
        for (part, shape) in self.parts.iter().zip(&self.layout.buckets) {
            with_float!(shape.dtype, T => {
                let part = part.as_ref().and_then(|part| part.downcast_ref::<Array<T>>());
                norm.add(part.ok_or_else(others)?.erased())?;
            });
        }
        norm.into_array()
    }

    /// Takes this rank's part of an exchanged bucket.
    #[track_caller]
    pub(super) fn take_part<T: Float>(&mut self, bucket: usize) -> Result<Array<T>> {
        let part = self.parts[bucket].take();
        let part = part.and_then(|part| part.downcast().ok());
        part.map(|part| *part).ok_or_else(others)
    }

    /// Returns the gradients of `parameters`, as views of the buckets.
    #[track_caller]
    pub(super) fn gradients<P: Parameters>(&self, parameters: &P) -> Result<P> {
        parameters.map_arrays(&mut BucketViews {
            buckets: self,
            number: 0,
        })
    }
}

/// Allocates a bucket. If `outlives_pass`, allocates it outside of every cache. Only the padding
/// behind the gradients is zeroed: gradients are written before the bucket is read.
#[track_caller]
fn fresh<T: Float>(shape: &BucketShape, device: &Device, outlives_pass: bool) -> Result<Array<T>> {
    let length = Shape::from(shape.length);
    let bytes = length.size_bytes(size_of::<T>())?;
    let buffer = match outlives_pass {
        true => Buffer::new_detached(device, bytes)?,
        false => Buffer::new(device, bytes)?,
    };
    let mut array = Array::from_parts(buffer, Layout::contiguous(&length)?);
    if shape.filled < shape.length {
        let zero = <T as AnyElement>::zero();
        array.slice_mut(s![shape.filled..])?.fill(zero)?;
    }
    Ok(array)
}

struct BucketViews<'a> {
    buckets: &'a Buckets,
    number: usize,
}

impl MapArrays for BucketViews<'_> {
    fn map<T: Float>(&mut self, parameter: &Array<T>) -> Result<Array<T>> {
        let view = self.buckets.view::<T>(self.number)?;
        self.number += 1;
        view.reshape(*parameter.layout().shape())
    }
}

/// Returns the accumulation type of gradients of type `dtype`.
fn accumulation(dtype: DType) -> DType {
    with_float!(dtype, T => <<T as Float>::Computed as AnyElement>::DTYPE)
}

#[cold]
#[track_caller]
fn others() -> Error {
    let text =
        "data-parallel training: the parameters changed: pass the same parameters to every step";
    Error::new(ErrorKind::InvalidArgument, text)
}
