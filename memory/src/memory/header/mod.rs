//! A block's header and the counted handle on it.
//!
//! A header is made when a block leaves the pool and lives until the block returns there. While the
//! block moves between a cache and its users, its header moves with it. A header has one of two
//! kinds of owner. If it is idle, it is a `Box` in a list. If it is handed out, its handles own it
//! together, and the last handle to drop makes it a `Box` again and gives it to its home.
//!
//! This layer does not know the type of that home: it is the parameter `H`.

mod list;

pub(crate) use list::{List, Slot};

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::{self, NonNull};

use super::Block;
use super::order::{SlabOrder, Streams, Uses};
use super::uses::StreamUse;
use crate::device::StreamId;
use crate::error::Result;
use crate::sync::{Arc, AtomicU64, Ordering, RaceDetector, with_mut};

/// The owner a block returns to when its reference count reaches zero.
///
/// # Safety
///
/// `return_block` takes the home as the pointer that the header was made with. The implementor
/// ensures that a home outlives every header that names it.
pub(crate) unsafe trait Home: Sync + Sized {
    /// Takes the header of a block that has no handle any more. Does not panic.
    ///
    /// # Safety
    ///
    /// `home` is the pointer that `header` was made with.
    unsafe fn return_block(home: NonNull<Self>, header: Box<Header<Self>>);
}

/// The bit of an epoch that is set once a stream other than the block's own uses the block. The
/// home's fast path compares the epoch with the home's clock, so this bit sends a shared block to
/// the slow path.
const SHARED: u64 = 1 << 63;

/// A home for tests that make no handle.
#[cfg(all(test, not(loom)))]
pub(crate) struct NoHome;

#[cfg(all(test, not(loom)))]
// SAFETY: no block is ever returned to it, because no handle on one of its blocks is made.
unsafe impl Home for NoHome {
    unsafe fn return_block(_home: NonNull<Self>, _header: Box<Header<Self>>) {}
}

/// The unit in which a count stores its [`Pinned`] handles, above the bits that count all handles.
const PIN: u64 = 1 << 32;

/// The metadata of a block outside of the pool.
pub(crate) struct Header<H: Home> {
    /// The block's memory. Constant for the life of the header, except the streams that may still
    /// use the block while it is idle.
    pub(crate) block: Block,
    /// The bin of the block's own length; constant for the life of the header.
    pub(crate) class: usize,
    /// The bytes that the present holder requested.
    pub(crate) requested_bytes: u64,
    /// The home's clock when the block was last handed out, and [`SHARED`] if another stream used
    /// the block.
    epoch: AtomicU64,
    /// The index of the holder's allocation record in its home.
    pub(crate) record_index: u32,
    /// The uses of the block by streams since it was handed out, for operations that cross streams.
    uses: Uses,
    /// The order of the slab that the block is, or is a suballocation of.
    slab: Option<Arc<SlabOrder>>,
    /// True if the block is the slab itself.
    is_slab: bool,
    /// The next header of the list that contains this idle header; meaningless outside a list.
    pub(crate) next: *mut Header<H>,
    home: NonNull<H>,
    /// The number of handles, plus [`PIN`] for each handle that is a [`Pinned`]. It is 1 while
    /// idle too, so that handing out need not write it.
    count: AtomicU64,
    /// Detects races on all fields that are not atomic.
    pub(crate) watch: RaceDetector,
}

impl<H: Home> Header<H> {
    pub(crate) fn new(block: Block, class: usize, home: NonNull<H>) -> Box<Self> {
        Box::new(Self {
            uses: Uses::new(block.stream),
            slab: None,
            is_slab: false,
            block,
            class,
            requested_bytes: 0,
            record_index: 0,
            epoch: AtomicU64::new(0),
            next: ptr::null_mut(),
            home,
            count: AtomicU64::new(1),
            watch: RaceDetector::new(),
        })
    }

    /// Makes the block a slab, from which suballocations are cut. Graphs may use these by their
    /// addresses.
    pub(crate) fn begin_slab(&mut self) {
        self.slab = Some(Arc::new(SlabOrder::new(self.block.stream)));
        self.is_slab = true;
    }

    /// Makes the block a suballocation of `slab`.
    pub(crate) fn join_slab(&mut self, slab: &Self) {
        self.slab.clone_from(&slab.slab);
    }

    /// Returns true if the block is a slab or a suballocation of one.
    pub(crate) fn is_of_slab(&self) -> bool {
        self.slab.is_some()
    }

    /// Orders the slab, from now on, as a slab that graphs use.
    pub(crate) fn mark_exported(&self) {
        self.slab.iter().for_each(|slab| slab.set_used_by_graphs());
    }

