//! An optimizer whose states are divided among the ranks.

use ndarray::s;

use super::buckets::{Buckets, handles, lengths, with_float};
use super::layout::{BucketLayout, Slot};
use crate::array::{AnyElement, Array, Float};
use crate::collective::Group;
use crate::error::{Error, ErrorKind, Result};
use crate::grad::optim::{OptimizerState, Stateful, check_count};
use crate::grad::{MapArrays, Nothing, Parameters, ZipArrays};
use crate::ops::concat;
use crate::ops::derivatives::{AnyArray, zeros_like};

/// An optimizer of which each rank keeps its part of the states, and moves its part of the parameters: the first stage of ZeRO
/// (Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models").
///
/// Buckets of gradients are reduced and scattered, each rank steps its part of each bucket, and the parameters are gathered: as many bytes
/// as an all-reduce of the gradients moves. It takes optimizers that move each element by its own gradients, which
/// [`Muon`](crate::grad::optim::Muon) does not.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::collective::{DataParallel, Group, Sharded};
/// use cachescope::grad::optim::Adam;
///
/// let found = Group::threads(2, |group| {
///     let target = Array::from_slice(&[1.0_f32, -2.0, 3.0], 3)?;
///     let mut x = Array::<f32>::zeros(3)?;
///     let mut parallel = DataParallel::new(&group);
///     let mut optimizer = Sharded::new(&group, Adam::new(0.1))?;
///     for _ in 0..200 {
///         parallel.value_and_step(&mut x, &mut optimizer, |x| (x - &target).square().sum())?;
///     }
///     x.to_vec()
/// })?;
/// assert!((found[0][1] + 2.0).abs() < 1e-2);
/// assert_eq!(found[0], found[1]);
/// # Ok::<(), cachescope::Error>(())
/// ```
pub struct Sharded<O> {
    group: Group,
    optimizer: O,
    /// Of the parameters of the first step.
    layout: Option<BucketLayout>,
    /// What the first step is to go on from, when the buckets are known.
    loaded: Option<Loaded>,
}

/// A state that was loaded.
struct Loaded {
    steps: u64,
    /// Of each state the arrays, by the numbers of the parameters.
    arrays: Vec<Vec<AnyArray>>,
}

impl<O: Stateful> Sharded<O> {
    /// Divides the states of an optimizer that has made no step.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) for an optimizer that needs parameters as a whole.
    #[track_caller]
    pub fn new(group: &Group, optimizer: O) -> Result<Self> {
        if !optimizer.is_elementwise() {
            let text = "Sharded: this optimizer moves parameters as a whole, and they are divided among ranks";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        Ok(Self {
            group: group.clone(),
            optimizer,
            layout: None,
            loaded: None,
        })
    }

    /// The optimizer that steps this rank's part: to set its rate, say, on all ranks alike.
    pub fn optimizer_mut(&mut self) -> &mut O {
        &mut self.optimizer
    }

    /// Moves this rank's part of each bucket, and gathers all parts.
    #[track_caller]
    pub(super) fn step<P: Parameters>(
        &mut self,
        parameters: &mut P,
        mut buckets: Buckets,
    ) -> Result<()> {
        let layout = buckets.layout.clone();
        if let Some(loaded) = self.loaded.take() {
            let gone_on = self.go_on_from(&loaded, &layout);
            if gone_on.is_err() {
                self.loaded = Some(loaded);
            }
            gone_on?;
        }
        self.layout = Some(layout.clone());
        self.optimizer.begin();
        let stepped = self.step_buckets(parameters, &layout, &mut buckets);
        if stepped.is_err() {
            self.optimizer.abandon();
        }
        stepped
    }

    #[track_caller]
    fn step_buckets<P: Parameters>(
        &mut self,
        parameters: &mut P,
        layout: &BucketLayout,
        buckets: &mut Buckets,
    ) -> Result<()> {
        for (bucket, shape) in layout.buckets.iter().enumerate() {
            with_float!(shape.dtype, T => {
                let gradient = buckets.take_part::<T>(bucket)?;
                let mut own = part_of::<T>(&handles(parameters)?, layout, bucket, &self.group)?;
                self.optimizer.step_one(bucket, &mut own, &gradient)?;
                drop(gradient);
                let whole = self.group.all_gather(&own)?;
                write::<T, P>(parameters, layout, bucket, &whole)?;
            });
        }
        Ok(())
    }

    /// The state as one rank alone would have it, on every rank: it goes into a file and into an optimizer of any number of ranks, one
    /// that is not divided included. `parameters` are those that it has stepped.
    ///
    /// # Errors
    ///
    /// Those of [`Group::all_gather`], and [`InvalidArgument`](ErrorKind::InvalidArgument) before the first step.
    #[track_caller]
    pub fn state<P: Parameters>(&mut self, parameters: &P) -> Result<OptimizerState<P>> {
        let stepped = self.layout.clone().filter(|_| self.loaded.is_none());
        let layout = stepped.ok_or_else(no_step)?;
        let mut arrays = Vec::new();
        for which in 0..self.optimizer.states() {
            let mut state = parameters.map_arrays(&mut Fresh)?;
            for (bucket, shape) in layout.buckets.iter().enumerate() {
                with_float!(shape.dtype, T => {
                    let like = part_of::<T>(&handles(&state)?, &layout, bucket, &self.group)?;
                    let own = self.optimizer.state_of(which, bucket, &like)?;
                    let whole = self.group.all_gather(own)?;
                    write::<T, P>(&mut state, &layout, bucket, &whole)?;
                });
            }
            arrays.push(state);
        }
        let steps = Array::full([], self.optimizer.steps() as f64)?;
        Ok(OptimizerState { steps, arrays })
    }

    /// Goes on from a state of the same parameters, of any number of ranks, in the next step.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) where another kind of optimizer had it; that of other parameters comes in the step.
    #[track_caller]
    pub fn set_state<P: Parameters>(&mut self, state: &OptimizerState<P>) -> Result<()> {
        check_count(self.optimizer.states(), state.arrays.len())?;
        let arrays: Result<Vec<_>> = state.arrays.iter().map(handles).collect();
        self.loaded = Some(Loaded {
            steps: state.steps.item()? as u64,
            arrays: arrays?,
        });
        Ok(())
    }

    #[track_caller]
    fn go_on_from(&mut self, loaded: &Loaded, layout: &BucketLayout) -> Result<()> {
        for (which, arrays) in loaded.arrays.iter().enumerate() {
            check_arrays(arrays, layout)?;
            for (bucket, shape) in layout.buckets.iter().enumerate() {
                with_float!(shape.dtype, T => {
                    let part = part_of::<T>(arrays, layout, bucket, &self.group)?;
                    self.optimizer.state_of(which, bucket, &part)?.assign(&part)?;
                });
            }
        }
        self.optimizer.set_steps(loaded.steps);
        Ok(())
    }
}

/// Refuses arrays that are not in the places of the parameters.
#[track_caller]
fn check_arrays(arrays: &[AnyArray], layout: &BucketLayout) -> Result<()> {
    super::check_lengths(layout, &lengths(arrays))
}

impl<O: std::fmt::Debug> std::fmt::Debug for Sharded<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sharded")
            .field("group", &self.group)
            .field("optimizer", &self.optimizer)
            .finish_non_exhaustive()
    }
}

