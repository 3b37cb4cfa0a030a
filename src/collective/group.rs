//! Groups of ranks, and what they do together.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use super::call::{Call, Operation, Reduce};
use super::carrier::Carrier;
use super::memory::{Span, Spans};
use super::target::Exchanged;
use crate::array::{AnyElement, Array, Buffer, DType, Layout, Shape, refuse_followed};
use crate::context::Device;
use crate::error::{Asking, AtCaller, Error, ErrorKind, Result};
use crate::sync::Arc;

/// How long a rank waits for the others, unless [`Group::with_timeout`] says otherwise: as in PyTorch.
pub(super) const TIMEOUT: Duration = Duration::from_secs(600);

/// Ranks that compute together, seen from one of them. A clone is another handle of the same rank.
///
/// All ranks of a group call the same methods, in one order, with arrays of the same shape and type. A call begins the exchange and
/// returns; whatever uses the array next waits for it, as it does for work on another stream. With
/// [checks](Self::with_checks), which builds with debug assertions make, a call waits until all ranks have come, and returns an error on
/// all of them where they do not agree.
///
/// Arrays may be views, of any strides, on the host and on CUDA devices. Groups of threads and of MPI carry those of CUDA devices
/// through pinned memory of the host.
#[derive(Clone)]
pub struct Group {
    pub(super) carrier: Arc<Carrier>,
    pub(super) settings: Settings,
}

/// How calls are made; the same on all ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) timeout: Duration,
    pub(super) checks: bool,
}

impl Group {
    pub(super) fn over(carrier: Carrier) -> Self {
        Self {
            carrier: Arc::new(carrier),
            settings: Settings {
                timeout: TIMEOUT,
                checks: cfg!(debug_assertions),
            },
        }
    }

    /// The number of this rank in the group, from 0 on.
    pub fn rank(&self) -> usize {
        self.carrier.rank()
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.carrier.size()
    }

    /// The device of this rank: of NCCL's groups the one that they were made on, else the current one.
    pub fn device(&self) -> Device {
        match &*self.carrier {
            Carrier::Nccl(nccl) => nccl.device().clone(),
            Carrier::Host(_) => Device::current(),
        }
    }

