//! The collective operations of a group, and send and receive.

use std::panic::Location;

use super::call::{Call, Operation, Reduce};
use super::group::Group;
use super::memory::{Span, Spans};
use super::target::Exchanged;
use crate::array::{AnyElement, Array, Buffer, Layout, Shape, refuse_tracked};
use crate::error::{AtCaller, CallSiteOverride, Error, ErrorKind, Result};

impl Group {
    /// Reduces each element over all ranks, in place. Every rank gets the result. `x` is an array
    /// or a slice of an array.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::{Group, Reduce};
    ///
    /// let means = Group::threads(4, |group| {
    ///     let mut gradient = Array::full(5, group.rank() as f32)?;
    ///     group.all_reduce_in_place(&mut gradient, Reduce::Mean)?;
    ///     gradient.to_vec()
    /// })?;
    /// assert_eq!(means, vec![vec![1.5; 5]; 4]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`barrier`](Self::barrier), from this call or from the next use of the array.
    /// [`ShapeMismatch`](ErrorKind::ShapeMismatch) if the arrays of two ranks differ in shape.
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the reduction is not defined for the
    /// type. [`Unsupported`](ErrorKind::Unsupported) if the array is tracked for gradients (pass
    /// [`stop_gradient(&array)`](crate::grad::stop_gradient)).
    #[track_caller]
    pub fn all_reduce_in_place<X: Exchanged>(&self, x: &mut X, reduce: Reduce) -> Result<()> {
        let _call_site = CallSiteOverride::at(Location::caller());
        x.exchange("all_reduce", |x| {
            reduce.check("all_reduce", X::Item::DTYPE)?;
            self.in_place(x, Operation::AllReduce(reduce))
        })
        .at_caller()
    }

