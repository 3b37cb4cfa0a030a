//! Best fit with immediate split and coalesce.
//!
//! Small and large requests are kept apart, as PyTorch's caching allocator keeps them, so that a
//! small array that lives long pins no large segment. Within a side a request is served by the
//! smallest of the first few blocks of its own size class that fit, else of the next class that has
//! any; on random and on recorded lifetimes that packs as a search through all blocks does. It takes
//! constant time but for one case: where no longer class has a block, the whole of its own class is
//! searched, so that a request is refused only when nothing of its side fits. Where nothing else is
//! left, [`take_from_any`](Pool::take_from_any) crosses over.

use super::bins::Bins;
use super::blocks::{Block, Blocks, NONE, Side, State};
use super::{Owner, Pool, Rounding, SegmentId, Span};
use crate::device::StreamId;
use crate::size::{UNIT_BYTES, round_up};

/// Requests up to this (rounded) are small.
const SMALL_REQUEST_BYTES: u64 = 1 << 20;
/// What small requests share.
const SMALL_SEGMENT_BYTES: u64 = 2 << 20;
/// Large requests below this share segments too.
const SHARED_REQUEST_BYTES: u64 = 10 << 20;
/// What those share.
const SHARED_SEGMENT_BYTES: u64 = 20 << 20;
/// Larger requests have a segment of their own, of a multiple of this.
const SEGMENT_UNIT_BYTES: u64 = 2 << 20;

/// The default pool.
///
/// Invariants:
/// - the blocks of a segment, from `first` along `after`, tile it exactly, in the order of their
///   offsets; `first` stays the same node for as long as the segment is here;
/// - of two neighbours at most one is free;
/// - a free block is in the bin of its size on the side of its segment, a used one in none;
/// - offsets are multiples of [`UNIT_BYTES`], and so are lengths but for a segment's last block;
/// - `free_bytes` is the sum over the free blocks.
#[derive(Debug)]
pub(crate) struct BestFit {
    blocks: Blocks,
    small: Bins,
    large: Bins,
    /// By number, with holes.
    segments: Vec<Option<Segment>>,
    free_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    bytes: u64,
    first: u32,
}

impl BestFit {
    pub(crate) fn new() -> Self {
        Self {
            blocks: Blocks::new(),
            small: Bins::new(),
            large: Bins::new(),
            segments: Vec::new(),
            free_bytes: 0,
        }
    }

    /// The bins of a side, and the blocks that they link.
    #[inline]
    fn bins(&mut self, side: Side) -> (&mut Bins, &mut Blocks) {
        let bins = match side {
            Side::Small => &mut self.small,
            Side::Large => &mut self.large,
        };
        (bins, &mut self.blocks)
    }

    fn take_from(&mut self, side: Side, bytes: u64, stream: StreamId) -> Option<(Span, Owner)> {
        debug_assert!(
            bytes > 0 && bytes.is_multiple_of(UNIT_BYTES),
            "{bytes} bytes"
        );
        let (bins, blocks) = self.bins(side);
        let node = bins.find(blocks, bytes, stream)?;
        bins.remove(blocks, node);
        // A rest below a unit, at the end of a segment of an odd length, could serve nobody.
        if blocks.get(node).bytes - bytes >= UNIT_BYTES {
            let rest = blocks.split(node, bytes);
            bins.insert(blocks, rest);
        }
        let block = blocks.get_mut(node);
        block.state = State::Used;
        let span = Span {
            segment: block.segment,
            offset: block.offset,
            bytes: block.bytes,
            node,
        };
        let owner = block.owner;
        self.free_bytes -= span.bytes;
        Some((span, owner))
    }

    fn segment(&self, segment: SegmentId) -> Option<Segment> {
        *self.segments.get(segment.0 as usize)?
    }

    /// Whether `segment` is one free block.
    fn is_idle(&self, segment: Segment) -> bool {
        let first = self.blocks.get(segment.first);
        first.state == State::Free && first.after == NONE
    }

    /// The segments that are here, by number.
    fn present(&self) -> impl Iterator<Item = (SegmentId, Segment)> {
        let numbered = (0..).map(SegmentId).zip(&self.segments);
        numbered.filter_map(|(id, segment)| Some((id, (*segment)?)))
    }
}

/// The side that serves requests of `bytes` (rounded).
#[inline]
fn side_of(bytes: u64) -> Side {
    if bytes <= SMALL_REQUEST_BYTES {
        Side::Small
    } else {
        Side::Large
    }
}

impl Pool for BestFit {
    fn rounding(&self) -> Rounding {
        Rounding::Units
    }

