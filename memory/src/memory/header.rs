//! A block's header and the counted handle on it.
//!
//! A header is made when a block leaves the pool and lives until it returns there: while the block
//! goes back and forth between a cache and its users, the header goes with it. It is owned in one
//! of two ways. Idle, it is a `Box` in somebody's list. Handed out, the handles own it together,
//! and the last one to drop makes it a `Box` again and gives it to its home.
//!
//! Who that home is, this layer does not know: `H` names it.

use std::fmt;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::{self, NonNull};

use super::Block;
use super::order::{SlabOrder, Streams, Uses};
use super::uses::StreamUse;
use crate::device::StreamId;
use crate::error::Result;
use crate::sync::{Arc, AtomicU64, Ordering, RaceDetector, with_mut};

/// Who gets a block back when its last handle drops.
///
/// # Safety
///
/// `give_back` takes the home as the pointer that the header was made with. The implementor sees
/// to it that a home outlives every header that names it.
pub(crate) unsafe trait Home: Sync + Sized {
    /// Takes the header of a block that nobody holds any more. Does not panic.
    ///
    /// # Safety
    ///
    /// `home` is the pointer that `header` was made with.
    unsafe fn give_back(home: NonNull<Self>, header: Box<Header<Self>>);
}

/// The part of an epoch that tells of use by another stream than the block's own. A epoch beside
/// the home's clock is what its fast path looks at, so this is what sends such a block around it.
const SHARED: u64 = 1 << 63;

/// A home for tests that make no handle.
#[cfg(all(test, not(loom)))]
pub(crate) struct NoHome;

#[cfg(all(test, not(loom)))]
// SAFETY: nothing is ever given back to it, because no handle on one of its blocks is made.
unsafe impl Home for NoHome {
    unsafe fn give_back(_home: NonNull<Self>, _header: Box<Header<Self>>) {}
}

/// Beside the handles of a count: that one of them is a [`Kept`].
const KEEPER: u64 = 1 << 32;

/// What travels with a block.
pub(crate) struct Header<H: Home> {
    /// Where the block lies; constant for the life of the header, but for the streams that may
    /// still use it while it is idle.
    pub(crate) block: Block,
    /// The bin of the block's own length; likewise.
    pub(crate) class: usize,
    /// The bytes that the present holder asked for.
    pub(crate) requested_bytes: u64,
    /// The home's clock when the block was last handed out, and [`SHARED`] where it is.
    epoch: AtomicU64,
    /// The holder's number in whatever its home keeps about it.
    pub(crate) record_index: u32,
    /// The uses of the block by streams since it was handed out, for operations that cross streams.
    uses: Uses,
    /// The order of the slab that the block is a part of, or is.
    slab: Option<Arc<SlabOrder>>,
    /// Whether the block is the slab itself.
    is_slab: bool,
    /// The next header of the list that this one is idle in; means nothing outside one.
    pub(crate) next: *mut Header<H>,
    home: NonNull<H>,
    /// The handles, and [`KEEPER`] for each of them that only keeps the block; 1 while idle too, so
    /// that handing out has nothing to write here.
    count: AtomicU64,
    /// Of everything here that is no atomic.
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

    /// Makes the block one that parts are cut off, which graphs may use by their addresses.
    pub(crate) fn begin_slab(&mut self) {
        self.slab = Some(Arc::new(SlabOrder::new(self.block.stream)));
        self.is_slab = true;
    }

    /// Makes the block a part of `slab`.
    pub(crate) fn join_slab(&mut self, slab: &Self) {
        self.slab.clone_from(&slab.slab);
    }

    /// Whether the block is a part of a slab, or is one.
    pub(crate) fn is_of_slab(&self) -> bool {
        self.slab.is_some()
    }

    /// From here on the slab is ordered as one that a graph uses.
    pub(crate) fn mark_exported(&self) {
        self.slab.iter().for_each(|slab| slab.set_used_by_graphs());
    }

    /// Whether a graph may use the block's memory, or be captured that does: whoever is about to
    /// read or write there has to keep launches off until that is queued.
    pub(crate) fn is_used_by_graphs(&self) -> bool {
        self.count.load(Ordering::Acquire) >= KEEPER || self.lent_slab().is_some()
    }

    fn lent_slab(&self) -> Option<&SlabOrder> {
        self.slab.as_deref().filter(|slab| slab.is_used_by_graphs())
    }

