//! Ranks that are processes, on one machine or several, started by MPI.
//!
//! Architecture invariant: this module compiles with and without the feature `mpi`, with the same
//! signatures. So the layers above need no `cfg`.
//!
//! MPI gets device memory for calls that move bytes unchanged. For sums, it gets host memory,
//! because the host computes sums in the order of the ranks. `send` returns before the peer
//! receives, so it copies the data. The copy is on the host, which has more memory to spare.

#[cfg(not(feature = "mpi"))]
mod disabled;
#[cfg(feature = "mpi")]
mod enabled;

use super::carrier::Carrier;
use super::group::Group;
use crate::context::{Switch, setting};
use crate::error::Result;
#[cfg(not(feature = "mpi"))]
use disabled::world;
#[cfg(feature = "mpi")]
use enabled::world;

impl Group {
    /// Returns the group of all processes that MPI has started. Each process is one rank: `mpirun
    /// -n 4 program`, or `srun`. Needs the feature `mpi`, and an MPI library where the program is
    /// built and where it runs. A process that was not started by MPI is a group of one rank.
    ///
    /// The first call initialises MPI, unless the program has done so. All ranks must make the
    /// first call. Every call returns another handle of the same group. The library makes one MPI
    /// call at a time, from several threads. If the program itself initialises MPI, it must request
    /// `MPI_THREAD_SERIALIZED` or more. It finalises MPI after its last use of the group.
    ///
    /// When `main` returns, the process waits until the other processes end, too, like
    /// `MPI_Finalize`. After an error of [`Communication`](crate::ErrorKind::Communication) it
    /// waits for two seconds, and then ends all processes by `MPI_Abort`.
    ///
    /// Every rank computes on its current device, which is the host unless the program enters
    /// another one. On machines with several CUDA devices, a rank may use the device with its local
    /// rank on the machine. Open MPI sets the local rank in the variable
    /// `OMPI_COMM_WORLD_LOCAL_RANK`, Slurm in `SLURM_LOCALID`.
    ///
    /// CUDA arrays are transferred through page-locked host memory. If the MPI library reports that
    /// it is CUDA-aware, it transfers large arrays directly from and to device memory. This holds
    /// for `broadcast`, `all_gather` and `all_to_all`. `CACHESCOPE_MPI_CUDA` ("on" or "off")
    /// overrides the library's report.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use cachescope::Array;
    /// use cachescope::collective::{Group, Reduce};
    ///
    /// let group = Group::mpi()?;
    /// let mut x = Array::full(3, group.rank() as f32)?;
    /// group.all_reduce_in_place(&mut x, Reduce::Sum)?;
    /// println!("rank {} of {}: {:?}", group.rank(), group.size(), x.to_vec()?);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported) in builds without the feature `mpi`, and if
    /// the MPI library allows calls from a single thread only.
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `CACHESCOPE_MPI_CUDA` is neither
    /// "on" nor "off". [`Communication`](crate::ErrorKind::Communication) for errors of MPI.
    #[track_caller]
    pub fn mpi() -> Result<Self> {
        let takes_device_memory = setting("CACHESCOPE_MPI_CUDA")?;
        let world = world(takes_device_memory.map(|switch: Switch| switch == Switch::On))?;
        Ok(Self::over(Carrier::Host(world)))
    }
}
