//! A hard limit on the bytes reserved from a source.

use super::{ReserveAt, Source, SourcePart};
use crate::device::budget::Budget;
use crate::device::{Destination, DevicePtr, StreamId};
use crate::error::Result;

/// The value for no limit, which exceeds the memory of any device.
const UNLIMITED: u64 = u64::MAX;

/// A source that refuses reservations beyond a limit.
///
/// Invariants:
/// - `reserved` counts every reserved byte, and the claims of `reserve` calls in progress. Bytes
///   are claimed before the inner source is called, and unclaimed after the inner source has
///   released them. So the bytes of the inner source never exceed `reserved`;
/// - memory that an inner source retains is not counted in `reserved` or against the limit. The
///   inner source releases this memory before it reserves more. So the held bytes are at most the
///   larger of the bytes held before and the bytes reserved now.
#[derive(Debug)]
pub(crate) struct Limit<S> {
    inner: S,
    reserved: Budget,
}

impl<S> Limit<S> {
    /// Limits the bytes reserved from `inner`. With `None`, only counts the bytes.
    pub(crate) fn new(inner: S, limit_bytes: Option<u64>) -> Self {
        Self {
            inner,
            reserved: Budget::new(limit_bytes.unwrap_or(UNLIMITED)),
        }
    }

    /// Sets the limit. A limit below the reserved bytes releases nothing: the source refuses every
    /// `reserve` until enough is released. A concurrent `reserve` may still use the old limit.
    pub(crate) fn set_limit(&self, limit_bytes: Option<u64>) {
        self.reserved.set_limit(limit_bytes.unwrap_or(UNLIMITED));
    }

    pub(crate) fn limit(&self) -> Option<u64> {
        Some(self.reserved.limit_bytes()).filter(|&bytes| bytes != UNLIMITED)
    }

    /// Returns the bytes reserved and not yet released, without the bytes that an inner source
    /// keeps.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.reserved.held_bytes()
    }
}

impl<S: Source> Source for Limit<S> {
    fn reserve(&self, at: ReserveAt, bytes: u64, stream: StreamId) -> Result<Option<DevicePtr>> {
        if !self.reserved.claim(bytes) {
            return Ok(None);
        }
        let reserved = self.inner.reserve(at, bytes, stream);
        if !matches!(reserved, Ok(Some(_))) {
            self.reserved.unclaim(bytes);
        }
        reserved
    }

    fn release(&self, part: SourcePart, to: Destination) -> Result<()> {
        // Memory that could not be released is still held, and still counts.
        self.inner.release(part, to)?;
        self.reserved.unclaim(part.bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::super::testing::{TestSource, release, reserve, reserve_none, try_reserve};
    use super::*;
    use crate::sync::plain::{AtomicU64, Ordering};

    #[test]
    fn the_limit_is_exact_after_every_release() {
        let source = Limit::new(TestSource::new(u64::MAX), Some(1000));
        let first = reserve(&source, 600);
        reserve_none(&source, 401);
        let second = reserve(&source, 400);
        reserve_none(&source, 1);
        assert_eq!(source.reserved_bytes(), 1000);
        release(&source, first, 600);
        assert_eq!(source.reserved_bytes(), 400);
        reserve_none(&source, 601);
        reserve(&source, 600);
        release(&source, second, 400);
        assert_eq!(source.reserved_bytes(), 600);
        assert_eq!(source.inner.held_bytes(), 600);
    }

    #[test]
    fn a_limit_below_what_is_reserved_only_refuses() {
        let source = Limit::new(TestSource::new(u64::MAX), None);
        assert_eq!(source.limit(), None);
        let first = reserve(&source, 600);
        source.set_limit(Some(500));
        assert_eq!(source.limit(), Some(500));
        assert_eq!(source.inner.held_bytes(), 600);
        reserve_none(&source, 1);
        release(&source, first, 600);
        reserve_none(&source, 501);
        reserve(&source, 500);
        source.set_limit(None);
        reserve(&source, 1 << 40);
    }

    #[test]
    fn a_limit_of_nothing_refuses_everything() {
        let source = Limit::new(TestSource::new(u64::MAX), Some(0));
        reserve_none(&source, 1);
        assert_eq!(source.reserved_bytes(), 0);
    }

    #[test]
    fn a_sum_beyond_64_bits_is_over_every_limit() {
        let source = Limit::new(TestSource::new(u64::MAX), None);
        reserve(&source, 512);
        reserve_none(&source, u64::MAX);
        assert_eq!(source.reserved_bytes(), 512);
    }

    #[test]
    fn what_the_source_below_refuses_or_keeps_is_counted_as_it_is() {
        let source = Limit::new(TestSource::new(700), Some(1000));
        let first = reserve(&source, 600);
        reserve_none(&source, 200);
        assert_eq!(source.reserved_bytes(), 600);

        source.inner.break_down();
        source
            .reserve(ReserveAt::Anywhere, 50, StreamId(0))
            .unwrap_err();
        assert_eq!(source.reserved_bytes(), 600);
        let part = SourcePart::new(first, 600, StreamId(0));
        source.release(part, Destination::Device).unwrap_err();
        assert_eq!(source.reserved_bytes(), 600);
    }

    /// A source that counts without a lock, so that nothing orders the threads that compete for the
    /// last bytes.
    #[derive(Debug, Default)]
    struct Meter {
        held: AtomicU64,
        peak: AtomicU64,
    }

    impl Source for Meter {
        fn reserve(&self, _: ReserveAt, bytes: u64, _: StreamId) -> Result<Option<DevicePtr>> {
            let held = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
            self.peak.fetch_max(held, Ordering::Relaxed);
            Ok(Some(DevicePtr(4096)))
        }

        fn release(&self, part: SourcePart, _: Destination) -> Result<()> {
            self.held.fetch_sub(part.bytes, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn threads_never_exceed_the_limit_together() {
        const LIMIT: u64 = 3;
        let source = Limit::new(Meter::default(), Some(LIMIT));
        let (mut granted, mut refused) = (0, 0);
        let start = Barrier::new(8);
        let worker = || {
            start.wait();
            hammer(&source)
        };
        std::thread::scope(|scope| {
            let workers = [(); 8].map(|()| scope.spawn(worker));
            for worker in workers {
                let (yes, no) = worker.join().unwrap();
                granted += yes;
                refused += no;
            }
        });
        assert_eq!(source.reserved_bytes(), 0);
        assert_eq!(source.inner.held.load(Ordering::Relaxed), 0);
        assert!(source.inner.peak.load(Ordering::Relaxed) <= LIMIT);
        assert!(granted > 0 && refused > 0, "{granted} {refused}");
    }

    /// Reserves and releases one or two bytes at a time. Returns the numbers of grants and
    /// refusals.
    fn hammer(source: &Limit<Meter>) -> (u64, u64) {
        let (mut granted, mut refused) = (0, 0);
        for step in 0..20_000u64 {
            let bytes = 1 + step % 2;
            match try_reserve(source, bytes) {
                Some(address) => {
                    granted += 1;
                    // The yield lets other threads reach the limit, even on one core.
                    if step % 16 == 0 {
                        std::thread::yield_now();
                    }
                    release(source, address, bytes);
                }
                None => refused += 1,
            }
        }
        (granted, refused)
    }
}
