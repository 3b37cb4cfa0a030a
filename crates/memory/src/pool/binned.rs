//! Powers of two with a decay window, as in the binned pool of CuArrays.jl.
//!
//! A request is rounded up to a power of two. Each segment is one block, and the free blocks of one
//! power of two are a stack. Nothing is split or coalesced. This pool is the simplest and fastest,
//! but wastes up to half of each block.
//!
//! CuArrays.jl samples the used part of each bin every one to five seconds. It frees the idle
//! blocks that exceed the maximum of the last five samples. In this pool, the window counts takes
//! instead of time. A bin is a stack. The bottom blocks that stayed in the stack throughout a
//! window were not needed during the window. Counting these blocks is exact, and needs constant
//! time. [`decayed_segments`](Pool::decayed_segments) returns these blocks when a window closes. If
//! the caches serve a program, the program takes no block, closes no window and keeps its memory.
//! CuArrays.jl bypasses the pool for requests above 100 MiB. This pool has bins for all sizes.

use super::unsplit::UnsplitSegments;
use super::{Pool, Rounding, SegmentId, Span, StreamOwner};
use crate::device::StreamId;

/// The number of bins: one for each power of two.
const BINS: usize = 64;

/// The depth to which the stack is searched for a block that is ready for the stream.
const SCAN: usize = 16;

/// The number of takes in a window: a few steps of a large network whose temporaries all miss the
/// caches.
const WINDOW_TAKES: u32 = 1 << 14;

/// The pool of powers of two.
///
/// Invariant: bin `k` lists the free segments of at least 2ᵏ and less than 2ᵏ⁺¹ bytes.
#[derive(Debug)]
pub(crate) struct Binned {
    segments: UnsplitSegments,
    bins: [Bin; BINS],
    window_takes: u32,
    /// The number of takes in the current window so far.
    takes: u32,
}

/// The free segments of one power of two, the most recently freed last.
///
/// Invariant: exactly the first `untouched` segments have been free since the window began.
#[derive(Clone, Debug, Default)]
struct Bin {
    free: Vec<SegmentId>,
    untouched: usize,
}

impl Bin {
    #[inline]
    fn push(&mut self, segment: SegmentId) {
        self.free.push(segment);
    }

    /// Removes and returns the last ready segment of the last [`SCAN`] segments, else the last
    /// segment.
    #[inline]
    fn pop(&mut self, is_ready: impl Fn(SegmentId) -> bool) -> Option<SegmentId> {
        let last = self.free.len().checked_sub(1)?;
        let mut near = (0..=last).rev().take(SCAN);
        let ready = near.find(|&at| is_ready(self.free[at]));
        Some(self.remove_at(ready.unwrap_or(last)))
    }

    fn remove(&mut self, segment: SegmentId) {
        let at = self.free.iter().position(|&free| free == segment);
        self.remove_at(at.expect("a free segment is in the bin of its length"));
    }

    #[inline]
    fn remove_at(&mut self, at: usize) -> SegmentId {
        self.untouched -= usize::from(at < self.untouched);
        self.free.remove(at)
    }

    /// Ends the window. Returns the segments that were free throughout the window.
    fn close_window(&mut self) -> &[SegmentId] {
        let untouched = std::mem::replace(&mut self.untouched, self.free.len());
        &self.free[..untouched]
    }
}

impl Binned {
    pub(crate) fn new() -> Self {
        Self::with_window(WINDOW_TAKES)
    }

    fn with_window(window_takes: u32) -> Self {
        Self {
            segments: UnsplitSegments::default(),
            bins: std::array::from_fn(|_| Bin::default()),
            window_takes,
            takes: 0,
        }
    }
}

#[inline]
fn bin_of(bytes: u64) -> usize {
    bytes.ilog2() as usize
}

impl Pool for Binned {
    fn rounding(&self) -> Rounding {
        Rounding::PowersOfTwo
    }

