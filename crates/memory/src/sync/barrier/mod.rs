//! Asymmetric barriers: of two threads that each store one value, pass a barrier and load the
//! other's value, at least one sees the other's store. The frequent side uses the light barrier,
//! which only restrains the compiler. The rare side uses the heavy barrier, which orders all
//! processors of the process at that moment.
//!
//! If the system has no such call, [`is_asymmetric`] is false, the heavy barrier is a fence, and
//! both sides must use it.

#[cfg(not(all(any(target_os = "linux", target_os = "android"), not(miri))))]
mod fallback;
#[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
mod linux;

use std::sync::atomic::{Ordering, compiler_fence};

#[cfg(not(all(any(target_os = "linux", target_os = "android"), not(miri))))]
pub(crate) use fallback::{heavy_barrier, is_asymmetric};
#[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
pub(crate) use linux::{heavy_barrier, is_asymmetric};

/// Restrains the compiler: a compiler fence, which is not an instruction.
#[inline]
pub(crate) fn light_barrier() {
    compiler_fence(Ordering::SeqCst);
}
