//! Stream ownership of free blocks.

use crate::device::StreamId;

/// The owner of a free block: the zero, one or many streams whose queued work may still use the
/// block.
///
/// Pools store the owner of each free block, and merge the owners of blocks that they coalesce.
/// Only the layer above waits for streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamOwner(u16);

impl StreamOwner {
    /// No owner: the block was never used, or all earlier work is known to be done.
    pub(crate) const NONE: Self = Self(u16::MAX);
    /// Several owners, after blocks of different streams were coalesced.
    pub(crate) const MANY: Self = Self(u16::MAX - 1);

    #[inline]
    pub(crate) fn of(stream: StreamId) -> Self {
        debug_assert!(
            stream.0 < Self::MANY.0,
            "{stream:?} is reserved for several streams"
        );
        Self(stream.0)
    }

    /// Returns the owner of two coalesced blocks.
    #[inline]
    pub(crate) fn merge(self, other: Self) -> Self {
        if self == other || other == Self::NONE {
            self
        } else if self == Self::NONE {
            other
        } else {
            Self::MANY
        }
    }

    /// Returns the streams of the owner, on a device that has `count` streams.
    pub(crate) fn streams(self, count: u16) -> impl Iterator<Item = StreamId> {
        let numbers = match self {
            Self::NONE => 0..0,
            Self::MANY => 0..count,
            Self(one) => one..one + 1,
        };
        numbers.map(StreamId)
    }

    /// Returns whether `stream` may use the block without waiting.
    #[inline]
    pub(crate) fn is_ready_for(self, stream: StreamId) -> bool {
        self == Self::NONE || self.0 == stream.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_of_no_owner_one_owner_and_several() {
        let [first, second] = [StreamId(0), StreamId(7)];
        let ready = |owner: StreamOwner| [first, second].map(|stream| owner.is_ready_for(stream));
        assert_eq!(ready(StreamOwner::NONE), [true, true]);
        assert_eq!(ready(StreamOwner::of(first)), [true, false]);
        assert_eq!(ready(StreamOwner::of(second)), [false, true]);
        assert_eq!(ready(StreamOwner::MANY), [false, false]);
    }

    #[test]
    fn merging_keeps_one_stream_and_forgets_which_of_several() {
        let all = [
            StreamOwner::NONE,
            StreamOwner::of(StreamId(0)),
            StreamOwner::of(StreamId(1)),
            StreamOwner::MANY,
        ];
        for a in all {
            assert_eq!(a.merge(a), a);
            assert_eq!(a.merge(StreamOwner::NONE), a);
            assert_eq!(a.merge(StreamOwner::MANY), StreamOwner::MANY);
            for b in all {
                assert_eq!(a.merge(b), b.merge(a));
                for c in all {
                    assert_eq!(a.merge(b).merge(c), a.merge(b.merge(c)));
                }
            }
        }
        assert_eq!(all[1].merge(all[2]), StreamOwner::MANY);
    }
}