    /// What the block was last handed out with, and other than that where another stream used it.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    fn is_shared(&self) -> bool {
        self.epoch() & SHARED != 0
    }

    /// Whether other streams than the block's own, those of graphs included, may still use it.
    pub(crate) fn is_used_elsewhere(&self) -> bool {
        let launched = |slab: &Arc<SlabOrder>| slab.is_launched_elsewhere(self.block.stream);
        let others = self.is_shared() && self.uses.has_others_than(self.block.stream);
        others || self.slab.as_ref().is_some_and(launched)
    }

    /// Lets an idle block count as handed out at another time.
    pub(crate) fn set_epoch(&mut self, epoch: u64) {
        with_mut(&mut self.epoch, |own| *own = epoch);
    }

    /// Lets an idle header stand for a block of another stream.
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

    /// Orders `user`, which is about to write to the block, after all uses by other streams.
    /// Nobody else may be about to read or write.
    pub(crate) fn write_on(&self, streams: Streams<'_>, user: StreamUse) -> Result<()> {
        self.follow_launches(streams, user)?;
        self.uses.write_on(streams, user)?;
        self.mark_shared(user.stream());
        Ok(())
    }

    /// Orders `user` after the graphs that used the slab of which the block is a part.
    fn follow_launches(&self, streams: Streams<'_>, user: StreamUse) -> Result<()> {
        self.slab
            .as_ref()
            .map_or(Ok(()), |slab| slab.use_on(streams, user))
    }

    /// Orders `stream`, on which a graph is about to be launched that uses the slab, after whoever
    /// used a part of it. Nobody else may be about to use one.
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

    /// Moves the uses that other streams may not have completed into the block, which nobody holds
    /// any more, and leaves the plain epoch. Allocates nothing.
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
        // A suballocation leaves the launches to the slab, which outlives it.
        if let Some(slab) = self.slab.as_ref().filter(|_| self.is_slab) {
            self.block.other_uses.merge(slab.take_launches(own));
        }
    }

    /// Ends the header, when its block goes back to the memory.
    pub(crate) fn into_block(mut self) -> Block {
        self.end_uses();
        self.block
    }

    /// Hands the block out to a first holder, who asked for `requested_bytes`.
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

// What changes through a handle is an atomic number.
impl<H: Home> UnwindSafe for Handle<H> {}
impl<H: Home> RefUnwindSafe for Handle<H> {}

// SAFETY: through a handle a header is only read, but for its count, which is atomic; the last
// handle gives it to its home, whose `give_back` is callable from any thread (`Home: Sync`).
unsafe impl<H: Home> Send for Handle<H> {}
// SAFETY: as above.
unsafe impl<H: Home> Sync for Handle<H> {}

impl<H: Home> Handle<H> {
    /// How many handles there are on the block, but for those that only keep it.
    pub(crate) fn holders(&self) -> usize {
        let count = self.count.load(Ordering::Acquire);
        ((count % KEEPER) - count / KEEPER) as usize
    }

    /// Keeps the block without holding it: who asks whether the block is shared does not see it.
    pub(crate) fn keep(&self) -> Kept<H> {
        let kept = Kept(self.clone());
        self.count.fetch_add(KEEPER, Ordering::Relaxed);
        kept
    }

    /// Whether both are handles on the same block.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// The home of the block, for as long as this handle keeps it out.
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
        if before % KEEPER > KEEPER / 2 {
            std::process::abort(); // As `Arc`: a count that wrapped would free what is in use.
        }
        Self(self.0)
    }
}

/// A handle that keeps a block from going home, and is not one of its holders: what writes to the
/// memory of arrays by its address alone has such, and arrays go on as if they were alone.
pub(crate) struct Kept<H: Home>(Handle<H>);

impl<H: Home> Deref for Kept<H> {
    type Target = Handle<H>;

    fn deref(&self) -> &Handle<H> {
        &self.0
    }
}

impl<H: Home> Drop for Kept<H> {
    fn drop(&mut self) {
        // In one step with nothing else: until the handle itself goes, the block counts one holder
        // more.
        self.0.count.fetch_sub(KEEPER, Ordering::Relaxed);
    }
}

impl<H: Home> Drop for Handle<H> {
    #[inline]
    fn drop(&mut self) {
        // A count of 1 can only be this handle's own, and nobody else is there to raise it: no
        // read-modify-write for the last of them.
        if self.count.load(Ordering::Acquire) == 1 {
            // SAFETY: this is the last handle.
            unsafe { end(self.0) }
        } else {
            leave_others(self.0);
        }
    }
}

/// Gives the block back.
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
    // SAFETY: `home` is the pointer that `Header::new` got.
    unsafe { H::give_back(home, header) };
}

/// One handle less of several, which may be the last one by now.
#[inline(never)]
fn leave_others<H: Home>(header: NonNull<Header<H>>) {
    // SAFETY: the handle that is being dropped keeps the header until it is counted off.
    let count = unsafe { &header.as_ref().count };
    if count.fetch_sub(1, Ordering::Release) == 1 {
        // The others' reads happened before. A load instead of a fence, which the thread sanitizer
        // does not see.
        count.load(Ordering::Acquire);
        count.store(1, Ordering::Relaxed);
        // SAFETY: nobody else has one.
        unsafe { end(header) }
    }
}

/// Idle headers, linked through themselves: pushing and popping allocate nothing.
///
/// Invariant: the list owns every header it links, each out of a `Box`, and `next` of the last is
/// null.
pub(crate) struct List<H: Home> {
    head: *mut Header<H>,
}

// SAFETY: a list owns its headers, and a header is data but for its home, which is `Sync`.
unsafe impl<H: Home> Send for List<H> {}

impl<H: Home> List<H> {
    pub(crate) const fn new() -> Self {
        Self {
            head: ptr::null_mut(),
        }
    }

