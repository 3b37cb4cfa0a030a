//! The call sites that created the handles of shared memory. They explain why a write had to copy.
//!
//! The modules `enabled` and `disabled` have one interface. Builds with debug assertions store the
//! call sites, and other builds store nothing.

#[cfg(not(debug_assertions))]
mod disabled;
#[cfg(debug_assertions)]
mod enabled;

#[cfg(not(debug_assertions))]
pub(super) use disabled::SharedAt;
#[cfg(debug_assertions)]
pub(super) use enabled::SharedAt;
