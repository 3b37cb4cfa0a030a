//! The way back: what falls idle goes to the pool, and from there, as far as it is wanted, to the
//! source.

use super::{Block, DeviceMemory, Patience, Phase, Segment, State};
use crate::device::{DevicePtr, StreamId};
use crate::error::Result;
use crate::pool::{Pages, SegmentId, Span, StreamOwner};
use crate::size::round_up;
use crate::source::Source;

impl DeviceMemory {
    /// Takes blocks back, all in one locked step.
    pub(crate) fn free(&self, blocks: impl IntoIterator<Item = Block>) {
        self.give(&mut self.state.lock(), blocks);
    }

    /// Takes blocks back, and releases the segments and the pages that thereby fall idle: at once where
    /// the streams are done with them, or else as [`settle`](Self::settle) says.
    pub(crate) fn free_and_release(&self, blocks: impl IntoIterator<Item = Block>) {
        let mut state = self.state.lock();
        self.phases
            .time(Phase::Give, || self.give_and_release(&mut state, blocks));
    }

    fn give(&self, state: &mut State, blocks: impl IntoIterator<Item = Block>) {
        self.phases.time(Phase::Give, || {
            if state.pool.keeps_idle_segments() {
                state.give(blocks);
            } else {
                self.give_and_release(state, blocks);
            }
        });
    }

    /// Takes blocks back whose memory goes to the device if it falls idle, as far as the streams are
    /// done with it.
    fn give_and_release(&self, state: &mut State, blocks: impl IntoIterator<Item = Block>) {
        for block in blocks {
            if self.ordered.is_some() && block.others.is_empty() && !block.is_foreign() {
                self.release_in_order(state, block);
            } else {
                state.part_with(block, true);
            }
        }
        self.reclaim_pending(state, Patience::Leave);
    }

    /// Takes a block back that no other stream uses, and releases its memory. Nobody waits: the source orders
    /// who gets it next after the block's stream.
    pub(super) fn release_in_order(&self, state: &mut State, block: Block) {
        let span = block.span;
        if self.must_park(state.segment(span.segment).stream) {
            state.pending.park(block);
            return;
        }
        state.pool.give(span, StreamOwner::of(block.stream));
        self.release_segment(state, span.segment, Patience::Leave);
    }

    /// Releases idle memory while more than `keep_bytes` are reserved, and no more of it than that
    /// takes; answers the bytes released. Memory that was taken in and came back goes in any case: it is no part
    /// of what is reserved.
    pub(crate) fn trim(&self, keep_bytes: u64, patience: Patience) -> u64 {
        let before = self.held_bytes();
        if before <= keep_bytes {
            if self.has_foreign() {
                self.settle(patience);
            }
            return 0;
        }
        self.phases.time(Phase::Trim, || {
            self.settle(patience);
            self.release_idle_beyond(keep_bytes, patience);
        });
        before.saturating_sub(self.held_bytes())
    }

    /// Whether the source takes memory back in the order of its stream, which is this one.
    fn releases_in_order_of(&self, stream: StreamId) -> bool {
        self.ordered.is_some() && !self.must_park(stream)
    }

    /// Whether memory that the source takes back in the order of `stream` stays pending for now: the stream
    /// is captured, by whichever thread, and the release would be recorded; or this thread captures, and
    /// what it recorded may use the memory whenever it runs.
    pub(super) fn must_park(&self, stream: StreamId) -> bool {
        self.ordered.is_some() && (self.backend.is_capturing() || self.backend.is_captured(stream))
    }

    /// Runs `begin`, by which a capture begins, while nothing is on its way to the source: who releases finds
    /// it either not begun or under way.
    pub(crate) fn between_releases<T>(&self, begin: impl FnOnce() -> T) -> T {
        let _state = self.state.lock();
        begin()
    }

    /// What the device is short of, a pool of the driver's own included.
    fn held_bytes(&self) -> u64 {
        let of_driver = self.ordered.as_ref().map(|source| source.held_bytes());
        of_driver
            .transpose()
            .unwrap_or_else(|error| {
                self.defer(error);
                None
            })
            .unwrap_or_else(|| self.source.reserved_bytes())
    }

    /// Lets a pool of the driver's own give back what is idle there; an error is deferred.
    fn trim_driver(&self, keep_bytes: u64, patience: Patience) {
        let Some(source) = &self.ordered else {
            return;
        };
        // It gives back what the streams are done with.
        let waited = match patience {
            Patience::Wait => self.wait_for_uncaptured(),
            Patience::Leave => Ok(()),
        };
        if let Err(error) = waited.and_then(|()| source.trim(keep_bytes)) {
            self.defer(error);
        }
    }

