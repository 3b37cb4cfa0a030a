//! The stream order of a block's uses.
//!
//! A stream that reads waits for the last writer. A stream that writes waits for the last writer and for all
//! readers since. Within a stream nothing waits. Events are recorded on demand, on the streams concerned: none
//! while a program uses one stream, else one for each reading stream between two writes.

use crate::device::{Backend, StreamId};
use crate::error::Result;
use crate::pool::StreamOwner;
use crate::recorder::{EventKind, EventRecord, Recorder};
use crate::sync::plain::AtomicBool;
use crate::sync::{AtomicU16, AtomicU64, Ordering};

/// Streams from this number on share a bit of [`StreamSet`].
const SHARED_BIT: u16 = u64::BITS as u16 - 1;

/// A set of streams, as bits. Streams from [`SHARED_BIT`] on share one bit, so a set may contain too many,
/// never too few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamSet(u64);

impl StreamSet {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn of(stream: StreamId) -> Self {
        Self(1 << stream.0.min(SHARED_BIT))
    }

    /// The streams of `owner`, on a device that has `count`.
    pub(super) fn of_owner(owner: StreamOwner, count: u16) -> Self {
        let is_owner = |stream: &StreamId| match owner {
            StreamOwner::NONE => false,
            StreamOwner::MANY => true,
            one => one.is_ready_for(*stream),
        };
        let streams = (0..count).map(StreamId).filter(is_owner);
        streams.map(Self::of).fold(Self::NONE, Self::union)
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::NONE
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the stream is in the set, by a bit of its own.
    fn has_own_bit_set(self, stream: StreamId) -> bool {
        stream.0 < SHARED_BIT && self.0 & Self::of(stream).0 != 0
    }

    /// The set without the stream, unless its bit is shared.
    fn without(self, stream: StreamId) -> Self {
        if stream.0 >= SHARED_BIT {
            return self;
        }
        Self(self.0 & !Self::of(stream).0)
    }

    /// The streams of the set, on a device that has `count`.
    pub(crate) fn numbers(self, count: u16) -> impl Iterator<Item = StreamId> {
        (0..count)
            .map(StreamId)
            .filter(move |stream| self.0 & Self::of(*stream).0 != 0)
    }
}

/// The streams of a device, and who hears that one waits for another.
#[derive(Clone, Copy)]
pub(crate) struct Streams<'a> {
    pub(crate) backend: &'a dyn Backend,
    pub(crate) recorder: &'a Recorder,
}

impl Streams<'_> {
    /// Lets `stream` wait for the work of `others` so far.
    pub(crate) fn order_after(
        self,
        stream: StreamId,
        others: impl Iterator<Item = StreamId>,
    ) -> Result<()> {
        for other in others.filter(|other| *other != stream) {
            self.wait(stream, other)?;
        }
        Ok(())
    }

    fn wait(self, stream: StreamId, other: StreamId) -> Result<()> {
        let done = self.backend.record_event(other)?;
        self.backend.stream_wait_event(stream, &done)?;
        self.recorder.record(|| EventRecord {
            stream,
            ..EventRecord::of(EventKind::StreamWait, other.0.into())
        });
        Ok(())
    }
}

/// The streams that used a block.
///
/// Invariants: each stream in `readers` waited for the work of `writer` when it first read; since `writer`
/// wrote, no other stream used the block, except `writer` itself.
#[derive(Debug)]
pub(super) struct Uses {
    /// The last writer; initially the block's own stream.
    writer: AtomicU16,
    /// The readers since, as a [`StreamSet`].
    readers: AtomicU64,
}

impl Uses {
    /// Used by the stream `own` only.
    pub(super) fn new(own: StreamId) -> Self {
        Self {
            writer: AtomicU16::new(own.0),
            readers: AtomicU64::new(0),
        }
    }

    fn writer(&self) -> StreamId {
        StreamId(self.writer.load(Ordering::Acquire))
    }

    fn readers(&self) -> StreamSet {
        StreamSet(self.readers.load(Ordering::Acquire))
    }

    /// The last writer.
    pub(super) fn last_writer(&self) -> StreamId {
        self.writer()
    }

    /// Orders `stream` after the last write, before it reads. Several threads may read at once; a writer is
    /// alone.
    pub(super) fn read_on(&self, streams: Streams<'_>, stream: StreamId) -> Result<()> {
        let writer = self.writer();
        if writer == stream || self.readers().has_own_bit_set(stream) {
            return Ok(());
        }
        streams.order_after(stream, [writer].into_iter())?;
        // After the wait: another thread on the same stream that sees the bit does not wait.
        self.readers
            .fetch_or(StreamSet::of(stream).0, Ordering::AcqRel);
        Ok(())
    }

    /// Orders `stream` after every use so far, before it writes.
    pub(super) fn write_on(&self, streams: Streams<'_>, stream: StreamId) -> Result<()> {
        let users = self.readers().union(StreamSet::of(self.writer()));
        // The writer too, even if its bit says that it read: it may have read again.
        streams.order_after(stream, users.numbers(streams.backend.streams()))?;
        self.writer.store(stream.0, Ordering::Release);
        self.readers.store(0, Ordering::Release);
        Ok(())
    }

    /// The streams other than `own` whose work on the block `own` has not waited for.
    pub(super) fn others(&self, own: StreamId) -> StreamSet {
        let readers = self.readers().without(own);
        match self.writer() {
            writer if writer == own => readers,
            writer => readers.union(StreamSet::of(writer)),
        }
    }
}

