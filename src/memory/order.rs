//! What streams did with a block, and who has to wait for whom before the next one touches it.
//!
//! The rules: a stream that reads waits for the stream that wrote last; one that writes waits for
//! that and for all that read since. Within a stream nothing waits. The events that are waited for
//! are recorded only now, on the streams concerned: none while a program uses one stream, and one
//! for each reading stream between two writes otherwise.

use crate::device::{Backend, StreamId};
use crate::error::Result;
use crate::pool::StreamOwner;
use crate::sync::plain::AtomicBool;
use crate::sync::{AtomicU16, AtomicU64, Ordering};

/// The first stream that has no bit of its own in a [`Streams`].
const CROWD: u16 = u64::BITS as u16 - 1;

/// A set of streams. Those from [`CROWD`] on are in it together, if one of them is: that waits for
/// too many, never for too few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Streams(u64);

impl Streams {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn of(stream: StreamId) -> Self {
        Self(1 << stream.0.min(CROWD))
    }

    /// Those whose work may still touch a free block, of a device that has `count`.
    pub(super) fn of_owner(owner: StreamOwner, count: u16) -> Self {
        let concerns = |stream: &StreamId| match owner {
            StreamOwner::NONE => false,
            StreamOwner::MANY => true,
            one => one.is_ready_for(*stream),
        };
        let streams = (0..count).map(StreamId).filter(concerns);
        streams.map(Self::of).fold(Self::NONE, Self::union)
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::NONE
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the stream is in the set, alone in its bit.
    fn has_alone(self, stream: StreamId) -> bool {
        stream.0 < CROWD && self.0 & Self::of(stream).0 != 0
    }

    /// Without the stream, unless others may stand in its bit.
    fn without(self, stream: StreamId) -> Self {
        if stream.0 >= CROWD {
            return self;
        }
        Self(self.0 & !Self::of(stream).0)
    }

    /// The streams of the set, of a device that has `count`.
    pub(crate) fn numbers(self, count: u16) -> impl Iterator<Item = StreamId> {
        (0..count)
            .map(StreamId)
            .filter(move |stream| self.0 & Self::of(*stream).0 != 0)
    }
}

/// Lets `stream` wait for what `others` were given so far.
pub(crate) fn order_after(
    backend: &dyn Backend,
    stream: StreamId,
    others: impl Iterator<Item = StreamId>,
) -> Result<()> {
    for other in others.filter(|other| *other != stream) {
        backend.wait(stream, &backend.record(other)?)?;
    }
    Ok(())
}

/// The streams that used a block.
///
/// Invariants: the streams in `readers` waited for what `writer` had been given when they first read;
/// no other stream touched the block since `writer` wrote, but `writer` itself.
#[derive(Debug)]
pub(super) struct Uses {
    /// Who wrote last; at first the block's own stream.
    writer: AtomicU16,
    /// Who read since, as [`Streams`].
    readers: AtomicU64,
}

impl Uses {
    /// Nobody's but those of `own`, which needs no mention.
    pub(super) fn new(own: StreamId) -> Self {
        Self {
            writer: AtomicU16::new(own.0),
            readers: AtomicU64::new(0),
        }
    }

    fn writer(&self) -> StreamId {
        StreamId(self.writer.load(Ordering::Acquire))
    }

    fn readers(&self) -> Streams {
        Streams(self.readers.load(Ordering::Acquire))
    }

    /// Who wrote last.
    pub(super) fn last_writer(&self) -> StreamId {
        self.writer()
    }

    /// Orders `stream`, which is about to read, after the last write. Several threads may come here
    /// at once; who writes comes alone.
    pub(super) fn read_on(&self, backend: &dyn Backend, stream: StreamId) -> Result<()> {
        let writer = self.writer();
        if writer == stream || self.readers().has_alone(stream) {
            return Ok(());
        }
        order_after(backend, stream, [writer].into_iter())?;
        // Only now: another thread on the same stream that sees this need not wait any more.
        self.readers
            .fetch_or(Streams::of(stream).0, Ordering::AcqRel);
        Ok(())
    }

    /// Orders `stream`, which is about to write, after every use so far.
    pub(super) fn write_on(&self, backend: &dyn Backend, stream: StreamId) -> Result<()> {
        let users = self.readers().union(Streams::of(self.writer()));
        // The writer too, where its bit says that it read: it may have read again.
        order_after(backend, stream, users.numbers(backend.streams()))?;
        self.writer.store(stream.0, Ordering::Release);
        self.readers.store(0, Ordering::Release);
        Ok(())
    }

