//! Collectives as plain data: the calls of NCCL.

use crate::device::DevicePtr;

/// The unique id of a new communicator: one rank creates it and passes it to all.
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

/// The reduction of the elements of all ranks to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NcclReduce {
    Sum,
    Max,
    Min,
    /// The sum, divided by the number of ranks.
    Mean,
}

/// A collective operation or a message. All ranks of a communicator call the collectives in one
/// order; only the two ranks of a message call the message.
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
    /// Every target gets its part of the reduction of all sources. A source is as long as all
    /// targets together.
    ReduceScatter(NcclReduce),
    /// Every target gets a part of each source, in the order of the ranks. Part `r` of a source
    /// goes to rank `r`.
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

/// A rank's part of an operation. Source and target may have one address. If one of them is longer,
/// the shorter may be the rank's own part of the longer. In an all-to-all they must not overlap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NcclCall {
    pub operation: NcclOperation,
    pub element: NcclType,
    /// The address of the input. A receive does not read it, nor does a broadcast from another
    /// rank.
    pub source: DevicePtr,
    /// The address of the output. A send does not write it, nor does a reduction to another rank.
    pub target: DevicePtr,
    /// The number of elements: in the source; in the target of a reduce-scatter; for each rank of
    /// an all-to-all.
    pub count: usize,
}
