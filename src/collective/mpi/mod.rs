//! Ranks that are processes, of one machine or several, which MPI has started.
//!
//! Architecture invariant: this module compiles with and without the feature `mpi`, with the same
//! signatures. So the layers above need no `cfg`.

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
    /// All processes that MPI has started, each of which is one rank: `mpirun -n 4 program`, or
    /// `srun`. It needs the feature `mpi`, and an MPI library where the program is built and where
    /// it runs. Started by itself, the process is a group of one rank.
    ///
    /// The first call initialises MPI, unless the program has, and all ranks make it. Each call
    /// gives another handle of the same group. The library makes its calls of MPI one at a time,
    /// from several threads. What MPI the program itself initialises must allow that
    /// (`MPI_THREAD_SERIALIZED` at least), and is finalised by the program, after its last use of
    /// the group.
    ///
    /// A process whose `main` returns waits, like `MPI_Finalize`, until the others end, too. After
    /// an error of [`Communication`](crate::ErrorKind::Communication) it waits for two seconds, and
    /// then ends all processes by `MPI_Abort`.
    ///
    /// The ranks compute on the current device of each, which is the host unless the program enters
    /// another one. On machines with several CUDA devices, a rank may take that of its number among
    /// the ranks of its machine, which Open MPI gives in the variable `OMPI_COMM_WORLD_LOCAL_RANK`,
    /// and Slurm in `SLURM_LOCALID`.
    ///
    /// Arrays of CUDA devices go through pinned memory of the host, or straight from the device
    /// where the MPI library says that it knows CUDA: `CACHESCOPE_MPI_CUDA` ("on" or "off") says so
    /// in its place.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use cachescope::Array;
    /// use cachescope::collective::{Group, Reduce};
    ///
    /// let group = Group::mpi()?;
    /// let mut x = Array::full(3, group.rank() as f32)?;
    /// group.all_reduce(&mut x, Reduce::Sum)?;
    /// println!("rank {} of {}: {:?}", group.rank(), group.size(), x.to_vec()?);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported) in builds without the feature `mpi`, and
    /// where the MPI library lets one thread alone make calls;
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `CACHESCOPE_MPI_CUDA` is neither
    /// "on" nor "off"; [`Communication`](crate::ErrorKind::Communication) for errors of MPI.
    #[track_caller]
    pub fn mpi() -> Result<Self> {
        let takes_device_memory = setting("CACHESCOPE_MPI_CUDA")?;
        let world = world(takes_device_memory.map(|said: Switch| said == Switch::On))?;
        Ok(Self::over(Carrier::Host(world)))
    }
}
