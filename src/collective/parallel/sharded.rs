//! An optimizer whose states are divided among the ranks.
//!
//! States are divided by elements, not by parameters, so that all parts have equal sizes. An
//! optimizer of whole matrices is rejected, because on parts of matrices it would silently be
//! another algorithm.

use std::panic::Location;

use ndarray::s;

use super::buckets::{Buckets, with_float};
use super::exact::{CopyStates, exact_erased};
use super::layout::{BucketLayout, Slot};
use super::roster::Roster;
use crate::array::{AnyArray, AnyElement, Array, Float};
use crate::collective::Group;
use crate::context::scope::{self, enter_uncached};
use crate::error::{AtCaller, CallSiteOverride, Error, ErrorKind, Result};
use crate::grad::optim::rounded::rounded;
use crate::grad::optim::{OptimizerState, Stateful, check_count, short_name, steps_of};
use crate::grad::{Parameters, ZipArrays, handles, map_erased, no_elements};
use crate::ops::concat;

/// An optimizer whose states and steps are divided among the ranks: the first stage of ZeRO
/// (Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
/// Models").
///
/// Each step reduce-scatters the buckets of gradients, lets each rank step its part of each bucket,
/// and all-gathers the parameters. These exchanges transfer as many bytes as an all-reduce of the
/// gradients. The optimizer must be elementwise: it updates each element by the element's own
/// gradients alone. [`Muon`](crate::grad::optim::Muon) is not elementwise.
///
/// States belong to the parameters of the first step. Later steps return an error for parameters
/// with other names, types or shapes. The states stay in the buckets of the first step, even if a
/// [`DataParallel`](super::DataParallel) has other bucket sizes. The states are allocated outside
/// of every cache.
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
    /// The parameters of the first step, and the buckets of the states.
    agreed: Option<(Roster, BucketLayout)>,
    /// A state to restore in the first step, which determines the buckets.
    loaded: Option<Loaded>,
}

/// A state that was loaded before the buckets were known.
struct Loaded {
    steps: u64,
    /// The parameters of the state, if it has arrays.
    roster: Option<Roster>,
    /// The arrays of each state, in the order of the parameters.
    arrays: Vec<Vec<AnyArray>>,
}