    /// Returns true if a graph, captured or being captured, may use the block's memory. A caller
    /// that is about to read or write this memory must then block launches until its work is
    /// enqueued.
    pub(crate) fn is_used_by_graphs(&self) -> bool {
        self.count.load(Ordering::Acquire) >= PIN || self.lent_slab().is_some()
    }

    fn lent_slab(&self) -> Option<&SlabOrder> {
        self.slab.as_deref().filter(|slab| slab.is_used_by_graphs())
    }

    /// Returns the epoch that the block was last handed out with, with [`SHARED`] set if another
    /// stream used the block.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    fn is_shared(&self) -> bool {
        self.epoch() & SHARED != 0
    }

    /// Returns true if streams other than the block's own may still use it, including streams of
    /// graphs.
    pub(crate) fn is_used_elsewhere(&self) -> bool {
        let launched = |slab: &Arc<SlabOrder>| slab.is_launched_elsewhere(self.block.stream);
        let others = self.is_shared() && self.uses.has_others_than(self.block.stream);
        others || self.slab.as_ref().is_some_and(launched)
    }

    /// Sets the epoch of an idle block.
    pub(crate) fn set_epoch(&mut self, epoch: u64) {
        with_mut(&mut self.epoch, |own| *own = epoch);
    }

    /// Reassigns an idle header to a block of `stream`.
    #[cold]
    pub(crate) fn follow(&mut self, stream: StreamId) {
        self.block.stream = stream;
        self.uses = Uses::new(stream);
    }

    /// Orders `user`, which is about to read the block, after the writes of other streams.
    pub(crate) fn read_on(&self, streams: Streams<'_>, user: StreamUse) -> Result<()> {
        self.follow_launches(streams, user)?;
        self.uses.read_on(streams, user)?;
        self.mark_shared(user.stream());
        Ok(())
    }

    /// Orders `user`, which is about to write to the block, after all uses by other streams. No
    /// other caller may be about to read or write.
    pub(crate) fn write_on(&self, streams: Streams<'_>, user: StreamUse) -> Result<()> {
        self.follow_launches(streams, user)?;
        self.uses.write_on(streams, user)?;
        self.mark_shared(user.stream());
        Ok(())
    }

    /// Orders `user` after the graphs that used the block's slab.
    fn follow_launches(&self, streams: Streams<'_>, user: StreamUse) -> Result<()> {
        self.slab
            .as_ref()
            .map_or(Ok(()), |slab| slab.use_on(streams, user))
    }

    /// Orders `stream`, on which a graph that uses the slab is about to be launched, after all
    /// users of the slab's suballocations. No other caller may be about to use a suballocation.
    pub(crate) fn launch_on(&self, streams: Streams<'_>, stream: StreamId) -> Result<()> {
        self.slab
            .as_ref()
            .map_or(Ok(()), |slab| slab.launch_on(streams, stream))
    }

    /// Returns the last write to the block, and orders nothing.
    pub(crate) fn latest_write(&self) -> StreamUse {
        self.uses.last_write()
    }

    /// Returns the last write to the block. Its stream is ordered after the graphs that use the
    /// slab.
    pub(crate) fn last_write(&self, streams: Streams<'_>) -> Result<StreamUse> {
        let write = self.uses.last_write();
        self.follow_launches(streams, write)?;
        Ok(write)
    }

    fn mark_shared(&self, stream: StreamId) {
        if stream != self.block.stream && !self.is_shared() {
            self.epoch.fetch_or(SHARED, Ordering::Relaxed);
        }
    }

    /// Moves the uses that other streams may not have completed into the block, which no handle
    /// holds any more, and clears [`SHARED`]. Allocates nothing.
    pub(crate) fn end_uses(&mut self) {
        let is_shared = with_mut(&mut self.epoch, |epoch| {
            let before = *epoch;
            *epoch &= !SHARED;
            before & SHARED != 0
        });
        let own = self.block.stream;
        if is_shared {
            self.block.other_uses.merge(self.uses.take_others(own));
            self.uses = Uses::new(own);
        }
        // The launches of a suballocation stay with the slab, which outlives it.
        if let Some(slab) = self.slab.as_ref().filter(|_| self.is_slab) {
            self.block.other_uses.merge(slab.take_launches(own));
        }
    }

    /// Ends the header when its block returns to the pool.
    pub(crate) fn into_block(mut self) -> Block {
        self.end_uses();
        self.block
    }

    /// Hands the block out to its first holder, which requested `requested_bytes`.
    #[inline]
    pub(crate) fn hand_out(mut self: Box<Self>, requested_bytes: u64, epoch: u64) -> Handle<H> {
        self.watch.own();
        self.requested_bytes = requested_bytes;
        with_mut(&mut self.epoch, |own| *own = epoch);
        Handle(NonNull::from(Box::leak(self)))
    }
}

/// A counted handle on a block that is handed out.
pub(crate) struct Handle<H: Home>(NonNull<Header<H>>);

