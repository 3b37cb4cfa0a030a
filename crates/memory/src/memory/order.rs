//! The stream order of a block's uses.
//!
//! A stream that reads waits for the last writer. A stream that writes waits for the last writer
//! and for all readers since. Within one stream, no work waits. Events are recorded on demand, on
//! the streams concerned. A program that uses one stream records no events. Otherwise, one event is
//! recorded for each reading stream between two writes.

use super::uses::{StreamUse, StreamUses};
use crate::device::{Backend, StreamId};
use crate::error::Result;
use crate::recorder::{EventKind, EventRecord, Recorder};
use crate::sync::plain::{AtomicBool, Mutex};
use crate::sync::{AtomicU64, Ordering};

/// The streams of a device, and the recorder of their waits.
#[derive(Clone, Copy)]
pub(crate) struct Streams<'a> {
    pub(crate) backend: &'a dyn Backend,
    pub(crate) recorder: &'a Recorder,
}

impl Streams<'_> {
    /// Makes the stream of `user` wait for the uses `others`. For a use by a host stream, the host
    /// waits.
    pub(crate) fn order_after(
        self,
        user: StreamUse,
        others: impl Iterator<Item = StreamUse>,
    ) -> Result<()> {
        let stream = user.stream();
        for other in others {
            if other.stream() != stream {
                self.wait(stream, other)?;
            } else if let Some(event) = other.event()
                && let Some(host_stream) = self.backend.host_stream(stream)
            {
                host_stream.check_predecessors(&event)?;
            }
        }
        Ok(())
    }

    fn wait(self, stream: StreamId, other: StreamUse) -> Result<()> {
        let done = match other.event() {
            Some(event) => event,
            None => self.backend.record_event(other.stream())?,
        };
        self.backend.stream_wait_event(stream, &done)?;
        self.recorder.record(|| EventRecord {
            stream,
            ..EventRecord::of(EventKind::StreamWait, other.stream().0.into())
        });
        Ok(())
    }

    /// Waits on the host until a use is completed. For a device stream, waits for all work so far.
    pub(crate) fn wait_for(self, used: StreamUse) -> Result<()> {
        match (used.event(), self.backend.host_stream(used.stream())) {
            (Some(event), Some(host_stream)) => host_stream.wait_for(&event),
            _ => self.backend.synchronize(used.stream()),
        }
    }
}

/// The uses of a block since it was handed out.
///
/// Invariants: each stream in `users` has waited for the last write, or is the writer's stream.
/// Since the last write, only streams in `users` and the writer's stream have used the block. If
/// the writer's stream is not the block's own stream, `users` contains the writer's stream. So a
/// drop finds this stream without an allocation.
#[derive(Debug)]
pub(super) struct Uses {
    /// The last write, as a [`StreamUse`]; initially the allocation, on the block's own stream.
    writer: AtomicU64,
    users: Mutex<StreamUses>,
}

impl Uses {
    pub(super) fn new(own: StreamId) -> Self {
        Self {
            writer: AtomicU64::new(StreamUse::on(own).to_word()),
            users: Mutex::new(StreamUses::NONE),
        }
    }

    pub(super) fn last_write(&self) -> StreamUse {
        StreamUse::from_word(self.writer.load(Ordering::Acquire))
    }

    /// Orders `user` after the last write, before it reads. Several threads may read at once.
    /// During a write, no other thread may read or write.
    pub(super) fn read_on(&self, streams: Streams<'_>, user: StreamUse) -> Result<()> {
        let writer = self.last_write();
        if user.event().is_none() {
            let stream = user.stream();
            if writer.stream() == stream || self.users.lock().contains(stream) {
                return Ok(());
            }
        }
        streams.order_after(user, [writer].into_iter())?;
        // The stream is inserted only after the wait. Another thread that finds the stream in the
        // set does not wait.
        self.users.lock().insert(user);
        Ok(())
    }

    /// Orders `user` after every use so far, before it writes.
    pub(super) fn write_on(&self, streams: Streams<'_>, user: StreamUse) -> Result<()> {
        let writer = self.last_write();
        let users = std::mem::take(&mut *self.users.lock());
        let is_listed = users.contains(writer.stream());
        let first = (!is_listed).then_some(writer);
        if let Err(error) = streams.order_after(user, first.into_iter().chain(users.iter())) {
            self.users.lock().merge(users);
            return Err(error);
        }
        self.users.lock().insert(user);
        self.writer.store(user.to_word(), Ordering::Release);
        Ok(())
    }

