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
    #[track_caller]
    fn run<const FMA: bool>(self, out: &mut Out) -> Self::Result;
}

/// Whether the processor is one of today's.
#[inline(always)]
pub(super) fn has_vectors() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    #[cfg(not(target_arch = "x86_64"))]
    true
}

/// Runs `work` by the best instructions that the processor has.
#[inline(always)]
#[track_caller]
pub(in crate::ops) fn vectorised<W: Loop<Out>, Out: ?Sized>(work: W, out: &mut Out) -> W::Result {
    if cfg!(target_arch = "x86_64") && has_vectors() {
        // SAFETY: the processor has the features, as just seen.
        return unsafe { vectorised_for_certain(work, out) };
    }
    as_compiled(work, out)
}

/// Runs `work` by the instructions that the library is compiled for. Out of line, so that several
/// calls with one kind of work share the code.
#[inline(never)]
#[track_caller]
fn as_compiled<W: Loop<Out>, Out: ?Sized>(work: W, out: &mut Out) -> W::Result {
    work.run::<{ cfg!(target_arch = "aarch64") || cfg!(target_feature = "fma") }>(out)
}

/// The same on one of today's processors.
///
/// # Safety
///
/// The processor must [have](has_vectors) the instructions.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn vectorised_for_certain<W: Loop<Out>, Out: ?Sized>(
    work: W,
    out: &mut Out,
) -> W::Result {
    // SAFETY: by this function's contract.
    #[cfg(target_arch = "x86_64")]
    return unsafe { with_avx2(work, out) };
    #[cfg(not(target_arch = "x86_64"))]
    as_compiled(work, out)
}

/// Runs `work` with vectors of 32 bytes.
///
/// # Safety
///
/// The processor must have the features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
#[track_caller]
unsafe fn with_avx2<W: Loop<Out>, Out: ?Sized>(work: W, out: &mut Out) -> W::Result {
    work.run::<true>(out)
}
