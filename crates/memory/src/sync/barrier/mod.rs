//! Asymmetric barriers. Let two threads each store one value, pass a barrier and load the other
//! thread's value. Then at least one thread sees the other thread's store. One thread passes its
//! barrier often, and uses the light barrier. The light barrier only restrains the compiler. The
//! other thread passes its barrier rarely, and uses the heavy barrier. At that moment, the heavy
//! barrier orders all processors of the process.
//!
//! If the system lacks the call for the heavy barrier, [`is_asymmetric`] is false, and the heavy
//! barrier is a fence. Then both threads must use the heavy barrier.

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