    fn segment_bytes(&self, bytes: u64) -> u64 {
        if bytes <= SMALL_REQUEST_BYTES {
            SMALL_SEGMENT_BYTES
        } else if bytes < SHARED_REQUEST_BYTES {
            SHARED_SEGMENT_BYTES
        } else {
            round_up(bytes, SEGMENT_UNIT_BYTES).unwrap_or(bytes)
        }
    }

    fn add_segment(&mut self, segment: SegmentId, segment_bytes: u64, request_bytes: u64) {
        debug_assert!(self.segment(segment).is_none(), "{segment:?} is here");
        debug_assert!(segment_bytes > 0);
        let side = side_of(request_bytes);
        let first = self.blocks.insert(Block {
            bytes: segment_bytes,
            offset: 0,
            segment,
            before: NONE,
            after: NONE,
            bin_previous: NONE,
            bin_next: NONE,
            owner: Owner::NOBODY,
            side,
            state: State::Free,
        });
        let (bins, blocks) = self.bins(side);
        bins.insert(blocks, first);
        self.free_bytes += segment_bytes;
        let number = segment.0 as usize;
        if number >= self.segments.len() {
            self.segments.resize(number + 1, None);
        }
        self.segments[number] = Some(Segment {
            bytes: segment_bytes,
            first,
        });
    }

    fn remove_segment(&mut self, segment: SegmentId) -> Option<Owner> {
        let found = self.segment(segment).filter(|&found| self.is_idle(found))?;
        let Block { side, owner, .. } = *self.blocks.get(found.first);
        let (bins, blocks) = self.bins(side);
        bins.remove(blocks, found.first);
        blocks.remove(found.first);
        self.segments[segment.0 as usize] = None;
        self.free_bytes -= found.bytes;
        Some(owner)
    }

    fn take(&mut self, bytes: u64, stream: StreamId) -> Option<(Span, Owner)> {
        self.take_from(side_of(bytes), bytes, stream)
    }

    fn take_from_any(&mut self, bytes: u64, stream: StreamId) -> Option<(Span, Owner)> {
        let own = side_of(bytes);
        self.take_from(own, bytes, stream)
            .or_else(|| self.take_from(own.other(), bytes, stream))
    }

    fn give(&mut self, span: Span, owner: Owner) -> bool {
        let mut node = span.node;
        let Block {
            before,
            after,
            side,
            state,
            offset,
            ..
        } = *self.blocks.get(node);
        debug_assert!(
            state == State::Used && offset == span.offset,
            "{span:?} is not out"
        );
        self.free_bytes += span.bytes;
        let (bins, blocks) = self.bins(side);
        blocks.get_mut(node).owner = owner;
        if blocks.is_free(after) {
            bins.remove(blocks, after);
            blocks.absorb_after(node);
        }
        if blocks.is_free(before) {
            bins.remove(blocks, before);
            blocks.absorb_after(before);
            node = before;
        }
        let block = blocks.get_mut(node);
        block.state = State::Free;
        let idle = block.before == NONE && block.after == NONE;
        bins.insert(blocks, node);
        idle
    }

    fn idle_segments(&self) -> Vec<SegmentId> {
        let mut idle: Vec<_> = self
            .present()
            .filter(|&(_, segment)| self.is_idle(segment))
            .map(|(id, segment)| (segment.bytes, id))
            .collect();
        idle.sort_unstable();
        idle.into_iter().map(|(_, id)| id).collect()
    }

    fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    fn largest_free_block_bytes(&self) -> u64 {
        let small = self.small.largest_bytes(&self.blocks);
        small.max(self.large.largest_bytes(&self.blocks))
    }

