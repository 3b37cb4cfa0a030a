//! The group of this process, as described by environment variables of its launcher.

use std::env;

use super::group::Group;
use super::nccl::NcclId;
use crate::context::Device;
use crate::error::{Error, ErrorKind, Result};

/// The launcher of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Launch {
    /// No launcher.
    Alone,
    /// MPI. `size` is the number of ranks, if the launcher reports it.
    Mpi { size: Option<usize> },
    /// A launcher of several processes that connect by NCCL. Each process has its own CUDA device.
    Nccl {
        rank: usize,
        size: usize,
        /// The index of the process on its machine, and of its CUDA device.
        local_rank: usize,
        /// The host and the port at which rank 0 listens.
        address: (String, u16),
    },
}

/// Variables with the number of ranks that MPI launchers set. The first is set by Open MPI, and the
/// second by MPICH and other launchers with PMI. The third is set by Intel MPI, and counts only the
/// ranks on this machine.
const MPI_SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"];

/// A variable of launchers with PMIx. These launchers set no variable with the number of ranks.
const PMIX: &str = "PMIX_RANK";

/// The default port of rank 0, as in PyTorch.
const PORT: u16 = 29500;

impl Group {
    /// Returns the group that this process was started in, as described by environment variables of
    /// its launcher. If variables of several launchers in this list are set, the first of these
    /// launchers is used:
    /// - `mpirun`, or another launcher of MPI (`OMPI_COMM_WORLD_SIZE`, `PMI_SIZE`,
    ///   `MPI_LOCALNRANKS`, `PMIX_RANK`): [`Group::mpi`]. The current device is unchanged, even if
    ///   there are several CUDA devices.
    /// - `torchrun` (`RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR`, `MASTER_PORT`): NCCL, on
    ///   the CUDA device of index `LOCAL_RANK`.
    /// - `srun` without PMI (`SLURM_PROCID`, `SLURM_NTASKS`, `SLURM_LOCALID`): NCCL, on the CUDA
    ///   device of index `SLURM_LOCALID`. Rank 0 is on the first machine of `SLURM_STEP_NODELIST`,
    ///   unless `MASTER_ADDR` names another machine.
    /// - No launcher, or a single process: a group of one rank.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::collective::Group;
    ///
    /// // Started by itself.
    /// let group = Group::from_environment()?;
    /// assert_eq!((group.rank(), group.size()), (0, 1));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument), with the variable's name, if a variable is
    /// missing or cannot be read. [`Unsupported`](ErrorKind::Unsupported) for several ranks of MPI
    /// in a build without the feature `mpi`. The errors of [`Group::mpi`].
    #[track_caller]
    pub fn from_environment() -> Result<Self> {
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        match Launch::of(&variable)? {
            Launch::Alone => Self::alone(),
            Launch::Mpi { size: Some(1) } if !cfg!(feature = "mpi") => Self::alone(),
            Launch::Mpi { .. } => Self::mpi(),
            Launch::Nccl {
                rank,
                size,
                local_rank,
                address,
            } => nccl((rank, size), local_rank, &address),
        }
    }
}

/// Joins the group of processes that connect by NCCL.
#[track_caller]
fn nccl(
    (rank, size): (usize, usize),
    local_rank: usize,
    (host, port): &(String, u16),
) -> Result<Group> {
    // The identifier is created before the device. `of_address` may need a process with a single
    // thread, and the device's driver starts threads.
    let id = NcclId::of_address(host, *port)?;
    let device = Device::cuda(local_rank).map_err(|error| {
        let text = format!("Group::from_environment: the device of rank {rank} of {size}");
        error.of(&text)
    })?;
    let _current = device.enter();
    Group::nccl(rank, size, id)
}