    /// Returns whether a stream other than `own` has work that `own` has not waited for.
    pub(super) fn has_others_than(&self, own: StreamId) -> bool {
        self.users.lock().has_others_than(own)
    }

    /// Removes and returns the uses that `own` has not waited for. Allocates nothing.
    pub(super) fn take_others(&mut self, own: StreamId) -> StreamUses {
        let mut others = std::mem::take(self.users.get_mut());
        others.remove(own);
        others
    }
}

/// The order between graphs that use a slab by address and the holders of its suballocations.
///
/// A graph reads and writes at the addresses of its capture, whichever suballocations these
/// addresses contain at present. So for the slab, a launch counts as a write and every use of a
/// suballocation as a read. The suballocation's own [`Uses`] orders its uses among each other.
#[derive(Debug)]
pub(crate) struct SlabOrder {
    /// True if a graph uses the slab, including a capture in progress.
    used_by_graphs: AtomicBool,
    /// Uses of suballocations from before a graph used the slab. No launch has waited for these
    /// uses.
    unordered: Mutex<StreamUses>,
    uses: Uses,
}

impl SlabOrder {
    /// Creates the order of a slab of the stream `own`, before any launch.
    pub(super) fn new(own: StreamId) -> Self {
        Self {
            used_by_graphs: AtomicBool::new(false),
            unordered: Mutex::new(StreamUses::NONE),
            uses: Uses::new(own),
        }
    }

    /// Starts tracking. The capturing thread makes this call before another thread can access a
    /// suballocation that the graph writes to.
    pub(super) fn set_used_by_graphs(&self) {
        self.used_by_graphs.store(true, Ordering::Release);
    }

    pub(super) fn is_used_by_graphs(&self) -> bool {
        self.used_by_graphs.load(Ordering::Acquire)
    }

    /// Orders `user` after the last launch, before it uses a suballocation.
    pub(super) fn use_on(&self, streams: Streams<'_>, user: StreamUse) -> Result<()> {
        if self.is_used_by_graphs() {
            return self.uses.read_on(streams, user);
        }
        // The last write is the slab's allocation. The first launch waits for this write in any
        // case.
        if user != self.uses.last_write() {
            self.unordered.lock().insert(user);
        }
        Ok(())
    }

    /// Orders `stream` after the last launch and all uses of suballocations since, before a graph
    /// is launched on `stream`. No other caller may be about to use the slab.
    pub(super) fn launch_on(&self, streams: Streams<'_>, stream: StreamId) -> Result<()> {
        let launch = StreamUse::on(stream);
        let unordered = std::mem::take(&mut *self.unordered.lock());
        let ordered = streams.order_after(launch, unordered.iter());
        if ordered.is_err() {
            self.unordered.lock().merge(unordered);
        }
        ordered.and_then(|()| self.uses.write_on(streams, launch))
    }

    /// Returns whether the last launch was on another stream than `own`.
    pub(super) fn is_launched_elsewhere(&self, own: StreamId) -> bool {
        self.uses.last_write().stream() != own
    }

