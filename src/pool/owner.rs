//! Which streams' work may still touch a free block.

use crate::device::StreamId;

/// The streams that a free block followed while it was used: none, one, or several.
///
/// Pools carry it, and join it as they join blocks; what it means to wait for a stream is known
/// above them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u16);

impl Owner {
    /// Nobody used it yet, or all who did are known to be done.
    pub(crate) const NOBODY: Self = Self(u16::MAX);
    /// Blocks of different streams were joined.
    pub(crate) const SEVERAL: Self = Self(u16::MAX - 1);

    /// What the work of one stream may still touch.
    #[inline]
    pub(crate) fn of(stream: StreamId) -> Self {
        debug_assert!(
            stream.0 < Self::SEVERAL.0,
            "{stream:?} stands for no stream"
        );
        Self(stream.0)
    }

    /// That of two blocks together.
    #[inline]
    pub(crate) fn merge(self, other: Self) -> Self {
        if self == other || other == Self::NOBODY {
            self
        } else if self == Self::NOBODY {
            other
        } else {
            Self::SEVERAL
        }
    }

    /// Whether `stream` may use the block without being ordered after anything.
    #[inline]
    pub(crate) fn is_ready_for(self, stream: StreamId) -> bool {
        self == Self::NOBODY || self.0 == stream.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_ready_for_all_one_for_itself_and_several_for_none() {
        let [first, second] = [StreamId(0), StreamId(7)];
        let ready = |owner: Owner| [first, second].map(|stream| owner.is_ready_for(stream));
        assert_eq!(ready(Owner::NOBODY), [true, true]);
        assert_eq!(ready(Owner::of(first)), [true, false]);
        assert_eq!(ready(Owner::of(second)), [false, true]);
        assert_eq!(ready(Owner::SEVERAL), [false, false]);
    }

    #[test]
    fn merging_keeps_one_stream_and_forgets_which_of_several() {
        let all = [
            Owner::NOBODY,
            Owner::of(StreamId(0)),
            Owner::of(StreamId(1)),
            Owner::SEVERAL,
        ];
        for a in all {
            assert_eq!(a.merge(a), a);
            assert_eq!(a.merge(Owner::NOBODY), a);
            assert_eq!(a.merge(Owner::SEVERAL), Owner::SEVERAL);
            for b in all {
                assert_eq!(a.merge(b), b.merge(a));
                for c in all {
                    assert_eq!(a.merge(b).merge(c), a.merge(b.merge(c)));
                }
            }
        }
        assert_eq!(all[1].merge(all[2]), Owner::SEVERAL);
    }
}
