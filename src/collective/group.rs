//! Groups of ranks.

use std::fmt;
use std::time::Duration;

use super::carrier::Carrier;
use crate::context::Device;
use crate::error::Result;
use crate::sync::Arc;

/// How long a rank waits for the others, unless [`Group::with_timeout`] says otherwise: as in
/// PyTorch.
pub(super) const TIMEOUT: Duration = Duration::from_secs(600);

/// Ranks that compute together, seen from one of them. A clone is another handle of the same rank.
///
/// All ranks of a group call the same methods, in one order, with arrays of the same shape and
/// type. A call begins the exchange and returns; whatever uses the array next waits for it, as it
/// does for work on another stream. With [checks](Self::with_checks), which builds with debug
/// assertions make, a call waits until all ranks have come, and returns an error on all of them
/// where they do not agree.
///
/// Arrays may be views, of any strides, on the host and on CUDA devices. Groups of threads carry
/// those of CUDA devices through pinned memory of the host; so do those of MPI, unless the library
/// knows CUDA and need not sum.
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

    /// The device of this rank: of NCCL's groups the one that they were made on, else the current
    /// one.
    pub fn device(&self) -> Device {
        match &*self.carrier {
            Carrier::Nccl(nccl) => nccl.device().clone(),
            Carrier::Host(_) => Device::current(),
        }
    }

    /// The same ranks, whose calls wait for the others so long at most; ten minutes unless it is
    /// set. A rank that does not come by then is named in an error.
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

    /// The same ranks, whose calls compare what they are about, or do not; it is to be the same on
    /// all ranks. Builds with debug assertions compare unless told otherwise. A call that compares
    /// waits for the other ranks to come, though not for the data.
    #[must_use]
    pub fn with_checks(self, checks: bool) -> Self {
        let settings = Settings {
            checks,
            ..self.settings
        };
        Self { settings, ..self }
    }

    /// The ranks that give the same `color`, as a group of their own, in the order of their `key`,
    /// and among equals of their ranks: what MPI calls `MPI_Comm_split`. Every rank of this group
    /// calls it.
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
    /// [`Communication`](crate::ErrorKind::Communication), which names the rank, where another one
    /// ended, failed, did not come in time, or waits for this one in another call;
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) where the ranks do not agree, and
    /// after the end of the group.
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        self.carrier.barrier(self.settings)
    }

    /// What the first rank has told, on every rank.
    #[track_caller]
    pub(super) fn told_by_first(&self, words: Vec<u64>) -> Result<Vec<u64>> {
        self.carrier.told_by_first(words, self.settings)
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group(rank {} of {})", self.rank(), self.size())
    }
}
