//! Several devices, processes and machines: groups of ranks that compute together. The feature
//! `collective` adds this module.
//!
//! ```
//! use cachescope::Array;
//! use cachescope::collective::{Group, Reduce};
//!
//! let sums = Group::threads(4, |group| {
//!     let x = Array::full(3, group.rank() as f32)?;
//!     group.all_reduce(&x, Reduce::Sum)?.to_vec()
//! })?;
//! assert_eq!(sums, [[6.0; 3]; 4]);
//! # Ok::<(), cachescope::Error>(())
//! ```
//!
//! The calls also run in processes under `mpirun` ([`Group::mpi`]), and with one GPU per rank
//! ([`Group::nccl`]). [`Group::from_environment`] chooses the kind of group by the program's
//! launcher. [`DataParallel`] trains on a group.

mod absence;
mod call;
mod call_queue;
mod calls;
mod carrier;
mod channel;
mod engine;
mod environment;
mod group;
mod header;
mod memory;
mod mpi;
mod nccl;
mod parallel;
mod reduce_rows;

mod target;
mod threads;
mod worker;
mod world;

pub use call::Reduce;
pub use group::Group;
pub use nccl::NcclId;
pub use parallel::{DataParallel, Sampler, Sharded, value_and_grad_parallel};
pub use target::Exchanged;
