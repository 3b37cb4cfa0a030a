//! Sets of addresses.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of addresses that grows, as ranges by their beginnings.
///
/// Invariant: no range is empty, overlaps another or ends at the beginning of another.
#[derive(Debug, Default)]
pub(super) struct Spans(BTreeMap<u64, u64>);

impl Spans {
    /// Adds `range`; returns the parts of it that were not in the set.
    ///
    /// `n` calls take O(n log n) steps and return O(n) parts, as each merges the ranges that it
    /// meets.
    pub(super) fn insert(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        if range.is_empty() {
            return missing;
        }
        let Range { mut start, mut end } = range;
        let mut missing_end = end;
        // From the highest range that meets this one down.
        while let Some((&own_start, &own_end)) = self.0.range(..=range.end).next_back()
            && own_end >= range.start
        {
            self.0.remove(&own_start);
            missing.push(own_end..missing_end);
            missing_end = own_start;
            start = start.min(own_start);
            end = end.max(own_end);
        }
        missing.push(range.start..missing_end);
        missing.retain(|part| !part.is_empty());
        missing.reverse();
        self.0.insert(start, end);
        missing
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a flag for each address.
        #[test]
        fn a_set_is_all_that_was_inserted(
            steps in prop::collection::vec((0u64..64, 0u64..32), 1..60)
        ) {
            let mut spans = Spans::default();
            let mut flags = [false; 100];
            for (start, length) in steps {
                let range = start..start + length;
                let expected: Vec<u64> = range.clone().filter(|&at| !flags[at as usize]).collect();
                let missing: Vec<u64> = spans.insert(range).into_iter().flatten().collect();
                prop_assert_eq!(missing, expected);
                flags[start as usize..(start + length) as usize].fill(true);
                let ranges: Vec<(u64, u64)> = spans.0.iter().map(|(&start, &end)| (start, end)).collect();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "{:?}", ranges);
            }
        }
    }
}
