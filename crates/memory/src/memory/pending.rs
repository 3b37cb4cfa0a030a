//! Pending memory: freed, but still used by streams.
//!
//! A block that only its own stream used returns to the pool at once. The pool stores its owner. A
//! block that other streams also used is pending until these streams are done. Dropping an array
//! records no event. When memory is needed, one event per stream is recorded for all pending
//! blocks.

use std::collections::BTreeSet;

use super::uses::{StreamUse, StreamUses};
use super::{Block, DeviceMemory, MemoryState, Phase};
use crate::device::{Backend, Event, StreamId};
use crate::error::Result;
use crate::pool::{Span, StreamOwner};
use crate::recorder::{EventKind, EventRecord};

/// The permission of the host to wait for a stream. Drops only poll, and leave unfinished blocks to
/// the next allocation, trim or synchronisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitMode {
    Wait,
    Poll,
}

/// A recorder of events that records at most one event per stream.
pub(crate) struct StreamEvents<'a> {
    backend: &'a dyn Backend,
    events: Vec<Event>,
}

impl<'a> StreamEvents<'a> {
    pub(crate) fn new(backend: &'a dyn Backend) -> Self {
        Self {
            backend,
            events: Vec::new(),
        }
    }

    pub(crate) fn events(&mut self, uses: &StreamUses) -> Result<Vec<Event>> {
        uses.iter().map(|used| self.event(used)).collect()
    }

    fn event(&mut self, used: StreamUse) -> Result<Event> {
        if let Some(event) = used.event() {
            return Ok(event);
        }
        let stream = used.stream();
        if let Some(known) = self.events.iter().find(|event| event.stream == stream) {
            return Ok(*known);
        }
        let fresh = self.backend.record_event(stream)?;
        self.events.push(fresh);
        Ok(fresh)
    }
}

/// A queue of items, each of which waits for its own events.
#[derive(Debug)]
pub(crate) struct EventQueue<T>(Vec<(Vec<Event>, T)>);

impl<T> EventQueue<T> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, events: Vec<Event>, item: T) {
        self.0.push((events, item));
    }

    /// Removes and returns the items whose events are done. If a query fails, the event counts as
    /// busy, and a wait for the event returns the failure.
    pub(crate) fn take_finished(&mut self, backend: &dyn Backend) -> Vec<T> {
        let is_done = |event: &Event| backend.query_event(event).unwrap_or(false);
        let done = self
            .0
            .extract_if(.., |(events, _)| events.iter().all(is_done));
        done.map(|(_, item)| item).collect()
    }

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

/// A freed block that waits for streams before it returns to the pool.
#[derive(Debug)]
struct PendingFree {
    block: Block,
    /// True if the block is imported, or if its segment is to be released once the segment is idle.
    /// In these cases, the block's own stream must be done, too.
    release: bool,
}

impl PendingFree {
    /// Returns events behind the uses for which the block waits.
    fn events(&self, recorder: &mut StreamEvents<'_>) -> Result<Vec<Event>> {
        let mut events = recorder.events(&self.block.other_uses)?;
        if self.release {
            events.push(recorder.event(StreamUse::on(self.block.stream))?);
        }
        Ok(events)
    }

    /// Returns the block's owner once its `events` are done.
    fn owner(&self) -> StreamOwner {
        if self.release {
            StreamOwner::NONE
        } else {
            StreamOwner::of(self.block.stream)
        }
    }
}

#[derive(Debug)]
pub(super) struct PendingBlocks {
    /// Blocks without events yet.
    unrecorded: Vec<PendingFree>,
    recorded: EventQueue<PendingFree>,
    /// Blocks to release in stream order, deferred until a capture of their stream has ended.
    awaiting_capture: Vec<Block>,
}

