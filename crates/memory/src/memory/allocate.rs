//! The slow path of a request that no cache could serve: the pool, a new segment, then the reclaim
//! ladder. After each rung, the request is tried again.

use super::{Block, DeviceMemory, MemoryState, Phase, Reclaim, Request, WaitMode, unaddressable};
use crate::device::StreamId;
use crate::error::{Error, OutOfMemoryReport, Result};
use crate::recorder::{EventKind, EventRecord, NO_SCOPE, write_exhausted};
use crate::sync::wait::BoundedWait;
use crate::sync::{Arc, Weak};

impl DeviceMemory {
    /// Hands out a block of at least `request.bytes`.
    ///
    /// The caller must hold no lock and no shard borrow. Rung 3 calls the caches, and rung 5 calls
    /// user code.
    pub(crate) fn allocate(&self, request: &Request<'_>) -> Result<Block> {
        let bytes = self.round(request.bytes)?;
        self.free_imported();
        if let Some(block) = self.serve(bytes, request)? {
            return Ok(block);
        }
        self.state.lock().counted.retries += 1;
        self.record_request(EventKind::Retry, request);

        if let Some(block) = self.serve_from_idle(bytes, request)? {
            return Ok(block);
        }
        if let Some(block) = self.serve_from_caches(bytes, request)? {
            return Ok(block);
        }
        if let Some(block) = self.serve_from_pending(bytes, request)? {
            return Ok(block);
        }
        if let Some(block) = self.serve_from_entered(bytes, request)? {
            return Ok(block);
        }
        self.record_request(EventKind::PressureCallbacks, request);
        let call = || self.callbacks.call(bytes);
        if self.phases.time(Phase::Callbacks, call) > 0 {
            if let Some(block) = self.serve_from_caches(bytes, request)? {
                return Ok(block);
            }
            if let Some(block) = self.serve_from_pending(bytes, request)? {
                return Ok(block);
            }
        }
        Err(self.exhausted(bytes, request))
    }

    /// Allocates without rungs 3 to 5. Returns `None` if a cache or the user would have to free
    /// memory.
    pub(crate) fn allocate_without_reclaim(&self, request: &Request<'_>) -> Result<Option<Block>> {
        let bytes = self.round(request.bytes)?;
        self.free_imported();
        self.serve_without_reclaim(bytes, request)
    }

    /// Allocates from free memory, without a reservation.
    pub(crate) fn allocate_without_reserve(&self, request: &Request<'_>) -> Option<Block> {
        let bytes = self.round(request.bytes).ok()?;
        let mut state = self.state.lock();
        let taken = match self.take(&mut state, bytes, request.stream) {
            Ok(None) => self.take_instead_of_growing(&mut state, bytes, request.stream),
            taken => taken,
        };
        taken.unwrap_or_else(|error| {
            state.defer(error);
            None
        })
    }

