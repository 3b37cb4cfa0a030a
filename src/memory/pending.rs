//! What has to wait before memory may be used again, or given back to the device.
//!
//! A block that only its own stream used goes to the pool at once: the pool keeps whom it follows. One
//! that other streams use as well is pending until they are done. Dropping an array records no
//! event, so that happens here, when somebody looks for memory; streams that are asked about
//! together are asked once.

use super::order::{Streams, order_after};
use super::{Block, DeviceMemory, Phase, State};
use crate::device::{Backend, Event, StreamId};
use crate::error::Result;
use crate::pool::{Span, StreamOwner};

/// Whether the host may wait for a stream here. Dropping does not, and leaves what is not ready to
/// the next allocation, trim or synchronisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Wait,
    Leave,
}

/// Records one event a stream, however often it is asked about it.
pub(crate) struct Recorder<'a> {
    backend: &'a dyn Backend,
    events: Vec<Event>,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(backend: &'a dyn Backend) -> Self {
        Self {
            backend,
            events: Vec::new(),
        }
    }

    /// Events behind everything that `streams` were given.
    pub(crate) fn events(&mut self, streams: Streams) -> Result<Vec<Event>> {
        let numbers = streams.numbers(self.backend.streams());
        numbers.map(|stream| self.event(stream)).collect()
    }

    fn event(&mut self, stream: StreamId) -> Result<Event> {
        if let Some(known) = self.events.iter().find(|event| event.stream == stream) {
            return Ok(*known);
        }
        let fresh = self.backend.record(stream)?;
        self.events.push(fresh);
        Ok(fresh)
    }
}

/// What waits for events, each for its own.
#[derive(Debug)]
pub(crate) struct Waiting<T>(Vec<(Vec<Event>, T)>);

impl<T> Waiting<T> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, events: Vec<Event>, item: T) {
        self.0.push((events, item));
    }

    /// What need not wait any more. A device that cannot tell is taken to be busy: it fails, and
    /// tells so to whoever waits for it.
    pub(crate) fn take_done(&mut self, backend: &dyn Backend) -> Vec<T> {
        let is_done = |event: &Event| backend.is_done(event).unwrap_or(false);
        let done = self
            .0
            .extract_if(.., |(events, _)| events.iter().all(is_done));
        done.map(|(_, item)| item).collect()
    }

    /// Everything, whether it need wait or not.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = T> {
        self.0.drain(..).map(|(_, item)| item)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, item)| item)
    }

    fn events(&self) -> impl Iterator<Item = Event> {
        self.0.iter().flat_map(|(events, _)| events).copied()
    }
}

/// A block on its way to the pool.
#[derive(Debug)]
struct Freed {
    block: Block,
    /// Whether its segment is to be released if it falls idle, or the block is somebody else's and ends.
    /// Then the block's own stream has to be done as well.
    release: bool,
}

impl Freed {
    fn streams(&self) -> Streams {
        let others = self.block.others;
        if self.release {
            others.union(Streams::of(self.block.stream))
        } else {
            others
        }
    }

    /// Whom the block follows once those are done.
    fn owner(&self) -> StreamOwner {
        if self.release {
            StreamOwner::NONE
        } else {
            StreamOwner::of(self.block.stream)
        }
    }
}

/// The blocks of a memory that are pending.
#[derive(Debug)]
pub(super) struct Pending {
    /// Without events as yet.
    fresh: Vec<Freed>,
    waiting: Waiting<Freed>,
    /// To be released in the order of a stream, once no capture of it is under way.
    parked: Vec<Block>,
}

impl Pending {
    pub(super) const fn new() -> Self {
        Self {
            fresh: Vec::new(),
            waiting: Waiting::new(),
            parked: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.waiting.is_empty() && self.parked.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        let freed = self.fresh.iter().chain(self.waiting.iter());
        let blocks = freed.map(|freed| &freed.block).chain(&self.parked);
        blocks.map(Block::bytes).sum()
    }

    pub(super) fn park(&mut self, block: Block) {
        self.parked.push(block);
    }

    /// Records what is not recorded yet; what the device fails to record is tried again next time.
    fn record(&mut self, backend: &dyn Backend) {
        let mut recorder = Recorder::new(backend);
        for freed in std::mem::take(&mut self.fresh) {
            match recorder.events(freed.streams()) {
                Ok(events) => self.waiting.push(events, freed),
                Err(_) => self.fresh.push(freed),
            }
        }
    }
}

impl State {
    /// Takes blocks back: into the pool, or until other streams are done with them.
    pub(super) fn give(&mut self, blocks: impl IntoIterator<Item = Block>) {
        for block in blocks {
            if block.is_foreign() {
                self.part_with(block, true);
            } else if block.others.is_empty() {
                self.pool.give(block.span, StreamOwner::of(block.stream));
            } else {
                self.part_with(block, false);
            }
        }
    }

    /// Keeps a block until the streams are done with it.
    pub(super) fn part_with(&mut self, block: Block, release: bool) {
        self.pending.fresh.push(Freed { block, release });
    }

