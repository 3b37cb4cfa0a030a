//! Segments that are one block each: what pools that never split stand on.

use super::{Owner, SegmentId, Span};
use crate::device::StreamId;

/// The segments of a pool, by number, with holes.
///
/// Invariant: `free_bytes` is the sum over the segments that nobody has.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    segments: Vec<Option<Segment>>,
    free_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    bytes: u64,
    is_free: bool,
    /// Whose work may still touch it, while free.
    owner: Owner,
}

impl Whole {
    /// Adds a segment, free at first.
    pub(crate) fn insert(&mut self, id: SegmentId, bytes: u64) {
        debug_assert!(self.get(id).is_none(), "{id:?} is here");
        debug_assert!(bytes > 0);
        let number = id.0 as usize;
        if number >= self.segments.len() {
            self.segments.resize(number + 1, None);
        }
        self.segments[number] = Some(Segment {
            bytes,
            is_free: true,
            owner: Owner::NOBODY,
        });
        self.free_bytes += bytes;
    }

    /// Takes a segment out, and answers its length and its owner; `None` where it is not here, or
    /// not free.
    pub(crate) fn remove(&mut self, id: SegmentId) -> Option<(u64, Owner)> {
        let Segment { bytes, owner, .. } = self.get(id).filter(|segment| segment.is_free)?;
        self.segments[id.0 as usize] = None;
        self.free_bytes -= bytes;
        Some((bytes, owner))
    }

    /// Whose work may still touch a segment; `None` where it is not free.
    pub(crate) fn owner_of_free(&self, id: SegmentId) -> Option<Owner> {
        let segment = self.get(id).filter(|segment| segment.is_free)?;
        Some(segment.owner)
    }

    /// Hands a free segment out, with its owner until now.
    #[inline]
    pub(crate) fn take(&mut self, id: SegmentId) -> (Span, Owner) {
        let segment = self.get_mut(id);
        debug_assert!(segment.is_free, "{id:?} is out");
        segment.is_free = false;
        let Segment { bytes, owner, .. } = *segment;
        self.free_bytes -= bytes;
        let span = Span {
            segment: id,
            offset: 0,
            bytes,
            node: id.0,
        };
        (span, owner)
    }

    /// Takes a segment back.
    #[inline]
    pub(crate) fn give(&mut self, span: Span, owner: Owner) {
        let segment = self.get_mut(span.segment);
        debug_assert!(
            !segment.is_free && segment.bytes == span.bytes,
            "{span:?} is not out"
        );
        segment.is_free = true;
        segment.owner = owner;
        self.free_bytes += span.bytes;
    }

    /// The length of a segment that is here.
    #[inline]
    pub(crate) fn bytes(&self, id: SegmentId) -> u64 {
        self.get(id).map_or(0, |segment| segment.bytes)
    }

    /// Whether a segment that is here may be used by `stream` at once.
    #[inline]
    pub(crate) fn is_ready_for(&self, id: SegmentId, stream: StreamId) -> bool {
        self.get(id)
            .is_some_and(|segment| segment.owner.is_ready_for(stream))
    }

    /// The free segments, the smallest first.
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

    fn get(&self, id: SegmentId) -> Option<Segment> {
        *self.segments.get(id.0 as usize)?
    }

    #[inline]
    fn get_mut(&mut self, id: SegmentId) -> &mut Segment {
        let segment = self.segments[id.0 as usize].as_mut();
        segment.expect("a pool names only segments that it was given")
    }

    /// Asserts the invariant, and that `listed` are exactly the free segments.
    #[cfg(test)]
    pub(crate) fn check(&self, listed: impl Iterator<Item = SegmentId>) {
        let free_bytes: u64 = self.free().map(|(_, bytes)| bytes).sum();
        assert_eq!(free_bytes, self.free_bytes);
        let mut listed: Vec<_> = listed.collect();
        listed.sort_unstable();
        let free: Vec<_> = self.free().map(|(id, _)| id).collect();
        assert_eq!(listed, free, "each free segment is listed once");
    }
}
