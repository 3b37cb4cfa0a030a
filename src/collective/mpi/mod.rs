//! Ranks that are processes of MPI, on one or several machines.
//!
//! Architecture invariant: this module has the same signatures with and without the feature `mpi`.
//! Therefore the layers above need no `cfg`.
//!
//! MPI gets device memory for calls that transfer bytes unchanged. For reductions, MPI gets host
//! memory, because the host reduces in the order of the ranks. `send` returns before the peer
//! receives, so `send` copies the data. The copy is in host memory, which is larger than device
//! memory.

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
    /// Returns the group of all processes that MPI has started, for example by
    /// `mpirun -n 4 program` or `srun`. Each process is one rank. Needs the feature `mpi`, and an
    /// MPI library where the program is built and where it runs. A process that was not started by
    /// MPI is a group of one rank.
    ///
    /// The first call initialises MPI, unless the program has done so. All ranks must make the
    /// first call. Every call returns another handle of the same group. The library calls MPI from
    /// several threads, one at a time. If the program itself initialises MPI, it must request
    /// `MPI_THREAD_SERIALIZED` or more. Such a program must finalise MPI after its last use of the
    /// group.
    ///
    /// When `main` returns, the process waits, like `MPI_Finalize`, until the other processes end.
    /// After a [`Communication`](crate::ErrorKind::Communication) error, the process waits for two
    /// seconds, and then ends all processes by `MPI_Abort`.
    ///
    /// Every rank computes on its current device. This device is the host, unless the program
    /// enters another device. On machines with several CUDA devices, a rank may enter the device
    /// whose index is its local rank. Open MPI sets the variable `OMPI_COMM_WORLD_LOCAL_RANK` to
    /// the local rank, and Slurm sets `SLURM_LOCALID`.
    ///
    /// CUDA arrays are transferred through page-locked host memory. If the MPI library reports that
    /// it is CUDA-aware, large arrays of `broadcast`, `all_gather` and `all_to_all` are transferred
    /// directly. `CACHESCOPE_MPI_CUDA` ("on" or "off") overrides the library's report.
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