    /// The same ranks, whose calls wait for the others so long at most; ten minutes unless it is set. A rank that does not come by
    /// then is named in an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use cachescope::collective::Group;
    ///
    /// // The other rank ends before it comes to the barrier, or comes too late.
    /// let error = Group::threads(2, |group| {
    ///     let group = group.with_timeout(Duration::from_millis(50));
    ///     match group.rank() {
    ///         0 => group.barrier(),
    ///         _ => Ok(()),
    ///     }
    /// });
    /// assert!(error.unwrap_err().to_string().contains("rank 1"));
    /// ```
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        let settings = Settings {
            timeout,
            ..self.settings
        };
        Self { settings, ..self }
    }

    /// The same ranks, whose calls compare what they are about, or do not; it is to be the same on all ranks. Builds with debug
    /// assertions compare unless told otherwise. A call that compares waits for the other ranks to come, though not for the data.
    #[must_use]
    pub fn with_checks(self, checks: bool) -> Self {
        let settings = Settings {
            checks,
            ..self.settings
        };
        Self { settings, ..self }
    }

    /// The ranks that give the same `color`, as a group of their own, in the order of their `key`, and among equals of their ranks: what
    /// MPI calls `MPI_Comm_split`. Every rank of this group calls it.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::{Group, Reduce};
    ///
    /// let sums = Group::threads(4, |group| {
    ///     let pair = group.split(group.rank() / 2, group.rank())?;
    ///     let mut x = Array::full(3, group.rank() as f32)?;
    ///     pair.all_reduce(&mut x, Reduce::Sum)?;
    ///     Ok((pair.size(), x.to_vec()?[0]))
    /// })?;
    /// assert_eq!(sums, [(2, 1.0), (2, 1.0), (2, 5.0), (2, 5.0)]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`barrier`](Self::barrier).
    #[track_caller]
    pub fn split(&self, color: usize, key: usize) -> Result<Self> {
        Ok(Self {
            carrier: Arc::new(self.carrier.split((color, key), self.settings)?),
            settings: self.settings,
        })
    }

    /// Waits until all ranks have come here, and for what they began before.
    ///
    /// # Errors
    ///
    /// [`Communication`](ErrorKind::Communication), which names the rank, where another one ended, failed, did not come in time, or waits
    /// for this one in another call; [`InvalidArgument`](ErrorKind::InvalidArgument) where the ranks do not agree, and after the end
    /// of the group.
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        self.carrier.barrier(self.settings)
    }

    /// Makes each element that of all ranks together, on every rank: in place, in an array or a part of one.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::{Group, Reduce};
    ///
    /// let means = Group::threads(4, |group| {
    ///     let mut gradient = Array::full(5, group.rank() as f32)?;
    ///     group.all_reduce(&mut gradient, Reduce::Mean)?;
    ///     gradient.to_vec()
    /// })?;
    /// assert_eq!(means, vec![vec![1.5; 5]; 4]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`barrier`](Self::barrier), here or where the array is used next;
    /// [`ShapeMismatch`](ErrorKind::ShapeMismatch) where a rank has another shape; [`InvalidArgument`](ErrorKind::InvalidArgument) for a
    /// type that cannot be reduced so.
    #[track_caller]
    pub fn all_reduce<X: Exchanged>(&self, x: &mut X, reduce: Reduce) -> Result<()> {
        let _asking = Asking::at(Location::caller());
        x.exchange("all_reduce", |x| {
            reduce.check("all_reduce", DType::of(x))?;
            self.in_place(x, Operation::AllReduce(reduce))
        })
        .at_caller()
    }

    /// The same for an array of which others have handles: they see the change.
    #[track_caller]
    pub(super) fn all_reduce_shared<T: AnyElement>(
        &self,
        x: &mut Array<T>,
        reduce: Reduce,
    ) -> Result<()> {
        self.in_place(x, Operation::AllReduce(reduce))
    }

    /// The same as a new array.
    ///
    /// # Errors
    ///
    /// Those of [`all_reduce`](Self::all_reduce), and [`OutOfMemory`](ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn all_reduced<T: AnyElement>(&self, x: &Array<T>, reduce: Reduce) -> Result<Array<T>> {
        reduce.check("all_reduced", T::DTYPE)?;
        self.to_new(x, Operation::AllReduce(reduce), *x.layout().shape())
    }

    /// Makes each element that of all ranks together, on the rank `root`. On the others, the array is as it was.
    ///
    /// # Errors
    ///
    /// Those of [`all_reduce`](Self::all_reduce), and [`InvalidArgument`](ErrorKind::InvalidArgument) where there is no rank `root`.
    #[track_caller]
    pub fn reduce<X: Exchanged>(&self, x: &mut X, reduce: Reduce, root: usize) -> Result<()> {
        self.check_rank("reduce", root)?;
        let _asking = Asking::at(Location::caller());
        x.exchange("reduce", |x| {
            reduce.check("reduce", DType::of(x))?;
            self.in_place(x, Operation::Reduce(reduce, root))
        })
        .at_caller()
    }

    /// Makes each element that of the rank `root`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::Group;
    ///
    /// let all = Group::threads(3, |group| {
    ///     let mut x = Array::full(2, group.rank() as i64)?;
    ///     group.broadcast(&mut x, 2)?;
    ///     x.to_vec()
    /// })?;
    /// assert_eq!(all, [[2, 2], [2, 2], [2, 2]]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`reduce`](Self::reduce).
    #[track_caller]
    pub fn broadcast<X: Exchanged>(&self, x: &mut X, root: usize) -> Result<()> {
        self.check_rank("broadcast", root)?;
        let _asking = Asking::at(Location::caller());
        x.exchange("broadcast", |x| {
            self.in_place(x, Operation::Broadcast(root))
        })
        .at_caller()
    }

    /// The arrays of all ranks, one after the other along the first axis; single values become a vector.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::Group;
    ///
    /// let all = Group::threads(2, |group| {
    ///     let x = Array::full([1, 2], group.rank() as u8)?;
    ///     let all = group.all_gather(&x)?;
    ///     assert_eq!(all.shape(), [2, 2]);
    ///     all.to_vec()
    /// })?;
    /// assert_eq!(all, [[0, 0, 1, 1], [0, 0, 1, 1]]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`all_reduced`](Self::all_reduced), and [`InvalidShape`](ErrorKind::InvalidShape) for sizes that overflow.
    #[track_caller]
    pub fn all_gather<T: AnyElement>(&self, x: &Array<T>) -> Result<Array<T>> {
        let mut dims = match x.shape() {
            [] => vec![1],
            dims => dims.to_vec(),
        };
        dims[0] = dims[0].saturating_mul(self.size());
        self.to_new(x, Operation::AllGather, Shape::from(dims))
    }

    /// The part of this rank of what all ranks are together: of the first axis, which is divided among the ranks.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::{Group, Reduce};
    ///
    /// let parts = Group::threads(2, |group| {
    ///     let x = Array::from_slice(&[1, 2, 3, 4], 4)?;
    ///     group.reduce_scatter(&x, Reduce::Sum)?.to_vec()
    /// })?;
    /// assert_eq!(parts, [[2, 4], [6, 8]]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`all_reduced`](Self::all_reduced), and [`InvalidShape`](ErrorKind::InvalidShape) where the first axis does not
    /// divide.
    #[track_caller]
    pub fn reduce_scatter<T: AnyElement>(&self, x: &Array<T>, reduce: Reduce) -> Result<Array<T>> {
        reduce.check("reduce_scatter", T::DTYPE)?;
        let part = self.divided("reduce_scatter", x)?;
        self.to_new(x, Operation::ReduceScatter(reduce), part)
    }

    /// Of each rank the part for this one, one after the other: parts are those of the first axis, which is divided among the ranks.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::Group;
    ///
    /// let all = Group::threads(2, |group| {
    ///     let own = 10 * group.rank() as i32;
    ///     group.all_to_all(&Array::from_slice(&[own, own + 1], 2)?)?.to_vec()
    /// })?;
    /// assert_eq!(all, [[0, 10], [1, 11]]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`reduce_scatter`](Self::reduce_scatter).
    #[track_caller]
    pub fn all_to_all<T: AnyElement>(&self, x: &Array<T>) -> Result<Array<T>> {
        self.divided("all_to_all", x)?;
        self.to_new(x, Operation::AllToAll, *x.layout().shape())
    }

    /// Sends an array to the rank `to`, which receives it by [`recv`](Self::recv): of two ranks, in the order of the calls.
    ///
    /// On threads and over MPI it is copied, and waits for nobody. NCCL's waits until it is received, as whatever uses the array or the
    /// group next on this rank.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::Group;
    ///
    /// Group::threads(2, |group| {
    ///     let other = 1 - group.rank();
    ///     group.send(&Array::full(3, group.rank() as f32)?, other)?;
    ///     let mut x = Array::<f32>::zeros(3)?;
    ///     group.recv(&mut x, other)?;
    ///     assert_eq!(x.to_vec()?, [other as f32; 3]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`reduce`](Self::reduce).
    #[track_caller]
    pub fn send<T: AnyElement>(&self, x: &Array<T>, to: usize) -> Result<()> {
        self.check_rank("send", to)?;
        let x = plain("send", x)?;
        let call = call(Operation::Send(to), &x);
        let spans = Spans {
            source: Some(span(&x)),
            target: None,
        };
        self.carrier.ask(call, spans, self.settings)
    }

    /// Makes each element that of the array that the rank `from` sends, of the same shape and type.
    ///
    /// # Errors
    ///
    /// Those of [`all_reduce`](Self::all_reduce): the array stays as it was where another one was sent.
    #[track_caller]
    pub fn recv<X: Exchanged>(&self, x: &mut X, from: usize) -> Result<()> {
        self.check_rank("recv", from)?;
        let _asking = Asking::at(Location::caller());
        x.exchange("recv", |x| {
            let spans = Spans {
                source: None,
                target: Some(span(x)),
            };
            let call = call(Operation::Receive(from), x);
            self.carrier.ask(call, spans, self.settings)
        })
        .at_caller()
    }

    /// What the first rank has told, on every rank.
    #[track_caller]
    pub(super) fn told_by_first(&self, words: Vec<u64>) -> Result<Vec<u64>> {
        self.carrier.told_by_first(words, self.settings)
    }

    /// A call that reads and writes the same memory.
    #[track_caller]
    fn in_place<T: AnyElement>(&self, x: &mut Array<T>, operation: Operation) -> Result<()> {
        let own = Some(span(x));
        let writes = match operation {
            Operation::Reduce(_, root) => root == self.rank(),
            Operation::Broadcast(root) => root != self.rank(),
            _ => true,
        };
        let spans = Spans {
            source: own,
            target: own.filter(|_| writes),
        };
        self.carrier.ask(call(operation, x), spans, self.settings)
    }

    /// A call whose result, of `shape`, is a new array.
    #[track_caller]
    fn to_new<T: AnyElement>(
        &self,
        x: &Array<T>,
        operation: Operation,
        shape: Shape,
    ) -> Result<Array<T>> {
        let x = plain(operation.name(), x)?;
        let buffer = Buffer::new(x.device(), shape.size_bytes::<T>()?)?;
        let result = Array::from_parts(buffer, Layout::contiguous(&shape)?);
        let spans = Spans {
            source: Some(span(&x)),
            target: Some(span(&result)),
        };
        self.carrier
            .ask(call(operation, &x), spans, self.settings)?;
        Ok(result)
    }

    #[track_caller]
    fn check_rank(&self, operation: &str, rank: usize) -> Result<()> {
        if rank < self.size() {
            return Ok(());
        }
        let text = format!(
            "{operation}: there is no rank {rank} in a group of {}",
            self.size()
        );
        Err(Error::new(ErrorKind::InvalidArgument, text))
    }

    /// The shape of one rank's part of an array.
    #[track_caller]
    fn divided<T: AnyElement>(&self, operation: &str, x: &Array<T>) -> Result<Shape> {
        let size = self.size();
        match x.shape() {
            [first, rest @ ..] if first % size == 0 => {
                let dims: Vec<usize> = std::iter::once(first / size).chain(rest.to_vec()).collect();
                Ok(Shape::from(dims))
            }
            _ => {
                let shape = x.layout().shape();
                let text = format!(
                    "{operation}: the first axis of {shape} does not divide among {size} ranks"
                );
                Err(Error::new(ErrorKind::InvalidShape, text))
            }
        }
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group(rank {} of {})", self.rank(), self.size())
    }
}

impl DType {
    /// Of an array's elements.
    fn of<T: AnyElement>(_: &Array<T>) -> Self {
        T::DTYPE
    }
}

fn call<T: AnyElement>(operation: Operation, x: &Array<T>) -> Call {
    Call {
        operation,
        dtype: T::DTYPE,
        shape: *x.layout().shape(),
    }
}

/// An array's elements, which have no gaps.
fn span<T: AnyElement>(x: &Array<T>) -> Span<'_> {
    Span {
        buffer: x.buffer(),
        address: x.address(),
        bytes: x.size_bytes(),
    }
}

/// The array, or a copy where it has gaps; no gradients pass through.
#[track_caller]
fn plain<T: AnyElement>(operation: &str, x: &Array<T>) -> Result<Array<T>> {
    refuse_followed(operation, x.buffer().node())?;
    match x.layout().is_contiguous() {
        true => Ok(x.clone()),
        false => x.lazy().eval(),
    }
}
