//! The launch function, which runs every kernel of the host.

use std::ops::Range;

use super::element_source::ElementSource;
use super::threads::{self, alone, threads};
use crate::device::host::streams::DelayedStreams;
use crate::device::{HostExecution, StreamId};
use crate::ops::order::HostOrder;

/// The number of items that a kernel computes, and the number of items that makes another thread
/// worthwhile.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Work {
    count: usize,
    grain: usize,
    // The unit of ranges: long ranges begin at its multiples.
    unit: usize,
    // The maximum number of ranges for each thread.
    parts: usize,
}

/// The minimum work of one thread that makes a second thread worthwhile, in bytes read and written.
/// The work takes about 20 µs, as long as waking a thread and waiting for it.
const GRAIN_BYTES: usize = 1 << 20;

/// The maximum number of parts of a launch for each thread. If a thread is late, other threads run
/// some of its parts.
const PARTS: usize = 4;

impl Work {
    /// Returns the work of `count` items. Each item reads and writes `bytes_each` bytes.
    pub(in crate::ops) fn of_bytes(count: usize, bytes_each: usize) -> Self {
        let grain = (GRAIN_BYTES / bytes_each.max(1)).max(1);
        Self {
            count,
            grain,
            unit: UNIT,
            parts: PARTS,
        }
    }

    /// Makes at most one range for each thread, for work that costs more in several ranges.
    pub(super) fn in_one_part_each(self) -> Self {
        Self { parts: 1, ..self }
    }

    /// Divides the work into ranges of whole units of `unit` items.
    pub(in crate::ops) fn in_units_of(self, unit: usize) -> Self {
        Self {
            grain: self.grain.max(unit),
            unit,
            ..self
        }
    }

    /// Returns the work of `count` elements. Each element reads and writes `bytes_each` bytes.
    #[inline]
    pub(super) fn of_elements(count: usize, bytes_each: usize) -> Self {
        if count < ALWAYS_ALONE {
            return Self::on_one_thread(count);
        }
        Self::of_bytes(count, bytes_each)
    }

    /// Returns the work of `count` results, each reduced from `length` elements. An element reads
    /// `bytes_each` bytes.
    pub(in crate::ops) fn of_reductions(bytes_each: usize, count: usize, length: usize) -> Self {
        if count.saturating_mul(length) < ALWAYS_ALONE {
            return Self::on_one_thread(count);
        }
        Self::of_bytes(count, bytes_each.saturating_mul(length))
    }

    /// Returns the work of `count` items that one thread computes.
    pub(in crate::ops) fn on_one_thread(count: usize) -> Self {
        Self {
            count,
            grain: count,
            unit: UNIT,
            parts: PARTS,
        }
    }
}

/// Always single-threaded below this many elements.
const ALWAYS_ALONE: usize = 1 << 12;

/// The default unit in elements: whole cache lines, so that no two threads write to one line.
const UNIT: usize = 128;

/// Runs `body` over `0..work.count`, in the order of `stream`. The ranges do not overlap, and
/// together cover `0..work.count`. `body` receives `reads`, `writes` and a range. `body` runs
/// immediately, on the calling thread and on threads of rayon's current pool. If the device delays
/// its work, `body` runs later and on one thread.
///
/// If the work is delayed, `reads` and `writes` are copied. They are plain data with addresses of
/// memory, not handles. A handle would prevent the reuse of its block until `body` has run. GPU
/// kernels have no handles, either. Until `body` has run, it may rely on three guarantees:
///
/// - The memory under the addresses stays reserved. A segment is released only when the streams
///   that used its blocks are done.
///
/// - The operands were written before, because the caller ordered `stream` after the other streams
///   that use the operands.
///
/// - Nothing else writes to the operands meanwhile. Earlier users of the memory are ordered before
///   `stream`. The next user is ordered after `stream`.
#[inline(always)]
pub(in crate::ops) fn launch<R, W>(
    HostOrder { device, stream }: HostOrder<'_>,
    work: Work,
    (reads, writes): (&R, &W),
    body: impl Fn(&R, &W, Range<usize>) + Send + Sync + 'static,
) where
    R: Clone + Send + Sync + 'static,
    W: Copy + Send + Sync + 'static,
{
    if work.count == 0 {
        return;
    }
    match device.backend().host_execution() {
        HostExecution::AtOnce if work.count <= work.grain => body(reads, writes, 0..work.count),
        HostExecution::AtOnce => share(work, &|range| body(reads, writes, range)),
        HostExecution::Never => {}
        HostExecution::Delayed(delayed) => {
            let (reads, writes) = (reads.clone(), *writes);
            let later = move || body(&reads, &writes, 0..work.count);
            push(delayed, stream, Box::new(later));
        }
    }
}

