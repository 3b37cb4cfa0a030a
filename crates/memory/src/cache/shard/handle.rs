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

/// A counted handle on a live block.
pub(crate) struct BlockHandle(NonNull<Header>);

// A handle changes only atomic integers, which are unwind safe.
impl UnwindSafe for BlockHandle {}
impl RefUnwindSafe for BlockHandle {}

// SAFETY: a handle only reads the header, except for the atomic count. The last handle returns the
// header to its shard with `end`. Any thread may call `end`.
unsafe impl Send for BlockHandle {}
// SAFETY: threads that share a handle only read the header, and change its atomic count.
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

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Returns the header if this is the last handle, else the handle.
    pub(crate) fn into_header(self) -> Result<Box<Header>, Self> {
        if self.count.load(Ordering::Acquire) != 1 {
            return Err(self);
        }
        let header = ManuallyDrop::new(self).0;
        // SAFETY: the count is 1, so no other handle points to the header. `from` got the header
        // from a `Box`.
        let header = unsafe { Box::from_raw(header.as_ptr()) };
        header.watch.own();
        Ok(header)
    }

    /// Converts the handle to a pointer for foreign code. The pointer is not null, and its address
    /// is a multiple of 8.
    pub(crate) fn into_raw(self) -> *mut () {
        ManuallyDrop::new(self).0.as_ptr().cast()
    }

    /// Converts a pointer of [`into_raw`](Self::into_raw) back to the handle.
    ///
    /// # Safety
    ///
    /// `into_raw` of this type returned `raw`, and `raw` has not been converted back since.
    pub(crate) unsafe fn from_raw(raw: *mut ()) -> Self {
        // SAFETY: `into_raw` returned `raw`, so `raw` is not null.
        Self(unsafe { NonNull::new_unchecked(raw.cast()) })
    }

    /// Returns the home of the block. The reference does not outlive this handle, which keeps the
    /// block live.
    #[inline]
    pub(crate) fn home(&self) -> &Shard {
        // SAFETY: a shard outlives its headers (`Home::of`), and this handle keeps the header
        // alive.
        unsafe { self.home.address().as_ref() }
    }
}

impl From<HandedOut> for BlockHandle {
    #[inline]
    fn from(header: HandedOut) -> Self {
        Self(NonNull::from(Box::leak(header.0)))
    }
}

impl Deref for BlockHandle {
    type Target = Header;

    #[inline]
    fn deref(&self) -> &Header {
        // SAFETY: the header is freed only after its last handle has dropped, and this handle
        // exists.
        let header = unsafe { self.0.as_ref() };
        header.watch.read();
        header
    }
}

impl Clone for BlockHandle {
    fn clone(&self) -> Self {
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        if before % PIN > PIN / 2 {
            std::process::abort(); // A wrapped count would free memory in use.
        }
        Self(self.0)
    }
}

/// A pin: a handle that prevents a block's return to its home, but does not count as sharing the
/// block. A graph writes to the memory of arrays by address only, so it pins this memory. If an
/// array shares its block only with pins, it counts as the block's only holder.
pub(crate) struct Pinned(BlockHandle);

impl Deref for Pinned {
    type Target = BlockHandle;

    fn deref(&self) -> &BlockHandle {
        &self.0
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // This statement subtracts only `PIN`. Until the inner handle drops, it counts as one more
        // holder.
        self.0.count.fetch_sub(PIN, Ordering::Relaxed);
    }
}

impl Drop for BlockHandle {
    #[inline]
    fn drop(&mut self) {
        // If the count is 1, this is the only handle, and no other thread can raise the count. So
        // the last handle needs no read-modify-write.
        if self.count.load(Ordering::Acquire) == 1 {
            // SAFETY: the count is 1, so this is the last handle.
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
/// The caller is dropping the last handle on the block.
#[inline]
unsafe fn end(header: NonNull<Header>) {
    // SAFETY: by this function's contract, no other handle points to the header. The header came
    // from a `Box`.
    let header = unsafe { Box::from_raw(header.as_ptr()) };
    header.watch.own();
    let home = header.home.address::<Shard>();
    let slow = if ptr::eq(current(), home.as_ptr()) {
        // SAFETY: the home is the address of a shard that outlives the header (`Home::of`).
        let shard = unsafe { home.as_ref() };
        // SAFETY: this thread is inside the current shard, so no other `Guard` is in use. `free`
        // creates no guard.
        unsafe { shard.allocator() }.free(header)
    } else {
        Some(header)
    };
    if let Some(header) = slow {
        free_slowly(header);
    }
}

/// Returns a block to its shard by the slow path, on any thread.
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
    // The value is dropped after the borrow of the shard has ended, because this may drop the shard
    // itself.
    drop(last);
}

/// Decrements the reference count of a block that had several handles. If this handle has become
/// the last handle, returns the block to its shard.
#[inline(never)]
fn leave_others(header: NonNull<Header>) {
    // SAFETY: the dropped handle keeps the header alive until the subtraction.
    let count = unsafe { &header.as_ref().count };
    if count.fetch_sub(1, Ordering::Release) == 1 {
        // The reads through all other handles happen before this load. The load replaces a fence,
        // because the thread sanitizer does not support fences.
        count.load(Ordering::Acquire);
        count.store(1, Ordering::Relaxed);
        // SAFETY: the count was 1, so no other handle exists.
        unsafe { end(header) }
    }
}

impl fmt::Debug for BlockHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
