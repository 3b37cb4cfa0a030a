//! A pool of segments of fixed sizes.

use std::collections::BTreeMap;

use super::super::driver::Driver;
use super::super::parts::Parts;
use super::{
    Class, LARGE_SEGMENT_BYTES, OWN_SEGMENT_BYTES, OWN_SEGMENT_UNIT_BYTES, Pool,
    SMALL_REQUEST_BYTES, SMALL_SEGMENT_BYTES, UNIT_BYTES,
};
use crate::simulation::DriverCall;

/// A pool of segments, ordered by creation, with a gap behind each. The gap prevents parts of two
/// segments from merging.
#[derive(Debug)]
pub(super) struct SegmentedPool {
    class: Class,
    parts: Parts,
    /// The segment sizes, keyed by the start of the segment.
    segments: BTreeMap<u64, u64>,
}

impl SegmentedPool {
    pub(super) fn new(class: Class) -> Self {
        Self {
            class,
            parts: Parts::default(),
            segments: BTreeMap::new(),
        }
    }

    /// Returns the size of the segment that a request of `bytes` reserves.
    fn segment_bytes(&self, bytes: u64) -> Option<u64> {
        match self.class {
            Class::Small => Some(SMALL_SEGMENT_BYTES),
            Class::Large if bytes < OWN_SEGMENT_BYTES => Some(LARGE_SEGMENT_BYTES),
            Class::Large => bytes.checked_next_multiple_of(OWN_SEGMENT_UNIT_BYTES),
        }
    }

    /// Adds a free segment, and returns its size. Returns 0 if the address range is exhausted.
    /// Addresses are not reused, so large released segments can exhaust the range.
    fn add_segment(&mut self, segment_bytes: u64) -> u64 {
        let last = self.segments.last_key_value();
        let start = last.map_or(0, |(start, bytes)| start + bytes + UNIT_BYTES);
        // The check includes the gap behind the segment.
        if start.checked_add(segment_bytes + UNIT_BYTES).is_none() {
            return 0;
        }
        self.segments.insert(start, segment_bytes);
        self.parts.add_free(start, segment_bytes);
        segment_bytes
    }

    /// Returns whether a remainder of `rest_bytes` is split off.
    fn is_worth_splitting(&self, rest_bytes: u64) -> bool {
        match self.class {
            Class::Small => rest_bytes >= UNIT_BYTES,
            Class::Large => rest_bytes > SMALL_REQUEST_BYTES,
        }
    }
}

impl Pool for SegmentedPool {
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let (whole_bytes, start) = self.parts.fitting(bytes).next()?;
        if self.is_worth_splitting(whole_bytes - bytes) {
            self.parts.split(start, bytes);
        } else {
            self.parts.use_whole(start);
        }
        Some(start)
    }

    fn grow(&mut self, bytes: u64, room_bytes: u64, driver: &mut Driver) -> u64 {
        let segment_bytes = self.segment_bytes(bytes);
        let segment_bytes = segment_bytes.filter(|&bytes| bytes <= room_bytes);
        driver.call(DriverCall::MemAlloc, segment_bytes.unwrap_or(0));
        segment_bytes.map_or(0, |bytes| self.add_segment(bytes))
    }

    fn release(&mut self, start: u64) {
        self.parts.release(start);
    }

    fn trim(&mut self, driver: &mut Driver) -> u64 {
        let mut trimmed_bytes = 0;
        for (bytes, start) in self.parts.free_parts() {
            if self.segments.get(&start) == Some(&bytes) {
                self.segments.remove(&start);
                driver.call(DriverCall::MemFree, bytes);
                trimmed_bytes += self.parts.remove_free(start);
            }
        }
        trimmed_bytes
    }

    #[cfg(test)]
    fn check(&self) -> (Vec<(u64, u64)>, u64) {
        let (used, reserved_bytes) = self.parts.check();
        assert_eq!(reserved_bytes, self.segments.values().sum::<u64>());
        (used, reserved_bytes)
    }
}
