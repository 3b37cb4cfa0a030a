//! Several devices, processes and machines: groups of ranks that compute together.

mod absence;
mod call;
mod calls;
mod carrier;
mod engine;
mod environment;
mod fold;
mod group;
mod head;
mod memory;
mod mpi;
mod nccl;
mod parallel;
mod queue;
mod target;
mod threads;
mod worker;
mod world;

pub use call::Reduce;
pub use group::Group;
pub use nccl::NcclId;
pub use parallel::{DataParallel, Sampler, Sharded, value_and_grad_parallel};
pub use target::Exchanged;
