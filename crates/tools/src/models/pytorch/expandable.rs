//! A pool with one segment that grows.

use super::super::driver::Driver;
use super::super::parts::Parts;
use super::{Class, LARGE_SEGMENT_BYTES, Pool, RANGE_BYTES, SMALL_SEGMENT_BYTES};
use crate::simulation::DriverCall;

/// A pool with one address range. Its pages are mapped on demand. If the device is out of memory,
/// free pages are unmapped.
///
/// Invariant: gaps between parts are unmapped pages, so they begin and end at multiples of
/// `page_bytes`.
#[derive(Debug)]
pub(super) struct ExpandablePool {
    page_bytes: u64,
    parts: Parts,
}

/// Ranges of pages to map, as pairs of start and size.
type GrownRanges = Vec<(u64, u64)>;

impl ExpandablePool {
    pub(super) fn new(class: Class) -> Self {
        let page_bytes = match class {
            Class::Small => SMALL_SEGMENT_BYTES,
            Class::Large => LARGE_SEGMENT_BYTES,
        };
        Self {
            page_bytes,
            parts: Parts::default(),
        }
    }

    /// Returns the size to which a free part can grow if the unmapped pages behind it are mapped.
    fn potential_bytes(&self, start: u64, bytes: u64) -> u64 {
        let end = start + bytes;
        match self.parts.next(end) {
            Some((next, ..)) => bytes + (next - end),
            None => u64::MAX,
        }
    }

    /// Returns the start of the best-fitting free part. Parts are compared by their
    /// `potential_bytes`, which is unbounded for the last part. So the end of the range is used
    /// last.
    fn best_fit(&self, bytes: u64) -> Option<u64> {
        let mut best = None;
        for (part_bytes, start) in self.parts.fitting(bytes) {
            let potential_bytes = self.potential_bytes(start, part_bytes);
            if best.is_some_and(|(least, _)| potential_bytes >= least) {
                break;
            }
            best = Some((potential_bytes, start));
        }
        best.map(|(_, start)| start)
    }

    /// Returns the pages to map so that the `bytes` bytes from `start` on are free. Returns `None`
    /// if a block in use is among these bytes.
    fn growth_at(&self, start: u64, bytes: u64) -> Option<GrownRanges> {
        let end = start.checked_add(bytes).filter(|&end| end <= RANGE_BYTES)?;
        let (mut growth, mut at) = (GrownRanges::new(), start);
        while at < end {
            let next = self.parts.next(at);
            match next {
                Some((next, next_bytes, true)) if next == at => at += next_bytes,
                Some((next, ..)) if next == at => return None,
                _ => {
                    let gap_bytes = next.map_or(u64::MAX, |(next, ..)| next - at);
                    let mapped_bytes = (end - at).checked_next_multiple_of(self.page_bytes)?;
                    let mapped_bytes = mapped_bytes.min(gap_bytes);
                    growth.push((at, mapped_bytes));
                    at += mapped_bytes;
                }
            }
        }
        Some(growth)
    }

    /// Returns the pages to map for a request. The pages are in the lowest gap that fits the
    /// request together with its adjacent free parts.
    fn growth(&self, bytes: u64) -> Option<GrownRanges> {
        self.parts.gaps().find_map(|(gap, _)| {
            let start = self.parts.free_before(gap).unwrap_or(gap);
            self.growth_at(start, bytes)
        })
    }
}

impl Pool for ExpandablePool {
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let start = self.best_fit(bytes)?;
        self.parts.split(start, bytes);
        Some(start)
    }

    /// Maps the pages gap by gap. Stops at the first gap that exceeds the available memory. Gaps
    /// that were mapped before it stay mapped.
    fn grow(&mut self, bytes: u64, room_bytes: u64, driver: &mut Driver) -> u64 {
        let mut mapped_bytes = 0;
        for (start, bytes) in self.growth(bytes).unwrap_or_default() {
            if bytes > room_bytes - mapped_bytes {
                driver.call(DriverCall::MemCreate, 0);
                break;
            }
            if self.parts.end() == 0 {
                driver.call(DriverCall::MemAddressReserve, RANGE_BYTES);
            }
            driver.map(bytes / self.page_bytes, 0, self.page_bytes);
            self.parts.add_free(start, bytes);
            mapped_bytes += bytes;
        }
        mapped_bytes
    }

    fn release(&mut self, start: u64) {
        self.parts.release(start);
    }

    fn trim(&mut self, driver: &mut Driver) -> u64 {
        let mut trimmed_bytes = 0;
        for (bytes, start) in self.parts.free_parts() {
            let end = start + bytes;
            let first_page = start.next_multiple_of(self.page_bytes);
            let last_page = end - end % self.page_bytes;
            if first_page >= last_page {
                continue;
            }
            self.parts.remove_free(start);
            for (start, end) in [(start, first_page), (last_page, end)] {
                if start < end {
                    self.parts.add_free(start, end - start);
                }
            }
            let pages = (last_page - first_page) / self.page_bytes;
            driver.each(DriverCall::MemUnmap, pages, self.page_bytes);
            driver.each(DriverCall::MemRelease, pages, self.page_bytes);
            trimmed_bytes += last_page - first_page;
        }
        trimmed_bytes
    }

    #[cfg(test)]
    fn check(&self) -> (Vec<(u64, u64)>, u64) {
        for (start, end) in self.parts.gaps() {
            assert_eq!(start % self.page_bytes, 0);
            assert_eq!(end.unwrap_or(0) % self.page_bytes, 0);
        }
        self.parts.check()
    }
}