#[cold]
#[track_caller]
fn no_step() -> Error {
    let text = "Sharded::state: there is none before a step";
    Error::new(ErrorKind::InvalidArgument, text)
}

/// Copies the part of this rank of what a bucket would have of those arrays.
#[track_caller]
fn part_of<T: Float>(
    arrays: &[AnyArray],
    layout: &BucketLayout,
    bucket: usize,
    group: &Group,
) -> Result<Array<T>> {
    let shape = &layout.buckets[bucket];
    let length = shape.length / group.size();
    let part = group.rank() * length..(group.rank() + 1) * length;
    let mut pieces: Vec<Array<T>> = Vec::new();
    for &number in &shape.members {
        let elements = &layout.slots[number].elements;
        let (first, end) = (elements.start.max(part.start), elements.end.min(part.end));
        if first < end {
            let flat = arrays[number].share().into_array::<T>();
            let flat = flat.reshape(flat.len())?;
            pieces.push(flat.slice(s![first - elements.start..end - elements.start])?);
        }
    }
    let covered: usize = pieces.iter().map(Array::len).sum();
    if covered < length || pieces.is_empty() {
        // What fills the bucket up, beside its parameters.
        let beside = &arrays[shape.members[0]];
        let zeros = beside.zeros(&[length - covered].into())?;
        pieces.push(zeros.into_array());
    }
    let pieces: Vec<&Array<T>> = pieces.iter().collect();
    concat(&pieces, 0)
}

/// Writes what is in a bucket to the arrays that are in it.
#[track_caller]
fn write<T: Float, P: Parameters>(
    arrays: &mut P,
    layout: &BucketLayout,
    bucket: usize,
    whole: &Array<T>,
) -> Result<()> {
    let nothing = arrays.map_arrays(&mut Nothing)?;
    arrays.zip_arrays(
        &nothing,
        &mut Writing {
            layout,
            bucket,
            number: 0,
            whole,
        },
    )
}

struct Writing<'a, W: AnyElement> {
    layout: &'a BucketLayout,
    bucket: usize,
    number: usize,
    whole: &'a Array<W>,
}

impl<W: Float> ZipArrays for Writing<'_, W> {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, _: &Array<T>) -> Result<()> {
        let Slot { bucket, elements } = self.layout.slots[self.number].clone();
        self.number += 1;
        if bucket != self.bucket {
            return Ok(());
        }
        let whole: &Array<T> = self.whole.downcast_ref();
        let part = whole.slice(s![elements])?.reshape(*own.layout().shape())?;
        own.assign(&part)
    }
}

/// New arrays of the same shapes.
struct Fresh;

impl MapArrays for Fresh {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        zeros_like(array)
    }
}