    fn segment_bytes(&self, bytes: u64) -> u64 {
        bytes
    }

    fn decayed_segments(&mut self) -> Vec<SegmentId> {
        if self.takes < self.window_takes {
            return Vec::new();
        }
        self.takes = 0;
        let bins = self.bins.iter_mut();
        bins.flat_map(Bin::close_window).copied().collect()
    }

    fn add_segment(&mut self, segment: SegmentId, segment_bytes: u64, _request_bytes: u64) {
        self.segments.insert(segment, segment_bytes);
        self.bins[bin_of(segment_bytes)].push(segment);
    }

    fn remove_segment(&mut self, segment: SegmentId) -> Option<StreamOwner> {
        let (bytes, owner) = self.segments.remove(segment)?;
        self.bins[bin_of(bytes)].remove(segment);
        Some(owner)
    }

    fn owner_of_idle(&self, segment: SegmentId) -> Option<StreamOwner> {
        self.segments.owner_of_free(segment)
    }

    /// Never takes a longer block, because the block would be handed out whole. The layer above can
    /// release the longer block, and reserve the exact size.
    fn take(&mut self, bytes: u64, stream: StreamId) -> Option<(Span, StreamOwner)> {
        debug_assert!(bytes.is_power_of_two(), "{bytes} bytes");
        let segments = &self.segments;
        let segment = self.bins[bin_of(bytes)].pop(|id| segments.is_ready_for(id, stream))?;
        self.takes = self.takes.saturating_add(1);
        Some(self.segments.take(segment))
    }

    fn give(&mut self, span: Span, owner: StreamOwner) -> bool {
        self.segments.give(span, owner);
        self.bins[bin_of(span.bytes)].push(span.segment);
        true
    }

    fn idle_segments(&self) -> Vec<SegmentId> {
        self.segments.idle()
    }

    fn free_bytes(&self) -> u64 {
        self.segments.free_bytes()
    }

    fn largest_free_block_bytes(&self) -> u64 {
        let longest = self.bins.iter().rfind(|bin| !bin.free.is_empty());
        let longest = longest.map_or(&[][..], |bin| &bin.free);
        let lengths = longest.iter().map(|&segment| self.segments.bytes(segment));
        lengths.max().unwrap_or(0)
    }

