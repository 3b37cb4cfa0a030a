//! Run-time dispatch to AVX2, FMA and AVX-512 code.
//!
//! The library is compiled for the baseline of its architecture. A loop that is dispatched here is
//! compiled a second time, for AVX2, FMA and F16C. If the processor supports these features, the
//! second version runs. [Some](Loop::WIDE) loops are compiled a third time, for AVX-512. The loop
//! is plain code over single elements. The compiler vectorises this code. All code of the loop must
//! be inlined. A function or closure that is not inlined is compiled only for the baseline.
//!
//! The packet types of a SIMD crate are not used. They would be in the signature of every function,
//! including users' functions, and have a fixed width. Instead, plain code requires a rule: the
//! body of a loop contains no branch, call or closure. An element that needs a branch is *rare*,
//! and is computed again.

/// A loop that writes to `Out`.
pub trait Loop<Out: ?Sized> {
    /// The result of the loop.
    type Result;

    /// `true` if the loop is also compiled for vectors of 64 bytes. Long vectors are faster if the
    /// loop is bound by arithmetic, not by memory.
    const WIDE: bool = false;

    /// Runs the loop. `FMA` is `true` if the processor has a fused multiply-add. The function must
    /// be marked `#[inline(always)]`.
    ///
    /// The output is a separate argument, so that the compiler knows that the output is not
    /// aliased.
    #[track_caller]
    fn run<const FMA: bool>(self, out: &mut Out) -> Self::Result;
}

#[cfg(feature = "testing")]
thread_local! {
    /// `true` while the thread behaves as on a processor without AVX2.
    pub static IS_BASELINE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Returns whether AVX2, FMA and F16C are available. Returns `true` on architectures other than
/// x86-64.
#[inline(always)]
pub fn has_vectors() -> bool {
    #[cfg(feature = "testing")]
    if IS_BASELINE.get() {
        return false;
    }
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    #[cfg(not(target_arch = "x86_64"))]
    true
}

/// Returns whether the AVX-512 instructions that compilers use for loops are available.
#[inline(always)]
pub fn has_wide_vectors() -> bool {
    #[cfg(feature = "testing")]
    if IS_BASELINE.get() {
        return false;
    }
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Runs `work` with the best instruction set that the processor supports.
#[inline(always)]
#[track_caller]
pub fn vectorised<W: Loop<Out>, Out: ?Sized>(work: W, out: &mut Out) -> W::Result {
    #[cfg(target_arch = "x86_64")]
    if W::WIDE && has_vectors() && has_wide_vectors() {
        // SAFETY: the processor has the features, as just checked.
        return unsafe { with_avx512(work, out) };
    }
    if cfg!(target_arch = "x86_64") && has_vectors() {
        // SAFETY: the processor has the features, as just checked.
        return unsafe { vectorised_for_certain(work, out) };
    }
    as_compiled(work, out)
}

/// `true` if the library's target has a fused multiply-add.
pub const BASELINE_FMA: bool = cfg!(target_arch = "aarch64") || cfg!(target_feature = "fma");

/// Runs `work` with the instruction set that the library is compiled for. The function is not
/// inlined, so that all calls with one type of `work` share the code.
#[inline(never)]
#[track_caller]
fn as_compiled<W: Loop<Out>, Out: ?Sized>(work: W, out: &mut Out) -> W::Result {
    work.run::<BASELINE_FMA>(out)
}

/// Runs `work` like [`vectorised`], without a check of the processor.
///
/// # Safety
///
/// The processor must [support](has_vectors) the instructions.
#[inline(always)]
#[track_caller]
pub unsafe fn vectorised_for_certain<W: Loop<Out>, Out: ?Sized>(
    work: W,
    out: &mut Out,
) -> W::Result {
    // SAFETY: the caller upholds this function's contract.
    #[cfg(target_arch = "x86_64")]
    return unsafe { with_avx2(work, out) };
    #[cfg(not(target_arch = "x86_64"))]
    as_compiled(work, out)
}

/// Returns whether code is compiled for x86-64 without AVX2. Such code should be short, because
/// processors without AVX2 are rare. `FMA` is the argument of [`Loop::run`].
pub const fn is_baseline<const FMA: bool>() -> bool {
    !FMA && cfg!(target_arch = "x86_64")
}

/// Returns `index`. In code for a [baseline](is_baseline), hides the value from the compiler. The
/// compiler then neither unrolls nor vectorises a loop over the index.
#[inline(always)]
pub fn rolled<const FMA: bool>(index: usize) -> usize {
    match is_baseline::<FMA>() {
        true => std::hint::black_box(index),
        false => index,
    }
}

/// Runs `work` with vectors of 32 bytes.
///
/// # Safety
///
/// The processor must support the features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
#[track_caller]
unsafe fn with_avx2<W: Loop<Out>, Out: ?Sized>(work: W, out: &mut Out) -> W::Result {
    work.run::<true>(out)
}

/// Runs `work` with vectors of 64 bytes.
///
/// # Safety
///
/// The processor must support the features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
#[track_caller]
unsafe fn with_avx512<W: Loop<Out>, Out: ?Sized>(work: W, out: &mut Out) -> W::Result {
    work.run::<true>(out)
}
