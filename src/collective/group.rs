//! Groups of ranks.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use super::carrier::Carrier;
use super::engine::Settings;
use super::nccl::{NcclCarrier, NcclId};
use crate::context::Device;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::sync::Arc;

/// The default timeout of calls, as in PyTorch. [`Group::timeout`] sets another timeout.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A handle of one rank of a group, whose ranks compute together. A clone is another handle of the
/// rank.
///
/// All ranks of a group must call equal methods in equal order, with arrays of equal shapes and
/// types. A call begins the exchange and returns. The next use of the array waits for the exchange,
/// like for work on another stream. With [checks](Self::checks), a call waits until all ranks have
/// reached it. If the ranks' calls differ, each call returns an error. Checks are on by default in
/// builds with debug assertions.
///
/// Arrays may be views with any strides, on the host and on CUDA devices. Groups of threads and of
/// MPI copy CUDA arrays through page-locked host memory. If the MPI library is CUDA-aware, it
/// transfers large arrays of `broadcast`, `all_gather` and `all_to_all` directly.
#[derive(Clone)]
pub struct Group {
    pub(super) carrier: Arc<Carrier>,
    pub(super) settings: Settings,
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

    /// Joins a group of `size` CUDA devices as the rank `rank`, with the current device. Waits
    /// until all ranks have joined. Each rank needs its own device, and all ranks must pass equal
    /// `id`s.
    ///
    /// Exchanges are enqueued on a stream of the device. NCCL has no 16-bit integers: these
    /// integers are transferred, but cannot be reduced. The order of NCCL's sums is unspecified.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::collective::{Group, NcclId};
    /// use cachescope::{Device, ErrorKind};
    ///
    /// let _current = Device::host().enter();
    /// let error = Group::nccl(0, 1, NcclId::from_bytes([0; 128])).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Unsupported); // The host has no NCCL.
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) if the current device is the host.
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if `rank` is not below `size`.
    /// [`Driver`](ErrorKind::Driver) if NCCL is missing or fails, or if two ranks use one device.
    /// [`Driver`](ErrorKind::Driver) if not all ranks join within ten minutes.
    #[track_caller]
    pub fn nccl(rank: usize, size: usize, id: NcclId) -> Result<Self> {
        if rank >= size {
            let text = format!("Group::nccl: rank {rank} is out of range for {size} ranks");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let device = Device::current();
        let Some(gpu) = device.backend().cuda() else {
            let text = format!(
                "Group::nccl: {device} is not a CUDA device: use Group::threads or Group::mpi"
            );
            return Err(Error::new(ErrorKind::Unsupported, text));
        };
        let communicator = gpu.join(&id.0, rank, size, TIMEOUT).at_caller()?;
        let carrier = NcclCarrier::new(&device, communicator, rank, size)?;
        Ok(Self::over(Carrier::Nccl(carrier)))
    }

    /// Returns the index of this rank in the group.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::collective::Group;
    ///
    /// let ranks = Group::threads(3, |group| Ok(group.rank()))?;
    /// assert_eq!(ranks, [0, 1, 2]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn rank(&self) -> usize {
        self.carrier.rank()
    }

    /// Returns the number of ranks.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::collective::Group;
    ///
    /// let sizes = Group::threads(2, |group| Ok(group.size()))?;
    /// assert_eq!(sizes, [2, 2]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn size(&self) -> usize {
        self.carrier.size()
    }

    /// Returns the device of this rank. For a group of NCCL, this is the device that the group was
    /// made on. For other groups, it is the current device.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Device;
    /// use cachescope::collective::Group;
    ///
    /// let host = Device::host();
    /// let devices = Group::threads(2, |group| {
    ///     let _current = host.enter();
    ///     Ok(group.device())
    /// })?;
    /// assert_eq!(devices, [Device::host(), Device::host()]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn device(&self) -> Device {
        match &*self.carrier {
            Carrier::Nccl(nccl) => nccl.device.clone(),
            Carrier::Host(_) => Device::current(),
        }
    }

    /// Sets the timeout of calls (default: 10 minutes). The error of a call that times out names
    /// the ranks that are missing.
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
    ///     let group = group.timeout(Duration::from_millis(50));
    ///     match group.rank() {
    ///         0 => group.barrier(),
    ///         _ => Ok(()),
    ///     }
    /// });
    /// assert!(error.unwrap_err().to_string().contains("rank 1"));
    /// ```
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Turns checks on or off. All ranks must make the same choice. With checks, a collective call
    /// compares its operation, shape and type on all ranks. A checked call waits for the other
    /// ranks to reach it, but not for the data. By default, checks are on in builds with debug
    /// assertions.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::{Group, Reduce};
    ///
    /// let refused = Group::threads(2, |group| {
    ///     let group = group.checks(true);
    ///     let mut x = Array::<f32>::ones(2 + group.rank())?; // Another length on each rank.
    ///     Ok(group.all_reduce_in_place(&mut x, Reduce::Sum).is_err())
    /// })?;
    /// assert_eq!(refused, [true, true]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn checks(mut self, checks: bool) -> Self {
        self.settings.checks = checks;
        self
    }

    /// Divides the group, like `MPI_Comm_split`. Ranks with equal `color` form a new group, ordered
    /// by `key`, then by rank in this group. All ranks of this group must call this method.
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
    ///     pair.all_reduce_in_place(&mut x, Reduce::Sum)?;
    ///     Ok((pair.size(), x.to_vec()?[0]))
    /// })?;
    /// assert_eq!(sums, [(2, 1.0), (2, 1.0), (2, 5.0), (2, 5.0)]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`barrier`](Self::barrier).
    #[track_caller]
    pub fn split(&self, color: usize, key: usize) -> Result<Self> {
        Ok(Self {
            carrier: Arc::new(self.carrier.split((color, key), self.settings)?),
            settings: self.settings,
        })
    }

    /// Waits until all ranks have reached the barrier, and until their earlier exchanges have
    /// ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// use cachescope::collective::Group;
    ///
    /// let reached = AtomicUsize::new(0);
    /// Group::threads(3, |group| {
    ///     reached.fetch_add(1, Ordering::Relaxed);
    ///     group.barrier()?;
    ///     assert_eq!(reached.load(Ordering::Relaxed), 3);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Communication`](crate::ErrorKind::Communication), with the number of the rank, if another
    /// rank ended, failed or timed out. [`Communication`](crate::ErrorKind::Communication) if
    /// another rank waits for this rank in another call.
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the calls of the ranks differ, or
    /// if the group has ended.
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        self.carrier.barrier(self.settings)
    }

    /// Runs `body` as this rank. If `body` returns an error or panics, the error of the other
    /// ranks' current or next call contains the reason.
    ///
    /// Without `run`, the library cannot observe that `main` returns an error, and the other ranks
    /// receive no reason. [`threads`](Self::threads) reports the reasons of its ranks itself. NCCL
    /// transfers no reasons. With NCCL, `run` only returns the error, and the other ranks wait
    /// until their timeout.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::{Group, Reduce};
    ///
    /// let group = Group::from_environment()?;
    /// group.run(|group| {
    ///     let mut loss = Array::full([], 0.5_f32)?;
    ///     group.all_reduce_in_place(&mut loss, Reduce::Mean)
    /// })?;
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `body`. After an error, this rank takes part in no exchange, except with NCCL.
    ///
    /// # Panics
    ///
    /// If `body` panics. `run` reports the reason to the other ranks and then resumes the panic.
    pub fn run<R>(&self, body: impl FnOnce(&Self) -> Result<R>) -> Result<R> {
        let outcome = catch_unwind(AssertUnwindSafe(|| body(self)));
        let outcome = outcome.unwrap_or_else(|panic| {
            self.carrier.leave("it panicked".to_owned());
            resume_unwind(panic)
        });
        outcome.inspect_err(|error| self.carrier.leave(format!("it failed: {error}")))
    }

    /// Broadcasts words of metadata from rank 0, and returns them on every rank.
    #[track_caller]
    pub(super) fn broadcast_words(&self, words: Vec<u64>) -> Result<Vec<u64>> {
        self.carrier.broadcast_words(words, self.settings)
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group(rank {} of {})", self.rank(), self.size())
    }
}
