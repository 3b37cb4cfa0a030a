//! The events of a recorded program.

/// An event of a trace: an allocation or a free.
///
/// A slot identifies an allocation while it is live. Slots are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceEvent {
    /// An allocation.
    Allocate {
        /// The slot of the allocation.
        slot: u32,
        /// The requested bytes. A request of 0 bytes uses no memory.
        bytes: u64,
    },
    /// A free.
    Free {
        /// The slot of the allocation.
        slot: u32,
    },
}

impl TraceEvent {
    pub(super) fn slot(self) -> u32 {
        match self {
            Self::Allocate { slot, .. } | Self::Free { slot } => slot,
        }
    }
}