impl PendingBlocks {
    pub(super) const fn new() -> Self {
        Self {
            unrecorded: Vec::new(),
            recorded: EventQueue::new(),
            awaiting_capture: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unrecorded.is_empty() && self.recorded.is_empty() && self.awaiting_capture.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        let freed = self.unrecorded.iter().chain(self.recorded.iter());
        let blocks = freed
            .map(|freed| &freed.block)
            .chain(&self.awaiting_capture);
        blocks.map(Block::bytes).sum()
    }

    pub(super) fn defer_for_capture(&mut self, block: Block) {
        self.awaiting_capture.push(block);
    }

    /// Records events for the blocks without events. If the device fails, a later call retries.
    fn record(&mut self, backend: &dyn Backend) {
        let mut recorder = StreamEvents::new(backend);
        for freed in std::mem::take(&mut self.unrecorded) {
            match freed.events(&mut recorder) {
                Ok(events) => self.recorded.push(events, freed),
                Err(_) => self.unrecorded.push(freed),
            }
        }
    }
}

impl MemoryState {
    /// Returns blocks to the pool. Blocks that other streams use become pending instead.
    pub(super) fn give(&mut self, blocks: impl IntoIterator<Item = Block>) {
        for block in blocks {
            if block.is_imported() {
                self.add_pending(block, true);
            } else if block.other_uses.is_empty() {
                self.pool.give(block.span, StreamOwner::of(block.stream));
            } else {
                self.add_pending(block, false);
            }
        }
    }

    pub(super) fn add_pending(&mut self, block: Block, release: bool) {
        self.pending.unrecorded.push(PendingFree { block, release });
    }

    /// Returns the streams that own idle memory, on a device that has `count` streams.
    fn streams_of_idle(&self, count: u16, page_bytes: u64) -> BTreeSet<StreamId> {
        let segments = self.pool.idle_segments().into_iter();
        let of_segments = segments.filter_map(|segment| self.pool.owner_of_idle(segment));
        let pages = self.pool.idle_pages(page_bytes).into_iter();
        let owners = of_segments.chain(pages.map(|pages| self.pool.owner_of_pages(pages)));
        owners.flat_map(|owner| owner.streams(count)).collect()
    }
}

impl DeviceMemory {
    /// Returns a block of the pool for `stream`. Orders `stream` after the block's last owner. The
    /// host does not wait.
    pub(super) fn ordered_block(
        &self,
        state: &mut MemoryState,
        taken: Option<(Span, StreamOwner)>,
        stream: StreamId,
    ) -> Result<Option<Block>> {
        let Some((span, owner)) = taken else {
            return Ok(None);
        };
        if !owner.is_ready_for(stream) {
            let count = self.backend.streams();
            let others = owner.streams(count).filter(|other| self.may_own(*other));
            let ordered = self
                .streams()
                .order_after(stream.into(), others.map(StreamUse::on));
            if let Err(error) = ordered {
                state.pool.give(span, owner);
                return Err(error);
            }
        }
        Ok(Some(state.block(span, stream)))
    }

    /// Runs rung 1: moves pending blocks into the pool if their streams are done. Returns true if
    /// any block ceased to be pending.
    pub(super) fn reclaim_pending(&self, state: &mut MemoryState, wait_mode: WaitMode) -> bool {
        if state.pending.is_empty() {
            return false;
        }
        self.phases.time(Phase::ReclaimPending, || {
            self.reclaim_finished(state, wait_mode)
        })
    }

    fn reclaim_finished(&self, state: &mut MemoryState, wait_mode: WaitMode) -> bool {
        let mut any = self.release_after_capture(state);
        state.pending.record(&*self.backend);
        let done = state.pending.recorded.take_finished(&*self.backend);
        let mut in_ranges = Vec::new();
        for freed in done {
            self.record_completed(&freed.block);
            if freed.block.is_imported() {
                state.imported.finish(freed.block);
                any = true;
                continue;
            }
            let span = freed.block.span;
            if freed.release && self.is_blocked_by_capture(state.segment(span.segment).stream) {
                state.pending.defer_for_capture(freed.block);
                continue;
            }
            any = true;
            let is_idle = state.pool.give(span, freed.owner());
            if !freed.release {
                continue;
            }
            if is_idle {
                self.release_segment(state, span.segment, wait_mode);
            } else if state.segment(span.segment).is_range {
                in_ranges.push(span);
            }
        }
        self.release_pages_of(state, in_ranges, wait_mode);
        any
    }

    /// If other streams used a block, records that their uses have completed.
    fn record_completed(&self, block: &Block) {
        if !block.other_uses.is_empty() {
            self.recorder.record(|| EventRecord {
                stream: block.stream,
                address: block.address.0,
                ..EventRecord::of(EventKind::FreeCompleted, block.bytes())
            });
        }
    }