impl<O: Stateful> Sharded<O> {
    /// Creates a divided optimizer from an optimizer that has made no step.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::collective::{Group, Sharded};
    /// use cachescope::grad::optim::{Adam, Muon};
    ///
    /// Group::threads(2, |group| {
    ///     assert!(Sharded::new(&group, Adam::new(0.1)).is_ok());
    ///     assert!(Sharded::new(&group, Muon::new(0.1)).is_err()); // It moves matrices as a whole.
    ///     Ok(())
    /// })?;
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) if the optimizer is not elementwise.
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if it has made steps, because its states are
    /// then undivided.
    #[track_caller]
    pub fn new(group: &Group, optimizer: O) -> Result<Self> {
        if !optimizer.is_elementwise() {
            let name = short_name::<O>();
            let text = format!(
                "Sharded::new: {name} updates each parameter as a whole, expected an elementwise \
                 optimizer"
            );
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        if optimizer.states() > 0 && optimizer.steps() > 0 {
            let (name, steps) = (short_name::<O>(), optimizer.steps());
            let text = format!(
                "Sharded::new: {name} has made {steps} steps, expected 0: pass its state to set_state"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(Self {
            group: group.clone(),
            optimizer,
            agreed: None,
            loaded: None,
        })
    }

    /// Returns the optimizer that steps this rank's part, for example to set its learning rate.
    /// Settings must be equal on all ranks.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::collective::{Group, Sharded};
    /// use cachescope::grad::optim::Sgd;
    ///
    /// Group::threads(2, |group| {
    ///     let mut optimizer = Sharded::new(&group, Sgd::new(0.1))?;
    ///     optimizer.optimizer_mut().rate = 0.01;
    ///     assert_eq!(optimizer.optimizer_mut().rate, 0.01);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn optimizer_mut(&mut self) -> &mut O {
        &mut self.optimizer
    }

    /// Returns an error for another group, and for parameters that the states do not belong to.
    #[track_caller]
    pub(super) fn check<P: Parameters>(&self, group: &Group, parameters: &P) -> Result<()> {
        let of = |group: &Group| (group.rank(), group.size());
        let ((rank, size), (own_rank, own_size)) = (of(group), of(&self.group));
        if (rank, size) != (own_rank, own_size) {
            let text = format!(
                "value_and_step: DataParallel is rank {rank} of {size}, Sharded is rank {own_rank} of {own_size}"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let agreed = self.agreed.as_ref().map(|(roster, _)| roster);
        let loaded = self
            .loaded
            .as_ref()
            .and_then(|loaded| loaded.roster.as_ref());
        match agreed.or(loaded) {
            Some(roster) => roster.check("value_and_step", parameters),
            None => Ok(()),
        }
    }

    /// Returns the layout of the states, if there was a step.
    pub(super) fn layout(&self) -> Option<BucketLayout> {
        self.agreed.as_ref().map(|(_, layout)| layout.clone())
    }

    /// Steps this rank's part of each bucket, and gathers all parts. The buckets must have the
    /// [`layout`](Self::layout) if there is one, and the parameters must be [checked](Self::check).
    #[track_caller]
    pub(super) fn step<P: Parameters>(
        &mut self,
        parameters: &mut P,
        mut buckets: Buckets,
    ) -> Result<()> {
        let _call_site = CallSiteOverride::at(Location::caller());
        let layout = buckets.layout.clone();
        if self.agreed.is_none() {
            let roster = Roster::of(parameters)?;
            if let Some(loaded) = self.loaded.take() {
                let restored = self.restore(loaded.steps, &loaded.arrays, &layout);
                if restored.is_err() {
                    self.loaded = Some(loaded);
                }
                restored?;
            }
            self.agreed = Some((roster, layout.clone()));
        }
        self.optimizer.check_settings()?;
        self.optimizer.begin();
        let stepped = self
            .see_norm(&buckets)
            .and_then(|()| self.step_buckets(parameters, &layout, &mut buckets));
        if stepped.is_err() {
            self.optimizer.abandon();
        }
        stepped.at_caller()
    }

    /// Passes the global norm of the gradients to the optimizer, if it needs the norm. Combines the
    /// norms of all ranks' parts.
    #[track_caller]
    fn see_norm(&mut self, buckets: &Buckets) -> Result<()> {
        if self.optimizer.needs_norm() {
            let norms = self.group.all_gather(&buckets.norm()?)?;
            // The optimizer may hold the norm after the scope has exited.
            let _outside = enter_uncached();
            self.optimizer.set_norm(&norms.norm()?);
        }
        Ok(())
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
                let stepped = self.optimizer.step_one(bucket, &mut own, &gradient);
                stepped.map_err(|error| error.of(&format!("value_and_step: bucket {bucket}")))?;
                drop(gradient);
                let whole = self.group.all_gather(&own)?;
                write::<T, P>(parameters, layout, bucket, &whole)?;
            });
        }
        Ok(())
    }

    /// Returns the undivided state, on every rank. The state can be saved to a file. An optimizer
    /// with any number of ranks, or without division, can restore it. The state's arrays are
    /// allocated outside of every cache. `parameters` must be the parameters that the optimizer has
    /// stepped.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::{DataParallel, Group, Sharded};
    /// use cachescope::grad::optim::Sgd;
    ///
    /// let velocities = Group::threads(2, |group| {
    ///     let mut x = Array::<f32>::zeros(3)?;
    ///     let mut optimizer = Sharded::new(&group, Sgd::new(0.1).momentum(0.9))?;
    ///     let mut parallel = DataParallel::new(&group);
    ///     parallel.value_and_step(&mut x, &mut optimizer, |x| (x * 2.0).sum())?;
    ///     optimizer.state(&x)?.arrays[0].to_vec()
    /// })?;
    /// assert_eq!(velocities, [[2.0; 3]; 2]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Group::all_gather`]. [`InvalidArgument`](ErrorKind::InvalidArgument) for
    /// other parameters, or if no step was made and no state was set.
    #[track_caller]
    pub fn state<P: Parameters>(&mut self, parameters: &P) -> Result<OptimizerState<P>> {
        let _call_site = CallSiteOverride::at(Location::caller());
        let _outside = enter_uncached();
        self.gathered(parameters).at_caller()
    }

    fn gathered<P: Parameters>(&mut self, parameters: &P) -> Result<OptimizerState<P>> {
        let mut arrays = Vec::new();
        if let Some(loaded) = &self.loaded {
            if let Some(roster) = &loaded.roster {
                roster.check("Sharded::state", parameters)?;
            }
            for loaded in &loaded.arrays {
                // The arrays are in the order of a structure with equal types, as checked.
                let mut own = loaded.iter().cloned();
                let next = |_| {
                    Ok(own
                        .next()
                        .expect("the structures have equal numbers of parameters"))
                };
                arrays.push(map_erased(parameters, next)?);
            }
            let steps = Array::full([], loaded.steps as f64)?;
            return Ok(OptimizerState { steps, arrays });
        }
        let Some((roster, layout)) = &self.agreed else {
            let text =
                "Sharded::state: there is no state yet: call it after a step or after set_state";
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        };
        roster.check("Sharded::state", parameters)?;
        let own = handles(parameters)?;
        for which in 0..self.optimizer.states() {
            let mut states: Vec<Option<AnyArray>> = own.iter().map(|_| None).collect();
            for (bucket, shape) in layout.buckets.iter().enumerate() {
                with_float!(shape.dtype, T => {
                    let like = part_of::<T>(&own, layout, bucket, &self.group)?;
                    let state = self.optimizer.state_of(which, bucket, &like)?;
                    let whole = self.group.all_gather(state)?;
                    for &number in &shape.members {
                        let elements = layout.slots[number].elements.clone();
                        let part = whole.slice(s![elements])?;
                        let part = part.reshape(*own[number].layout.shape())?;
                        // The part is copied, because a view would pin the whole bucket.
                        let state = rounded::<T>(&part.lazy().eval_unfused()?)?;
                        states[number] = Some(AnyArray::of(&state));
                    }
                });
            }
            // The states are in the order of equal parameters, as checked.
            let mut states = states.into_iter().flatten();
            let next = |_| Ok(states.next().expect("each parameter is in a bucket"));
            arrays.push(map_erased(parameters, next)?);
        }
        let steps = Array::full([], self.optimizer.read_steps()? as f64)?;
        Ok(OptimizerState { steps, arrays })
    }

    /// Restores a state of parameters with equal names, types and shapes. The state may be from any
    /// number of ranks. Before the first step, the optimizer only stores handles of the state's
    /// arrays. The first step then restores the state. Inside of a scope, it stores copies instead
    /// of handles, outside of every cache.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::{Group, Sharded};
    /// use cachescope::grad::optim::{Sgd, Stateful};
    ///
    /// let velocities = Group::threads(2, |group| {
    ///     let mut x = Array::<f32>::zeros(3)?;
    ///     let mut whole = Sgd::new(0.1).momentum(0.9);
    ///     whole.step(&mut x, &Array::ones(3)?)?;
    ///     let mut divided = Sharded::new(&group, Sgd::new(0.1).momentum(0.9))?;
    ///     divided.set_state(&whole.state(&x)?)?;
    ///     divided.state(&x)?.arrays[0].to_vec()
    /// })?;
    /// assert_eq!(velocities, [[1.0; 3]; 2]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the state does not have the optimizer's
    /// [number of states](Stateful::states), or has a fractional number of steps.
    /// [`InvalidArgument`](ErrorKind::InvalidArgument), with the name of a parameter, if the state
    /// is of other parameters. Before the first step, the parameters are unknown, so that the first
    /// step returns this error.
    #[track_caller]
    pub fn set_state<P: Parameters>(&mut self, state: &OptimizerState<P>) -> Result<()> {
        let _call_site = CallSiteOverride::at(Location::caller());
        self.set(state).at_caller()
    }

    fn set<P: Parameters>(&mut self, state: &OptimizerState<P>) -> Result<()> {
        const OPERATION: &str = "Sharded::set_state";
        let of = |error: Error| error.of(OPERATION);
        check_count(self.optimizer.states(), state.arrays.len()).map_err(of)?;
        let steps = steps_of(&state.steps).map_err(of)?;
        if let Some((roster, layout)) = &self.agreed {
            for own in &state.arrays {
                roster.check(OPERATION, own)?;
            }
            let layout = layout.clone();
            let arrays: Result<Vec<_>> = state.arrays.iter().map(handles).collect();
            return self.restore(steps, &arrays?, &layout);
        }
        let roster = state.arrays.first().map(Roster::of).transpose()?;
        let mut arrays = Vec::new();
        let is_in_scope = scope::current().is_some();
        let _outside = enter_uncached();
        for own in &state.arrays {
            if let Some(roster) = &roster {
                roster.check(OPERATION, own)?;
            }
            arrays.push(match is_in_scope {
                true => handles(&own.map_arrays(&mut CopyStates)?)?,
                false => handles(own)?,
            });
        }
        self.loaded = Some(Loaded {
            steps,
            roster,
            arrays,
        });
        Ok(())
    }

    /// Writes this rank's part of each state to the optimizer.
    #[track_caller]
    fn restore(
        &mut self,
        steps: u64,
        states: &[Vec<AnyArray>],
        layout: &BucketLayout,
    ) -> Result<()> {
        for (which, arrays) in states.iter().enumerate() {
            let exact: Vec<AnyArray> = arrays.iter().map(exact_erased).collect::<Result<_>>()?;
            for (bucket, shape) in layout.buckets.iter().enumerate() {
                with_float!(shape.dtype, T => {
                    let like = part_of::<T>(arrays, layout, bucket, &self.group)?;
                    let part = part_of(&exact, layout, bucket, &self.group)?;
                    self.optimizer.state_of(which, bucket, &like)?.assign(&part)?;
                });
            }
        }
        self.optimizer.set_steps(steps);
        Ok(())
    }
}