/// A function that returns the value of a variable, or `None` if the variable is not set.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Launch {
    /// Determines the launcher from the variables.
    #[track_caller]
    fn of(variable: Lookup<'_>) -> Result<Self> {
        if let Some(name) = MPI_SIZES.iter().find(|name| variable(name).is_some()) {
            // `MPI_LOCALNRANKS`, of Intel MPI, is the number of ranks on this machine only.
            let size = number(variable, name)?;
            let is_whole = *name != "MPI_LOCALNRANKS";
            return Ok(Self::Mpi {
                size: is_whole.then_some(size),
            });
        }
        if variable(PMIX).is_some() {
            return Ok(Self::Mpi { size: None });
        }
        let (names, is_slurm) = match (variable("RANK"), variable("WORLD_SIZE")) {
            (Some(_), Some(_)) => (["RANK", "WORLD_SIZE", "LOCAL_RANK"], false),
            _ => (["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"], true),
        };
        let [rank, size, local_rank] = names;
        if is_slurm && (variable(rank).is_none() || variable(size).is_none()) {
            return Ok(Self::Alone);
        }
        let (own, all) = (number(variable, rank)?, number(variable, size)?);
        if own >= all {
            return Err(invalid(
                rank,
                &format!("rank {own} is out of range for {all} ranks"),
            ));
        }
        if all == 1 {
            return Ok(Self::Alone);
        }
        Ok(Self::Nccl {
            rank: own,
            size: all,
            local_rank: number(variable, local_rank)?,
            address: address(variable, is_slurm)?,
        })
    }
}

/// Returns the host and the port at which rank 0 listens.
#[track_caller]
fn address(variable: Lookup<'_>, is_slurm: bool) -> Result<(String, u16)> {
    let host = match variable("MASTER_ADDR") {
        None if is_slurm => {
            let name = "SLURM_STEP_NODELIST";
            let nodes = variable(name).ok_or_else(|| invalid(name, "it is not set"))?;
            first_node(&nodes).ok_or_else(|| {
                invalid(
                    name,
                    &format!("`{nodes}` does not begin with the name of a node"),
                )
            })?
        }
        host => host.ok_or_else(|| invalid("MASTER_ADDR", "it is not set"))?,
    };
    let port = match variable("MASTER_PORT") {
        None => PORT,
        Some(port) => port.parse().map_err(|_| {
            let text = format!("`{port}` is not a port, expected a number from 0 to 65535");
            invalid("MASTER_PORT", &text)
        })?,
    };
    Ok((host, port))
}

/// Returns the first node of Slurm's node list: `gpu07` for `gpu[07-09,12],cpu1`.
fn first_node(nodes: &str) -> Option<String> {
    let name = nodes.split(['[', ',']).next()?;
    let rest = &nodes[name.len()..];
    let number = match rest.strip_prefix('[') {
        Some(numbers) => numbers.split(['-', ',', ']']).next()?,
        None => "",
    };
    let node = format!("{name}{number}");
    (!node.is_empty()).then_some(node)
}

#[track_caller]
fn number(variable: Lookup<'_>, name: &str) -> Result<usize> {
    let value = variable(name).ok_or_else(|| invalid(name, "it is not set"))?;
    let number = value.trim().parse();
    number.map_err(|_| invalid(name, &format!("`{value}` is not a number")))
}

