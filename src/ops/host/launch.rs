//! The launch function, which runs every kernel of the host.

use std::cell::Cell;
use std::ops::Range;

use super::element_source::ElementSource;
use crate::device::host::streams::DelayedStreams;
use crate::device::{HostExecution, StreamId};
use crate::ops::order::HostOrder;

/// The number of items that a kernel computes, and the number of items that is worth another
/// thread.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Work {
    count: usize,
    grain: usize,
    // Long ranges begin at multiples of this.
    unit: usize,
}

/// The work of one thread from which a second one pays, in bytes read and written. It takes some 20
/// µs, about as long as it takes to wake a thread and to wait for it.
const GRAIN_BYTES: usize = 1 << 20;

impl Work {
    /// Returns the work of `count` items, each of which reads and writes `bytes_each`.
    pub(in crate::ops) fn of_bytes(count: usize, bytes_each: usize) -> Self {
        let grain = (GRAIN_BYTES / bytes_each.max(1)).max(1);
        Self {
            count,
            grain,
            unit: UNIT,
        }
    }

    /// Divides the work into ranges of whole units of `unit` items.
    pub(in crate::ops) fn in_units_of(self, unit: usize) -> Self {
        Self {
            grain: self.grain.max(unit),
            unit,
            ..self
        }
    }

    /// Returns the work of `count` elements, each of which reads and writes `bytes_each`.
    #[inline]
    pub(super) fn of_elements(count: usize, bytes_each: usize) -> Self {
        if count < ALWAYS_ALONE {
            return Self::on_one_thread(count);
        }
        Self::of_bytes(count, bytes_each)
    }

    /// Returns the work of `count` results, each reduced from `length` elements, of which each
    /// reads `bytes_each`.
    pub(in crate::ops) fn of_reductions(bytes_each: usize, count: usize, length: usize) -> Self {
        if count.saturating_mul(length) < ALWAYS_ALONE {
            return Self::on_one_thread(count);
        }
        Self::of_bytes(count, bytes_each.saturating_mul(length))
    }

    /// Returns the work of `count` items that stay on one thread.
    pub(in crate::ops) fn on_one_thread(count: usize) -> Self {
        Self {
            count,
            grain: count,
            unit: UNIT,
        }
    }
}

/// Always single-threaded below this many elements.
const ALWAYS_ALONE: usize = 1 << 12;

/// The default unit in elements: whole cache lines, so that no two threads write to one line.
const UNIT: usize = 128;

/// Runs `body` over `0..work.count`, in ranges that do not overlap and together cover it, in the
/// order of `stream`. `body` gets the data that it reads and the data that it writes. It runs at
/// once, on the calling thread and the threads of rayon's current pool. If the device delays its
/// work, it runs later and on one thread.
///
/// So both arguments are plain data, which is copied where it is needed later. They hold addresses
/// of memory, not handles: a handle would keep the block from being reused, which no kernel of a
/// real device does. The body may rely on three things until it has run:
///
/// - The memory under the addresses stays reserved, because a segment is released only when the
///   streams that used its blocks are done.
///
/// - Its operands were written before, because the caller ordered `stream` after the other streams
///   that use them.
///
/// - Nothing else writes to its operands meanwhile, because of this order, and because the next
///   user of the memory is ordered after `stream`.
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
        HostExecution::AtOnce => share(0..work.count, work, &|range| body(reads, writes, range)),
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
        HostExecution::AtOnce => share(0..work.count, work, &|range| body(reads, writes, range)),
        HostExecution::Never => {}
        HostExecution::Delayed(delayed) => {
            let (reads, writes) = (reads.boxed(), *writes);
            let later = move || body(&*reads, &writes, 0..work.count);
            push(delayed, stream, Box::new(later));
        }
    }
}

thread_local! {
    /// `true` while this thread runs delayed work.
    static IS_ALONE: Cell<bool> = const { Cell::new(false) };
}

/// Enqueues work on a stream for later. It is compiled once, not for every kernel.
#[cold]
fn push(delayed: &DelayedStreams, stream: StreamId, work: Box<dyn FnOnce() + Send>) {
    delayed.push(stream, move || alone(work));
}