    /// The streams whose work may still touch what is idle, of a device that has `count`.
    fn streams_of_idle(&self, count: u16, page_bytes: u64) -> Streams {
        let segments = self.pool.idle_segments().into_iter();
        let of_segments = segments.filter_map(|segment| self.pool.owner_of_idle(segment));
        let pages = self.pool.idle_pages(page_bytes).into_iter();
        let owners = of_segments.chain(pages.map(|pages| self.pool.owner_of_pages(pages)));
        owners.fold(Streams::NONE, |streams, owner| {
            streams.union(Streams::of_owner(owner, count))
        })
    }
}

impl DeviceMemory {
    /// The block that the pool handed out, for `stream`, which is ordered after those that the
    /// block followed until now; nobody waits for that but the stream itself.
    pub(super) fn ordered(
        &self,
        state: &mut State,
        (span, owner): (Span, StreamOwner),
        stream: StreamId,
    ) -> Result<Block> {
        if !owner.is_ready_for(stream) {
            let backend = &*self.backend;
            let count = backend.streams();
            let others = Streams::of_owner(owner, count).numbers(count);
            if let Err(error) = order_after(backend, stream, others) {
                state.pool.give(span, owner);
                return Err(error);
            }
        }
        Ok(state.block(span, stream))
    }

    /// Rung 1: pending blocks that the other streams are done with go to the pool; whether there were
    /// any.
    pub(super) fn reclaim_pending(&self, state: &mut State, patience: Patience) -> bool {
        if state.pending.is_empty() {
            return false;
        }
        self.phases
            .time(Phase::ReclaimPending, || self.reclaim_done(state, patience))
    }

    fn reclaim_done(&self, state: &mut State, patience: Patience) -> bool {
        let mut any = self.release_parked(state);
        state.pending.record(&*self.backend);
        let done = state.pending.waiting.take_done(&*self.backend);
        let mut in_ranges = Vec::new();
        for freed in done {
            if freed.block.is_foreign() {
                state.foreign.end(freed.block);
                any = true;
                continue;
            }
            let span = freed.block.span;
            if freed.release && self.must_park(state.segment(span.segment).stream) {
                state.pending.park(freed.block);
                continue;
            }
            any = true;
            let is_idle = state.pool.give(span, freed.owner());
            if !freed.release {
                continue;
            }
            if is_idle {
                self.release_segment(state, span.segment, patience);
            } else if state.segment(span.segment).is_range {
                in_ranges.push(span);
            }
        }
        self.release_pages_of(state, in_ranges, patience);
        any
    }

    /// Releases what a capture held up, where that is over; whether there was any.
    fn release_parked(&self, state: &mut State) -> bool {
        let parked = std::mem::take(&mut state.pending.parked);
        let before = parked.len();
        for block in parked {
            self.release_in_order(state, block);
        }
        state.pending.parked.len() < before
    }

    /// The same for who is not about to allocate, and holds no lock; with [`Patience::Wait`] nothing is
    /// pending afterwards but what a capture holds up. An error is deferred.
    pub(crate) fn settle(&self, patience: Patience) {
        match patience {
            Patience::Leave => {
                self.reclaim_pending(&mut self.state.lock(), patience);
            }
            Patience::Wait => {
                if let Err(error) = self.wait_for_pending() {
                    self.defer(error);
                }
            }
        }
        self.call_destructors();
    }

    /// Rung 4: waits, with no lock held, until every pending block can go to the pool; whether there
    /// were any.
    pub(super) fn wait_for_pending(&self) -> Result<bool> {
        let events: Vec<Event> = {
            let mut state = self.state.lock();
            if state.pending.is_empty() {
                return Ok(false);
            }
            state.pending.record(&*self.backend);
            state.pending.waiting.events().collect()
        };
        let wait = || {
            events
                .iter()
                .try_for_each(|event| self.backend.wait_for(event))
        };
        self.phases.time(Phase::WaitPending, wait)?;
        Ok(self.reclaim_pending(&mut self.state.lock(), Patience::Wait))
    }

    /// Waits, with no lock held, for the work on what is idle, which is about to be released.
    pub(super) fn wait_for_idle(&self) -> Result<()> {
        let backend = &*self.backend;
        let (count, page_bytes) = (backend.streams(), self.page_bytes());
        let streams = self.state.lock().streams_of_idle(count, page_bytes);
        for event in Recorder::new(backend).events(streams)? {
            backend.wait_for(&event)?;
        }
        Ok(())
    }

    /// Whether the device may have memory back that `owner` used last: that work is done, now or
    /// after a wait. The wait is short where [`wait_for_idle`](Self::wait_for_idle) came before.
    pub(super) fn may_release(&self, owner: StreamOwner, patience: Patience) -> Result<bool> {
        let backend = &*self.backend;
        if backend.is_capturing() {
            return Ok(false); // What was recorded may use it, whenever that runs.
        }
        let streams = Streams::of_owner(owner, backend.streams());
        for event in Recorder::new(backend).events(streams)? {
            match patience {
                Patience::Wait => backend.wait_for(&event)?,
                Patience::Leave if backend.is_done(&event)? => {}
                Patience::Leave => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Waits for everything that any stream was given.
    pub(crate) fn synchronize(&self) -> Result<()> {
        for number in 0..self.backend.streams() {
            self.backend.synchronize(StreamId(number))?;
        }
        Ok(())
    }
}
