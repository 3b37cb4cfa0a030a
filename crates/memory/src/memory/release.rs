//! Freeing: blocks return to the pool, and idle memory returns to the source.

use cachescope_reports::internal::AddressSpan;

use super::{Block, DeviceMemory, MemoryState, Phase, WaitMode};
use crate::device::{Destination, DevicePtr, PageCost, StreamId};
use crate::error::Result;
use crate::pool::{Pages, SegmentId, Span, StreamOwner};
use crate::recorder::EventKind;
use crate::size::{UNIT_BYTES, round_up};
use crate::source::{Source, SourcePart};

impl DeviceMemory {
    /// Takes blocks back under one lock.
    pub(crate) fn free(&self, blocks: impl IntoIterator<Item = Block>) {
        self.give(&mut self.state.lock(), blocks);
    }

    /// Takes blocks back, and releases the segments and pages that become idle. If streams still
    /// use the memory, [`drain_pending`](Self::drain_pending) releases it later.
    pub(crate) fn free_and_release(&self, blocks: impl IntoIterator<Item = Block>) {
        let mut state = self.state.lock();
        self.phases
            .time(Phase::Give, || self.give_and_release(&mut state, blocks));
    }

    fn give(&self, state: &mut MemoryState, blocks: impl IntoIterator<Item = Block>) {
        self.phases.time(Phase::Give, || {
            if state.pool.keeps_idle_segments() {
                state.give(blocks);
            } else {
                self.give_and_release(state, blocks);
            }
        });
    }

    /// Takes blocks back. Releases the memory that becomes idle, if its streams are done.
    fn give_and_release(&self, state: &mut MemoryState, blocks: impl IntoIterator<Item = Block>) {
        for block in blocks {
            if self.stream_ordered.is_some() && block.other_uses.is_empty() && !block.is_imported()
            {
                self.release_in_order(state, block);
            } else {
                state.add_pending(block, true);
            }
        }
        self.reclaim_pending(state, WaitMode::Poll);
    }

    /// Takes back a block that no other stream uses, and releases its memory. The host does not
    /// wait, because the source orders the next user after the block's stream.
    pub(super) fn release_in_order(&self, state: &mut MemoryState, block: Block) {
        let span = block.span;
        if self.is_blocked_by_capture(state.segment(span.segment).stream) {
            state.pending.defer_for_capture(block);
            return;
        }
        state.pool.give(span, StreamOwner::of(block.stream));
        self.release_segment(state, span.segment, WaitMode::Poll);
    }

    /// Releases idle memory until at most `keep_bytes` are reserved, but no more than necessary.
    /// Returns the bytes released. Finished imported blocks are freed in any case, because they do
    /// not count as reserved.
    pub(crate) fn trim(&self, keep_bytes: u64, wait_mode: WaitMode) -> u64 {
        let before = self.held_bytes();
        if before <= keep_bytes {
            if self.has_imported() {
                self.drain_pending(wait_mode);
            }
            return 0;
        }
        self.phases.time(Phase::Trim, || {
            self.drain_pending(wait_mode);
            self.release_idle_beyond(keep_bytes, wait_mode);
        });
        before.saturating_sub(self.held_bytes())
    }

    /// Returns true if a release in the order of `stream` must wait for a capture. If any thread
    /// captures the stream, the capture would record the release. If this thread captures, the
    /// captured work may use the memory whenever the graph runs.
    pub(super) fn is_blocked_by_capture(&self, stream: StreamId) -> bool {
        self.stream_ordered.is_some()
            && (self.backend.is_capturing() || self.backend.is_captured(stream))
    }

    /// Runs `begin`, which begins a capture, while no release is in progress. So during a whole
    /// release, the capture is either not begun or in progress.
    #[doc(hidden)]
    pub fn with_releases_paused<T>(&self, begin: impl FnOnce() -> T) -> T {
        let _state = self.state.lock();
        begin()
    }

