//! Plans: lifetimes in, offsets out, and the files that lifetimes and traces come in. Pure; of what a
//! pool or a device does nothing is known here.

#[cfg(feature = "cli")]
pub(crate) mod lifetimes;
#[cfg(feature = "cli")]
pub(crate) mod table;