impl<O: std::fmt::Debug> std::fmt::Debug for Sharded<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sharded")
            .field("group", &self.group)
            .field("optimizer", &self.optimizer)
            .finish_non_exhaustive()
    }
}

/// Returns a copy of this rank's part of a bucket that is filled from `arrays`.
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
        // Zeros are the elements of the padding.
        let beside = &arrays[shape.members[0]];
        let zeros = beside.zeros(&[length - covered].into())?;
        pieces.push(zeros.into_array());
    }
    let pieces: Vec<&Array<T>> = pieces.iter().collect();
    concat(&pieces, 0)
}

/// Copies the contents of a bucket to its arrays.
#[track_caller]
fn write<T: Float, P: Parameters>(
    arrays: &mut P,
    layout: &BucketLayout,
    bucket: usize,
    whole: &Array<T>,
) -> Result<()> {
    let nothing = no_elements(arrays)?;
    arrays.zip_arrays(
        &nothing,
        &mut ShardWriter {
            layout,
            bucket,
            number: 0,
            whole,
        },
    )
}

struct ShardWriter<'a, W: AnyElement> {
    layout: &'a BucketLayout,
    bucket: usize,
    number: usize,
    whole: &'a Array<W>,
}

impl<W: Float> ZipArrays for ShardWriter<'_, W> {
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