    /// Reduces each element over all ranks, and returns the result as a new array.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::{Group, Reduce};
    ///
    /// let largest = Group::threads(3, |group| {
    ///     let x = Array::full([], group.rank() as i32)?;
    ///     group.all_reduce(&x, Reduce::Max)?.item()
    /// })?;
    /// assert_eq!(largest, [2, 2, 2]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`all_reduce_in_place`](Self::all_reduce_in_place), and
    /// [`OutOfMemory`](ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn all_reduce<T: AnyElement>(&self, x: &Array<T>, reduce: Reduce) -> Result<Array<T>> {
        reduce.check("all_reduce", T::DTYPE)?;
        self.to_new(x, Operation::AllReduce(reduce), *x.layout().shape())
    }

    /// Reduces each element over all ranks, in place on the rank `root`. The arrays of other ranks
    /// are unchanged.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::{Group, Reduce};
    ///
    /// let sums = Group::threads(2, |group| {
    ///     let mut x = Array::full([], 1.5_f64)?;
    ///     group.reduce_in_place(&mut x, Reduce::Sum, 1)?;
    ///     x.item()
    /// })?;
    /// assert_eq!(sums, [1.5, 3.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`all_reduce_in_place`](Self::all_reduce_in_place), and
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the group has no rank `root`.
    #[track_caller]
    pub fn reduce_in_place<X: Exchanged>(
        &self,
        x: &mut X,
        reduce: Reduce,
        root: usize,
    ) -> Result<()> {
        self.check_rank("reduce", root)?;
        let _call_site = CallSiteOverride::at(Location::caller());
        x.exchange("reduce", |x| {
            reduce.check("reduce", X::Item::DTYPE)?;
            self.in_place(x, Operation::Reduce(reduce, root))
        })
        .at_caller()
    }

    /// Copies the array of the rank `root` to all ranks, in place.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::Group;
    ///
    /// let all = Group::threads(3, |group| {
    ///     let mut x = Array::full(2, group.rank() as i64)?;
    ///     group.broadcast_in_place(&mut x, 2)?;
    ///     x.to_vec()
    /// })?;
    /// assert_eq!(all, [[2, 2], [2, 2], [2, 2]]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`reduce_in_place`](Self::reduce_in_place).
    #[track_caller]
    pub fn broadcast_in_place<X: Exchanged>(&self, x: &mut X, root: usize) -> Result<()> {
        self.check_rank("broadcast", root)?;
        let _call_site = CallSiteOverride::at(Location::caller());
        x.exchange("broadcast", |x| {
            self.in_place(x, Operation::Broadcast(root))
        })
        .at_caller()
    }

    /// Returns the arrays of all ranks, concatenated along the first axis in rank order. Single
    /// values are concatenated to a vector.
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
    /// The errors of [`all_reduce`](Self::all_reduce), and
    /// [`InvalidShape`](ErrorKind::InvalidShape) if a size overflows.
    #[track_caller]
    pub fn all_gather<T: AnyElement>(&self, x: &Array<T>) -> Result<Array<T>> {
        let mut dims = match x.shape() {
            [] => vec![1],
            dims => dims.to_vec(),
        };
        dims[0] = dims[0].saturating_mul(self.size());
        self.to_new(x, Operation::AllGather, Shape::from(dims))
    }

    /// Reduces each element over all ranks, and returns this rank's part of the result. The first
    /// axis is divided evenly among the ranks.
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
    /// The errors of [`all_reduce`](Self::all_reduce), and
    /// [`InvalidShape`](ErrorKind::InvalidShape) if the number of ranks does not divide the length
    /// of the first axis.
    #[track_caller]
    pub fn reduce_scatter<T: AnyElement>(&self, x: &Array<T>, reduce: Reduce) -> Result<Array<T>> {
        reduce.check("reduce_scatter", T::DTYPE)?;
        let part = self.divided("reduce_scatter", x)?;
        self.to_new(x, Operation::ReduceScatter(reduce), part)
    }

    /// Sends one part of the array to each rank. Returns the parts that this rank received,
    /// concatenated in rank order. The first axis is divided evenly among the ranks.
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
    /// The errors of [`reduce_scatter`](Self::reduce_scatter).
    #[track_caller]
    pub fn all_to_all<T: AnyElement>(&self, x: &Array<T>) -> Result<Array<T>> {
        self.divided("all_to_all", x)?;
        self.to_new(x, Operation::AllToAll, *x.layout().shape())
    }

    /// Sends an array to the rank `to`, which receives it by [`recv`](Self::recv). Messages between
    /// two ranks arrive in the order of the calls.
    ///
    /// On threads and over MPI, the array is copied, and the call waits for no other rank. Over
    /// NCCL, the send completes when the array is received. Until then, this rank's next use of the
    /// array or the group waits.
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
    /// The errors of [`reduce_in_place`](Self::reduce_in_place).
    #[track_caller]
    pub fn send<T: AnyElement>(&self, x: &Array<T>, to: usize) -> Result<()> {
        self.check_rank("send", to)?;
        let x = plain("send", x)?;
        let call = Call::of(Operation::Send(to), &x);
        let spans = Spans {
            source: Some(Span::of(&x)),
            target: None,
        };
        self.carrier.submit(call, spans, self.settings)
    }

    /// Receives an array from the rank `from` into `x`. The sent array and `x` must have equal
    /// shapes and types.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::Group;
    /// use cachescope::ndarray::s;
    ///
    /// let received = Group::threads(2, |group| {
    ///     let mut x = Array::<i32>::zeros(4)?;
    ///     match group.rank() {
    ///         0 => group.send(&Array::<i32>::ones(2)?, 1)?,
    ///         _ => group.recv(&mut x.slice_mut(s![1..3])?, 0)?,
    ///     }
    ///     x.to_vec()
    /// })?;
    /// assert_eq!(received, [[0, 0, 0, 0], [0, 1, 1, 0]]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`all_reduce_in_place`](Self::all_reduce_in_place). If the shapes or types
    /// differ, `x` is unchanged.
    #[track_caller]
    pub fn recv<X: Exchanged>(&self, x: &mut X, from: usize) -> Result<()> {
        self.check_rank("recv", from)?;
        let _call_site = CallSiteOverride::at(Location::caller());
        x.exchange("recv", |x| {
            let spans = Spans {
                source: None,
                target: Some(Span::of(x)),
            };
            let call = Call::of(Operation::Receive(from), x);
            self.carrier.submit(call, spans, self.settings)
        })
        .at_caller()
    }

    /// Issues a call that reads and writes one array, without copy on write. Therefore the change
    /// is visible through other handles.
    #[track_caller]
    pub(super) fn in_place<T: AnyElement>(
        &self,
        x: &mut Array<T>,
        operation: Operation,
    ) -> Result<()> {
        let own = Some(Span::of(x));
        let writes = match operation {
            Operation::Reduce(_, root) => root == self.rank(),
            Operation::Broadcast(root) => root != self.rank(),
            _ => true,
        };
        let spans = Spans {
            source: own,
            target: own.filter(|_| writes),
        };
        self.carrier
            .submit(Call::of(operation, x), spans, self.settings)
    }

    /// Issues a call that returns its result as a new array of `shape`.
    #[track_caller]
    fn to_new<T: AnyElement>(
        &self,
        x: &Array<T>,
        operation: Operation,
        shape: Shape,
    ) -> Result<Array<T>> {
        let x = plain(operation.name(), x)?;
        let buffer = Buffer::new(x.device(), shape.size_bytes(size_of::<T>())?)?;
        let result = Array::from_parts(buffer, Layout::contiguous(&shape)?);
        let spans = Spans::between(&x, &result);
        self.carrier
            .submit(Call::of(operation, &x), spans, self.settings)?;
        Ok(result)
    }

    #[track_caller]
    fn check_rank(&self, operation: &str, rank: usize) -> Result<()> {
        if rank < self.size() {
            return Ok(());
        }
        let text = format!(
            "{operation}: rank {rank} is out of range for a group of {} ranks",
            self.size()
        );
        Err(Error::new(ErrorKind::InvalidArgument, text))
    }

    /// Returns the shape of one rank's part of an array.
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

/// Returns the array, or a contiguous copy if the array is not contiguous. Returns an error if the
/// array is tracked for gradients.
#[track_caller]
fn plain<T: AnyElement>(operation: &str, x: &Array<T>) -> Result<Array<T>> {
    refuse_tracked(operation, x.buffer().value_id())?;
    match x.layout().is_contiguous() {
        true => Ok(x.clone()),
        false => x.lazy().eval_unfused(),
    }
}
