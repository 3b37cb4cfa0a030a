//! A block's header.
//!
//! A header is made when a block leaves the pool, and lives until the block returns to the pool.
//! The header moves with its block between a cache and its users. An idle header is a `Box` in a
//! list. A header that is handed out is owned by its handles together. The last handle that drops
//! makes the header a `Box` again, and passes it to its home.
//!
//! A header stores only the address of its home. The layer above defines the handle, so that the
//! handle's drop calls the home without a function pointer.

mod list;

pub(crate) use list::List;

use std::fmt;
use std::ptr::{self, NonNull};

use super::Block;
use super::order::{SlabOrder, Streams, Uses};
use super::uses::StreamUse;
use crate::device::StreamId;
use crate::error::Result;
use crate::sync::{Arc, AtomicU64, Ordering, RaceDetector, with_mut};

/// The address of the shard to which a block returns when its reference count reaches zero. This
/// layer reads nothing at the address.
#[derive(Clone, Copy)]
pub(crate) struct Home(NonNull<()>);

impl Home {
    /// The home of headers that never get a handle, because the drop of a handle would read the
    /// shard.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self(NonNull::dangling());

    /// Makes the home of a shard's blocks.
    ///
    /// # Safety
    ///
    /// `shard` is the address of a shard. This shard outlives every header that is made with this
    /// home.
    pub(crate) const unsafe fn of<S>(shard: NonNull<S>) -> Self {
        Self(shard.cast())
    }

    #[inline]
    pub(crate) fn address<S>(self) -> NonNull<S> {
        self.0.cast()
    }
}

/// The bit of an epoch that is set once a stream other than the block's own uses the block. The
/// home's fast path compares the epoch with the home's clock. So this bit sends a shared block to
/// the slow path.
const SHARED: u64 = 1 << 63;

/// The unit in which a count stores its pins. The lower bits count all handles.
pub(crate) const PIN: u64 = 1 << 32;

/// The metadata of a block outside of the pool.
pub(crate) struct Header {
    /// The block's memory. Constant for the life of the header, except the streams that may still
    /// use the block while it is idle.
    pub(crate) block: Block,
    /// The bin of the block's own length; constant for the life of the header.
    pub(crate) class: usize,
    pub(crate) requested_bytes: u64,
    /// The home's clock when the block was last handed out, and [`SHARED`] if another stream used
    /// the block.
    epoch: AtomicU64,
    /// The index of the block's current allocation record in its home.
    pub(crate) record_index: u32,
    /// The uses of the block by streams since it was handed out, for operations that cross streams.
    uses: Uses,
    /// The order of the block's slab, if the block is a slab or a suballocation of a slab.
    slab: Option<Arc<SlabOrder>>,
    /// True if the block is the slab itself.
    is_slab: bool,
    /// The next header of the list that contains this idle header; meaningless outside a list.
    pub(crate) next: *mut Header,
    pub(crate) home: Home,
    /// The number of handles, plus [`PIN`] for each handle that is a pin. While the block is idle,
    /// the count is also 1, so that a hand-out need not write it.
    pub(crate) count: AtomicU64,
    /// Detects races on all fields that are not atomic.
    pub(crate) watch: RaceDetector,
}

impl Header {
    pub(crate) fn new(block: Block, class: usize, home: Home) -> Box<Self> {
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

    /// Makes the block a slab, from which suballocations are cut. Graphs may use the suballocations
    /// by their addresses.
    pub(crate) fn begin_slab(&mut self) {
        self.slab = Some(Arc::new(SlabOrder::new(self.block.stream)));
        self.is_slab = true;
    }

    pub(crate) fn join_slab(&mut self, slab: &Self) {
        self.slab.clone_from(&slab.slab);
    }

    pub(crate) fn is_of_slab(&self) -> bool {
        self.slab.is_some()
    }

    /// Marks the slab as used by graphs, for the order of later uses.
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

    /// Returns the epoch of the last hand-out, with [`SHARED`] set if another stream used the
    /// block.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    fn is_shared(&self) -> bool {
        self.epoch() & SHARED != 0
    }

    /// Returns true if streams other than the block's own may still use the block, including
    /// streams of graphs.
    pub(crate) fn is_used_elsewhere(&self) -> bool {
        let launched = |slab: &Arc<SlabOrder>| slab.is_launched_elsewhere(self.block.stream);
        let others = self.is_shared() && self.uses.has_others_than(self.block.stream);
        others || self.slab.as_ref().is_some_and(launched)
    }

    pub(crate) fn set_epoch(&mut self, epoch: u64) {
        with_mut(&mut self.epoch, |own| *own = epoch);
    }

    /// Makes `stream` the own stream of an idle header's block.
    #[cold]
    pub(crate) fn follow(&mut self, stream: StreamId) {
        self.block.stream = stream;
        self.uses = Uses::new(stream);
    }

    /// Orders a read of the block by `user` after the writes by other streams.
    pub(crate) fn read_on(&self, streams: Streams<'_>, user: StreamUse) -> Result<()> {
        self.follow_launches(streams, user)?;
        self.uses.read_on(streams, user)?;
        self.mark_shared(user.stream());
        Ok(())
    }

    /// Orders a write to the block by `user` after all uses by other streams. No other caller may
    /// be about to read or write.
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

    /// Orders `stream` after all uses of the slab's suballocations, before a launch of a graph that
    /// uses the slab. No other caller may be about to use a suballocation.
    pub(crate) fn launch_on(&self, streams: Streams<'_>, stream: StreamId) -> Result<()> {
        self.slab
            .as_ref()
            .map_or(Ok(()), |slab| slab.launch_on(streams, stream))
    }

    /// Returns the last write to the block, and orders nothing.
    pub(crate) fn latest_write(&self) -> StreamUse {
        self.uses.last_write()
    }

    /// Orders the stream of the last write after the graphs that use the slab. Returns the last
    /// write.
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

    /// Moves possibly uncompleted uses by other streams into the block, and clears [`SHARED`]. No
    /// handle holds the block any more. Allocates nothing.
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
        // The launches of a suballocation stay with the slab, which outlives the suballocation.
        if let Some(slab) = self.slab.as_ref().filter(|_| self.is_slab) {
            self.block.other_uses.merge(slab.take_launches(own));
        }
    }

    /// Ends the header, and returns its block for the pool.
    pub(crate) fn into_block(mut self) -> Block {
        self.end_uses();
        self.block
    }

    /// Hands the block out to its first handle, for a request of `requested_bytes`.
    #[inline]
    pub(crate) fn hand_out(mut self: Box<Self>, requested_bytes: u64, epoch: u64) -> HandedOut {
        self.watch.own();
        self.requested_bytes = requested_bytes;
        with_mut(&mut self.epoch, |own| *own = epoch);
        HandedOut(self)
    }
}

/// The header of a block that was handed out and has no handle yet.
#[must_use = "make a handle of the block"]
pub(crate) struct HandedOut(pub(crate) Box<Header>);

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Header")
            .field("block", &self.block)
            .field("requested_bytes", &self.requested_bytes)
            .finish_non_exhaustive()
    }
}