// Only atomic integers change through a handle.
impl<H: Home> UnwindSafe for Handle<H> {}
impl<H: Home> RefUnwindSafe for Handle<H> {}

// SAFETY: through a handle a header is only read, except its count, which is atomic; the last
// handle gives it to its home, whose `return_block` is callable from any thread (`Home: Sync`).
unsafe impl<H: Home> Send for Handle<H> {}
// SAFETY: as above.
unsafe impl<H: Home> Sync for Handle<H> {}

impl<H: Home> Handle<H> {
    /// Returns the strong count, without pins.
    pub(crate) fn holders(&self) -> usize {
        let count = self.count.load(Ordering::Acquire);
        ((count % PIN) - count / PIN) as usize
    }

    /// Pins the block: it is not released, and does not count as shared for copy-on-write.
    pub(crate) fn pin(&self) -> Pinned<H> {
        let pinned = Pinned(self.clone());
        self.count.fetch_add(PIN, Ordering::Relaxed);
        pinned
    }

    /// Returns true if both are handles on one block.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Returns the header if this is the last handle, else the handle.
    pub(crate) fn into_header(self) -> std::result::Result<Box<Header<H>>, Self> {
        if self.count.load(Ordering::Acquire) != 1 {
            return Err(self);
        }
        let header = ManuallyDrop::new(self).0;
        // SAFETY: the count is 1, so nothing else points to the header, which `hand_out` took out
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
    /// the block out.
    #[inline]
    pub(crate) fn home(&self) -> &H {
        // SAFETY: a home outlives every header that names it (`Home`'s contract), and this handle
        // keeps the header.
        unsafe { self.home.as_ref() }
    }
}

impl<H: Home> Deref for Handle<H> {
    type Target = Header<H>;

    #[inline]
    fn deref(&self) -> &Header<H> {
        // SAFETY: the header is freed only after its last handle is gone, and this is one.
        let header = unsafe { self.0.as_ref() };
        header.watch.read();
        header
    }
}

impl<H: Home> Clone for Handle<H> {
    fn clone(&self) -> Self {
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        if before % PIN > PIN / 2 {
            std::process::abort(); // As in `Arc`: a wrapped count would free memory in use.
        }
        Self(self.0)
    }
}

/// A pin: a handle that prevents a block from returning to its home, but is not one of its holders.
/// Code that writes to the memory of arrays by address alone pins it. An array that shares its
/// block only with pins behaves as its only holder.
pub(crate) struct Pinned<H: Home>(Handle<H>);

impl<H: Home> Deref for Pinned<H> {
    type Target = Handle<H>;

    fn deref(&self) -> &Handle<H> {
        &self.0
    }
}

impl<H: Home> Drop for Pinned<H> {
    fn drop(&mut self) {
        // Only this term is subtracted here: until the handle itself drops, the block counts one
        // holder more.
        self.0.count.fetch_sub(PIN, Ordering::Relaxed);
    }
}

impl<H: Home> Drop for Handle<H> {
    #[inline]
    fn drop(&mut self) {
        // If the count is 1, it counts only this handle, and no other handle exists that could be
        // cloned to raise it. So the last handle needs no read-modify-write.
        if self.count.load(Ordering::Acquire) == 1 {
            // SAFETY: this is the last handle.
            unsafe { end(self.0) }
        } else {
            leave_others(self.0);
        }
    }
}

/// Returns the block to its home.
///
/// # Safety
///
/// The last handle on it is being dropped.
#[inline]
unsafe fn end<H: Home>(header: NonNull<Header<H>>) {
    // SAFETY: nothing else points to the header (the caller's promise), which `hand_out` took out
    // of a `Box`.
    let header = unsafe { Box::from_raw(header.as_ptr()) };
    header.watch.own();
    let home = header.home;
    // SAFETY: `home` is the pointer that was passed to `Header::new`.
    unsafe { H::return_block(home, header) };
}

/// Subtracts one handle from several. It may have become the last one meanwhile.
#[inline(never)]
fn leave_others<H: Home>(header: NonNull<Header<H>>) {
    // SAFETY: the handle that is being dropped keeps the header alive until it is subtracted.
    let count = unsafe { &header.as_ref().count };
    if count.fetch_sub(1, Ordering::Release) == 1 {
        // The other handles' reads happened before. This is a load instead of a fence, because the
        // thread sanitizer does not support fences.
        count.load(Ordering::Acquire);
        count.store(1, Ordering::Relaxed);
        // SAFETY: no other handle exists.
        unsafe { end(header) }
    }
}

impl<H: Home> fmt::Debug for Header<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Header")
            .field("block", &self.block)
            .field("requested_bytes", &self.requested_bytes)
            .finish_non_exhaustive()
    }
}

impl<H: Home> fmt::Debug for Handle<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
