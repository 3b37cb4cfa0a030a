//! The gaps between the handed-out ranges of a slab, computed by address arithmetic.

use std::ops::Range;

/// The handed-out ranges of a slab, sorted by address.
///
/// Invariant: the ranges lie inside `bounds`, are not empty, and do not overlap.
#[derive(Debug)]
pub(super) struct Gaps {
    bounds: Range<u64>,
    out: Vec<Range<u64>>,
}

impl Gaps {
    /// Creates the gaps of a slab with the handed-out ranges `out`. The ranges must lie inside
    /// `bounds` and not overlap.
    pub(super) fn new(bounds: Range<u64>, mut out: Vec<Range<u64>>) -> Self {
        out.sort_unstable_by_key(|range| range.start);
        Self { bounds, out }
    }

    /// Returns the lowest address at which `bytes` bytes fit.
    pub(super) fn find(&self, bytes: u64) -> Option<u64> {
        let mut address = self.bounds.start;
        for range in &self.out {
            if range.start - address >= bytes {
                return Some(address);
            }
            address = range.end;
        }
        (self.bounds.end - address >= bytes).then_some(address)
    }

    /// Hands out `bytes` bytes (not 0) at `address`, which [`find`](Self::find) returned.
    pub(super) fn take(&mut self, address: u64, bytes: u64) {
        let index = self.out.partition_point(|range| range.start < address);
        self.out.insert(index, address..address + bytes);
    }

    pub(super) fn give(&mut self, address: u64) {
        let index = self.out.binary_search_by_key(&address, |range| range.start);
        debug_assert!(index.is_ok(), "no suballocation is live at {address}");
        if let Ok(index) = index {
            self.out.remove(index);
        }
    }

    pub(super) fn live(&self) -> usize {
        self.out.len()
    }

    pub(super) fn live_bytes(&self) -> u64 {
        self.out.iter().map(|range| range.end - range.start).sum()
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut end = self.bounds.start;
        for range in &self.out {
            assert!(
                end <= range.start && range.start < range.end,
                "{:?}",
                self.out
            );
            end = range.end;
        }
        assert!(end <= self.bounds.end);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_lowest_gap_is_found(
            first in prop::collection::vec((0u64..100, 1u64..20), 0..6),
            steps in prop::collection::vec((any::<bool>(), 1u64..40, any::<prop::sample::Index>()), 1..60),
        ) {
            let mut taken = [false; 100];
            let mut out: Vec<Range<u64>> = Vec::new();
            for (begin, bytes) in first {
                let range = begin..(begin + bytes).min(100);
                let bytes = &mut taken[range.start as usize..range.end as usize];
                if !bytes.contains(&true) {
                    bytes.fill(true);
                    out.push(range.start + 1000..range.end + 1000);
                }
            }
            let mut gaps = Gaps::new(1000..1100, out.clone());
            for (is_drop, bytes, which) in steps {
                gaps.check();
                prop_assert_eq!(gaps.live(), out.len());
                if is_drop && !out.is_empty() {
                    let range = out.swap_remove(which.index(out.len()));
                    taken[(range.start - 1000) as usize..(range.end - 1000) as usize].fill(false);
                    gaps.give(range.start);
                    continue;
                }
                let mut windows = taken.windows(bytes as usize);
                let lowest = windows.position(|window| !window.contains(&true));
                prop_assert_eq!(gaps.find(bytes), lowest.map(|offset| offset as u64 + 1000));
                if let Some(offset) = lowest {
                    taken[offset..offset + bytes as usize].fill(true);
                    gaps.take(offset as u64 + 1000, bytes);
                    out.push(offset as u64 + 1000..offset as u64 + 1000 + bytes);
                }
            }
        }
    }
}
