//! Collectives as plain data: the calls of NCCL.

use crate::device::DevicePtr;

/// The unique id of a new communicator. One rank creates the id, and passes it to all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NcclId(pub [u8; 128]);

/// The element types of NCCL. A call that only moves data may pass bytes.
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

/// The operation that reduces the elements of all ranks to one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NcclReduce {
    Sum,
    Max,
    Min,
    /// The sum, divided by the number of ranks.
    Mean,
}

/// A collective operation or a message. All ranks of a communicator call the collectives in one
/// order. Only the sender and the receiver of a message call its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NcclOperation {
    /// Every target gets the reduction of all sources.
    AllReduce(NcclReduce),
    /// The target of the root rank gets the reduction of all sources.
    Reduce(NcclReduce, usize),
    /// Every target gets the source of the root rank.
    Broadcast(usize),
    /// Every target gets all sources, in the order of the ranks.
    AllGather,
    /// Every target gets its rank's part of the reduction of all sources. A source is as long as
    /// all targets together.
    ReduceScatter(NcclReduce),
    /// Every target gets a part of each source, in the order of the ranks. Rank `r` gets part `r`
    /// of each source.
    AllToAll,
    /// A send of the source to the peer rank.
    Send(usize),
    /// A receive of the target from the peer rank.
    Receive(usize),
}

impl NcclOperation {
    /// Returns the name for error messages.
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

/// A rank's part of an operation. Source and target may have the same address. If their lengths
/// differ, the shorter may be the rank's own part of the longer. In an all-to-all, source and
/// target must not overlap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NcclCall {
    pub operation: NcclOperation,
    pub element: NcclType,
    /// The address of the input. A receive does not read the input, nor does a broadcast from
    /// another rank.
    pub source: DevicePtr,
    /// The address of the output. A send does not write the output, nor does a reduction to another
    /// rank.
    pub target: DevicePtr,
    /// The number of elements of the source. A reduce-scatter counts the elements of the target,
    /// and an all-to-all counts the elements per rank.
    pub count: usize,
}