    /// Returns the bytes held from the device, including the bytes of the driver's own pool.
    fn held_bytes(&self) -> u64 {
        let driver_pool_bytes = self
            .stream_ordered
            .as_ref()
            .map(|source| source.held_bytes());
        driver_pool_bytes
            .transpose()
            .unwrap_or_else(|error| {
                self.defer(error);
                None
            })
            .unwrap_or_else(|| self.device_bytes())
    }

    /// Trims the driver's own pool, and defers errors.
    fn trim_driver_pool(&self, keep_bytes: u64, wait_mode: WaitMode) {
        let Some(source) = &self.stream_ordered else {
            return;
        };
        // The driver releases only memory whose streams are done.
        let waited = match wait_mode {
            WaitMode::Wait => self.wait_for_uncaptured(),
            WaitMode::Poll => Ok(()),
        };
        if let Err(error) = waited.and_then(|()| source.trim(keep_bytes)) {
            self.defer(error);
        }
    }

    /// Releases memory that is already idle while more than `keep_bytes` are reserved.
    pub(super) fn release_idle_beyond(&self, keep_bytes: u64, wait_mode: WaitMode) {
        self.prepare_release(wait_mode);
        let mut state = self.state.lock();
        self.release_idle(&mut state, keep_bytes, wait_mode, Destination::Device);
        drop(state);
        self.trim_driver_pool(keep_bytes, wait_mode);
    }

    /// Waits for all streams, except streams that other threads capture. The earlier work of a
    /// captured stream was done when its capture began.
    fn wait_for_uncaptured(&self) -> Result<()> {
        let streams = (0..self.backend.streams()).map(StreamId);
        let elsewhere =
            |stream: &StreamId| self.backend.is_captured(*stream) && !self.backend.is_capturing();
        streams
            .filter(|stream| !elsewhere(stream) && self.may_wait_for(*stream))
            .try_for_each(|stream| self.backend.synchronize(stream))
    }

    /// Runs rung 2 for a request of `bytes` that a limit refuses. Releases only the bytes that the
    /// request lacks. So a program near its limit keeps its other idle memory. Returns true if any
    /// memory was released.
    pub(super) fn release_for_limit(&self, bytes: u64) -> bool {
        let Some(limit_bytes) = self.limit() else {
            return false;
        };
        self.prepare_release(WaitMode::Wait);
        let mut state = self.state.lock();
        let before = self.source.reserved_bytes();
        loop {
            // The missing bytes are recomputed after each release, because the request might have
            // extended a free block that was released.
            let keep_bytes = limit_bytes.saturating_sub(self.missing_bytes(&state, bytes));
            let to = Destination::NextGrowth;
            if self.release_idle(&mut state, keep_bytes, WaitMode::Wait, to) == 0 {
                return self.source.reserved_bytes() < before;
            }
        }
    }

    /// Waits for work on idle memory, so that the release need not wait under the lock.
    fn prepare_release(&self, wait_mode: WaitMode) {
        if wait_mode == WaitMode::Wait
            && let Err(error) = self.wait_for_idle()
        {
            self.defer(error);
        }
    }

    /// Releases idle memory until at most `keep_bytes` are reserved. Returns the bytes released.
    /// The release exceeds this goal by less than a page or handle. If no page is idle, the excess
    /// is less than the smallest segment.
    pub(super) fn release_idle(
        &self,
        state: &mut MemoryState,
        keep_bytes: u64,
        wait_mode: WaitMode,
        destination: Destination,
    ) -> u64 {
        let before = self.source.reserved_bytes();
        if before > keep_bytes {
            let mut segments = state.pool.idle_segments();
            while let Some(index) =
                state.largest_within(&segments, self.reserved_beyond(keep_bytes))
            {
                self.release_segment(state, segments.remove(index), wait_mode);
            }
            for idle in state.pool.idle_pages(self.page_bytes()) {
                let wanted_bytes = self.reserved_beyond(keep_bytes);
                for pages in self.separable_from_end(state, idle, wanted_bytes) {
                    self.release_pages(state, pages, wait_mode, destination);
                }
            }
            // Each remaining segment is larger than the bytes that are still to be released.
            if self.reserved_beyond(keep_bytes) > 0
                && let Some(&smallest) = segments.first()
            {
                self.release_segment(state, smallest, wait_mode);
            }
        }
        if destination == Destination::Device
            && !self.backend.is_capturing()
            && let Some(source) = &self.expandable
            && let Err(error) = source.release_kept()
        {
            state.defer(error);
        }
        before - self.source.reserved_bytes()
    }