/// Runs delayed work on this thread alone. The work runs under the lock of its device. If this
/// thread waited for another thread of the pool, it could meanwhile run a task of the user, which
/// takes that lock.
fn alone(work: impl FnOnce()) {
    let before = IS_ALONE.replace(true);
    scopeguard::defer!(IS_ALONE.set(before));
    work();
}

/// Returns whether work stays on this thread. Under ThreadSanitizer it does, because rayon's
/// threads synchronise inside the standard library, which is not built for ThreadSanitizer.
pub(super) fn is_alone() -> bool {
    cfg!(tsan) || IS_ALONE.get()
}

/// Returns the number of threads that may share work here.
pub(super) fn threads() -> usize {
    if is_alone() {
        return 1;
    }
    rayon::current_num_threads()
}

/// Returns whether there are other threads to share work with.
pub(super) fn has_other_threads() -> bool {
    threads() > 1
}

/// Runs `body` over `range`, on several threads if it is longer than a grain. The code that
/// distributes work to threads is compiled once, not for every kernel.
fn share(range: Range<usize>, work: Work, body: &(dyn Fn(Range<usize>) + Sync)) {
    if range.len() <= work.grain || !has_other_threads() {
        return body(range);
    }
    let half = range.len() / 2;
    let unit = if half > work.unit { work.unit } else { 1 };
    let middle = range.start + half.next_multiple_of(unit);
    rayon::join(
        || share(range.start..middle, work, body),
        || share(middle..range.end, work, body),
    );
}

/// Runs two parts of a launch, on two threads if the pool has more than one.
pub(super) fn both<R: Send>(
    left: &(dyn Fn() -> R + Sync),
    right: &(dyn Fn() -> R + Sync),
) -> (R, R) {
    if !has_other_threads() {
        return (left(), right());
    }
    let (mut first, mut second) = (None, None);
    join(&mut || first = Some(left()), &mut || second = Some(right()));
    match (first, second) {
        (Some(first), Some(second)) => (first, second),
        _ => unreachable!("both have been run"),
    }
}

/// Runs both functions on two threads. Like [`share`], it is compiled once.
fn join(left: &mut (dyn FnMut() + Send), right: &mut (dyn FnMut() + Send)) {
    rayon::join(left, right);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::{Work, share};

    #[test]
    fn every_number_is_served_once_by_any_number_of_threads() {
        for threads in [1, 2, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let pool = pool.build().unwrap();
            for (start, length, grain, unit) in [
                (0, 1, 1, 1),
                (5, 7, 1, 1),
                (0, 129, 128, 1),
                (3, 300, 128, 1),
                (0, 10_000, 1, 1),
                (1, 10_001, 777, 1),
                (0, 10_001, 777, 128),
                (0, 10_001, 300, 300),
            ] {
                let served: Vec<AtomicU8> = (0..start + length).map(|_| AtomicU8::new(0)).collect();
                let work = Work::of_bytes(length, 1).in_units_of(unit);
                let work = Work { grain, ..work };
                pool.install(|| {
                    share(start..start + length, work, &|range| {
                        assert!(threads == 1 || range.len() <= grain);
                        for number in range {
                            served[number].fetch_add(1, Ordering::Relaxed);
                        }
                    });
                });
                let times = served.iter().map(|served| served.load(Ordering::Relaxed));
                assert!(
                    times
                        .enumerate()
                        .all(|(number, times)| times == u8::from(number >= start))
                );
            }
        }
    }

    #[test]
    fn delayed_work_waits_for_no_other_thread() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2);
        pool.build().unwrap().install(|| {
            let before = super::has_other_threads();
            super::alone(|| {
                let here = std::thread::current().id();
                let work = Work::of_bytes(100, 1 << 20);
                share(0..100, work, &|_| {
                    assert_eq!(std::thread::current().id(), here);
                });
                let is_here = || assert_eq!(std::thread::current().id(), here);
                super::both(&is_here, &is_here);
                assert!(!super::has_other_threads());
            });
            assert!(before && super::has_other_threads());
        });
    }
}