    /// Removes and returns the last launch and the uses since, without the uses by `own`. Called
    /// when the slab returns to the pool. Allocates nothing.
    pub(super) fn take_launches(&self, own: StreamId) -> StreamUses {
        let mut others = std::mem::take(&mut *self.uses.users.lock());
        others.remove(own);
        others
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::LazyLock;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::device::host::HostBackend;
    use crate::device::host::streams::DelayedStreams;

    const STREAMS: u16 = 200;

    fn backend() -> HostBackend {
        let backend = HostBackend::delaying();
        while backend.streams() < STREAMS {
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

    /// Returns the number of events that `step` recorded.
    fn events(backend: &HostBackend, step: impl FnOnce() -> Result<()>) -> u64 {
        let before = recorded(backend);
        step().unwrap();
        recorded(backend) - before
    }

    fn users(uses: &Uses) -> BTreeSet<u16> {
        let users = uses.users.lock();
        users.iter().map(|used| used.stream().0).collect()
    }

    /// A block's uses, checked against plain sets.
    struct UsesModel {
        backend: HostBackend,
        uses: Uses,
        writer: u16,
        users: BTreeSet<u16>,
    }

    impl UsesModel {
        fn new(own: u16) -> Self {
            Self {
                backend: backend(),
                uses: Uses::new(StreamId(own)),
                writer: own,
                users: BTreeSet::new(),
            }
        }

        fn read(&mut self, stream: u16) {
            let waits = stream != self.writer && !self.users.contains(&stream);
            if waits {
                self.users.insert(stream);
            }
            let user = StreamUse::on(StreamId(stream));
            let read = || self.uses.read_on(streams(&self.backend), user);
            assert_eq!(events(&self.backend, read), u64::from(waits));
        }

        fn write(&mut self, stream: u16) {
            self.users.insert(self.writer);
            self.users.remove(&stream);
            let waits = self.users.len() as u64;
            (self.writer, self.users) = (stream, BTreeSet::from([stream]));
            let user = StreamUse::on(StreamId(stream));
            let write = || self.uses.write_on(streams(&self.backend), user);
            assert_eq!(events(&self.backend, write), waits);
        }

        fn check(&self, own: u16) {
            assert_eq!(users(&self.uses), self.users);
            assert_eq!(self.uses.last_write().stream().0, self.writer);
            let others = self.users.iter().any(|user| *user != own);
            assert_eq!(self.uses.has_others_than(StreamId(own)), others);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn a_stream_waits_for_the_users_of_a_block_and_for_no_other(
            own in 0..STREAMS,
            steps in vec((0..STREAMS, prop::bool::weighted(0.2)), 1..100),
        ) {
            let mut model = UsesModel::new(own);
            for (stream, writes) in steps {
                match writes {
                    true => model.write(stream),
                    false => model.read(stream),
                }
                model.check(own);
            }
            let others: BTreeSet<u16> = {
                let others = model.uses.take_others(StreamId(own));
                others.iter().map(|used| used.stream().0).collect()
            };
            model.users.remove(&own);
            prop_assert_eq!(others, model.users);
        }
    }

    const OWN: StreamId = StreamId(0);
    const ONE: StreamId = StreamId(70);

    #[test]
    fn one_stream_needs_no_event() {
        let (backend, uses) = (backend(), Uses::new(OWN));
        let own = StreamUse::on(OWN);
        assert_eq!(events(&backend, || uses.read_on(streams(&backend), own)), 0);
        assert_eq!(
            events(&backend, || uses.write_on(streams(&backend), own)),
            0
        );
        assert!(!uses.has_others_than(OWN));
    }

    #[test]
    fn a_writer_waits_for_the_writer_before_even_if_it_read() {
        let (backend, uses) = (backend(), Uses::new(OWN));
        let (own, one) = (StreamUse::on(OWN), StreamUse::on(ONE));
        assert_eq!(events(&backend, || uses.read_on(streams(&backend), one)), 1);
        assert_eq!(
            events(&backend, || uses.write_on(streams(&backend), one)),
            1
        );
        assert_eq!(uses.last_write(), one);
        assert_eq!(events(&backend, || uses.read_on(streams(&backend), own)), 1);
        assert!(uses.has_others_than(OWN));
    }

    #[test]
    fn a_launch_waits_for_the_users_of_a_suballocation() {
        let (backend, slab) = (backend(), SlabOrder::new(OWN));
        let use_on = |stream: u16| {
            let user = StreamUse::on(StreamId(stream));
            events(&backend, || slab.use_on(streams(&backend), user))
        };
        let launch_on = |stream: u16| {
            events(&backend, || {
                slab.launch_on(streams(&backend), StreamId(stream))
            })
        };
        assert_eq!([use_on(0), use_on(100), use_on(199), use_on(100)], [0; 4]);
        assert!(!slab.is_launched_elsewhere(OWN));
        slab.set_used_by_graphs();
        // The launch waits for the slab's own stream, and for the streams 100 and 199.
        assert_eq!(launch_on(5), 3);
        assert!(slab.is_launched_elsewhere(OWN));
        assert_eq!([use_on(5), use_on(7), use_on(7)], [0, 1, 0]);
        assert_eq!(launch_on(5), 1);
        let launches = slab.take_launches(OWN);
        let launches: Vec<u16> = launches.iter().map(|used| used.stream().0).collect();
        assert_eq!(launches, [5]);
    }
}