    /// If a capture has ended, releases the blocks that it deferred. Returns true if any block was
    /// released.
    fn release_after_capture(&self, state: &mut MemoryState) -> bool {
        let awaiting_capture = std::mem::take(&mut state.pending.awaiting_capture);
        let before = awaiting_capture.len();
        for block in awaiting_capture {
            self.release_in_order(state, block);
        }
        state.pending.awaiting_capture.len() < before
    }

    /// Reclaims pending blocks without a lock held and without an allocation. After
    /// [`WaitMode::Wait`] only blocks that a capture defers are pending. An error is deferred.
    pub(crate) fn drain_pending(&self, wait_mode: WaitMode) {
        match wait_mode {
            WaitMode::Poll => {
                self.reclaim_pending(&mut self.state.lock(), wait_mode);
            }
            WaitMode::Wait => {
                if let Err(error) = self.wait_for_pending() {
                    self.defer(error);
                }
            }
        }
        self.call_destructors();
    }

    /// Runs rung 4: waits, without a lock held, until every pending block can return to the pool.
    /// Returns true if any block returned.
    pub(super) fn wait_for_pending(&self) -> Result<bool> {
        let events: Vec<Event> = {
            let mut state = self.state.lock();
            if state.pending.is_empty() {
                return Ok(false);
            }
            state.pending.record(&*self.backend);
            state.pending.recorded.events().collect()
        };
        let wait = || {
            events
                .iter()
                .try_for_each(|event| self.wait_for_event(event))
        };
        self.phases.time(Phase::WaitPending, wait)?;
        Ok(self.reclaim_pending(&mut self.state.lock(), WaitMode::Wait))
    }

    /// Waits, without a lock held, for the work on idle memory that is about to be released.
    pub(super) fn wait_for_idle(&self) -> Result<()> {
        let backend = &*self.backend;
        let (count, page_bytes) = (backend.streams(), self.page_bytes());
        let streams = self.state.lock().streams_of_idle(count, page_bytes);
        for event in self.events_of_owners(streams)? {
            backend.synchronize_event(&event)?;
        }
        Ok(())
    }

    /// Waits for an event that pending blocks await. Does not wait for work that another rank
    /// began, because that work may wait for this rank.
    fn wait_for_event(&self, event: &Event) -> Result<()> {
        match self.backend.host_stream(event.stream) {
            None => self.backend.synchronize_event(event),
            Some(host_stream) => {
                if host_stream.is_submitted_here() {
                    host_stream.settle(event);
                }
                Ok(())
            }
        }
    }

    /// Returns true if `stream` may own idle memory. Memory that a host stream uses is pending
    /// until the stream is done, and then has another owner.
    fn may_own(&self, stream: StreamId) -> bool {
        self.backend.host_stream(stream).is_none()
    }

    /// Returns events after all work of the owners of idle memory.
    fn events_of_owners(&self, owners: impl IntoIterator<Item = StreamId>) -> Result<Vec<Event>> {
        let owners = owners.into_iter().filter(|stream| self.may_own(*stream));
        owners
            .map(|stream| self.backend.record_event(stream))
            .collect()
    }

    /// Returns true if memory of `owner` may return to the device, because the owner's work is
    /// done. [`WaitMode::Wait`] waits for this work. The wait is short after
    /// [`wait_for_idle`](Self::wait_for_idle).
    pub(super) fn may_release(&self, owner: StreamOwner, wait_mode: WaitMode) -> Result<bool> {
        let backend = &*self.backend;
        if backend.is_capturing() {
            return Ok(false); // Captured work may use the memory whenever the graph runs.
        }
        let streams = owner.streams(backend.streams());
        for event in self.events_of_owners(streams)? {
            match wait_mode {
                WaitMode::Wait => backend.synchronize_event(&event)?,
                WaitMode::Poll if backend.query_event(&event)? => {}
                WaitMode::Poll => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Waits for all work of all streams, except work that other ranks began. The excluded work may
    /// wait for this rank.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let streams = (0..self.backend.streams()).map(StreamId);
        streams
            .filter(|stream| self.may_wait_for(*stream))
            .try_for_each(|stream| self.backend.synchronize(stream))
    }

    /// Returns true if the calling thread may wait for all of a stream's work.
    pub(super) fn may_wait_for(&self, stream: StreamId) -> bool {
        let host_stream = self.backend.host_stream(stream);
        host_stream.is_none_or(|host_stream| host_stream.is_submitted_here())
    }
}