    /// Returns the separable parts of idle pages, the last part first, until they make up
    /// `wanted_bytes`. If parts are released in this order, the remaining front still has the
    /// `node` of `idle`.
    fn separable_from_end(
        &self,
        state: &MemoryState,
        idle: Pages,
        wanted_bytes: u64,
    ) -> Vec<Pages> {
        let Some(source) = &self.expandable else {
            return Vec::new();
        };
        if source.page_cost() == PageCost::Low {
            let bytes = round_up(wanted_bytes, source.page_bytes());
            let bytes = bytes.unwrap_or(u64::MAX).min(idle.bytes);
            let offset = idle.offset + (idle.bytes - bytes);
            let end = Pages {
                offset,
                bytes,
                ..idle
            };
            return Vec::from_iter((bytes > 0).then_some(end));
        }
        let (mut chosen, mut chosen_bytes) = (Vec::new(), 0);
        for pages in self.separable(state, idle).into_iter().rev() {
            if chosen_bytes >= wanted_bytes {
                break;
            }
            chosen_bytes += pages.bytes;
            chosen.push(pages);
        }
        chosen.reverse();
        let mut joined = join(chosen);
        joined.reverse();
        joined
    }

    /// Returns the parts of idle pages that can be released on their own, by offset.
    fn separable(&self, state: &MemoryState, idle: Pages) -> Vec<Pages> {
        let Some(source) = &self.expandable else {
            return Vec::new();
        };
        let range = state.segment(idle.segment).address;
        let parts = source.separable(range.offset(idle.offset), idle.bytes);
        let pages = |(address, bytes): (DevicePtr, u64)| Pages {
            offset: address.0 - range.0,
            bytes,
            ..idle
        };
        parts.into_iter().map(pages).collect()
    }

