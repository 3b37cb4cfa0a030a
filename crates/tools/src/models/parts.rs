//! Parts of a reserved address range, each in use or free.

use std::collections::{BTreeMap, BTreeSet};

/// Parts ordered by address. Addresses outside of all parts are not reserved.
///
/// Invariant: parts do not overlap, and no two free parts are adjacent. `free` contains the size
/// and the start of each free part.
#[derive(Debug, Default)]
pub(in crate::models) struct Parts {
    all: BTreeMap<u64, Part>,
    free: BTreeSet<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    bytes: u64,
    is_free: bool,
}

impl Parts {
    /// Returns the free parts of at least `bytes` bytes, as pairs of size and start. The order is
    /// by size, then by address.
    pub(in crate::models) fn fitting(&self, bytes: u64) -> impl Iterator<Item = (u64, u64)> {
        self.free.range((bytes, 0)..).copied()
    }

    /// Returns all free parts, as pairs of size and start.
    pub(in crate::models) fn free_parts(&self) -> Vec<(u64, u64)> {
        self.free.iter().copied().collect()
    }

    /// Marks the first `bytes` of a free part as used. The remaining bytes stay free.
    pub(in crate::models) fn split(&mut self, start: u64, bytes: u64) {
        let whole_bytes = self.remove_free(start);
        self.put(start, bytes, false);
        if whole_bytes > bytes {
            self.put(start + bytes, whole_bytes - bytes, true);
        }
    }

    pub(in crate::models) fn use_whole(&mut self, start: u64) {
        let bytes = self.remove_free(start);
        self.put(start, bytes, false);
    }

    pub(in crate::models) fn release(&mut self, start: u64) {
        let part = self
            .all
            .remove(&start)
            .expect("the list contains the block");
        debug_assert!(!part.is_free);
        self.add_free(start, part.bytes);
    }

    /// Adds a free part at addresses outside of all parts. Merges the part with its free
    /// neighbours.
    pub(in crate::models) fn add_free(&mut self, start: u64, bytes: u64) {
        let (mut first, mut end) = (start, start + bytes);
        if let Some(before) = self.free_before(start) {
            self.remove_free(before);
            first = before;
        }
        if self.all.get(&end).is_some_and(|part| part.is_free) {
            end += self.remove_free(end);
        }
        self.put(first, end - first, true);
    }

    /// Removes a free part, and returns its size.
    pub(in crate::models) fn remove_free(&mut self, start: u64) -> u64 {
        let part = self
            .all
            .remove(&start)
            .expect("the list contains each free part");
        let was_free = self.free.remove(&(part.bytes, start));
        debug_assert!(was_free);
        part.bytes
    }

    /// Returns the start of the free part that ends at `end`.
    pub(in crate::models) fn free_before(&self, end: u64) -> Option<u64> {
        let (&start, part) = self.all.range(..end).next_back()?;
        (part.is_free && start + part.bytes == end).then_some(start)
    }

    /// Returns the first part that begins at or after `start`: its start, its size, and whether it
    /// is free.
    pub(in crate::models) fn next(&self, start: u64) -> Option<(u64, u64, bool)> {
        let (&start, part) = self.all.range(start..).next()?;
        Some((start, part.bytes, part.is_free))
    }

    pub(in crate::models) fn end(&self) -> u64 {
        let last = self.all.last_key_value();
        last.map_or(0, |(start, part)| start + part.bytes)
    }

    /// Returns the start and the end of each gap between parts. The last gap has no end.
    pub(in crate::models) fn gaps(&self) -> impl Iterator<Item = (u64, Option<u64>)> {
        let mut end = 0;
        let bounds = self
            .all
            .iter()
            .map(|(&start, part)| (start, start + part.bytes));
        let inner = bounds.filter_map(move |(start, next_end)| {
            let gap = (end, Some(start));
            end = next_end;
            (gap.0 < start).then_some(gap)
        });
        inner.chain([(self.end(), None)])
    }

    fn put(&mut self, start: u64, bytes: u64, is_free: bool) {
        self.all.insert(start, Part { bytes, is_free });
        if is_free {
            self.free.insert((bytes, start));
        }
    }

    /// Checks the invariants. Returns the parts in use, and the total size of all parts.
    #[cfg(test)]
    pub(in crate::models) fn check(&self) -> (Vec<(u64, u64)>, u64) {
        let (mut end, mut was_free, mut sum, mut used) = (0, false, 0, Vec::new());
        let mut free = BTreeSet::new();
        for (&start, part) in &self.all {
            assert!(part.bytes > 0 && start >= end, "parts overlap at {start}");
            assert!(!(was_free && part.is_free && start == end), "unmerged");
            if part.is_free {
                free.insert((part.bytes, start));
            } else {
                used.push((start, part.bytes));
            }
            (end, was_free, sum) = (start + part.bytes, part.is_free, sum + part.bytes);
        }
        assert_eq!(free, self.free);
        (used, sum)
    }
}
