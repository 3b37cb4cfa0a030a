//! Collectives as plain data: the calls of NCCL.

use crate::device::DevicePtr;

/// What the ranks of a new communicator know each other by: made by one of them, and passed to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NcclId(pub [u8; 128]);

/// The elements that NCCL knows. What only moves may go as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NcclType {
    I8,
    U8,
    I32,
    U32,
    I64,
    U64,
    F16,
    F32,
    F64,
    Bf16,
}

/// How the elements of all ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NcclReduce {
    Sum,
    Max,
    Min,
    /// The sum, divided by the number of ranks.
    Mean,
}

/// What ranks do together. All ranks of a communicator ask for the same, in one order; of a message
/// its two ranks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NcclOperation {
    /// Every target gets the reduction of all sources.
    AllReduce(NcclReduce),
    /// The target of that rank does.
    Reduce(NcclReduce, usize),
    /// Every target gets the source of that rank.
    Broadcast(usize),
    /// Every target gets all sources, in the order of the ranks.
    AllGather,
    /// Every target gets its part of the reduction of all sources, which are as long as all
    /// targets.
    ReduceScatter(NcclReduce),
    /// Every target gets a part of each source, in the order of the ranks: that which stands there
    /// in the place of its own rank.
    AllToAll,
    /// The source goes to that rank.
    Send(usize),
    /// The target is what that rank sends.
    Receive(usize),
}

impl NcclOperation {
    /// As errors name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce(_) => "all-reduce",
            Self::Reduce(..) => "reduce",
            Self::Broadcast(_) => "broadcast",
            Self::AllGather => "all-gather",
            Self::ReduceScatter(_) => "reduce-scatter",
            Self::AllToAll => "all-to-all",
            Self::Send(_) => "send",
            Self::Receive(_) => "receive",
        }
    }
}

/// A rank's part of an operation. Source and target may be the same address, or that of the rank's
/// own part in the longer one; of an all-to-all they stand apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NcclCall {
    pub operation: NcclOperation,
    pub element: NcclType,
    /// Not read by a receive, nor by a broadcast of another rank.
    pub source: DevicePtr,
    /// Not written by a send, nor by a reduction to another rank.
    pub target: DevicePtr,
    /// The elements of the source; of a reduce-scatter those of the target, of an all-to-all those
    /// for each rank.
    pub count: usize,
}
