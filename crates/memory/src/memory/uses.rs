//! Uses of a block by streams, and exact sets of uses, for any number of streams.
//!
//! Sets merge without an allocation, because the drop of an array merges sets.

use crate::device::{Event, StreamId};

/// A use of a block by a stream, packed into a word.
///
/// A use by a device stream has no position: an event is recorded when another stream must wait. A
/// use by a host stream has a position, so that no stream waits for later work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamUse(u64);

/// The number of bits of a position. The higher bits are the stream.
const POSITION_BITS: u32 = 48;

impl StreamUse {
    /// Returns the use by all work that `stream` has at the moment of a wait for the use.
    pub fn on(stream: StreamId) -> Self {
        Self(u64::from(stream.0) << POSITION_BITS)
    }

    /// Returns the use by the work of a host stream before `event`. The event's position is above
    /// 0.
    pub fn until(event: Event) -> Self {
        debug_assert!((1..1 << POSITION_BITS).contains(&event.position));
        Self(u64::from(event.stream.0) << POSITION_BITS | event.position)
    }

    /// Returns the stream.
    pub fn stream(self) -> StreamId {
        StreamId((self.0 >> POSITION_BITS) as u16)
    }

    /// Returns the event after the use, if the stream is a host stream.
    pub fn event(self) -> Option<Event> {
        let position = self.0 & ((1 << POSITION_BITS) - 1);
        (position > 0).then(|| Event {
            stream: self.stream(),
            position,
        })
    }

    fn bit(self) -> Option<u64> {
        let stream = self.stream().0;
        (self.event().is_none() && stream < BEYOND).then(|| 1 << stream)
    }

    pub(super) fn to_word(self) -> u64 {
        self.0
    }

    pub(super) fn from_word(word: u64) -> Self {
        Self(word)
    }
}

impl From<StreamId> for StreamUse {
    fn from(stream: StreamId) -> Self {
        Self::on(stream)
    }
}

/// The bit that marks a set with uses in `beyond`. A device stream with a lower number has its own
/// bit.
const BEYOND: u16 = u64::BITS as u16 - 1;

/// A set of uses, with the last use of each stream.
///
/// Invariant: the bit [`BEYOND`] is set if and only if `beyond` is not empty.
#[derive(Debug, Default)]
pub(crate) struct StreamUses {
    bits: u64,
    beyond: Chain,
}

impl StreamUses {
    pub(crate) const NONE: Self = Self {
        bits: 0,
        beyond: Chain(None),
    };

    pub(crate) fn is_empty(&self) -> bool {
        self.bits == 0
    }

    pub(super) fn contains(&self, stream: StreamId) -> bool {
        let bit = StreamUse::on(stream).bit();
        bit.is_some_and(|bit| self.bits & bit != 0)
            || self.beyond.iter().any(|used| used.stream() == stream)
    }

    pub(super) fn has_others_than(&self, stream: StreamId) -> bool {
        self.iter().any(|used| used.stream() != stream)
    }

    /// Adds a use. If the use has no bit and its stream is new, allocates.
    pub(super) fn insert(&mut self, used: StreamUse) {
        match used.bit() {
            Some(bit) => self.bits |= bit,
            None => {
                self.bits |= 1 << BEYOND;
                self.beyond.merge(Chain(Some(Box::new(Link {
                    used,
                    next: Chain(None),
                }))));
            }
        }
    }

    /// Adds the uses of another set, without an allocation.
    pub(crate) fn merge(&mut self, other: Self) {
        self.bits |= other.bits;
        self.beyond.merge(other.beyond);
    }

    pub(super) fn remove(&mut self, stream: StreamId) {
        if let Some(bit) = StreamUse::on(stream).bit() {
            self.bits &= !bit;
        }
        self.beyond.remove(stream);
        if self.beyond.0.is_none() {
            self.bits &= !(1 << BEYOND);
        }
    }

    /// Iterates over the uses: first the uses with a bit, then the uses in `beyond`, each by
    /// stream.
    pub(crate) fn iter(&self) -> impl Iterator<Item = StreamUse> {
        let bits = self.bits;
        let streams = (0..BEYOND).filter(move |stream| bits & 1 << stream != 0);
        let with_a_bit = streams.map(|stream| StreamUse::on(StreamId(stream)));
        with_a_bit.chain(self.beyond.iter())
    }
}

/// A list of uses in ascending order of streams. Chains merge without an allocation.
#[derive(Default)]
struct Chain(Option<Box<Link>>);

struct Link {
    used: StreamUse,
    next: Chain,
}

impl Chain {
    fn iter(&self) -> impl Iterator<Item = StreamUse> {
        std::iter::successors(self.0.as_deref(), |link| link.next.0.as_deref())
            .map(|link| link.used)
    }

    fn pop(&mut self) -> Option<Box<Link>> {
        let mut link = self.0.take()?;
        self.0 = link.next.0.take();
        Some(link)
    }

