//! Which lines made the handles that share memory: for who must copy before writing, and asks why.
//!
//! Two twins of one signature: builds with debug assertions keep the lines, others nothing.

#[cfg(not(debug_assertions))]
mod forgotten;
#[cfg(debug_assertions)]
mod kept;

#[cfg(not(debug_assertions))]
pub(super) use forgotten::SharedAt;
#[cfg(debug_assertions)]
pub(super) use kept::SharedAt;
