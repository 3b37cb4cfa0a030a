//! A handle on a named cache for foreign code. Any thread may use the handle without a scope.
//!
//! One shard of the cache is bound to the handle instead of a thread. Every call visits the shard.
//! So no thread is inside the shard between two calls, even during an entry.
//!
//! A thread's stack of bindings cannot hold the entries of foreign code, such as Python's contexts.
//! These entries interleave on one thread, move to other threads, and end in any order. With one
//! shard, the memory of an array is idle immediately, whichever thread frees the array. In return,
//! concurrent requests of several threads contend for a lock.

use std::panic::Location;

use super::policy::Policy;
use super::request::Request;
use super::settings::EntryOptions;
use super::shard::free_by_visit;
use super::shard::{BlockHandle, Caches, CachesRef, Shard};
use crate::device::{StreamId, Use};
use crate::error::Result;
use crate::recorder::EventKind;
use crate::sync::Arc;

/// A handle on a named cache. Threads may share it.
#[derive(Debug)]
pub struct SharedCache {
    caches: CachesRef,
    shard: Arc<Shard>,
}

/// A block of a [`SharedCache`]. A dropped block returns to the cache. A block may outlive the
/// handle on the cache.
#[derive(Debug)]
pub struct SharedBlock(BlockHandle);

impl SharedCache {
    /// Opens the cache `name`. If the cache does not exist, first creates it. Each handle on a
    /// cache has its own shard.
    pub(crate) fn open(caches: &CachesRef, name: &str) -> Self {
        Self {
            caches: caches.clone(),
            shard: caches.bind_shared(name),
        }
    }

    /// Sets the policy and `max_bytes`, from the next outermost entry on. `None` leaves a setting
    /// unchanged.
    pub fn configure(&self, policy: Option<Policy>, max_bytes: Option<u64>) {
        if let Some(settings) = &self.shard.settings {
            settings.apply(&EntryOptions { policy, max_bytes });
        }
    }

    /// Begins an entry, nested in the entries in progress. Returns false if the cache was removed.
    pub fn enter(&self) -> bool {
        self.shard.enter_by_visit()
    }

    /// Ends the innermost entry. Returns false if no entry is in progress.
    pub fn exit(&self) -> bool {
        self.shard.exit_by_visit()
    }

    /// Returns an idle block of the cache for `bytes` bytes, if the cache has one. Takes no lock,
    /// and does not wait.
    #[inline]
    pub fn hit(&self, bytes: u64, stream: StreamId) -> Option<SharedBlock> {
        self.shard.hit_by_visit(bytes, stream).map(SharedBlock)
    }

    /// Returns a block of at least 1 byte for work of `stream`, and true if the request was a hit.
    ///
    /// # Errors
    ///
    /// The errors of [`Buffer::new`](crate::Buffer::new).
    pub fn allocate(
        &self,
        bytes: u64,
        stream: StreamId,
        call_site: &'static Location<'static>,
    ) -> Result<(SharedBlock, bool)> {
        let request = self.caches.request_for(bytes, stream, call_site)?;
        let hit = {
            let guard = self.shard.guard();
            guard.and_then(|mut guard| guard.slow_hit(&request))
        };
        let (block, kind) = match hit {
            Some(block) => (block.into(), EventKind::Hit),
            None => {
                let served = self.caches.miss_in(&self.shard, &request);
                served.map_err(|error| error.at(call_site))?
            }
        };
        self.caches.record_allocation(kind, &block, &request);
        let block = SharedBlock(self.caches.filled(block)?);
        Ok((block, kind == EventKind::Hit))
    }

    /// Locks the handle's shard against all other threads, until [`release`](Self::release). A
    /// program calls this function before a fork. Returns false if the cache was removed.
    pub fn hold(&self) -> bool {
        self.shard.hold()
    }

    /// Ends a successful [`hold`](Self::hold), in the parent or in the child process.
    pub fn release(&self) {
        self.shard.end_visit();
    }
}

impl Drop for SharedCache {
    /// Unbinds the shard. The next handle or thread can adopt the shard with its idle blocks.
    fn drop(&mut self) {
        self.shard.end_binding();
    }
}

impl SharedBlock {
    /// Returns the address of the first byte.
    #[inline]
    pub fn address(&self) -> u64 {
        self.0.block.address.0
    }

    /// Returns the length of the block, which may exceed the requested bytes.
    #[inline]
    pub fn size_bytes(&self) -> u64 {
        self.0.block.bytes()
    }

    /// Frees the block without a lock. If the cache is in use or recorded, returns the block. The
    /// drop of the returned block then frees the memory.
    #[inline]
    pub fn free(self) -> Option<Self> {
        free_by_visit(self.0).map(Self)
    }

    /// Registers a use of the block by `stream`. After a free, the block is reused only when the
    /// work of `stream` has completed.
    ///
    /// # Errors
    ///
    /// The errors of an operation that uses the block on `stream`.
    pub fn use_on(&self, stream: StreamId, used: Use) -> Result<()> {
        let streams = self.0.home().device().memory().streams();
        match used {
            Use::Read => self.0.read_on(streams, stream.into()),
            Use::Write => self.0.write_on(streams, stream.into()),
        }
    }

    /// Returns the stream that the block was allocated for.
    pub fn stream(&self) -> StreamId {
        self.0.block.stream
    }

    /// Converts the block to a host pointer. The pointer is not null, and its address is a multiple
    /// of 8.
    #[inline]
    pub fn into_raw(self) -> *mut () {
        self.0.into_raw()
    }

    /// Converts a pointer of [`into_raw`](Self::into_raw) back to the block.
    ///
    /// # Safety
    ///
    /// `into_raw` returned `raw`, and `raw` has not been converted back since.
    #[inline]
    pub unsafe fn from_raw(raw: *mut ()) -> Self {
        // SAFETY: by this function's contract, `into_raw` returned `raw`, and `raw` is converted
        // back only once.
        Self(unsafe { BlockHandle::from_raw(raw) })
    }
}

impl Caches {
    /// Allocates a block of at least 1 byte for work of `stream`. The block belongs to no cache.
    pub(crate) fn allocate_for(
        &self,
        bytes: u64,
        stream: StreamId,
        call_site: &'static Location<'static>,
    ) -> Result<SharedBlock> {
        let request = self.request_for(bytes, stream, call_site)?;
        let block = self.allocate_from_memory(None, &request);
        let block = block.map_err(|error| error.at(call_site))?;
        self.record_allocation(EventKind::Uncached, &block, &request);
        self.filled(block).map(SharedBlock)
    }

    fn request_for(
        &self,
        bytes: u64,
        stream: StreamId,
        call_site: &'static Location<'static>,
    ) -> Result<Request> {
        let size = self.size(bytes.max(1), call_site)?;
        Ok(Request {
            size: size.expect("at least 1 byte"),
            stream,
            call_site,
        })
    }

    fn bind_shared(&self, name: &str) -> Arc<Shard> {
        self.named(name)
            .bind_shard(|settings| self.new_shard(Some(settings)))
    }
}