    /// The same, of what is idle already.
    pub(super) fn release_idle_beyond(&self, keep_bytes: u64, patience: Patience) {
        self.prepare_release(patience);
        self.release_idle(&mut self.state.lock(), keep_bytes, patience);
        self.trim_driver(keep_bytes, patience);
    }

    /// Waits for everything that any stream was given but those that are captured by other threads, which
    /// were done with it when that began.
    fn wait_for_uncaptured(&self) -> Result<()> {
        let streams = (0..self.backend.streams()).map(StreamId);
        let elsewhere =
            |stream: &StreamId| self.backend.is_captured(*stream) && !self.backend.is_capturing();
        streams
            .filter(|stream| !elsewhere(stream))
            .try_for_each(|stream| self.backend.synchronize(stream))
    }

    /// Rung 2 for a request of `bytes`, where a limit is what it fails by: releases no more than it
    /// lacks, so that a program near its limit keeps the rest. Answers whether that was anything.
    pub(super) fn make_room(&self, bytes: u64) -> bool {
        let Some(limit_bytes) = self.limit() else {
            return false;
        };
        self.prepare_release(Patience::Wait);
        let mut state = self.state.lock();
        let before = self.source.reserved_bytes();
        loop {
            // Again each time: what is released may lie where the request would have grown.
            let keep_bytes = limit_bytes.saturating_sub(self.wanting_bytes(&state, bytes));
            if self.release_idle(&mut state, keep_bytes, Patience::Wait) == 0 {
                return self.source.reserved_bytes() < before;
            }
        }
    }

    /// Waits, with no lock held, for what would otherwise be waited for under it.
    fn prepare_release(&self, patience: Patience) {
        if patience == Patience::Wait
            && let Err(error) = self.wait_for_idle()
        {
            self.defer(error);
        }
    }

    /// Releases idle memory while more than `keep_bytes` are reserved; answers the bytes released.
    /// What it releases beyond that is less than a page, or than the smallest segment where no page is
    /// idle.
    pub(super) fn release_idle(
        &self,
        state: &mut State,
        keep_bytes: u64,
        patience: Patience,
    ) -> u64 {
        let before = self.source.reserved_bytes();
        if before <= keep_bytes {
            return 0;
        }
        let mut segments = state.pool.idle_segments();
        while let Some(index) = state.largest_within(&segments, self.reserved_beyond(keep_bytes)) {
            self.release_segment(state, segments.remove(index), patience);
        }
        self.release_idle_pages(state, keep_bytes, patience);
        // Each that is left is larger than what there still is to release.
        if self.reserved_beyond(keep_bytes) > 0
            && let Some(&smallest) = segments.first()
        {
            self.release_segment(state, smallest, patience);
        }
        before - self.source.reserved_bytes()
    }

    /// The same of pages, those at the ends of ranges first.
    fn release_idle_pages(&self, state: &mut State, keep_bytes: u64, patience: Patience) {
        let page_bytes = self.page_bytes();
        for pages in state.pool.idle_pages(page_bytes) {
            let wanted_bytes = round_up(self.reserved_beyond(keep_bytes), page_bytes);
            let bytes = wanted_bytes.unwrap_or(u64::MAX).min(pages.bytes);
            if bytes == 0 {
                break;
            }
            let offset = pages.offset + (pages.bytes - bytes);
            let end = Pages {
                offset,
                bytes,
                ..pages
            };
            self.release_pages(state, end, patience);
        }
    }

    /// Releases up to `bytes` of idle pages on which the streams are done, and that do not touch
    /// `pages`; answers how many that were.
    pub(super) fn release_pages_beside(&self, state: &mut State, pages: Pages, bytes: u64) -> u64 {
        let page_bytes = self.page_bytes();
        let before = self.source.reserved_bytes();
        let keep_bytes = before.saturating_sub(bytes);
        let near = |idle: &Pages| {
            let end = pages.offset + pages.bytes + page_bytes;
            idle.segment == pages.segment
                && idle.offset < end
                && pages.offset < idle.offset + idle.bytes + page_bytes
        };
        let idle = state.pool.idle_pages(page_bytes);
        for idle in idle.into_iter().filter(|idle| !near(idle)) {
            let wanted_bytes = round_up(self.reserved_beyond(keep_bytes), page_bytes);
            let bytes = wanted_bytes.unwrap_or(u64::MAX).min(idle.bytes);
            if bytes == 0 {
                break;
            }
            let offset = idle.offset + (idle.bytes - bytes);
            let end = Pages {
                offset,
                bytes,
                ..idle
            };
            self.release_pages(state, end, Patience::Leave);
        }
        before - self.source.reserved_bytes()
    }

