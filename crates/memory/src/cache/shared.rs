//! A named cache as a handle that any thread may use without a scope, for foreign code.
//!
//! One shard of the cache is reserved for the handle instead of for a thread. Every call visits the
//! shard. So no thread is inside between two calls, even while an entry lasts.
//!
//! A thread's stack cannot hold the entries of foreign code, such as Python's contexts. These
//! entries interleave on one thread, move to other threads, and end in any order. One shard also
//! makes the memory of an array idle at once, whichever thread frees it. Concurrent requests of
//! several threads contend for a lock.

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

/// A block of a [`SharedCache`]. When the block drops, it returns to the cache. It may outlive the
/// handle on the cache.
#[derive(Debug)]
pub struct SharedBlock(BlockHandle);

impl SharedCache {
    /// Opens the cache `name`, and makes it if there is none. A second handle on the name has a
    /// shard of its own.
    pub(crate) fn open(caches: &CachesRef, name: &str) -> Self {
        Self {
            caches: caches.clone(),
            shard: caches.bind_shared(name),
        }
    }

    /// Sets the policy and the bound, as far as given, from the next outermost entry on.
    pub fn configure(&self, policy: Option<Policy>, max_bytes: Option<u64>) {
        if let Some(settings) = &self.shard.settings {
            settings.apply(&EntryOptions { policy, max_bytes });
        }
    }

    /// Begins an entry, nested in the entries that have not ended. Returns false if the cache was
    /// removed.
    pub fn enter(&self) -> bool {
        self.shard.enter_by_visit()
    }

    /// Ends the entry that began last. Returns false if there is none.
    pub fn exit(&self) -> bool {
        self.shard.exit_by_visit()
    }

    /// Returns a block of `bytes` that is idle in the cache. Takes no lock, and does not wait.
    #[inline]
    pub fn hit(&self, bytes: u64, stream: StreamId) -> Option<SharedBlock> {
        self.shard.hit_by_visit(bytes, stream).map(SharedBlock)
    }

    /// Returns a block of at least 1 byte for the work of `stream`, and true if the cache held it.
    ///
    /// # Errors
    ///
    /// As for [`Buffer::new`](crate::Buffer::new).
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

    /// Keeps all other threads out of the cache's shard until [`release`](Self::release): to be
    /// called before a fork. Returns false if the cache was removed.
    pub fn hold(&self) -> bool {
        self.shard.hold()
    }

    /// Ends [`hold`](Self::hold), which returned true, in the parent or in the child.
    pub fn release(&self) {
        self.shard.end_visit();
    }
}

impl Drop for SharedCache {
    /// Leaves the shard, with its idle blocks, to the next handle or thread.
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

    /// Frees the block without a lock. If its cache is in use or recorded, returns the block, which
    /// is then freed when it drops.
    #[inline]
    pub fn free(self) -> Option<Self> {
        free_by_visit(self.0).map(Self)
    }

    /// Defers the reuse of the block, once it is freed, until the work of `stream` has completed.
    ///
    /// # Errors
    ///
    /// As for an operation that reads the block on `stream`.
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

    /// Converts the block to an address of the host, which is not null and a multiple of 8.
    #[inline]
    pub fn into_raw(self) -> *mut () {
        self.0.into_raw()
    }

    /// Converts an address of [`into_raw`](Self::into_raw) back.
    ///
    /// # Safety
    ///
    /// `raw` was returned by `into_raw`, and was not converted back since.
    #[inline]
    pub unsafe fn from_raw(raw: *mut ()) -> Self {
        // SAFETY: by this function's contract.
        Self(unsafe { BlockHandle::from_raw(raw) })
    }
}

impl Caches {
    /// Returns a block of at least 1 byte that belongs to no cache, for the work of `stream`.
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

    /// Reserves a shard of the cache `name` for a handle.
    fn bind_shared(&self, name: &str) -> Arc<Shard> {
        self.named(name)
            .bind_shard(|settings| self.new_shard(Some(settings)))
    }
}
