//! The door to vector code.
//!
//! The library is compiled for the least processor of its architecture. A loop that goes through
//! here is compiled a second time for today's ones, and runs there. The loop is plain code over
//! single elements, which the compiler makes vectors of; it must be inlined whole, because what is
//! called out of line, closures included, is compiled for the least processor only.

/// A loop that writes to `Out`.
pub(in crate::ops) trait Loop<Out: ?Sized> {
    /// What it tells.
    type Result;

    /// Runs it; `FMA` is whether the processor multiplies and adds in one instruction. To be marked
    /// `#[inline(always)]`.
    ///
    /// What it writes to is an argument of its own, so that the compiler knows that nothing else
    /// reaches it.
    fn run<const FMA: bool>(self, out: &mut Out) -> Self::Result;
}

/// Runs `work` by the best instructions that the processor has.
#[inline(always)]
pub(in crate::ops) fn vectorised<W: Loop<Out>, Out: ?Sized>(work: W, out: &mut Out) -> W::Result {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
    {
        // SAFETY: the processor has the features, as just seen.
        return unsafe { with_avx2(work, out) };
    }
    work.run::<{ cfg!(target_arch = "aarch64") || cfg!(target_feature = "fma") }>(out)
}

/// Runs `work` with vectors of 32 bytes.
///
/// # Safety
///
/// The processor must have the features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn with_avx2<W: Loop<Out>, Out: ?Sized>(work: W, out: &mut Out) -> W::Result {
    work.run::<true>(out)
}
