//! Plans: lifetimes in, offsets out, and the files that lifetimes and traces come in. Pure; of what a
//! pool or a device does nothing is known here.

#[cfg(feature = "cli")]
pub(crate) mod lifetimes;
#[cfg(feature = "cli")]
pub(crate) mod log;
#[cfg(feature = "cli")]
pub(crate) mod table;

/// What a program did with memory once.
///
/// A slot is a number for an allocation while it lives, and for another one later.
#[cfg(feature = "cli")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
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

#[cfg(feature = "cli")]
impl Step {
    /// The slot, of either.
    pub(crate) fn slot(self) -> u32 {
        match self {
            Self::Allocate { slot, .. } | Self::Free { slot } => slot,
        }
    }
}