    /// The list that begins at `head`.
    ///
    /// # Safety
    ///
    /// `head` is null or begins a null-terminated chain of headers, each out of a `Box`, that
    /// nobody else owns.
    pub(crate) unsafe fn from_chain(head: *mut Header<H>) -> Self {
        Self { head }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    #[inline]
    pub(crate) fn push(&mut self, mut header: Box<Header<H>>) {
        header.watch.own();
        header.next = self.head;
        self.head = Box::into_raw(header);
    }

    /// Takes the header that was pushed last, if it `fits`.
    #[inline]
    pub(crate) fn pop_if(&mut self, fits: impl Fn(&Header<H>) -> bool) -> Option<Box<Header<H>>> {
        let head = self.head;
        // SAFETY: the head is null or a header that this list owns, out of a `Box`, and `&mut self`
        // keeps everyone else out.
        unsafe {
            let header = head.as_ref()?;
            header.watch.own();
            if !fits(header) {
                return None;
            }
            self.head = header.next;
            Some(Box::from_raw(head))
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Box<Header<H>>> {
        self.take_best(|_| Some(0))
    }

    /// Takes the header with the least `excess`, the first of equals; `None` of it disqualifies,
    /// and 0 ends the search.
    pub(crate) fn take_best(
        &mut self,
        excess: impl Fn(&Header<H>) -> Option<u64>,
    ) -> Option<Box<Header<H>>> {
        let mut best: Option<(*mut *mut Header<H>, u64)> = None;
        let mut link: *mut *mut Header<H> = &raw mut self.head;
        // SAFETY: `link` is this list's head or the `next` of a header it owns, and what it points
        // to is null or such a header; `&mut self` keeps everyone else out.
        unsafe {
            while let Some(header) = (*link).as_ref() {
                header.watch.own();
                match excess(header) {
                    Some(0) => {
                        best = Some((link, 0));
                        break;
                    }
                    Some(more) if best.is_none_or(|(_, least)| more < least) => {
                        best = Some((link, more));
                    }
                    _ => {}
                }
                link = &raw mut (**link).next;
            }
            let (link, _) = best?;
            let header = *link;
            *link = (*header).next;
            Some(Box::from_raw(header))
        }
    }

    /// The headers, from the last one pushed on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Header<H>> {
        // SAFETY: the list owns what it links, and is borrowed for as long as the references are.
        let reference = |header: *mut Header<H>| unsafe { header.as_ref() };
        std::iter::successors(reference(self.head), move |header| reference(header.next))
    }

    pub(crate) fn for_each_mut(&mut self, mut change: impl FnMut(&mut Header<H>)) {
        let mut link = self.head;
        // SAFETY: the list owns what it links, and `&mut self` keeps everyone else out.
        while let Some(header) = unsafe { link.as_mut() } {
            link = header.next;
            change(header);
        }
    }

    /// Takes out the headers that `matches` is true of.
    pub(crate) fn extract(&mut self, mut matches: impl FnMut(&Header<H>) -> bool) -> Self {
        let (mut taken, mut kept) = (Self::new(), Self::new());
        while let Some(header) = self.pop() {
            let list = if matches(&header) {
                &mut taken
            } else {
                &mut kept
            };
            list.push(header);
        }
        while let Some(header) = kept.pop() {
            self.push(header); // In the order that they stood in.
        }
        taken
    }

    /// Moves everything of `other` here.
    pub(crate) fn append(&mut self, other: &mut Self) {
        while let Some(header) = other.pop() {
            self.push(header);
        }
    }
}

/// A place where one header stands while it is idle.
pub(crate) struct Slot<H: Home>(*mut Header<H>);

// SAFETY: as for a list.
unsafe impl<H: Home> Send for Slot<H> {}

impl<H: Home> Slot<H> {
    pub(crate) fn new(header: Option<Box<Header<H>>>) -> Self {
        Self(header.map_or(ptr::null_mut(), Box::into_raw))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_null()
    }

    /// Puts a header where none is.
    #[inline]
    pub(crate) fn put(&mut self, header: Box<Header<H>>) {
        debug_assert!(self.is_empty());
        self.0 = Box::into_raw(header);
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Option<Box<Header<H>>> {
        let header = std::mem::replace(&mut self.0, ptr::null_mut());
        // SAFETY: what stands here came out of a `Box`, and was taken out just now.
        (!header.is_null()).then(|| unsafe { Box::from_raw(header) })
    }

    /// The header that stands here.
    #[cfg(test)]
    pub(crate) fn get(&self) -> Option<&Header<H>> {
        // SAFETY: null, or a header that this owns.
        unsafe { self.0.as_ref() }
    }
}

impl<H: Home> Drop for Slot<H> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<H: Home> From<Box<Header<H>>> for List<H> {
    fn from(header: Box<Header<H>>) -> Self {
        let mut list = Self::new();
        list.push(header);
        list
    }
}

impl<H: Home> Iterator for List<H> {
    type Item = Box<Header<H>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pop()
    }
}

impl<H: Home> Drop for List<H> {
    fn drop(&mut self) {
        self.for_each(drop); // One by one: a chain may be longer than the stack is deep.
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