    #[cfg(test)]
    fn check(&self) {
        let (mut blocks, mut free, mut free_bytes) = (0, 0, 0);
        for (id, segment) in self.present() {
            let (mut end, mut before, mut before_is_free) = (0, NONE, false);
            let side = self.blocks.get(segment.first).side;
            let mut node = segment.first;
            while node != NONE {
                let block = self.blocks.get(node);
                let is_free = block.state == State::Free;
                assert_ne!(block.state, State::Vacant, "block {node} of {id:?}");
                assert_eq!(block.segment, id, "block {node}");
                assert_eq!(block.side, side, "block {node}");
                assert_eq!(block.before, before, "block {node}");
                assert_eq!(block.offset, end, "block {node} leaves a gap");
                assert_eq!(block.offset % UNIT_BYTES, 0, "block {node}");
                assert!(block.bytes > 0, "block {node}");
                assert!(
                    !(is_free && before_is_free),
                    "{before} and {node} are apart"
                );
                end += block.bytes;
                free_bytes += if is_free { block.bytes } else { 0 };
                free += usize::from(is_free);
                blocks += 1;
                (before, before_is_free, node) = (node, is_free, block.after);
            }
            assert_eq!(end, segment.bytes, "the blocks of {id:?} do not tile it");
        }
        assert_eq!(blocks, self.blocks.check(), "a block is in no segment");
        assert_eq!(free_bytes, self.free_bytes);
        let mut binned = 0;
        for (side, bins) in [(Side::Small, &self.small), (Side::Large, &self.large)] {
            bins.check(&self.blocks, |index| {
                assert_eq!(self.blocks.get(index).side, side, "block {index}");
                binned += 1;
            });
        }
        assert_eq!(binned, free, "a free block is in no bin");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u64 = UNIT_BYTES;

    fn take(pool: &mut BestFit, units: u64) -> Option<Span> {
        let taken = pool.take(units * UNIT, StreamId(0));
        taken.map(|(span, _)| span)
    }

    /// A pool of one segment whose free blocks are of `units` each, kept apart by blocks that are
    /// out, and freed in the order given.
    fn with_free(units: &[u64]) -> BestFit {
        let total: u64 = units.iter().map(|units| units + 1).sum();
        let mut pool = BestFit::new();
        pool.add_segment(SegmentId(0), total * UNIT, UNIT);
        let mut spans = Vec::new();
        for &units in units {
            spans.push(take(&mut pool, units).unwrap());
            take(&mut pool, 1).unwrap();
        }
        for span in spans {
            pool.give(span, Owner::NOBODY);
            pool.check();
        }
        pool
    }

    #[test]
    fn the_smallest_of_the_blocks_that_fit_is_split() {
        let mut pool = with_free(&[64, 71, 67, 69, 100, 66]);
        let spans: Vec<_> = [66, 66, 66]
            .map(|units| take(&mut pool, units).unwrap())
            .into();
        pool.check();
        assert_eq!(spans[0].offset, (65 + 72 + 68 + 70 + 101) * UNIT);
        assert_eq!(spans[1].offset, (65 + 72) * UNIT);
        assert_eq!(spans[2].offset, (65 + 72 + 68) * UNIT);
    }

    #[test]
    fn an_exact_block_beats_a_longer_one_of_its_bin() {
        let mut pool = with_free(&[70, 65, 71]);
        assert_eq!(take(&mut pool, 65).unwrap().offset, 71 * UNIT);
        pool.check();
    }

    #[test]
    fn the_next_bin_that_has_any_serves_before_longer_ones() {
        let mut pool = with_free(&[1000, 80, 500, 90]);
        assert_eq!(take(&mut pool, 70).unwrap().offset, 1001 * UNIT);
        pool.check();
    }

    /// All of one class; the only one that fits was freed first, and so is the last of its bin.
    #[test]
    fn a_fit_at_the_end_of_a_long_bin_is_found() {
        let mut units = vec![71];
        units.extend([64; 100]);
        let mut pool = with_free(&units);
        assert_eq!(take(&mut pool, 70).unwrap().offset, 0);
        assert_eq!(take(&mut pool, 70), None);
        pool.check();
    }

    #[test]
    fn segments_are_as_large_as_their_requests_want() {
        let pool = BestFit::new();
        const MIB: u64 = 1 << 20;
        let cases = [
            (UNIT, 2 * MIB),
            (MIB, 2 * MIB),
            (MIB + UNIT, 20 * MIB),
            (10 * MIB - UNIT, 20 * MIB),
            (10 * MIB, 10 * MIB),
            (10 * MIB + UNIT, 12 * MIB),
            (31 * MIB, 32 * MIB),
        ];
        for (request, segment) in cases {
            assert_eq!(pool.segment_bytes(request), segment, "{request}");
        }
    }

    /// The nodes of blocks that merged serve the next splits: a loop that frees all it took does
    /// not grow the slab.
    #[test]
    fn nodes_are_used_again() {
        let mut pool = BestFit::new();
        pool.add_segment(SegmentId(0), 100 * UNIT, UNIT);
        let mut highest = 0;
        for _ in 0..50 {
            let spans: Vec<_> = (0..100).map(|_| take(&mut pool, 1).unwrap()).collect();
            highest = spans
                .iter()
                .map(|span| span.node)
                .max()
                .unwrap()
                .max(highest);
            for span in spans {
                pool.give(span, Owner::NOBODY);
            }
        }
        pool.check();
        assert_eq!(highest, 99);
    }
}
