//! What a program does with memory.

/// An allocation or a free of a recorded program.
///
/// A slot is a number for an allocation while it lives, and for another one later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// It allocated.
    Allocate {
        /// A slot that nothing alive has.
        slot: u32,
        /// What it asked for; 0 occupies nothing.
        bytes: u64,
    },
    /// It freed what the slot stands for.
    Free {
        /// The slot, of no allocation after that.
        slot: u32,
    },
}

impl TraceEvent {
    /// The slot, of either.
    pub(super) fn slot(self) -> u32 {
        match self {
            Self::Allocate { slot, .. } | Self::Free { slot } => slot,
        }
    }
}
