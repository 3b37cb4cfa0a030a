//! Plans: lifetimes in, offsets out, and the files that lifetimes and traces come in. Pure; of what a
//! pool or a device does nothing is known here.
//!
//! [`pack`](pack()) goes from the cheap to the dear. [`parts`] takes the input apart, and
//! [`sections`] turns its time into the moments that matter. A [`draft`] begins with what costs a pass
//! over the buffers: [`dive`], which builds from the bottom up, and [`greedy`], which takes the large ones
//! first. [`improve`] spends the time that is left on searches that are [`exact`].

mod clock;
mod dive;
mod draft;
mod exact;
mod greedy;
mod improve;
mod inside;
mod lessons;
mod occupied;
mod order;
mod pack;
mod parts;
mod sections;
#[cfg(test)]
mod tests;
mod validate;

pub(crate) use pack::pack_around;
pub use pack::{Buffer, Options, Packing, pack, pack_quickly};
pub use validate::{Conflict, validate};

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