/// Like [`launch`], for a type-erased source.
#[inline(always)]
pub(super) fn launch_source<W: Copy + Send + Sync + 'static>(
    HostOrder { device, stream }: HostOrder<'_>,
    work: Work,
    (reads, writes): (&dyn ElementSource, &W),
    body: impl Fn(&dyn ElementSource, &W, Range<usize>) + Send + Sync + 'static,
) {
    if work.count == 0 {
        return;
    }
    match device.backend().host_execution() {
        HostExecution::AtOnce if work.count <= work.grain => body(reads, writes, 0..work.count),
        HostExecution::AtOnce => share(work, &|range| body(reads, writes, range)),
        HostExecution::Never => {}
        HostExecution::Delayed(delayed) => {
            let (reads, writes) = (reads.boxed(), *writes);
            let later = move || body(&*reads, &writes, 0..work.count);
            push(delayed, stream, Box::new(later));
        }
    }
}

/// Enqueues work on a stream for later. This function is compiled once, not for every kernel.
#[cold]
fn push(delayed: &DelayedStreams, stream: StreamId, work: Box<dyn FnOnce() + Send>) {
    delayed.push(stream, move || alone(work));
}

/// Runs `body` over `0..work.count`, on several threads if the range is longer than a grain. The
/// code that distributes work to threads is compiled once, not for every kernel.
pub(super) fn share(work: Work, body: &(dyn Fn(Range<usize>) + Sync)) {
    let threads = threads();
    let Work {
        count, grain, unit, ..
    } = work;
    if count <= grain || threads == 1 {
        return body(0..count);
    }
    let parts = count.div_ceil(grain).min(work.parts * threads);
    let each = count.div_ceil(parts);
    // If a grain has fewer items than a unit, the items are too large to share a cache line.
    let each = match grain >= unit {
        true => each.next_multiple_of(unit),
        false => each,
    };
    threads::share(count.div_ceil(each), &|part| {
        let start = part * each;
        body(start..count.min(start + each));
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::{PARTS, Work, alone, share, threads};

    #[test]
    fn every_number_is_served_once_by_any_number_of_threads() {
        for pool_threads in [1, 2, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(pool_threads);
            let pool = pool.build().unwrap();
            for (length, grain, unit) in [
                (1, 1, 1),
                (7, 1, 1),
                (7, 1, 128),
                (129, 128, 1),
                (300, 128, 1),
                (10_000, 1, 1),
                (10_001, 777, 1),
                (10_001, 777, 128),
                (10_001, 300, 300),
            ] {
                let served: Vec<AtomicU8> = (0..length).map(|_| AtomicU8::new(0)).collect();
                let work = Work::of_bytes(length, 1).in_units_of(unit);
                let work = Work { grain, ..work };
                let serve = || {
                    let threads = threads();
                    let most = grain.max(length.div_ceil(PARTS * threads)) + unit;
                    share(work, &|range| {
                        assert!(threads == 1 || range.len() < most);
                        assert!(grain < unit || range.start.is_multiple_of(unit));
                        for number in range {
                            served[number].fetch_add(1, Ordering::Relaxed);
                        }
                    });
                };
                pool.install(serve);
                serve();
                assert!(
                    served
                        .iter()
                        .all(|served| served.load(Ordering::Relaxed) == 2)
                );
            }
        }
    }

    #[test]
    fn delayed_work_waits_for_no_other_thread() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2);
        pool.build().unwrap().install(|| {
            let before = threads();
            alone(|| {
                let here = std::thread::current().id();
                let work = Work::of_bytes(100, 1 << 20);
                share(work, &|_| {
                    assert_eq!(std::thread::current().id(), here);
                });
                assert_eq!(threads(), 1);
            });
            assert_eq!(threads(), before);
        });
    }
}
