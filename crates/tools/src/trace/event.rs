//! The events of a recorded program.

/// An allocation or a free.
///
/// A slot numbers an allocation while it is live; slots are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceEvent {
    /// An allocation.
    Allocate {
        /// A slot that no live allocation has.
        slot: u32,
        /// The requested bytes; 0 takes no memory.
        bytes: u64,
    },
    /// A free.
    Free {
        /// The slot of the allocation.
        slot: u32,
    },
}

impl TraceEvent {
    /// Returns the slot of the event.
    pub(super) fn slot(self) -> u32 {
        match self {
            Self::Allocate { slot, .. } | Self::Free { slot } => slot,
        }
    }
}