/// The order between graphs that use a slab by address and the holders of its suballocations.
///
/// A graph reads and writes at the addresses of its capture, whoever holds a suballocation there now. So for
/// the slab, a launch counts as a write and every use of a suballocation as a read. The suballocation's own
/// [`Uses`] orders its uses among each other.
#[derive(Debug)]
pub(crate) struct SlabOrder {
    /// Whether a graph uses the slab, a capture under way included.
    used_by_graphs: AtomicBool,
    uses: Uses,
}

impl SlabOrder {
    /// The order of a slab of the stream `own`, before any launch. Every stream may have used a suballocation
    /// by the first launch, which waits for all.
    pub(super) fn new(own: StreamId) -> Self {
        let uses = Uses::new(own);
        uses.readers.store(u64::MAX, Ordering::Relaxed);
        Self {
            used_by_graphs: AtomicBool::new(false),
            uses,
        }
    }

    /// Starts tracking. The capturing thread calls it before another thread can learn of a suballocation that
    /// the graph writes to.
    pub(super) fn set_used_by_graphs(&self) {
        self.used_by_graphs.store(true, Ordering::Release);
    }

    pub(super) fn is_used_by_graphs(&self) -> bool {
        self.used_by_graphs.load(Ordering::Acquire)
    }

    /// Orders `stream` after the last launch, before it uses a suballocation.
    pub(super) fn use_on(&self, streams: Streams<'_>, stream: StreamId) -> Result<()> {
        self.uses.read_on(streams, stream)
    }

    /// Orders `stream` after the last launch and all uses of suballocations since, before a graph is launched
    /// on it. Nobody else may be about to use the slab.
    pub(super) fn launch_on(&self, streams: Streams<'_>, stream: StreamId) -> Result<()> {
        self.uses.write_on(streams, stream)
    }

    /// The stream of the last launch, if it is not `own`. Earlier launches are done when it is.
    pub(super) fn last_launch_other_than(&self, own: StreamId) -> StreamSet {
        match self.uses.writer() {
            writer if writer == own => StreamSet::NONE,
            writer => StreamSet::of(writer),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::device::host::HostBackend;
    use crate::device::host::streams::DelayedStreams;

    /// A host with the streams 0 to 71.
    fn backend() -> HostBackend {
        let backend = HostBackend::delaying();
        while backend.streams() < 72 {
            backend.new_stream().unwrap();
        }
        backend
    }

    fn streams(backend: &HostBackend) -> Streams<'_> {
        static RECORDER: LazyLock<Recorder> = LazyLock::new(Recorder::new);
        Streams {
            backend,
            recorder: &RECORDER,
        }
    }

    fn recorded(backend: &HostBackend) -> u64 {
        backend.delayed().map_or(0, DelayedStreams::recorded)
    }

    /// The number of events that `step` recorded.
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
        assert_eq!(events(&backend, || uses.read_on(streams(&backend), OWN)), 0);
        assert_eq!(
            events(&backend, || uses.write_on(streams(&backend), OWN)),
            0
        );
        assert!(uses.others(OWN).is_empty());
    }

    #[test]
    fn a_reader_waits_once_for_each_write() {
        let (backend, uses) = (backend(), Uses::new(OWN));
        assert_eq!(events(&backend, || uses.read_on(streams(&backend), ONE)), 1);
        assert_eq!(events(&backend, || uses.read_on(streams(&backend), ONE)), 0);
        assert_eq!(events(&backend, || uses.read_on(streams(&backend), TWO)), 1);
        assert_eq!(
            uses.others(OWN),
            StreamSet::of(ONE).union(StreamSet::of(TWO))
        );
        // Both readers; the previous writer is the stream that writes now.
        assert_eq!(
            events(&backend, || uses.write_on(streams(&backend), OWN)),
            2
        );
        assert!(uses.others(OWN).is_empty());
        assert_eq!(events(&backend, || uses.read_on(streams(&backend), ONE)), 1);
    }

    #[test]
    fn a_writer_waits_for_the_writer_before_even_if_it_read() {
        let (backend, uses) = (backend(), Uses::new(OWN));
        assert_eq!(events(&backend, || uses.read_on(streams(&backend), ONE)), 1);
        assert_eq!(
            events(&backend, || uses.write_on(streams(&backend), ONE)),
            1
        );
        assert_eq!(uses.others(OWN), StreamSet::of(ONE));
        assert_eq!(uses.last_writer(), ONE);
        assert_eq!(events(&backend, || uses.read_on(streams(&backend), OWN)), 1);
        assert_eq!(uses.others(OWN), StreamSet::of(ONE));
    }

    #[test]
    fn streams_without_a_bit_of_their_own_wait_for_all_of_their_kind() {
        let (high, other) = (StreamId(70), StreamId(71));
        let (backend, uses) = (backend(), Uses::new(high));
        assert_eq!(
            events(&backend, || uses.read_on(streams(&backend), other)),
            1
        );
        assert_eq!(
            events(&backend, || uses.read_on(streams(&backend), other)),
            1
        );
        assert!(!uses.others(high).is_empty());
        // All from 63 on except the one that writes.
        assert_eq!(
            events(&backend, || uses.write_on(streams(&backend), other)),
            8
        );
        assert_eq!(
            uses.others(OWN).numbers(backend.streams()).count(),
            9,
            "63 to 71"
        );
    }
}