#[cold]
#[track_caller]
fn invalid(name: &str, text: &str) -> Error {
    let text = format!("Group::from_environment: {name}: {text}");
    Error::new(ErrorKind::InvalidArgument, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(variables: &[(&str, &str)]) -> Result<Launch> {
        let value = |name: &str| {
            let found = variables.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Launch::of(&value)
    }

    fn nccl(rank: usize, size: usize, local_rank: usize, address: (&str, u16)) -> Launch {
        Launch::Nccl {
            rank,
            size,
            local_rank,
            address: (address.0.to_owned(), address.1),
        }
    }

    const TORCHRUN: [(&str, &str); 5] = [
        ("RANK", "5"),
        ("WORLD_SIZE", "8"),
        ("LOCAL_RANK", "1"),
        ("MASTER_ADDR", "node3"),
        ("MASTER_PORT", "12345"),
    ];

    const SRUN: [(&str, &str); 4] = [
        ("SLURM_PROCID", "3"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_LOCALID", "1"),
        ("SLURM_STEP_NODELIST", "gpu[07-08]"),
    ];

    #[test]
    fn launchers_are_distinguished() {
        let mpi = |size| Launch::Mpi { size };
        let table: [(&[(&str, &str)], Launch); 9] = [
            (&[], Launch::Alone),
            (&[("RANK", "1"), ("LOCAL_RANK", "0")], Launch::Alone),
            (&[("SLURM_NTASKS", "4")], Launch::Alone),
            (&[("RANK", "0"), ("WORLD_SIZE", "1")], Launch::Alone),
            (&[("OMPI_COMM_WORLD_SIZE", "4")], mpi(Some(4))),
            (&[("PMI_SIZE", "2"), ("RANK", "x")], mpi(Some(2))),
            (&[("MPI_LOCALNRANKS", "2")], mpi(None)),
            (&TORCHRUN, nccl(5, 8, 1, ("node3", 12345))),
            (&SRUN, nccl(3, 4, 1, ("gpu07", PORT))),
        ];
        for (variables, expected) in table {
            assert_eq!(launch(variables).unwrap(), expected, "{variables:?}");
        }
        // Slurm's variables are also set for ranks of MPI, and for torchrun in a Slurm job.
        let both = [&SRUN[..], &[(PMIX, "3")]].concat();
        assert_eq!(launch(&both).unwrap(), mpi(None));
        let both = [&SRUN[..], &TORCHRUN[..]].concat();
        assert_eq!(launch(&both).unwrap(), launch(&TORCHRUN).unwrap());
        let both = [&SRUN[..], &TORCHRUN[3..]].concat();
        assert_eq!(
            launch(&both).unwrap(),
            nccl(3, 4, 1, ("node3", 12345)),
            "the address of rank 0 may be given"
        );
    }

    #[test]
    fn variables_that_cannot_be_read_are_named() {
        let without = |left_out: usize| {
            let mut variables = TORCHRUN.to_vec();
            variables.remove(left_out);
            variables
        };
        let with = |name: &'static str, value: &'static str| {
            let mut variables = TORCHRUN.to_vec();
            variables.retain(|(own, _)| *own != name);
            variables.push((name, value));
            variables
        };
        let table = [
            (
                vec![("OMPI_COMM_WORLD_SIZE", "four")],
                "OMPI_COMM_WORLD_SIZE",
            ),
            (vec![("PMI_SIZE", "-1")], "PMI_SIZE"),
            (with("RANK", "8"), "RANK"),
            (with("RANK", "x"), "RANK"),
            (with("WORLD_SIZE", "0x8"), "WORLD_SIZE"),
            (with("MASTER_PORT", "70000"), "MASTER_PORT"),
            (without(2), "LOCAL_RANK"),
            (without(3), "MASTER_ADDR"),
            (SRUN[..3].to_vec(), "SLURM_STEP_NODELIST"),
            ([SRUN[0], SRUN[1]].to_vec(), "SLURM_LOCALID"),
        ];
        for (variables, name) in table {
            let error = launch(&variables).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            let text = error.to_string();
            assert!(
                text.contains(&format!(" {name}: ")),
                "{variables:?}: {text}"
            );
        }
    }

    #[test]
    fn lists_of_nodes_begin_with_one() {
        for (nodes, first) in [
            ("node1", "node1"),
            ("node1,node2", "node1"),
            ("gpu[07-09,12],cpu1", "gpu07"),
            ("gpu[3]", "gpu3"),
            ("a,gpu[3]", "a"),
        ] {
            assert_eq!(first_node(nodes).unwrap(), first);
        }
        assert_eq!(first_node(""), None);
    }
}
