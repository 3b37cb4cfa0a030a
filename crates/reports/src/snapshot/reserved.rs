//! The set of reserved address ranges.

use std::collections::BTreeMap;

use super::pickle::GREATEST;

/// An address range from `start` to before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressSpan {
    /// The first address.
    pub start: u64,
    /// The address after the last address.
    pub end: u64,
}

impl AddressSpan {
    /// Creates a span, clamped to addresses below 2⁶³. All report formats can represent these
    /// addresses.
    pub fn new(start: u64, bytes: u64) -> Self {
        Self {
            start: start.min(GREATEST),
            end: start.saturating_add(bytes).min(GREATEST),
        }
    }

    /// Returns the length of the span in bytes.
    pub fn bytes(self) -> u64 {
        self.end - self.start
    }

    pub(super) fn is_empty(self) -> bool {
        self.start == self.end
    }

    fn common(self, other: Self) -> Self {
        Self {
            start: self.start.max(other.start),
            end: self.end.min(other.end),
        }
    }
}

/// A reserved range with the stream that orders it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The address span.
    pub span: AddressSpan,
    /// The index of the stream.
    pub stream: u32,
}

/// The set of all reserved ranges. Ranges are not empty and do not overlap. Adjacent ranges of one
/// stream are merged. If the gap between ranges of two streams is filled, the ranges become
/// adjacent, but are not merged.
#[derive(Debug, Default)]
pub struct Reserved {
    /// The end and the stream of each range, by its first address.
    ranges: BTreeMap<u64, (u64, u32)>,
}

impl Reserved {
    /// Returns the ranges in address order.
    pub fn iter(&self) -> impl Iterator<Item = Range> + '_ {
        self.ranges.iter().map(range)
    }

    /// Returns the parts of `span` that are not reserved.
    pub(super) fn gaps(&self, span: AddressSpan) -> Vec<AddressSpan> {
        let mut gaps = Vec::new();
        if self.has_whole(span) {
            return gaps;
        }
        let mut at = span.start;
        for range in self.overlapping(span) {
            gaps.push(AddressSpan {
                start: at,
                end: range.span.start.max(at),
            });
            at = at.max(range.span.end);
        }
        gaps.push(AddressSpan {
            start: at,
            end: span.end.max(at),
        });
        gaps.retain(|gap| !gap.is_empty());
        gaps
    }

    /// Returns whether a single range contains `span`, as for most blocks.
    fn has_whole(&self, span: AddressSpan) -> bool {
        let last = self.ranges.range(..=span.start).next_back();
        last.is_some_and(|(_, &(end, _))| span.end <= end)
    }

    /// Adds a gap. Returns the stream of an adjacent range, or `stream` if no range is adjacent. So
    /// a range grows in place, regardless of the requesting stream.
    pub(super) fn add(&mut self, gap: AddressSpan, stream: u32) -> u32 {
        let AddressSpan { mut start, mut end } = gap;
        let before = self.ranges.range(..start).next_back().map(range);
        let before = before.filter(|before| before.span.end == start);
        let after = self.ranges.get(&end).copied();
        let stream = match (before, after) {
            (Some(before), _) => before.stream,
            (None, Some((_, stream))) => stream,
            (None, None) => stream,
        };
        if let Some(before) = before {
            start = before.span.start;
        }
        if let Some((after, _)) = after.filter(|after| after.1 == stream) {
            self.ranges.remove(&end);
            end = after;
        }
        self.ranges.insert(start, (end, stream));
        stream
    }

    /// Adds `span`. Returns the parts of `span` that were not reserved. The amortised cost is O(log
    /// n), because overlapping ranges are merged.
    pub fn fill(&mut self, span: AddressSpan, stream: u32) -> Vec<AddressSpan> {
        let gaps = self.gaps(span);
        for &gap in &gaps {
            self.add(gap, stream);
        }
        gaps
    }

    /// Removes `span`. Returns the parts of `span` that were reserved.
    pub fn remove(&mut self, span: AddressSpan) -> Vec<Range> {
        let known: Vec<Range> = self.overlapping(span).collect();
        let mut removed = Vec::new();
        for Range { span: own, stream } in known {
            self.ranges.remove(&own.start);
            if own.start < span.start {
                self.ranges.insert(own.start, (span.start, stream));
            }
            if span.end < own.end {
                self.ranges.insert(span.end, (own.end, stream));
            }
            removed.push(Range {
                span: own.common(span),
                stream,
            });
        }
        removed
    }

    fn overlapping(&self, span: AddressSpan) -> impl Iterator<Item = Range> + '_ {
        let before = self.ranges.range(..span.start).next_back().map(range);
        let before = before.filter(move |range| range.span.end > span.start);
        before
            .into_iter()
            .chain(self.ranges.range(span.start..span.end).map(range))
    }
}

