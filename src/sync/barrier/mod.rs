//! Barriers that cost one side nothing: of two threads that each store one number and then load the
//! other's, with a barrier in between, at least one sees what the other stored. The one that does so often
//! takes the light barrier, which only holds the compiler to the order; the other the heavy one, which
//! makes every processor that runs this process keep it at that moment.
//!
//! Where the system has no such thing, [`is_asymmetric`] is false, the heavy barrier is a fence, and both
//! sides have to take it.

#[cfg_attr(
    all(any(target_os = "linux", target_os = "android"), not(miri)),
    path = "linux.rs"
)]
#[cfg_attr(
    not(all(any(target_os = "linux", target_os = "android"), not(miri))),
    path = "fallback.rs"
)]
mod platform;

use std::sync::atomic::{Ordering, compiler_fence};

pub(crate) use platform::{heavy_barrier, is_asymmetric};

/// No instruction.
#[inline]
pub(crate) fn light_barrier() {
    compiler_fence(Ordering::SeqCst);
}
