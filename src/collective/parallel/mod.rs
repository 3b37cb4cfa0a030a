//! Data-parallel training: each rank computes the gradients of its part of a batch, and all ranks
//! make equal steps.

mod buckets;
mod exact;
mod layout;
mod roster;
mod sampler;
mod sharded;

use std::cell::RefCell;
use std::fmt;
use std::panic::Location;
use std::rc::Rc;

use crate::array::{AnyArray, Array, Float};
use crate::collective::{Group, Reduce};
use crate::error::{AtCaller, CallSiteOverride, Result};
pub use crate::grad::data::Sampler;
use crate::grad::optim::Stateful;
use crate::grad::{
    Loss, Optimizer, Order, Parameters, ZipArrays, handles, map_erased, no_elements,
    value_and_step_in_order,
};
use crate::ops::derivatives::Placer;
use buckets::{Buckets, Exchange};
use layout::{BucketLayout, BucketSizes};
use roster::Roster;
pub use sharded::Sharded;

/// The default maximum bytes of a bucket, and of the first bucket, as in PyTorch's
/// `DistributedDataParallel`.
const BUCKET_BYTES: usize = 25 << 20;
const FIRST_BUCKET_BYTES: usize = 1 << 20;

/// Returns the value of `function` at `parameters`, and the gradient of each parameter, as means
/// over the ranks. Each rank computes `function` for its own part of the batch. The results are the
/// value and the gradients of the mean of the ranks' functions.
///
/// Equals a call of [`DataParallel::value_and_grad`] on a new [`DataParallel`]. To save a message
/// in each step of a loop, reuse one [`DataParallel`].
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::collective::{Group, value_and_grad_parallel};
///
/// let gradients = Group::threads(2, |group| {
///     let x = Array::from_slice(&[1.0_f64, 2.0], 2)?;
///     let factor = (group.rank() + 1) as f64;
///     let (value, gradient) = value_and_grad_parallel(&group, &x, |x| (x * factor).sum())?;
///     assert_eq!(value.item()?, 4.5);
///     gradient.to_vec()
/// })?;
/// assert_eq!(gradients, [[1.5, 1.5], [1.5, 1.5]]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`DataParallel::value_and_grad`].
#[track_caller]
pub fn value_and_grad_parallel<P: Parameters, L: Loss>(
    group: &Group,
    parameters: &P,
    function: impl FnOnce(&P) -> Result<L>,
) -> Result<(Array<L::Item>, P)> {
    DataParallel::new(group).value_and_grad(parameters, function)
}

/// Data-parallel gradients, exchanged while the backward pass runs (Li et al. 2020, "PyTorch
/// Distributed: Experiences on Accelerating Data Parallel Training").
///
/// The backward pass writes gradients to buckets, in the order in which it completes them. A full
/// bucket is averaged over the ranks on a separate stream, while the pass computes the next
/// gradients. The returned gradients are views of the buckets. Buckets are allocated in the scope
/// around the call, like any array, so that each step reuses the same blocks. Only
/// [`accumulate`](Self::accumulate) allocates its buckets outside of every cache, because a later
/// call uses these buckets.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::collective::{DataParallel, Group, Sampler};
/// use cachescope::grad::optim::Sgd;
///
/// let inputs = Array::<f32>::linspace(-1.0, 1.0, 64)?;
/// let slopes = Group::threads(2, |group| {
///     let mut slope = Array::full([], group.rank() as f32)?;
///     let mut parallel = DataParallel::new(&group);
///     parallel.broadcast(&mut slope)?;
///     let mut optimizer = Sgd::new(0.5);
///     let sampler = Sampler::new(64, 16).shuffle(1).group(&group);
///     for epoch in 0..20 {
///         for batch in sampler.epoch(epoch)? {
///             let x = inputs.take(&batch, 0)?;
///             let (_, gradient) = parallel.value_and_grad(&slope, |slope| (&x * slope - &x * 3.0).square().mean())?;
///             optimizer.step(&mut slope, &gradient)?;
///         }
///     }
///     slope.item()
/// })?;
/// assert!((slopes[0] - 3.0).abs() < 1e-3);
/// assert_eq!(slopes[0], slopes[1]);
/// # Ok::<(), cachescope::Error>(())
/// ```
pub struct DataParallel {
    group: Group,
    sizes: BucketSizes,
    /// The parameters of the first step, and their buckets. Parameters and buckets are equal on all
    /// ranks.
    agreed: Option<(Roster, BucketLayout)>,
    /// The buckets of [`accumulate`](Self::accumulate).
    accumulated: Option<Buckets>,
}