    #[cfg(test)]
    fn check(&self) {
        for (index, bin) in self.bins.iter().enumerate() {
            assert!(bin.untouched <= bin.free.len(), "bin {index}");
            for &segment in &bin.free {
                assert_eq!(bin_of(self.segments.bytes(segment)), index, "{segment:?}");
            }
        }
        let binned = self.bins.iter().flat_map(|bin| &bin.free);
        self.segments.check(binned.copied());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a pool with one free segment per length in `units`, numbered in order.
    fn with_free(window_takes: u32, units: &[u64]) -> Binned {
        let mut pool = Binned::with_window(window_takes);
        for (number, units) in (0..).zip(units) {
            pool.add_segment(SegmentId(number), units * 512, units * 512);
        }
        pool
    }

    fn take(pool: &mut Binned, units: u64) -> Option<Span> {
        let taken = pool.take(units * 512, StreamId(0));
        taken.map(|(span, _)| span)
    }

    /// Takes a block of `units` and returns it, `iterations` times.
    fn use_one(pool: &mut Binned, units: u64, iterations: u32) {
        for _ in 0..iterations {
            let span = take(pool, units).unwrap();
            pool.give(span, StreamOwner::NONE);
        }
    }

    #[test]
    fn the_block_given_last_is_taken_first() {
        let mut pool = with_free(100, &[4, 4, 4]);
        let spans = [(); 3].map(|()| take(&mut pool, 4).unwrap());
        for index in [1, 0, 2] {
            pool.give(spans[index], StreamOwner::NONE);
        }
        let again = [(); 3].map(|()| take(&mut pool, 4).unwrap());
        assert_eq!(again, [spans[2], spans[0], spans[1]]);
    }

    #[test]
    fn a_longer_block_does_not_serve() {
        let mut pool = with_free(100, &[64, 8, 16]);
        assert_eq!(pool.take_from_any(4 * 512, StreamId(0)), None);
        let (span, _) = pool.take_from_any(16 * 512, StreamId(0)).unwrap();
        assert_eq!(span.segment, SegmentId(2));
    }

    #[test]
    fn what_a_whole_window_did_not_need_is_surplus() {
        let mut pool = with_free(10, &[1, 1, 1, 8, 64]);
        use_one(&mut pool, 1, 10);
        // The segments were added in this window, so only the next window shows which are needed.
        assert_eq!(pool.decayed_segments(), []);
        use_one(&mut pool, 1, 9);
        assert_eq!(pool.decayed_segments(), [], "the window is open");
        use_one(&mut pool, 8, 1);
        let mut surplus = pool.decayed_segments();
        surplus.sort();
        assert_eq!(surplus, [SegmentId(0), SegmentId(1), SegmentId(4)]);
        for segment in surplus {
            assert_eq!(pool.remove_segment(segment), Some(StreamOwner::NONE));
        }
        pool.check();
        assert_eq!(pool.free_bytes(), 9 * 512);
    }

    /// A naive model: stacks whose entries store whether they were added in this window.
    #[derive(Default)]
    struct NaiveStacks(Vec<(usize, SegmentId, bool)>);

    impl NaiveStacks {
        fn untouched(&self) -> Vec<SegmentId> {
            let old = self.0.iter().filter(|(_, _, is_new)| !is_new);
            let mut old: Vec<_> = old.map(|&(_, segment, _)| segment).collect();
            old.sort();
            old
        }

        fn pop(&mut self, bin: usize) -> Option<SegmentId> {
            let at = self.0.iter().rposition(|&(of, _, _)| of == bin)?;
            Some(self.0.remove(at).1)
        }
    }

    proptest! {
        /// Compares the pool with the model over takes, gives and removals of three lengths, with
        /// windows of five takes.
        #[test]
        fn surplus_is_what_lay_free_all_through_a_window(
            steps in prop::collection::vec((0u32..8, 0usize..3, any::<prop::sample::Index>()), 1..200)
        ) {
            let mut pool = with_free(5, &[1, 1, 1, 2, 2, 2, 4, 4, 4]);
            let mut stacks = NaiveStacks::default();
            stacks.0.extend((0..9).map(|number| (number as usize / 3, SegmentId(number), true)));
            let (mut taken, mut takes) = (Vec::new(), 0);
            for (action, bin, pick) in steps {
                match action {
                    0..=3 => {
                        let span = take(&mut pool, 1 << bin);
                        prop_assert_eq!(span.map(|span| span.segment), stacks.pop(bin));
                        takes += usize::from(span.is_some());
                        taken.extend(span);
                    }
                    4..=6 if !taken.is_empty() => {
                        let span: Span = taken.swap_remove(pick.index(taken.len()));
                        pool.give(span, StreamOwner::NONE);
                        stacks.0.push((bin_of(span.bytes) - 9, span.segment, true));
                    }
                    7 if !stacks.0.is_empty() && pick.index(4) == 0 => {
                        let (_, segment, _) = stacks.0.remove(pick.index(stacks.0.len()));
                        prop_assert_eq!(pool.remove_segment(segment), Some(StreamOwner::NONE));
                    }
                    _ => {}
                }
                let mut surplus = pool.decayed_segments();
                surplus.sort();
                if takes == 5 {
                    takes = 0;
                    prop_assert_eq!(surplus, stacks.untouched());
                    stacks.0.iter_mut().for_each(|(_, _, is_new)| *is_new = false);
                } else {
                    prop_assert_eq!(surplus, []);
                }
                pool.check();
            }
        }
    }
}
