//! Sets of addresses.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of addresses, as ranges that do not overlap, by their beginnings.
#[derive(Debug, Default)]
pub(super) struct Spans(BTreeMap<u64, u64>);

impl Spans {
    /// The ranges of the set that overlap `range`.
    fn overlapping(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let before = self.0.range(..=range.start).next_back();
        let inside = self
            .0
            .range(range.start..range.end)
            .skip_while(|own| before == Some(*own));
        let own = before.into_iter().chain(inside);
        own.map(|(&start, &end)| start..end)
            .filter(|own| own.start < range.end && range.start < own.end)
            .collect()
    }

    /// The parts of `range` that are not in the set.
    pub(super) fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut start = range.start;
        for own in self.overlapping(&range) {
            missing.push(start..own.start.max(start));
            start = own.end;
        }
        missing.push(start..range.end.max(start));
        missing.retain(|part| !part.is_empty());
        missing
    }

    pub(super) fn insert(&mut self, range: Range<u64>) {
        for part in self.missing(range) {
            self.0.insert(part.start, part.end);
        }
    }

    pub(super) fn remove(&mut self, range: Range<u64>) {
        for own in self.overlapping(&range) {
            self.0.remove(&own.start);
            for part in [own.start..range.start, range.end..own.end] {
                if !part.is_empty() {
                    self.0.insert(part.start, part.end);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a flag for each address.
        #[test]
        fn a_set_is_what_was_inserted_and_not_removed(
            steps in prop::collection::vec((any::<bool>(), 0u64..64, 0u64..32), 1..60)
        ) {
            let mut spans = Spans::default();
            let mut flags = [false; 100];
            for (inserts, start, length) in steps {
                let range = start..start + length;
                let expected: Vec<u64> = range.clone().filter(|&at| !flags[at as usize]).collect();
                let missing = spans.missing(range.clone()).into_iter().flatten();
                prop_assert_eq!(missing.collect::<Vec<_>>(), expected);
                flags[start as usize..(start + length) as usize].fill(inserts);
                if inserts {
                    spans.insert(range);
                } else {
                    spans.remove(range);
                }
            }
        }
    }
}
