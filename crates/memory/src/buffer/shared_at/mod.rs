//! The lines that made the handles of shared memory. They explain why a write had to copy.
//!
//! Two modules with one signature: builds with debug assertions store the lines, other builds store
//! nothing.

#[cfg(not(debug_assertions))]
mod disabled;
#[cfg(debug_assertions)]
mod enabled;

#[cfg(not(debug_assertions))]
pub(super) use disabled::SharedAt;
#[cfg(debug_assertions)]
pub(super) use enabled::SharedAt;
