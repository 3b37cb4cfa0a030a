//! The copy bandwidth of memory, the reference for memory-bound tasks.

use std::hint::black_box;

use super::{Number, Run, Task};

/// The unsigned integer with the size of a [`Number`].
#[cfg(not(feature = "double"))]
type Bits = u32;
#[cfg(feature = "double")]
type Bits = u64;

/// The minimum number of elements for two threads. Below it, waking a second thread takes longer
/// than the thread saves.
const WORTH_THREADS: usize = 1 << 20;

/// Copies a matrix into another matrix with ordinary vector stores, like the stores of arithmetic.
///
/// Each element is combined with a mask that the compiler does not know to be zero. Without the
/// mask, the compiler would replace the loop by `memcpy`, which may bypass the caches.
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

/// Copies the two halves on two threads.
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
        // SAFETY: the CPU supports AVX2.
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