    /// If growing would reserve too much, serves the request from memory for requests of other
    /// sizes.
    fn take_instead_of_growing(
        &self,
        state: &mut MemoryState,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Option<Block>> {
        if !self.avoids_new_page(state, bytes) {
            return Ok(None);
        }
        self.take_from_any(state, bytes, stream)
    }

    /// Serves a request from the pool, rung 1 included, or from a new segment.
    fn serve(&self, bytes: u64, request: &Request<'_>) -> Result<Option<Block>> {
        let mut state = self.state.lock();
        state.take_deferred_error()?;
        self.release_decayed(&mut state);
        if let Some(block) = self.take(&mut state, bytes, request.stream)? {
            return Ok(Some(block));
        }
        if self.reclaim_pending(&mut state, WaitMode::Poll)
            && let Some(block) = self.take(&mut state, bytes, request.stream)?
        {
            return Ok(Some(block));
        }
        if let Some(block) = self.take_instead_of_growing(&mut state, bytes, request.stream)? {
            return Ok(Some(block));
        }
        if !self.reserve(&mut state, bytes, request.stream)? {
            return Ok(None);
        }
        self.take(&mut state, bytes, request.stream)
    }

    /// Runs rung 2: releases idle memory. Under a limit, first releases only the bytes that the
    /// request lacks, then all idle memory. Finally takes a block from a segment for requests of
    /// other sizes. A mixed segment is better than a failure, or than taking another scope's idle
    /// blocks.
    fn serve_from_idle(&self, bytes: u64, request: &Request<'_>) -> Result<Option<Block>> {
        self.record_request(EventKind::ReleaseIdle, request);
        self.serve_after_release(bytes, request)
    }

    fn serve_after_release(&self, bytes: u64, request: &Request<'_>) -> Result<Option<Block>> {
        self.note_shortage(bytes, false);
        if self
            .phases
            .time(Phase::ReleaseIdle, || self.release_for_limit(bytes))
            && let Some(block) = self.serve(bytes, request)?
        {
            return Ok(Some(block));
        }
        self.release_idle_beyond(0, WaitMode::Wait);
        if let Some(block) = self.serve(bytes, request)? {
            return Ok(Some(block));
        }
        self.take_from_any(&mut self.state.lock(), bytes, request.stream)
    }

    /// Reports to the source of ranges that memory is short. After a failed request, `is_stuck` is
    /// true if at least `bytes` bytes were free.
    fn note_shortage(&self, bytes: u64, is_stuck: bool) {
        if let Some(source) = &self.expandable {
            source.note_shortage(bytes, is_stuck);
        }
    }

    /// Serves a request from the pool, a new segment, or rung 2.
    fn serve_without_reclaim(&self, bytes: u64, request: &Request<'_>) -> Result<Option<Block>> {
        if let Some(block) = self.serve(bytes, request)? {
            return Ok(Some(block));
        }
        self.serve_from_idle(bytes, request)
    }

    /// Repeats rung 3 until the request is served or the caches free nothing.
    fn serve_from_caches(&self, bytes: u64, request: &Request<'_>) -> Result<Option<Block>> {
        loop {
            self.record_request(EventKind::ReclaimCaches, request);
            let freed = self.reclaim_from_caches(bytes);
            if let Some(block) = self.serve_without_reclaim(bytes, request)? {
                return Ok(Some(block));
            }
            if !freed {
                return Ok(None);
            }
        }
    }

    /// Runs rung 4: waits for pending blocks, including blocks that rung 3 freed from the caches.
    fn serve_from_pending(&self, bytes: u64, request: &Request<'_>) -> Result<Option<Block>> {
        self.record_request(EventKind::WaitPending, request);
        if !self.wait_for_pending()? {
            return Ok(None);
        }
        self.call_destructors();
        self.serve_without_reclaim(bytes, request)
    }

    /// Runs rung 4 for memory that only threads inside of scopes can release. While live blocks
    /// leave room for the request, waits for at most `reclaim_wait`. Repeats rung 3 after each
    /// pause, because a thread may have missed the request for its blocks.
    fn serve_from_entered(&self, bytes: u64, request: &Request<'_>) -> Result<Option<Block>> {
        let Some(above) = self.reclaim.get().and_then(Weak::upgrade) else {
            return Ok(None);
        };
        let ceiling_bytes = self.limit().unwrap_or(u64::MAX);
        let mut wait = BoundedWait::new(self.reclaim_wait);
        let _waiting = self.waiting.begin();
        let mut before = None;
        loop {
            // If the census equals the census before the last attempt, no memory was freed in
            // between.
            let census = above.census();
            let is_final = before.replace(census) == Some(census) && !census.is_changing();
            if is_final || !census.has_room(bytes, ceiling_bytes) {
                return Ok(None);
            }
            if !self.phases.time(Phase::WaitScopes, || wait.pause()) {
                return Ok(None);
            }
            above.reclaim(bytes);
            if let Some(block) = self.serve_quietly(bytes, request)? {
                return Ok(Some(block));
            }
            if self.wait_for_pending()? {
                self.call_destructors();
                if let Some(block) = self.serve_quietly(bytes, request)? {
                    return Ok(Some(block));
                }
            }
        }
    }

    /// Serves a request from the pool, a new segment, or rung 2, without recording the request
    /// again.
    fn serve_quietly(&self, bytes: u64, request: &Request<'_>) -> Result<Option<Block>> {
        if let Some(block) = self.serve(bytes, request)? {
            return Ok(Some(block));
        }
        self.serve_after_release(bytes, request)
    }

    /// Runs rung 3. Returns true if a named cache freed memory.
    fn reclaim_from_caches(&self, need_bytes: u64) -> bool {
        let above = self.reclaim.get().and_then(Weak::upgrade);
        let reclaim = |caches: Arc<dyn Reclaim>| caches.reclaim(need_bytes) > 0;
        self.phases
            .time(Phase::ReclaimCaches, || above.is_some_and(reclaim))
    }

    fn record_request(&self, kind: EventKind, request: &Request<'_>) {
        self.recorder.record(|| EventRecord {
            stream: request.stream,
            scope: request
                .scope
                .map_or(NO_SCOPE, |name| self.recorder.scope_number(name)),
            ..EventRecord::of(kind, request.bytes)
        });
    }

    /// Runs rung 6: returns the out-of-memory report of a request. `bytes` is the rounded size of
    /// the request.
    fn exhausted(&self, bytes: u64, request: &Request<'_>) -> Error {
        self.record_request(EventKind::OutOfMemory, request);
        let mut report = OutOfMemoryReport {
            device: self.backend.name(),
            scope: request.scope.map(str::to_owned),
            requested_bytes: request.bytes,
            rounded_bytes: bytes,
            limit_bytes: self.limit(),
            total_bytes: self.backend.total_bytes(),
            reclaim_wait: self.reclaim_wait,
            is_recorded: self.recorder.is_active(),
            ..OutOfMemoryReport::default()
        };
        self.state.lock().counted.out_of_memory += 1;
        let above = self.reclaim.get().and_then(Weak::upgrade);
        match &above {
            Some(above) => above.describe(&mut report),
            None => self.census(|_| ()).write_to(&mut report),
        }
        self.note_shortage(request.bytes, report.free_bytes >= request.bytes);
        report.profile = write_exhausted(&self.recorder);
        Error::out_of_memory(report)
    }

    pub(super) fn round(&self, bytes: u64) -> Result<u64> {
        self.rounding
            .round(bytes)
            .filter(|&rounded| rounded <= isize::MAX as u64)
            .ok_or_else(|| unaddressable(bytes))
    }
}