    /// Releases the idle pages that hold a byte of one of `spans`, which were given back just now.
    pub(super) fn release_pages_of(
        &self,
        state: &mut State,
        mut spans: Vec<Span>,
        patience: Patience,
    ) {
        if spans.is_empty() {
            return;
        }
        let page_bytes = self.page_bytes();
        spans.sort_unstable_by_key(|span| (span.segment, span.offset));
        for idle in state.pool.idle_pages(page_bytes) {
            // From behind, so that what is left in front stays the block that the pool named.
            for pages in pages_of(&spans, idle, page_bytes).into_iter().rev() {
                self.release_pages(state, pages, patience);
            }
        }
    }

    fn reserved_beyond(&self, bytes: u64) -> u64 {
        self.source.reserved_bytes().saturating_sub(bytes)
    }

    /// Releases what the pool has not needed for long.
    pub(super) fn release_decayed(&self, state: &mut State) {
        for segment in state.pool.decayed_segments() {
            self.release_segment(state, segment, Patience::Wait);
        }
    }

    /// Releases a segment if its every byte is free, and the work on it done.
    pub(super) fn release_segment(&self, state: &mut State, id: SegmentId, patience: Patience) {
        let Some(owner) = state.pool.owner_of_idle(id) else {
            return;
        };
        let stream = state.segment(id).stream;
        let in_order = self.releases_in_order_of(stream) && owner.is_ready_for(stream);
        if !in_order && !self.may_release_now(state, owner, patience)
            || state.pool.remove_segment(id).is_none()
        {
            return;
        }
        if let Some(segment) = state.remove(id) {
            state.releases += segment.reserves;
            let Segment {
                address,
                held_bytes,
                stream,
                ..
            } = segment;
            self.release(state, address, held_bytes, stream);
        }
    }

    /// Releases idle pages if the work on them is done.
    fn release_pages(&self, state: &mut State, pages: Pages, patience: Patience) {
        let owner = state.pool.owner_of_pages(pages);
        if !self.may_release_now(state, owner, patience) {
            return;
        }
        state.pool.decommit(pages);
        let range = state.segment_mut(pages.segment);
        let (address, stream) = (range.address.offset(pages.offset), range.stream);
        let ended = range.shrink(pages.bytes);
        state.releases += ended;
        self.release(state, address, pages.bytes, stream);
    }

    /// [`may_release`](Self::may_release), with no for an error, which is deferred.
    fn may_release_now(&self, state: &mut State, owner: StreamOwner, patience: Patience) -> bool {
        let may = self.may_release(owner, patience);
        may.unwrap_or_else(|error| {
            state.defer(error);
            false
        })
    }

    /// The one door through which memory goes back to the source.
    fn release(&self, state: &mut State, address: DevicePtr, bytes: u64, stream: StreamId) {
        let release = || self.source.release(address, bytes, stream);
        if let Err(error) = self.phases.time(Phase::Release, release) {
            state.defer(error);
        }
    }
}

/// The parts of `idle` on whose pages one of `spans` lies, which are sorted and disjoint; the parts are
/// so too, and do not touch.
fn pages_of(spans: &[Span], idle: Pages, page_bytes: u64) -> Vec<Pages> {
    let end = idle.offset + idle.bytes;
    let is_before =
        |span: &Span| (span.segment, span.offset + span.bytes) <= (idle.segment, idle.offset);
    let first = spans.partition_point(is_before);
    let is_inside = |span: &&Span| span.segment == idle.segment && span.offset < end;
    let inside = spans[first..].iter().take_while(is_inside);
    let mut parts: Vec<Pages> = Vec::new();
    for span in inside {
        let begin = (span.offset - span.offset % page_bytes).max(idle.offset);
        let end = (span.offset + span.bytes)
            .next_multiple_of(page_bytes)
            .min(end);
        match parts.last_mut() {
            Some(last) if last.offset + last.bytes >= begin => last.bytes = end - last.offset,
            _ => parts.push(Pages {
                offset: begin,
                bytes: end - begin,
                ..idle
            }),
        }
    }
    parts
}