impl DataParallel {
    /// Creates a `DataParallel` with buckets of at most 25 MiB, and a first bucket of at most 1
    /// MiB.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::{DataParallel, Group};
    ///
    /// let gradients = Group::threads(2, |group| {
    ///     let x = Array::<f32>::ones(2)?;
    ///     let factor = group.rank() as f32;
    ///     let (_, gradient) = DataParallel::new(&group).value_and_grad(&x, |x| (x * factor).sum())?;
    ///     gradient.to_vec()
    /// })?;
    /// assert_eq!(gradients, [[0.5, 0.5], [0.5, 0.5]]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn new(group: &Group) -> Self {
        Self {
            group: group.clone(),
            sizes: BucketSizes {
                first_bytes: FIRST_BUCKET_BYTES,
                bytes: BUCKET_BYTES,
                // Each rank's part then consists of whole cache lines.
                unit: 64 * group.size(),
            },
            agreed: None,
            accumulated: None,
        }
    }

    /// Sets the maximum sizes of the first bucket and of the later buckets, in bytes. All ranks
    /// must set equal sizes. A larger gradient gets its own bucket.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::{DataParallel, Group};
    ///
    /// let gradients = Group::threads(2, |group| {
    ///     let layers = vec![Array::<f32>::ones(4)?, Array::full(4, 3.0)?];
    ///     let mut parallel = DataParallel::new(&group).bucket_bytes(16, 16); // One for each gradient.
    ///     let (_, gradients) = parallel.value_and_grad(&layers, |own| (&own[0] * &own[1]).sum())?;
    ///     gradients[0].to_vec()
    /// })?;
    /// assert_eq!(gradients, [[3.0; 4]; 2]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn bucket_bytes(self, first_bytes: usize, bytes: usize) -> Self {
        let sizes = BucketSizes {
            first_bytes,
            bytes,
            ..self.sizes
        };
        Self { sizes, ..self }
    }

    /// Returns the group.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::collective::{DataParallel, Group};
    ///
    /// let ranks = Group::threads(2, |group| Ok(DataParallel::new(&group).group().rank()))?;
    /// assert_eq!(ranks, [0, 1]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Copies the parameters of rank 0 to all ranks. Call this method before the first step.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::{DataParallel, Group};
    ///
    /// let all = Group::threads(2, |group| {
    ///     let mut x = Array::full(2, group.rank() as f32)?;
    ///     DataParallel::new(&group).broadcast(&mut x)?;
    ///     x.to_vec()
    /// })?;
    /// assert_eq!(all, [[0.0, 0.0], [0.0, 0.0]]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Group::broadcast_in_place`].
    #[track_caller]
    pub fn broadcast<P: Parameters>(&self, parameters: &mut P) -> Result<()> {
        broadcast(&self.group, parameters)
    }

    /// Returns the value and the gradients, as means over the ranks. Adds the gradients of earlier
    /// calls of [`accumulate`](Self::accumulate).
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::{DataParallel, Group};
    ///
    /// let gradients = Group::threads(2, |group| {
    ///     let x = Array::from_slice(&[1.0_f64, 2.0], 2)?;
    ///     let factor = (group.rank() + 1) as f64;
    ///     let mut parallel = DataParallel::new(&group);
    ///     let (value, gradient) = parallel.value_and_grad(&x, |x| (x * factor).sum())?;
    ///     assert_eq!(value.item()?, 4.5);
    ///     gradient.to_vec()
    /// })?;
    /// assert_eq!(gradients, [[1.5, 1.5], [1.5, 1.5]]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`value_and_grad`](crate::grad::value_and_grad) and of [`Group::all_reduce`].
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the names, types or shapes of the
    /// parameters differ from the first call.
    #[track_caller]
    pub fn value_and_grad<P: Parameters, L: Loss>(
        &mut self,
        parameters: &P,
        function: impl FnOnce(&P) -> Result<L>,
    ) -> Result<(Array<L::Item>, P)> {
        let (value, buckets) = self.fill(parameters, function, (Exchange::Average, None, 1.0))?;
        let value = self.group.all_reduce(&value, Reduce::Mean)?;
        Ok((value, buckets.gradients(parameters)?))
    }

    /// Returns the value on this rank, and stores the gradients. The next call adds its gradients
    /// to the stored gradients. Use this method for a batch that is computed in several parts: the
    /// gradients are sums over the parts. Gradients in `f16` and `bf16` are added in `f32`, also
    /// over the ranks, and rounded once. Ranks exchange messages only in the first step. A call
    /// that fails loses the stored gradients. For a [`LossScaled`](crate::grad::optim::LossScaled)
    /// optimizer, return the loss times its [`scale`](crate::grad::optim::LossScaled::scale).
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::{DataParallel, Group};
    ///
    /// Group::threads(2, |group| {
    ///     let x = Array::from_slice(&[1.0_f32, 2.0], 2)?;
    ///     let mut parallel = DataParallel::new(&group);
    ///     parallel.accumulate(&x, |x| (x * 2.0).sum())?;
    ///     let (_, gradient) = parallel.value_and_grad(&x, |x| (x * 3.0).sum())?;
    ///     assert_eq!(gradient.to_vec()?, [5.0, 5.0]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`value_and_grad`](Self::value_and_grad).
    #[track_caller]
    pub fn accumulate<P: Parameters, L: Loss>(
        &mut self,
        parameters: &P,
        function: impl FnOnce(&P) -> Result<L>,
    ) -> Result<Array<L::Item>> {
        let (value, buckets) =
            self.fill(parameters, function, (Exchange::Accumulate, None, 1.0))?;
        self.accumulated = Some(buckets);
        Ok(value)
    }

    /// Steps an optimizer whose states are divided among the ranks. Returns the value of
    /// `function`, as the mean over the ranks. The gradients use the buckets of the optimizer's
    /// first step.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::{DataParallel, Group, Sharded};
    /// use cachescope::grad::optim::Sgd;
    ///
    /// let moved = Group::threads(2, |group| {
    ///     let mut x = Array::<f32>::ones(2)?;
    ///     let factor = (1 + 2 * group.rank()) as f32;
    ///     let mut optimizer = Sharded::new(&group, Sgd::new(0.25))?;
    ///     let mut parallel = DataParallel::new(&group);
    ///     parallel.value_and_step(&mut x, &mut optimizer, |x| (x * factor).sum())?;
    ///     x.to_vec()
    /// })?;
    /// assert_eq!(moved, [[0.5, 0.5], [0.5, 0.5]]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`value_and_grad`](Self::value_and_grad) and of the optimizer. After these
    /// errors, some parameters may have changed.
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the optimizer has stepped other
    /// parameters, or if its group has other ranks. After this error, no parameter has changed.
    #[track_caller]
    pub fn value_and_step<P: Parameters, L: Loss, O: Stateful>(
        &mut self,
        parameters: &mut P,
        optimizer: &mut Sharded<O>,
        function: impl FnOnce(&P) -> Result<L>,
    ) -> Result<Array<L::Item>> {
        optimizer.check(&self.group, parameters)?;
        let layout = optimizer.layout();
        let scale = optimizer.optimizer_mut().loss_scale();
        let own = (Exchange::AveragePart, layout, scale);
        let (value, buckets) = self.fill(parameters, function, own)?;
        optimizer.step(parameters, buckets)?;
        self.group.all_reduce(&value, Reduce::Mean)
    }

    /// Runs the forward and the backward pass. The backward pass fills buckets of `layout`. If
    /// `layout` is `None`, it fills buckets of the layout that the ranks agree on.
    #[track_caller]
    fn fill<P: Parameters, L: Loss>(
        &mut self,
        parameters: &P,
        function: impl FnOnce(&P) -> Result<L>,
        (exchange, layout, loss_scale): (Exchange, Option<BucketLayout>, f64),
    ) -> Result<(Array<L::Item>, Buckets)> {
        if let Some((roster, _)) = &self.agreed {
            roster.check("DataParallel", parameters)?;
        }
        let likes = handles(parameters)?;
        let mut own = map_erased(parameters, Ok)?;
        // The `match` is not a `map`, because an error in a closure would report the closure as the
        // caller.
        let accumulated = match self.accumulated.take() {
            Some(accumulated) => Some(accumulated.resumed(layout.as_ref())?),
            None => None,
        };
        let buckets = Rc::new(RefCell::new(accumulated));
        let mut filling = Filling {
            group: self.group.clone(),
            exchange,
            buckets: Rc::clone(&buckets),
            loss_scale,
        };
        let agree = |filling: &mut Filling, order: Order<'_>| {
            if filling.buckets.borrow().is_none() {
                let layout = match layout {
                    Some(layout) => layout,
                    None => self.agreed_layout(&order.numbers, parameters)?,
                };
                *filling.buckets.borrow_mut() = Some(Buckets::new(layout, exchange));
            }
            let placer: Rc<dyn Placer> = Rc::new(GradientSlots {
                buckets: Rc::clone(&filling.buckets),
                variables: order.variables.to_vec(),
                likes,
            });
            Ok(Some(placer))
        };
        let optimizer = (&mut filling, ("DataParallel", &mut None));
        let value = value_and_step_in_order(&mut own, optimizer, function, agree).at_caller()?;
        drop(filling);
        let buckets = buckets.take().expect(MADE);
        Ok((value, buckets))
    }

    /// Returns the layout of the parameters. The first step makes the layout from the gradient
    /// order of rank 0, so that all ranks have equal layouts.
    #[track_caller]
    fn agreed_layout<P: Parameters>(
        &mut self,
        order: &[usize],
        parameters: &P,
    ) -> Result<BucketLayout> {
        if let Some((_, layout)) = &self.agreed {
            return Ok(layout.clone());
        }
        let roster = Roster::of(parameters)?;
        let order = order.iter().map(|&number| number as u64).collect();
        let order = self.group.broadcast_words(order)?;
        let order: Vec<usize> = order.into_iter().map(|number| number as usize).collect();
        let layout = BucketLayout::new(&order, &roster.lengths()?, self.sizes);
        self.agreed = Some((roster, layout.clone()));
        Ok(layout)
    }
}

