//! Segments of one block each, for pools that never split.

use super::{SegmentId, Span, StreamOwner};
use crate::device::StreamId;

/// The segments of a pool, indexed by number.
///
/// Invariant: `free_bytes` is the sum over the free segments.
#[derive(Debug, Default)]
pub(crate) struct UnsplitSegments {
    segments: Vec<Option<UnsplitSegment>>,
    free_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct UnsplitSegment {
    bytes: u64,
    is_free: bool,
    /// The streams that may still use the segment, while free.
    owner: StreamOwner,
}

impl UnsplitSegments {
    pub(crate) fn insert(&mut self, id: SegmentId, bytes: u64) {
        debug_assert!(self.get(id).is_none(), "{id:?} is already in the pool");
        debug_assert!(bytes > 0);
        let number = id.0 as usize;
        if number >= self.segments.len() {
            self.segments.resize(number + 1, None);
        }
        self.segments[number] = Some(UnsplitSegment {
            bytes,
            is_free: true,
            owner: StreamOwner::NONE,
        });
        self.free_bytes += bytes;
    }

    /// Removes a free segment. Returns its length and owner. Returns `None` if the segment does not
    /// exist, or is not free.
    pub(crate) fn remove(&mut self, id: SegmentId) -> Option<(u64, StreamOwner)> {
        let UnsplitSegment { bytes, owner, .. } = self.get(id).filter(|segment| segment.is_free)?;
        self.segments[id.0 as usize] = None;
        self.free_bytes -= bytes;
        Some((bytes, owner))
    }

    /// Returns the owner of a free segment; `None` if the segment is not free.
    pub(crate) fn owner_of_free(&self, id: SegmentId) -> Option<StreamOwner> {
        let segment = self.get(id).filter(|segment| segment.is_free)?;
        Some(segment.owner)
    }

    #[inline]
    pub(crate) fn take(&mut self, id: SegmentId) -> (Span, StreamOwner) {
        let segment = self.get_mut(id);
        debug_assert!(segment.is_free, "{id:?} is in use");
        segment.is_free = false;
        let UnsplitSegment { bytes, owner, .. } = *segment;
        self.free_bytes -= bytes;
        let span = Span {
            segment: id,
            offset: 0,
            bytes,
            node: id.0,
        };
        (span, owner)
    }

    #[inline]
    pub(crate) fn give(&mut self, span: Span, owner: StreamOwner) {
        let segment = self.get_mut(span.segment);
        debug_assert!(
            !segment.is_free && segment.bytes == span.bytes,
            "{span:?} is not in use"
        );
        segment.is_free = true;
        segment.owner = owner;
        self.free_bytes += span.bytes;
    }

    #[inline]
    pub(crate) fn bytes(&self, id: SegmentId) -> u64 {
        self.get(id).map_or(0, |segment| segment.bytes)
    }

    #[inline]
    pub(crate) fn is_ready_for(&self, id: SegmentId, stream: StreamId) -> bool {
        self.get(id)
            .is_some_and(|segment| segment.owner.is_ready_for(stream))
    }

    /// Returns the free segments, smallest first.
    pub(crate) fn idle(&self) -> Vec<SegmentId> {
        let mut idle: Vec<_> = self.free().map(|(id, bytes)| (bytes, id)).collect();
        idle.sort_unstable();
        idle.into_iter().map(|(_, id)| id).collect()
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    fn free(&self) -> impl Iterator<Item = (SegmentId, u64)> {
        let numbered = (0..).map(SegmentId).zip(&self.segments);
        numbered.filter_map(|(id, segment)| {
            let segment = (*segment)?;
            segment.is_free.then_some((id, segment.bytes))
        })
    }

    fn get(&self, id: SegmentId) -> Option<UnsplitSegment> {
        *self.segments.get(id.0 as usize)?
    }

    #[inline]
    fn get_mut(&mut self, id: SegmentId) -> &mut UnsplitSegment {
        let segment = self.segments[id.0 as usize].as_mut();
        segment.expect("the segment is in the pool")
    }

    /// Asserts the invariant, and that `listed` are exactly the free segments.
    #[cfg(test)]
    pub(crate) fn check(&self, listed: impl Iterator<Item = SegmentId>) {
        let free_bytes: u64 = self.free().map(|(_, bytes)| bytes).sum();
        assert_eq!(free_bytes, self.free_bytes);
        let mut listed: Vec<_> = listed.collect();
        listed.sort_unstable();
        let free: Vec<_> = self.free().map(|(id, _)| id).collect();
        assert_eq!(listed, free, "the list of free segments is wrong");
    }
}
