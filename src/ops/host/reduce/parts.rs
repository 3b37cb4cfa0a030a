//! Totals of long lanes. Threads share the parts of a lane. The totals of the parts are merged two
//! by two.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::ops::host::launch::{Work, share};
use cachescope_kernels::reduce::loops::Scratch;

/// The maximum number of parts whose totals are in memory at once.
const PARTS: usize = 1024;

/// The division of `0..length` into parts of at most `chunk` indices. The ends of the parts depend
/// only on `length` and `chunk`.
pub(super) struct Parts<'a> {
    pub(super) length: usize,
    pub(super) chunk: usize,
    /// The number of bytes that are read for each index in `0..length`.
    pub(super) bytes_each: usize,
    /// A function that writes the totals of a part.
    pub(super) total: &'a (dyn Fn(Range<usize>, &mut Scratch) + Sync),
    /// A function that merges the second totals into the first totals. The elements of the first
    /// totals precede the elements of the second totals.
    pub(super) merge: &'a (dyn Fn(&mut Scratch, &Scratch) + Sync),
}

impl Parts<'_> {
    /// Computes the totals of all parts, merges them two by two, and writes the result to `totals`.
    pub(super) fn merged(&self, totals: &mut Scratch) {
        self.merged_range(0..self.length.div_ceil(self.chunk), totals);
    }

    fn merged_range(&self, parts: Range<usize>, totals: &mut Scratch) {
        if parts.len() <= PARTS {
            return self.merged_at_once(parts, totals);
        }
        let middle = parts.start + parts.len().div_ceil(2);
        self.merged_range(parts.start..middle, totals);
        let mut right = scratch(totals.len());
        self.merged_range(middle..parts.end, &mut right);
        (self.merge)(totals, &right);
    }

    /// Like [`merged_range`](Self::merged_range), for parts whose totals are in memory at once.
    fn merged_at_once(&self, parts: Range<usize>, totals: &mut Scratch) {
        let units = totals.len();
        let mut all = scratch(parts.len() * units);
        let slots: Vec<Mutex<&mut Scratch>> = all.chunks_mut(units).map(Mutex::new).collect();
        let bytes = self.chunk.saturating_mul(self.bytes_each);
        share(
            Work::of_bytes(parts.len(), bytes).in_units_of(1),
            &|indices| {
                for index in indices {
                    let start = (parts.start + index) * self.chunk;
                    let end = self.length.min(start + self.chunk);
                    let mut slot = slots[index].lock().unwrap_or_else(PoisonError::into_inner);
                    (self.total)(start..end, &mut slot);
                }
            },
        );
        drop(slots);
        self.merge_all(&mut all, units);
        totals.copy_from_slice(&all[..units]);
    }

    /// Merges the totals of consecutive parts into the totals of the first part.
    fn merge_all(&self, totals: &mut Scratch, units: usize) {
        let parts = totals.len() / units;
        if parts > 1 {
            let (left, right) = totals.split_at_mut(parts.div_ceil(2) * units);
            self.merge_all(left, units);
            self.merge_all(right, units);
            (self.merge)(&mut left[..units], &right[..units]);
        }
    }
}

fn scratch(units: usize) -> Box<Scratch> {
    Box::<[u128]>::new_uninit_slice(units)
}