impl fmt::Debug for DataParallel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataParallel")
            .field("group", &self.group)
            .field("sizes", &self.sizes)
            .finish_non_exhaustive()
    }
}

const MADE: &str = "the buckets were made between the passes";

/// The buckets of a pass, shared by its [`Filling`] and its [`GradientSlots`].
type SharedBuckets = Rc<RefCell<Option<Buckets>>>;

/// Pseudo-optimizer that puts each complete gradient into its bucket. It changes no parameter.
struct Filling {
    group: Group,
    exchange: Exchange,
    buckets: SharedBuckets,
    loss_scale: f64,
}

impl Optimizer for Filling {
    fn loss_scale(&self) -> f64 {
        self.loss_scale
    }

    #[track_caller]
    fn step_one<T: Float>(
        &mut self,
        number: usize,
        _: &mut Array<T>,
        gradient: &Array<T>,
    ) -> Result<()> {
        let mut buckets = self.buckets.borrow_mut();
        let buckets = buckets.as_mut().expect(MADE);
        buckets.put(number, gradient, (&self.group, self.exchange))
    }
}

/// The slots that the backward pass writes gradients to.
struct GradientSlots {
    buckets: SharedBuckets,
    /// The tape's variable of each parameter.
    variables: Vec<u32>,
    /// The parameters. Each gradient has the type and shape of its parameter.
    likes: Vec<AnyArray>,
}

impl Placer for GradientSlots {
    fn place_of(&self, value: u32) -> Result<Option<AnyArray>> {
        let number = self.variables.iter().position(|own| *own == value);
        let Some(number) = number else {
            return Ok(None);
        };
        let mut buckets = self.buckets.borrow_mut();
        let buckets = buckets.as_mut().expect(MADE);
        buckets.place_of(number, &self.likes[number])
    }
}

impl fmt::Debug for GradientSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slots of {} gradients", self.likes.len())
    }
}

/// Copies the parameters of rank 0 to all ranks.
#[track_caller]
fn broadcast<P: Parameters>(group: &Group, parameters: &mut P) -> Result<()> {
    let _call_site = CallSiteOverride::at(Location::caller());
    let nothing = no_elements(parameters).at_caller()?;
    let zipped = parameters.zip_arrays(&nothing, &mut Broadcasting(group));
    zipped.at_caller()
}

struct Broadcasting<'a>(&'a Group);

impl ZipArrays for Broadcasting<'_> {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, _: &Array<T>) -> Result<()> {
        self.0.broadcast_in_place(own, 0)
    }
}