    /// The streams besides `own` whose work on the block `own` has not waited for.
    pub(super) fn others(&self, own: StreamId) -> Streams {
        let readers = self.readers().without(own);
        match self.writer() {
            writer if writer == own => readers,
            writer => readers.union(Streams::of(writer)),
        }
    }
}

/// The order between graphs that use a slab by its addresses and whoever has a part of it.
///
/// A graph reads and writes where requests of its capture lay, whoever has a part there by then. So a launch
/// is to the slab what a writer is to a block, and every use of a part, reading or writing, what a reader is.
/// Among each other the uses of a part are ordered by the part's own [`Uses`].
#[derive(Debug)]
pub(crate) struct SlabOrder {
    /// Whether a graph uses the slab, or is being captured that does.
    lent: AtomicBool,
    uses: Uses,
}

impl SlabOrder {
    /// Of a slab of the stream `own` that no graph was launched on. Every stream may have used a part by
    /// the time of the first launch, which waits for all.
    pub(super) fn new(own: StreamId) -> Self {
        let uses = Uses::new(own);
        uses.readers.store(u64::MAX, Ordering::Relaxed);
        Self {
            lent: AtomicBool::new(false),
            uses,
        }
    }

    /// From here on uses of the parts count. Who captures says so before anybody else gets to know of a
    /// part that the graph writes to.
    pub(super) fn lend(&self) {
        self.lent.store(true, Ordering::Release);
    }

    pub(super) fn is_lent(&self) -> bool {
        self.lent.load(Ordering::Acquire)
    }

    /// Orders `stream`, which is about to use a part, after the last launch.
    pub(super) fn use_on(&self, backend: &dyn Backend, stream: StreamId) -> Result<()> {
        self.uses.read_on(backend, stream)
    }

    /// Orders `stream`, on which a graph is about to be launched, after the last launch and all uses of
    /// parts since. Nobody else may be about to use the slab.
    pub(super) fn launch_on(&self, backend: &dyn Backend, stream: StreamId) -> Result<()> {
        self.uses.write_on(backend, stream)
    }

    /// The stream of the last launch, if it is not `own`: launches before that one are done when it is.
    pub(super) fn launches_beside(&self, own: StreamId) -> Streams {
        match self.uses.writer() {
            writer if writer == own => Streams::NONE,
            writer => Streams::of(writer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::host::HostBackend;
    use crate::device::host::streams::Delayed;

    /// A host whose streams 0 to 3, 70 and 71 and those between them exist.
    fn backend() -> HostBackend {
        let backend = HostBackend::delaying();
        while backend.streams() < 72 {
            backend.new_stream().unwrap();
        }
        backend
    }

    fn recorded(backend: &HostBackend) -> u64 {
        backend.delayed().map_or(0, Delayed::recorded)
    }

    /// How many events `step` recorded.
    fn events(backend: &HostBackend, step: impl FnOnce() -> Result<()>) -> u64 {
        let before = recorded(backend);
        step().unwrap();
        recorded(backend) - before
    }

    const OWN: StreamId = StreamId(0);
    const ONE: StreamId = StreamId(1);
    const TWO: StreamId = StreamId(2);

    #[test]
    fn one_stream_needs_no_event() {
        let (backend, uses) = (backend(), Uses::new(OWN));
        assert_eq!(events(&backend, || uses.read_on(&backend, OWN)), 0);
        assert_eq!(events(&backend, || uses.write_on(&backend, OWN)), 0);
        assert!(uses.others(OWN).is_empty());
    }

    #[test]
    fn a_reader_waits_once_for_each_write() {
        let (backend, uses) = (backend(), Uses::new(OWN));
        assert_eq!(events(&backend, || uses.read_on(&backend, ONE)), 1);
        assert_eq!(events(&backend, || uses.read_on(&backend, ONE)), 0);
        assert_eq!(events(&backend, || uses.read_on(&backend, TWO)), 1);
        assert_eq!(uses.others(OWN), Streams::of(ONE).union(Streams::of(TWO)));
        // Both readers: the writer before is the one that writes now.
        assert_eq!(events(&backend, || uses.write_on(&backend, OWN)), 2);
        assert!(uses.others(OWN).is_empty());
        assert_eq!(events(&backend, || uses.read_on(&backend, ONE)), 1);
    }

    #[test]
    fn a_writer_waits_for_the_writer_before_even_if_it_read() {
        let (backend, uses) = (backend(), Uses::new(OWN));
        assert_eq!(events(&backend, || uses.read_on(&backend, ONE)), 1);
        assert_eq!(events(&backend, || uses.write_on(&backend, ONE)), 1);
        assert_eq!(uses.others(OWN), Streams::of(ONE));
        assert_eq!(uses.last_writer(), ONE);
        assert_eq!(events(&backend, || uses.read_on(&backend, OWN)), 1);
        assert_eq!(uses.others(OWN), Streams::of(ONE));
    }

    #[test]
    fn streams_without_a_bit_of_their_own_wait_for_all_of_their_kind() {
        let (high, other) = (StreamId(70), StreamId(71));
        let (backend, uses) = (backend(), Uses::new(high));
        assert_eq!(events(&backend, || uses.read_on(&backend, other)), 1);
        assert_eq!(events(&backend, || uses.read_on(&backend, other)), 1);
        assert!(!uses.others(high).is_empty());
        // All from 63 on but the one that writes.
        assert_eq!(events(&backend, || uses.write_on(&backend, other)), 8);
        assert_eq!(
            uses.others(OWN).numbers(backend.streams()).count(),
            9,
            "63 to 71"
        );
    }
}
