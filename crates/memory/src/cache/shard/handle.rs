//! The counted handle on a block of a shard.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::{self, NonNull};

use super::Shard;
use super::current::current;
use crate::memory::header::{HandedOut, Header, PIN};
use crate::sync::Ordering;

/// A counted handle on a block that is handed out.
pub(crate) struct BlockHandle(NonNull<Header>);

// Only atomic integers change through a handle.
impl UnwindSafe for BlockHandle {}
impl RefUnwindSafe for BlockHandle {}

// SAFETY: through a handle, a header is only read, except for its atomic count. The last handle
// returns the header to its shard by `end`, which any thread may call.
unsafe impl Send for BlockHandle {}
// SAFETY: as above.
unsafe impl Sync for BlockHandle {}

impl BlockHandle {
    /// Returns the strong count, without pins.
    pub(crate) fn holders(&self) -> usize {
        let count = self.count.load(Ordering::Acquire);
        ((count % PIN) - count / PIN) as usize
    }

    /// Pins the block: it is not released, and does not count as shared for copy-on-write.
    pub(crate) fn pin(&self) -> Pinned {
        let pinned = Pinned(self.clone());
        self.count.fetch_add(PIN, Ordering::Relaxed);
        pinned
    }

    /// Returns true if both are handles on one block.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Returns the header if this is the last handle, else the handle.
    pub(crate) fn into_header(self) -> Result<Box<Header>, Self> {
        if self.count.load(Ordering::Acquire) != 1 {
            return Err(self);
        }
        let header = ManuallyDrop::new(self).0;
        // SAFETY: the count is 1, so nothing else points to the header, which `from` took out
        // of a `Box`.
        let header = unsafe { Box::from_raw(header.as_ptr()) };
        header.watch.own();
        Ok(header)
    }

    /// Converts the handle to an address, for foreign code. Never null, and a multiple of 8.
    pub(crate) fn into_raw(self) -> *mut () {
        ManuallyDrop::new(self).0.as_ptr().cast()
    }

    /// Converts an address of [`into_raw`](Self::into_raw) back.
    ///
    /// # Safety
    ///
    /// `raw` was returned by `into_raw` of this type, and was not converted back since.
    pub(crate) unsafe fn from_raw(raw: *mut ()) -> Self {
        // SAFETY: `into_raw` returned it, so it is not null.
        Self(unsafe { NonNull::new_unchecked(raw.cast()) })
    }

    /// Returns the home of the block. The reference lives no longer than this handle, which keeps
    /// the block handed out.
    #[inline]
    pub(crate) fn home(&self) -> &Shard {
        // SAFETY: a shard outlives its headers (`Home::of`), and this handle keeps the header.
        unsafe { self.home.address().as_ref() }
    }
}

impl From<HandedOut> for BlockHandle {
    /// Makes the first handle.
    #[inline]
    fn from(header: HandedOut) -> Self {
        Self(NonNull::from(Box::leak(header.0)))
    }
}

impl Deref for BlockHandle {
    type Target = Header;

    #[inline]
    fn deref(&self) -> &Header {
        // SAFETY: the header is freed only after its last handle is gone, and this is one.
        let header = unsafe { self.0.as_ref() };
        header.watch.read();
        header
    }
}

impl Clone for BlockHandle {
    fn clone(&self) -> Self {
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        if before % PIN > PIN / 2 {
            std::process::abort(); // As in `Arc`: a wrapped count would free memory in use.
        }
        Self(self.0)
    }
}

/// A pin: a handle that prevents a block from returning to its home, but is not one of its holders.
/// Code that writes to the memory of arrays by address alone pins this memory. An array that shares
/// its block only with pins behaves as the block's only holder.
pub(crate) struct Pinned(BlockHandle);

impl Deref for Pinned {
    type Target = BlockHandle;

    fn deref(&self) -> &BlockHandle {
        &self.0
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Only `PIN` is subtracted here. Until the inner handle drops, the block counts as having
        // one more holder.
        self.0.count.fetch_sub(PIN, Ordering::Relaxed);
    }
}

impl Drop for BlockHandle {
    #[inline]
    fn drop(&mut self) {
        // If the count is 1, this is the only handle, and no other thread can raise the count. So
        // the last handle needs no read-modify-write.
        if self.count.load(Ordering::Acquire) == 1 {
            // SAFETY: this is the last handle.
            unsafe { end(self.0) }
        } else {
            leave_others(self.0);
        }
    }
}

/// Returns the block to its shard. Does not panic.
///
/// # Safety
///
/// The last handle on it is being dropped.
#[inline]
unsafe fn end(header: NonNull<Header>) {
    // SAFETY: nothing else points to the header (the caller's promise), which came out of a `Box`.
    let header = unsafe { Box::from_raw(header.as_ptr()) };
    header.watch.own();
    let home = header.home.address::<Shard>();
    let slow = if ptr::eq(current(), home.as_ptr()) {
        // SAFETY: the home is the address of a shard that outlives the header (`Home::of`).
        let shard = unsafe { home.as_ref() };
        // SAFETY: this thread is inside the current shard, so no other `Guard` exists, and nothing
        // below makes one.
        unsafe { shard.allocator() }.free(header)
    } else {
        Some(header)
    };
    if let Some(header) = slow {
        free_slowly(header);
    }
}

/// Returns any block to its shard, on any thread.
#[cold]
#[inline(never)]
fn free_slowly(header: Box<Header>) {
    let last = {
        // SAFETY: the home is the address of a shard that outlives the header (`Home::of`).
        let shard = unsafe { header.home.address::<Shard>().as_ref() };
        shard.record_free(&header);
        if shard.is_held() {
            return shard.free_by_holder(header);
        }
        shard.end_orphan(header)
    };
    // Dropped here, where nothing borrows the shard: this may drop the shard itself.
    drop(last);
}

/// Decrements the reference count of a block that had several handles. This handle may have become
/// the last handle meanwhile.
#[inline(never)]
fn leave_others(header: NonNull<Header>) {
    // SAFETY: the handle that is being dropped keeps the header alive until it is subtracted.
    let count = unsafe { &header.as_ref().count };
    if count.fetch_sub(1, Ordering::Release) == 1 {
        // The reads of the other handles happened before this load. This is a load instead of a
        // fence, because the thread sanitizer does not support fences.
        count.load(Ordering::Acquire);
        count.store(1, Ordering::Relaxed);
        // SAFETY: no other handle exists.
        unsafe { end(header) }
    }
}

impl fmt::Debug for BlockHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