    /// Releases up to `bytes` of idle pages whose streams are done and that do not touch `pages`.
    /// Returns the bytes released.
    pub(super) fn release_pages_away_from(
        &self,
        state: &mut MemoryState,
        pages: Pages,
        bytes: u64,
    ) -> u64 {
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
            let wanted_bytes = self.reserved_beyond(keep_bytes);
            for pages in self.separable_from_end(state, idle, wanted_bytes) {
                self.release_pages(state, pages, WaitMode::Poll, Destination::NextGrowth);
            }
        }
        before - self.source.reserved_bytes()
    }

    /// Releases the idle pages that contain a byte of `spans`, which were just freed.
    pub(super) fn release_pages_of(
        &self,
        state: &mut MemoryState,
        mut spans: Vec<Span>,
        wait_mode: WaitMode,
    ) {
        if spans.is_empty() {
            return;
        }
        let page_bytes = self.page_bytes();
        spans.sort_unstable_by_key(|span| (span.segment, span.offset));
        for idle in state.pool.idle_pages(page_bytes) {
            // Parts are released from the end, so that the remaining front still has the `node` of
            // `idle`.
            for pages in self.separable_of(state, &spans, idle).into_iter().rev() {
                self.release_pages(state, pages, wait_mode, Destination::Device);
            }
        }
    }

    /// Returns the separable parts of idle pages, by offset, that contain a byte of `spans`. The
    /// spans are sorted and disjoint.
    fn separable_of(&self, state: &MemoryState, spans: &[Span], idle: Pages) -> Vec<Pages> {
        match self.page_cost() {
            PageCost::Low => pages_of(spans, idle, self.page_bytes()),
            PageCost::High => {
                let mut parts = self.separable(state, idle);
                parts.retain(|part| !pages_of(spans, *part, UNIT_BYTES).is_empty());
                join(parts)
            }
        }
    }

    fn reserved_beyond(&self, bytes: u64) -> u64 {
        self.source.reserved_bytes().saturating_sub(bytes)
    }

    /// Releases the segments that the pool has not needed for a long time.
    pub(super) fn release_decayed(&self, state: &mut MemoryState) {
        for segment in state.pool.decayed_segments() {
            self.release_segment(state, segment, WaitMode::Wait);
        }
    }

    /// If every byte of a segment is free and the work on the segment is done, releases the
    /// segment.
    pub(super) fn release_segment(
        &self,
        state: &mut MemoryState,
        id: SegmentId,
        wait_mode: WaitMode,
    ) {
        let Some(owner) = state.pool.owner_of_idle(id) else {
            return;
        };
        let stream = state.segment(id).stream;
        let in_order = self.stream_ordered.is_some()
            && !self.is_blocked_by_capture(stream)
            && owner.is_ready_for(stream);
        if !in_order && !self.may_release_now(state, owner, wait_mode)
            || state.pool.remove_segment(id).is_none()
        {
            return;
        }
        state.attachments.retain(|(segment, ..)| *segment != id);
        if let Some(segment) = state.remove(id) {
            state.counted.releases += segment.reserves;
            let part = SourcePart::new(segment.address, segment.held_bytes, segment.stream);
            self.release(state, part, Destination::Device);
        }
    }

    /// If the work on idle pages is done, releases the pages.
    fn release_pages(
        &self,
        state: &mut MemoryState,
        pages: Pages,
        wait_mode: WaitMode,
        destination: Destination,
    ) {
        let owner = state.pool.owner_of_pages(pages);
        if !self.may_release_now(state, owner, wait_mode) {
            return;
        }
        state.pool.decommit(pages);
        let range = state.segment_mut(pages.segment);
        let address = range.address.offset(pages.offset);
        let part = SourcePart::new(address, pages.bytes, range.stream);
        let ended = range.shrink(pages.bytes);
        state.counted.releases += ended;
        self.release(state, part, destination);
    }

    /// Calls [`may_release`](Self::may_release). If it fails, defers the error and returns false.
    fn may_release_now(
        &self,
        state: &mut MemoryState,
        owner: StreamOwner,
        wait_mode: WaitMode,
    ) -> bool {
        let may = self.may_release(owner, wait_mode);
        may.unwrap_or_else(|error| {
            state.defer(error);
            false
        })
    }

    /// Releases memory to the source. Nothing else calls the source's `release`.
    fn release(&self, state: &mut MemoryState, part: SourcePart, destination: Destination) {
        self.record_segment(EventKind::Release, part);
        let span = AddressSpan::new(part.address.0, part.bytes);
        let parts = state.reserved.remove(span);
        debug_assert!(
            matches!(parts[..], [part] if part.span == span),
            "{span:?} was not reserved"
        );
        let release = || self.source.release(part, destination);
        if let Err(error) = self.phases.time(Phase::Release, release) {
            state.defer(error);
        }
    }
}

/// Joins parts that touch. The parts are of one block, sorted by offset.
fn join(parts: Vec<Pages>) -> Vec<Pages> {
    let mut joined: Vec<Pages> = Vec::new();
    for part in parts {
        match joined.last_mut() {
            Some(last) if last.offset + last.bytes == part.offset => last.bytes += part.bytes,
            _ => joined.push(part),
        }
    }
    joined
}

/// Returns the parts of `idle` whose pages contain a byte of the sorted, disjoint `spans`. The
/// parts are sorted and do not touch.
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
