//! The rate at which memory can be copied, the reference for work that is bound by memory.

use std::hint::black_box;

use super::{Number, Run, Task};

/// The bits of a [`Number`].
#[cfg(not(feature = "double"))]
type Bits = u32;
#[cfg(feature = "double")]
type Bits = u64;

/// The minimum number of elements for two threads. Below, a second thread takes longer to wake than
/// it saves.
const WORTH_THREADS: usize = 1 << 20;

/// Copies one matrix into another with ordinary vector stores, as arithmetic stores its results.
///
/// Each element is combined with a mask that the compiler cannot know to be zero. Otherwise the
/// loop would become a call of `memcpy`, which bypasses the caches if that is faster.
pub fn copy(task: Task, threads: usize) -> Run {
    let source: Vec<Bits> = task.operand(0).into_iter().map(Number::to_bits).collect();
    let mut target = vec![0; source.len()];
    let alone = threads == 1 || source.len() < WORTH_THREADS;
    Box::new(move |n| {
        for _ in 0..n {
            let mask = black_box(0);
            if alone {
                copy_part(&mut target, &source, mask);
            } else {
                copy_parts(&mut target, &source, mask);
            }
            black_box(&mut target);
        }
    })
}

/// Copies the two halves in parallel.
fn copy_parts(target: &mut [Bits], source: &[Bits], mask: Bits) {
    let (half, rest) = target.split_at_mut(source.len() / 2);
    let (from_half, from_rest) = source.split_at(half.len());
    rayon::join(
        || copy_part(half, from_half, mask),
        || copy_part(rest, from_rest, mask),
    );
}

fn copy_part(target: &mut [Bits], source: &[Bits], mask: Bits) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2.
        unsafe { copy_wide(target, source, mask) };
        return;
    }
    copy_plain(target, source, mask);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn copy_wide(target: &mut [Bits], source: &[Bits], mask: Bits) {
    copy_plain(target, source, mask);
}

#[inline(always)]
fn copy_plain(target: &mut [Bits], source: &[Bits], mask: Bits) {
    for (to, from) in target.iter_mut().zip(source) {
        *to = from ^ mask;
    }
}

/// Copies the bytes with `memcpy`.
pub fn memcpy(task: Task) -> Run {
    let source = task.operand(0);
    let mut target = vec![0.0; source.len()];
    Box::new(move |n| {
        for _ in 0..n {
            target.copy_from_slice(black_box(&source));
            black_box(&mut target);
        }
    })
}
