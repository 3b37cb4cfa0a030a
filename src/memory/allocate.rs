//! The way of a request that no cache could serve: the pool, a new segment, and then the reclaim
//! ladder, each rung once, with the request tried again after it.

use super::{Block, DeviceMemory, Patience, Phase, Reclaim, Request, State, unaddressable};
use crate::device::StreamId;
use crate::error::{Error, OomReport, Result};
use crate::sync::{Arc, Weak};

impl DeviceMemory {
    /// Hands out a block of at least `request.bytes`.
    ///
    /// Called with no lock and no borrow of a shard held: rung 3 comes back to the caches, and rung 5
    /// to anything.
    pub(crate) fn allocate(&self, request: &Request<'_>) -> Result<Block> {
        let bytes = self.round(request.bytes)?;
        self.end_foreign();
        if let Some(block) = self.serve(bytes, request)? {
            return Ok(block);
        }
        self.state.lock().retries += 1;

        if let Some(block) = self.serve_from_idle(bytes, request)? {
            return Ok(block);
        }
        if let Some(block) = self.serve_from_caches(bytes, request)? {
            return Ok(block);
        }
        if let Some(block) = self.serve_from_pending(bytes, request)? {
            return Ok(block);
        }
        let call = || self.callbacks.call(bytes);
        if self.phases.time(Phase::Callbacks, call) > 0 {
            if let Some(block) = self.serve_from_caches(bytes, request)? {
                return Ok(block);
            }
            if let Some(block) = self.serve_from_pending(bytes, request)? {
                return Ok(block);
            }
        }
        Err(self.exhausted(request))
    }

    /// The same from what is idle here already or can be reserved; `None` where a cache or the user
    /// would have to give something back for it.
    pub(crate) fn allocate_idle(&self, request: &Request<'_>) -> Result<Option<Block>> {
        let bytes = self.round(request.bytes)?;
        self.end_foreign();
        self.serve_from_here(bytes, request)
    }

    /// The same from what is free, and nothing is reserved for it.
    pub(crate) fn allocate_free(&self, request: &Request<'_>) -> Option<Block> {
        let bytes = self.round(request.bytes).ok()?;
        let mut state = self.state.lock();
        let taken = match self.take(&mut state, bytes, request.stream) {
            Ok(None) => self.take_beside(&mut state, bytes, request.stream),
            taken => taken,
        };
        taken.unwrap_or_else(|error| {
            state.defer(error);
            None
        })
    }

    /// From memory that is kept for requests of other sizes, where growing would be too much.
    fn take_beside(
        &self,
        state: &mut State,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Option<Block>> {
        if !self.is_page_dear(state, bytes) {
            return Ok(None);
        }
        self.take_from_any(state, bytes, stream)
    }

    /// From the pool, what rung 1 brings there included, or from a new segment.
    fn serve(&self, bytes: u64, request: &Request<'_>) -> Result<Option<Block>> {
        let mut state = self.state.lock();
        state.tell_deferred()?;
        self.release_decayed(&mut state);
        if let Some(block) = self.take(&mut state, bytes, request.stream)? {
            return Ok(Some(block));
        }
        if self.reclaim_pending(&mut state, Patience::Leave)
            && let Some(block) = self.take(&mut state, bytes, request.stream)?
        {
            return Ok(Some(block));
        }
        if let Some(block) = self.take_beside(&mut state, bytes, request.stream)? {
            return Ok(Some(block));
        }
        if !self.reserve(&mut state, bytes, request.stream)? {
            return Ok(None);
        }
        self.take(&mut state, bytes, request.stream)
    }

    /// Rung 2: idle memory makes room, as much as the request lacks under a limit, or else all of it. At
    /// last from a segment that is kept for requests of other sizes: a mixed segment is better than a
    /// failure, or than another scope's idle blocks.
    fn serve_from_idle(&self, bytes: u64, request: &Request<'_>) -> Result<Option<Block>> {
        if self.phases.time(Phase::Room, || self.make_room(bytes))
            && let Some(block) = self.serve(bytes, request)?
        {
            return Ok(Some(block));
        }
        self.release_idle_beyond(0, Patience::Wait);
        if let Some(block) = self.serve(bytes, request)? {
            return Ok(Some(block));
        }
        self.take_from_any(&mut self.state.lock(), bytes, request.stream)
    }

    /// As it is, or by rung 2.
    fn serve_from_here(&self, bytes: u64, request: &Request<'_>) -> Result<Option<Block>> {
        if let Some(block) = self.serve(bytes, request)? {
            return Ok(Some(block));
        }
        self.serve_from_idle(bytes, request)
    }

    /// Rung 3, again and again until it brings enough or nothing more.
    fn serve_from_caches(&self, bytes: u64, request: &Request<'_>) -> Result<Option<Block>> {
        loop {
            let given = self.reclaim_from_caches(bytes);
            if let Some(block) = self.serve_from_here(bytes, request)? {
                return Ok(Some(block));
            }
            if !given {
                return Ok(None);
            }
        }
    }

    /// Rung 4: what other streams have to be done with first, the caches' included, which rung 3
    /// brought here.
    fn serve_from_pending(&self, bytes: u64, request: &Request<'_>) -> Result<Option<Block>> {
        if !self.wait_for_pending()? {
            return Ok(None);
        }
        self.call_destructors();
        self.serve_from_here(bytes, request)
    }

    /// Rung 3: whether a named cache gave something back.
    fn reclaim_from_caches(&self, need_bytes: u64) -> bool {
        let above = self.reclaim.get().and_then(Weak::upgrade);
        let reclaim = |caches: Arc<dyn Reclaim>| caches.reclaim(need_bytes) > 0;
        self.phases
            .time(Phase::ReclaimCaches, || above.is_some_and(reclaim))
    }

    /// The last rung: the report.
    fn exhausted(&self, request: &Request<'_>) -> Error {
        let mut report = OomReport {
            device: self.backend.id().to_string(),
            scope: request.scope.map(str::to_owned),
            requested_bytes: request.bytes,
            limit_bytes: self.limit(),
            total_bytes: self.backend.total_bytes(),
            reserved_bytes: self.source.reserved_bytes(),
            ..OomReport::default()
        };
        {
            let mut state = self.state.lock();
            state.out_of_memory += 1;
            report.free_bytes = state.pool.free_bytes();
            report.pending_bytes = state.pending.bytes();
            report.largest_free_block_bytes = state.pool.largest_free_block_bytes();
        }
        if let Some(above) = self.reclaim.get().and_then(Weak::upgrade) {
            above.describe(&mut report);
        }
        Error::out_of_memory(report)
    }

    pub(super) fn round(&self, bytes: u64) -> Result<u64> {
        self.rounding
            .round(bytes)
            .filter(|&rounded| rounded <= isize::MAX as u64)
            .ok_or_else(|| unaddressable(bytes))
    }
}