fn range((&start, &(end, stream)): (&u64, &(u64, u32))) -> Range {
    Range {
        span: AddressSpan { start, end },
        stream,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn span(start: u64, end: u64) -> AddressSpan {
        AddressSpan { start, end }
    }

    fn of(ranges: &[(u64, u64, u32)]) -> Reserved {
        let mut reserved = Reserved::default();
        for &(start, end, stream) in ranges {
            reserved.add(span(start, end), stream);
        }
        reserved
    }

    fn listed(reserved: &Reserved) -> Vec<(u64, u64, u32)> {
        let parts = |Range { span, stream }| (span.start, span.end, stream);
        reserved.iter().map(parts).collect()
    }

    #[test]
    fn neighbours_become_one() {
        let reserved = of(&[
            (10, 20, 3),
            (30, 40, 3),
            (20, 30, 3),
            (40, 50, 1),
            (0, 10, 1),
        ]);
        assert_eq!(listed(&reserved), [(0, 50, 3)]);
        // A gap between ranges of two streams is assigned to the stream of the lower range.
        let reserved = of(&[(10, 20, 3), (30, 40, 1), (20, 30, 5)]);
        assert_eq!(listed(&reserved), [(10, 30, 3), (30, 40, 1)]);
    }

    #[test]
    fn gaps_are_what_no_range_has() {
        let reserved = of(&[(10, 20, 0), (30, 40, 0)]);
        assert_eq!(
            reserved.gaps(span(0, 50)),
            [span(0, 10), span(20, 30), span(40, 50)]
        );
        assert_eq!(reserved.gaps(span(15, 35)), [span(20, 30)]);
        assert_eq!(reserved.gaps(span(12, 18)), []);
        assert_eq!(reserved.gaps(span(20, 30)), [span(20, 30)]);
        assert!(reserved.has_whole(span(12, 20)));
        assert!(!reserved.has_whole(span(12, 21)) && !reserved.has_whole(span(0, 5)));
    }

    #[test]
    fn what_is_removed_leaves_both_sides() {
        let mut reserved = of(&[(10, 20, 0), (40, 50, 1), (20, 40, 0)]);
        let removed = reserved.remove(span(20, 45));
        let removed: Vec<_> = removed.iter().map(|own| (own.span, own.stream)).collect();
        assert_eq!(removed, [(span(20, 40), 0), (span(40, 45), 1)]);
        assert_eq!(listed(&reserved), [(10, 20, 0), (45, 50, 1)]);
        assert_eq!(reserved.remove(span(20, 45)), []);
    }
    proptest! {
        /// Compares the set with one flag per address.
        #[test]
        fn a_set_is_all_that_was_inserted(
            steps in prop::collection::vec((0u64..64, 0u64..32), 1..60)
        ) {
            let mut reserved = Reserved::default();
            let mut flags = [false; 100];
            for (start, length) in steps {
                let addresses = start..start + length;
                let expected: Vec<u64> = addresses.clone().filter(|&at| !flags[at as usize]).collect();
                let gaps = reserved.fill(AddressSpan::new(start, length), 0);
                let missing: Vec<u64> = gaps.iter().flat_map(|gap| gap.start..gap.end).collect();
                prop_assert_eq!(missing, expected);
                flags[start as usize..(start + length) as usize].fill(true);
                let ranges = listed(&reserved);
                prop_assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "{:?}", ranges);
            }
        }
    }
}