    /// Returns the link of `stream`, or the position to insert it at.
    fn seek(&mut self, stream: StreamId) -> &mut Self {
        let mut place = self;
        while place
            .0
            .as_ref()
            .is_some_and(|link| link.used.stream() < stream)
        {
            place = &mut place
                .0
                .as_mut()
                .expect("the loop's condition has checked the link")
                .next;
        }
        place
    }

    /// Adds the links of `other`. If both chains have a use by one stream, the later use stays.
    fn merge(&mut self, mut other: Self) {
        let mut place = self;
        while let Some(mut link) = other.pop() {
            place = place.seek(link.used.stream());
            match &mut place.0 {
                Some(own) if own.used.stream() == link.used.stream() => {
                    own.used = own.used.max(link.used);
                }
                rest => {
                    link.next.0 = rest.take();
                    *rest = Some(link);
                }
            }
        }
    }

    fn remove(&mut self, stream: StreamId) {
        let place = self.seek(stream);
        if place
            .0
            .as_ref()
            .is_some_and(|link| link.used.stream() == stream)
        {
            place.pop();
        }
    }
}

impl Drop for Chain {
    /// Drops link by link, because recursion along a long chain would overflow the stack.
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The last position of each stream, 0 for a device stream.
    type Oracle = BTreeMap<u16, u64>;

    fn used(stream: u16, position: u64) -> StreamUse {
        let stream = StreamId(stream);
        match position {
            0 => StreamUse::on(stream),
            position => StreamUse::until(Event { stream, position }),
        }
    }

    fn check(set: &StreamUses, oracle: &Oracle) {
        let listed: Oracle = set
            .iter()
            .map(|used| {
                (
                    used.stream().0,
                    used.event().map_or(0, |event| event.position),
                )
            })
            .collect();
        assert_eq!(&listed, oracle);
        assert_eq!(
            set.iter().count(),
            oracle.len(),
            "no stream is listed twice"
        );
        assert_eq!(set.is_empty(), oracle.is_empty());
        assert_eq!(set.bits >> BEYOND == 1, set.beyond.0.is_some());
        for stream in 0..200 {
            let contained = oracle.contains_key(&stream);
            assert_eq!(set.contains(StreamId(stream)), contained);
            let others = oracle.keys().any(|other| *other != stream);
            assert_eq!(set.has_others_than(StreamId(stream)), others);
        }
    }

    /// Generates a use. Every third stream is a host stream, whose uses have positions.
    fn a_use() -> impl Strategy<Value = (u16, u64)> {
        (0..200u16, 1..50u64).prop_map(|(stream, position)| match stream % 3 {
            0 => (stream, position),
            _ => (stream, 0),
        })
    }

    #[derive(Clone, Debug)]
    enum MergeStep {
        Insert((u16, u64)),
        Merge(Vec<(u16, u64)>),
        Remove(u16),
    }

    fn step() -> impl Strategy<Value = MergeStep> {
        prop_oneof![
            4 => a_use().prop_map(MergeStep::Insert),
            2 => vec(a_use(), 0..20).prop_map(MergeStep::Merge),
            1 => (0..200u16).prop_map(MergeStep::Remove),
        ]
    }

    fn insert_both(set: &mut StreamUses, oracle: &mut Oracle, (stream, position): (u16, u64)) {
        set.insert(used(stream, position));
        let last = oracle.entry(stream).or_default();
        *last = position.max(*last);
    }

    proptest! {
        #[test]
        fn a_set_is_a_map_from_streams_to_their_last_use(steps in vec(step(), 1..60)) {
            let (mut set, mut oracle) = (StreamUses::default(), Oracle::new());
            for step in steps {
                match step {
                    MergeStep::Insert(item) => insert_both(&mut set, &mut oracle, item),
                    MergeStep::Merge(items) => {
                        let (mut other, mut others) = (StreamUses::default(), Oracle::new());
                        for item in items {
                            insert_both(&mut other, &mut others, item);
                        }
                        check(&other, &others);
                        set.merge(other);
                        for (stream, position) in others {
                            let last = oracle.entry(stream).or_default();
                            *last = position.max(*last);
                        }
                    }
                    MergeStep::Remove(stream) => {
                        set.remove(StreamId(stream));
                        oracle.remove(&stream);
                    }
                }
                check(&set, &oracle);
            }
        }
    }

    #[test]
    fn drops_and_merges_as_many_streams_as_a_device_may_have() {
        let mut sets = [StreamUses::default(), StreamUses::default()];
        for stream in (0..u16::MAX).rev() {
            sets[usize::from(stream % 2)].insert(used(stream, 1));
        }
        let [mut all, odd] = sets;
        all.merge(odd);
        assert_eq!(all.iter().count(), usize::from(u16::MAX));
    }
}
