//! One thread's part of a named cache: its idle blocks, and the way back for those handed out.
//!
//! Who may touch what:
//! - `state` says who holds the shard: nobody, a thread inside its scope, a visitor for a moment,
//!   or nobody ever again. Only the holder reaches `inner` and writes `counters`, through
//!   [`Access`]; anyone may read the counters.
//! - A block dropped by the holding thread goes straight to its bin; dropped anywhere else, or
//!   while the shard is not held, it goes to `returned`.
//! - A closed shard is empty. Each block of it that is still out is an orphan: it goes down to the
//!   memory when it drops, and the last one lets go of what kept shard and device alive.
//!
//! Architecture invariant: no method of `Access` calls foreign code, takes a lock or allocates, so
//! nothing can come back to a shard while its inside is borrowed.

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use super::handle::CachesRef;
use super::named::Identity;
use super::policy::Policy;
use super::remote::Remote;
use super::stats::Counters;
use super::{Caches, Size};
use crate::device::{Backend, StreamId};
use crate::error::Result;
use crate::memory::Block;
use crate::memory::header::{Handle, Header, Home, List};
use crate::pool::size_class::{CLASSES, floor_class};
use crate::sync::{Arc, AtomicI64, AtomicU64, Mutex, Ordering, thread_token};

/// `state`: nobody holds the shard.
const IDLE: u64 = 0;
/// `state`: set beside the token of a visitor, who is not inside a scope and soon gone.
const VISIT: u64 = 1 << 63;
/// `state`: nobody will hold the shard again.
const CLOSED: u64 = u64::MAX;

/// `marks`: at its next exit or entry the holder gives every idle block back.
pub(super) const DRAIN: u64 = 1;
/// `marks`: and what is live now goes to the pool when it drops.
pub(super) const INVALIDATE: u64 = 2;
/// `marks`: the cache was removed, and the shard is to be closed.
pub(super) const CLOSE: u64 = 4;

/// The stamp of a block that belongs to no cache: older than any clock.
const UNCACHED_STAMP: u64 = 0;
/// The stamp of a header without a block, for arrays of no bytes.
const EMPTY_STAMP: u64 = u64::MAX;

/// A thread's part of a cache.
pub(crate) struct Shard {
    state: AtomicU64,
    marks: AtomicU64,
    returned: Remote<Shard>,
    pub(super) counters: Counters,
    /// The device's epoch at the last entry: what rung 3 orders by.
    used_at: AtomicU64,
    /// Whose shard this is; `None` for the blocks of a device that belong to no cache.
    pub(super) identity: Option<Arc<Identity>>,
    /// The device, uncounted, because idle memory must not keep it alive: `keep` does, once the
    /// shard is closed, and until then whoever holds the shard holds the device as well.
    device: ManuallyDrop<CachesRef>,
    inner: UnsafeCell<Inner>,
    /// After closing: blocks still out. Before: 0 less the orphans that overtook the closing.
    orphans: AtomicI64,
    keep: Mutex<Option<Keep>>,
}

// SAFETY: `inner` is reached only through `Access`, which one thread at a time has (see `state`);
// everything else is `Sync` by itself.
unsafe impl Sync for Shard {}
// SAFETY: nothing in a shard belongs to the thread that made it.
unsafe impl Send for Shard {}

/// What the orphans of a closed shard keep alive together.
type Keep = (Arc<Caches>, Arc<Shard>);

/// Invariants, asserted by [`Access::check`]:
/// - a bin holds idle blocks of its class, which the counters add up;
/// - `exited_at` and `invalidated_at` are at most `clock`;
/// - `depth` is 0 unless a thread is inside.
struct Inner {
    bins: [List<Shard>; CLASSES],
    /// What goes to the pool at the next opportunity: dropping must not lock.
    stale: List<Shard>,
    /// Entries that have not been left.
    depth: u64,
    /// Moves on at each outermost exit and each invalidation; stamps the blocks handed out.
    clock: u64,
    /// Blocks stamped before this escaped.
    exited_at: u64,
    /// Blocks stamped before this go to the pool when they drop.
    invalidated_at: u64,
    policy: Policy,
    /// The `live_bytes` that the device's ledger knows of.
    published_bytes: u64,
    /// Headers without a block that are handed out.
    empties: u64,
}

impl Shard {
    /// A shard of the cache `identity`, or of no cache.
    pub(super) fn new(caches: &Caches, identity: Option<Arc<Identity>>) -> Arc<Self> {
        let uncached = identity.is_none();
        Arc::new(Self {
            state: AtomicU64::new(IDLE),
            marks: AtomicU64::new(0),
            returned: Remote::new(),
            counters: Counters::default(),
            used_at: AtomicU64::new(0),
            identity,
            device: caches.uncounted(),
            inner: UnsafeCell::new(Inner {
                bins: [const { List::new() }; CLASSES],
                stale: List::new(),
                depth: 0,
                clock: 1,
                exited_at: UNCACHED_STAMP,
                invalidated_at: if uncached { 1 } else { 0 },
                policy: Policy::Recycle,
                published_bytes: 0,
                empties: 0,
            }),
            orphans: AtomicI64::new(0),
            keep: Mutex::new(None),
        })
    }

    /// The device of the shard's blocks; for whoever holds the shard or one of its blocks.
    pub(crate) fn device(&self) -> &CachesRef {
        &self.device
    }

    pub(super) fn used_at(&self) -> u64 {
        self.used_at.load(Ordering::Relaxed)
    }

    /// Asks whoever holds the shard for what only they can do.
    pub(super) fn mark(&self, marks: u64) {
        self.marks.fetch_or(marks, Ordering::AcqRel);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLOSED
    }

    /// Whether the calling thread is inside.
    pub(super) fn is_held(&self) -> bool {
        self.state.load(Ordering::Relaxed) == thread_token()
    }

    /// Enters, one compare-and-swap where nobody is inside; false where another thread is, or the
    /// shard is closed or about to be.
    pub(super) fn enter(&self) -> bool {
        let token = thread_token();
        if self.marks.load(Ordering::Relaxed) & CLOSE != 0 && !self.is_held() {
            return false;
        }
        loop {
            match self
                .state
                .compare_exchange(IDLE, token, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(state) if state == token => {
                    Access::mine(self).inner().depth += 1;
                    return true;
                }
                Err(state) if state != CLOSED && state & VISIT != 0 => std::thread::yield_now(),
                Err(_) => return false,
            }
        }
        self.used_at.store(self.device.epoch(), Ordering::Relaxed);
        let mut access = Access::mine(self);
        access.begin();
        if !self.returned.is_empty() || self.marks.load(Ordering::Relaxed) != 0 {
            self.device.give(access.settle());
        }
        true
    }

    /// Leaves the innermost entry, and the shard with the outermost.
    pub(super) fn exit(&self) {
        let mut access = Access::mine(self);
        if !access.end() {
            return;
        }
        let closing = self.marks.load(Ordering::Relaxed) & CLOSE != 0;
        self.device.give(access.settle());
        access.publish_exactly();
        self.state.store(IDLE, Ordering::Release);
        if closing {
            self.device.sweep_retired();
        }
    }

    /// The shard's inside, for a moment; `None` while another thread is inside or once it is
    /// closed. Waits for another visitor.
    pub(super) fn access(&self) -> Option<Access<'_>> {
        let token = thread_token();
        loop {
            match self.state.compare_exchange(
                IDLE,
                token | VISIT,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    return Some(Access {
                        shard: self,
                        visiting: true,
                    });
                }
                Err(state) if state == token => return Some(Access::mine(self)),
                Err(state) if state != CLOSED && state & VISIT != 0 => std::thread::yield_now(),
                Err(_) => return None,
            }
        }
    }

    /// Closes the shard for good, unless a thread is inside; answers what goes to the pool.
    pub(super) fn close(self: &Arc<Self>, caches: &Arc<Caches>) -> Option<List<Shard>> {
        if self.is_closed() {
            return Some(List::new());
        }
        if self.is_held() {
            return None;
        }
        let mut access = self.access()?;
        // Set before the list shows that it is closed: whoever sees that may be the last orphan.
        *self.keep.lock() = Some((Arc::clone(caches), Arc::clone(self)));
        for header in self.returned.close() {
            access.put(header);
        }
        access.inner().invalidate();
        let idle = access.drain();
        access.publish();
        let (blocks, bytes) = (
            self.counters.live_blocks.get(),
            self.counters.live_bytes.get(),
        );
        let orphans = blocks + access.inner().empties;
        caches.ledger.adopt_orphans(blocks, bytes);
        access.visiting = false;
        self.state.store(CLOSED, Ordering::Release);
        drop(self.settle_orphans(orphans as i64));
        Some(idle)
    }

    /// Counts orphans; with the last of them, answers what they kept alive.
    fn settle_orphans(&self, more: i64) -> Option<Keep> {
        let before = self.orphans.fetch_add(more, Ordering::AcqRel);
        if before + more == 0 {
            self.keep.lock().take()
        } else {
            None
        }
    }

    /// Takes a block back from a thread that does not hold the shard.
    fn take_back(&self, header: Box<Header<Self>>) -> Option<Keep> {
        let header = self.returned.push(header).err()?;
        // Closed: `keep` was set before, and lasts until this orphan is counted.
        if header.stamp != EMPTY_STAMP {
            self.device.ledger.drop_orphan(header.requested_bytes);
            self.device.memory().free([header.into_block()]);
        }
        self.settle_orphans(-1)
    }
}

// SAFETY: a shard outlives every header that names it: a named cache and its device keep their
// shards until these are closed, and a closed shard keeps itself, in `keep`, for its orphans.
unsafe impl Home for Shard {
    #[inline]
    unsafe fn give_back(home: NonNull<Self>, header: Box<Header<Self>>) {
        let last = {
            // SAFETY: `home` is the shard that the header was made with, and the header keeps it.
            let shard = unsafe { home.as_ref() };
            if shard.is_held() {
                return Access::mine(shard).put(header);
            }
            shard.take_back(header)
        };
        // Out here, where nothing borrows the shard, because this may be its end.
        drop(last);
    }
}

/// The right to a shard's inside: this thread is in its scope, or visits it.
pub(super) struct Access<'a> {
    shard: &'a Shard,
    visiting: bool,
}

impl<'a> Access<'a> {
    /// The access of a thread that is inside; the caller has just seen that it is.
    #[inline]
    fn mine(shard: &'a Shard) -> Self {
        debug_assert!(shard.is_held());
        Self {
            shard,
            visiting: false,
        }
    }

    #[inline]
    fn inner(&mut self) -> &'a mut Inner {
        // SAFETY: `state` names this thread, so no other has an `Access`; and no method here calls
        // anything that could make a second one while it borrows (see the module's invariant).
        unsafe { &mut *self.shard.inner.get() }
    }

    /// An outermost entry begins.
    fn begin(&mut self) {
        let inner = self.inner();
        inner.depth = 1;
        if let Some(identity) = &self.shard.identity {
            inner.policy = identity.policy();
        }
        self.shard.counters.entries.add(1);
    }

    /// An entry ends; true for the outermost one.
    fn end(&mut self) -> bool {
        let inner = self.inner();
        inner.depth -= 1;
        if inner.depth > 0 {
            return false;
        }
        if !self.shard.returned.is_empty() {
            self.collect();
        }
        inner.clock += 1;
        inner.exited_at = inner.clock;
        let counters = &self.shard.counters;
        counters.escaped_blocks.set(counters.live_blocks.get());
        true
    }

    /// Serves a request from the bins: the tightest fit in its own one.
    #[inline]
    pub(super) fn take(&mut self, size: Size, stream: StreamId) -> Option<Handle<Shard>> {
        let inner = self.inner();
        let header = inner.bins[size.class].take_best(|header| {
            if header.block.stream != stream {
                return None;
            }
            header.block.bytes().checked_sub(size.rounded_bytes)
        })?;
        let counters = &self.shard.counters;
        counters.hits.add(1);
        counters.cached_blocks.sub(1);
        counters.cached_bytes.sub(header.block.bytes());
        Some(self.hand_out(header, size.requested_bytes, inner.clock))
    }

    /// Hands out a block that came from below the cache, which from now on is its home.
    pub(super) fn adopt(&mut self, block: Block, requested_bytes: u64) -> Handle<Shard> {
        let clock = self.inner().clock;
        let counters = &self.shard.counters;
        counters.misses.add(1);
        counters.owned_bytes.add(block.bytes());
        self.hand_out(self.header(block), requested_bytes, clock)
    }

    /// Hands out a block that belongs to no cache.
    pub(super) fn adopt_uncached(&mut self, block: Block, requested_bytes: u64) -> Handle<Shard> {
        self.hand_out(self.header(block), requested_bytes, UNCACHED_STAMP)
    }

    /// Hands out a header without a block.
    pub(super) fn adopt_empty(&mut self) -> Handle<Shard> {
        self.inner().empties += 1;
        self.header(Block::EMPTY).hand_out(0, EMPTY_STAMP)
    }

    fn header(&self, block: Block) -> Box<Header<Shard>> {
        let class = floor_class(block.bytes());
        Header::new(block, class, NonNull::from(self.shard))
    }

    #[inline]
    fn hand_out(
        &self,
        header: Box<Header<Shard>>,
        requested_bytes: u64,
        stamp: u64,
    ) -> Handle<Shard> {
        let counters = &self.shard.counters;
        counters.live_blocks.add(1);
        let live_bytes = counters.live_bytes.get() + requested_bytes;
        counters.live_bytes.set(live_bytes);
        if live_bytes > counters.window_peak_bytes.get() {
            counters.window_peak_bytes.set(live_bytes);
        }
        header.hand_out(requested_bytes, stamp)
    }

    /// Takes a block back that nobody holds any more.
    #[inline]
    fn put(&mut self, header: Box<Header<Shard>>) {
        let inner = self.inner();
        if header.stamp != inner.clock {
            return self.put_aged(header);
        }
        let counters = &self.shard.counters;
        counters.live_blocks.sub(1);
        counters.live_bytes.sub(header.requested_bytes);
        self.put_idle(header);
    }

    #[inline]
    fn put_idle(&mut self, header: Box<Header<Shard>>) {
        let counters = &self.shard.counters;
        counters.cached_blocks.add(1);
        counters.cached_bytes.add(header.block.bytes());
        self.inner().bins[header.class].push(header);
    }

    /// The same for a block that saw an exit or an invalidation, or has no cache.
    #[cold]
    fn put_aged(&mut self, header: Box<Header<Shard>>) {
        let inner = self.inner();
        if header.stamp == EMPTY_STAMP {
            inner.empties -= 1;
            return;
        }
        let counters = &self.shard.counters;
        counters.live_blocks.sub(1);
        counters.live_bytes.sub(header.requested_bytes);
        if header.stamp < inner.exited_at {
            counters.escaped_blocks.sub(1);
        }
        if header.stamp < inner.invalidated_at {
            inner.stale.push(header);
        } else {
            self.put_idle(header);
        }
    }

    /// Brings home what was dropped elsewhere.
    pub(super) fn collect(&mut self) {
        for header in self.shard.returned.drain() {
            self.put(header);
        }
    }

    /// Does whatever is due, and answers the blocks that go to the pool for it.
    pub(super) fn settle(&mut self) -> List<Shard> {
        self.collect();
        let inner = self.inner();
        if self.shard.marks.load(Ordering::Relaxed) & (DRAIN | INVALIDATE) != 0 {
            let marks = self.shard.marks.fetch_and(CLOSE, Ordering::AcqRel);
            if marks & INVALIDATE != 0 {
                inner.invalidate();
            }
            return self.drain();
        }
        if inner.depth == 0 && inner.policy == Policy::Release {
            return self.drain();
        }
        self.disown()
    }

    /// Gives up every idle block, and what is live goes to the pool when it drops.
    pub(super) fn invalidate(&mut self) -> List<Shard> {
        self.collect();
        self.inner().invalidate();
        self.drain()
    }

    /// Gives up every idle block.
    pub(super) fn drain(&mut self) -> List<Shard> {
        let inner = self.inner();
        let counters = &self.shard.counters;
        if counters.cached_blocks.get() > 0 {
            for bin in &mut inner.bins {
                inner.stale.append(bin);
            }
            counters.cached_blocks.set(0);
            counters.cached_bytes.set(0);
        }
        self.disown()
    }

    fn disown(&mut self) -> List<Shard> {
        let stale = std::mem::replace(&mut self.inner().stale, List::new());
        if self.shard.identity.is_some() {
            let bytes: u64 = stale.iter().map(|header| header.block.bytes()).sum();
            self.shard.counters.owned_bytes.sub(bytes);
        }
        stale
    }

    /// Tells the device's ledger how much is live here, and how much was at the most.
    pub(super) fn publish(&mut self) {
        let inner = self.inner();
        let counters = &self.shard.counters;
        let (live, peak) = (counters.live_bytes.get(), counters.window_peak_bytes.get());
        self.shard
            .device
            .ledger
            .publish(inner.published_bytes, live, peak);
        inner.published_bytes = live;
        if peak > counters.peak_live_bytes.get() {
            counters.peak_live_bytes.set(peak);
        }
        counters.window_peak_bytes.set(live);
    }

    /// The same, once what was dropped outside of every cache no longer counts as live: only a new
    /// peak is worth the look.
    pub(super) fn publish_exactly(&mut self) {
        let published = self.inner().published_bytes;
        let peak = self.shard.counters.window_peak_bytes.get();
        if self.shard.device.ledger.would_raise(published, peak) {
            self.shard.device.settle_uncached();
        }
        self.publish();
    }

    /// Forgets the peaks so far.
    pub(super) fn reset_peaks(&mut self) {
        self.publish();
        let counters = &self.shard.counters;
        counters.peak_live_bytes.set(counters.live_bytes.get());
    }

    /// Asserts the invariants of the inside; for tests.
    #[cfg(test)]
    pub(super) fn check(&mut self) {
        let inner = self.inner();
        let counters = &self.shard.counters;
        let (mut blocks, mut bytes) = (0, 0);
        for (class, bin) in inner.bins.iter().enumerate() {
            for header in bin.iter() {
                assert_eq!(
                    floor_class(header.block.bytes()),
                    class,
                    "a bin holds blocks of its class"
                );
                blocks += 1;
                bytes += header.block.bytes();
            }
        }
        assert_eq!(
            counters.cached_blocks.get(),
            blocks,
            "the bins hold the cached blocks"
        );
        assert_eq!(counters.cached_bytes.get(), bytes, "and their bytes");
        assert!(counters.escaped_blocks.get() <= counters.live_blocks.get());
        assert!(inner.exited_at <= inner.clock && inner.invalidated_at <= inner.clock);
        assert_eq!(
            inner.depth > 0,
            !self.visiting,
            "a visitor finds nobody inside"
        );
    }
}

impl Drop for Access<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.visiting {
            self.shard.state.store(IDLE, Ordering::Release);
        }
    }
}

impl Inner {
    fn invalidate(&mut self) {
        self.clock += 1;
        self.invalidated_at = self.clock;
    }
}

/// A shard as its thread keeps it: counted once for the thread, so that entering counts nothing.
pub(super) type LocalShard = Rc<Arc<Shard>>;

thread_local! {
    /// The shard of the innermost scope of this thread, or null; one count of it, taken by
    /// `Rc::into_raw`. Without a destructor, so that it can be read at any time; the scope stack
    /// clears it when the thread ends.
    static BOUND: Cell<*const Arc<Shard>> = const { Cell::new(ptr::null()) };
}

/// Binds a shard for the requests of this thread, instead of the one before.
pub(super) fn bind(shard: Option<&LocalShard>) {
    let pointer = shard.map_or(ptr::null(), |shard| Rc::into_raw(Rc::clone(shard)));
    let before = BOUND.replace(pointer);
    if !before.is_null() {
        // SAFETY: a pointer in `BOUND` came from `Rc::into_raw` on this thread, and was taken out.
        drop(unsafe { Rc::from_raw(before) });
    }
}

/// Serves a request from the bound shard, if it is one of this device: the hit.
#[inline]
pub(super) fn take_bound(caches: &Caches, size: Size, stream: StreamId) -> Option<Handle<Shard>> {
    let bound = BOUND.get();
    // SAFETY: null, or what `bind` counted on this thread; nothing below binds another.
    let shard = unsafe { bound.as_ref() }?;
    if !ptr::eq(Arc::as_ptr(&shard.device.0), caches) {
        return None;
    }
    Access::mine(shard).take(size, stream)
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// A handle on the caches that is not counted, for their own shards.
pub(super) fn uncounted(caches: &std::sync::Weak<Caches>) -> ManuallyDrop<CachesRef> {
    // SAFETY: the pointer is that of a living `Arc`, since somebody calls through it; the count that
    // `from_raw` assumes is never given back, because nobody drops a `ManuallyDrop`.
    ManuallyDrop::new(CachesRef(unsafe { Arc::from_raw(caches.as_ptr()) }))
}

/// Overwrites a block that was just handed out.
pub(super) fn fill(backend: &dyn Backend, handle: &Handle<Shard>, byte: u8) -> Result<()> {
    let block = &handle.block;
    if block.bytes() == 0 {
        return Ok(());
    }
    // SAFETY: the block lies in reserved memory, and its only handle has not left this crate yet.
    unsafe { backend.fill(block.stream, block.address, block.bytes(), byte) }
}

/// What a block holds; for tests.
#[cfg(test)]
pub(super) fn read(backend: &dyn Backend, handle: &Handle<Shard>) -> Vec<u8> {
    let mut bytes = vec![0; handle.requested_bytes as usize];
    if !bytes.is_empty() {
        // SAFETY: the handle keeps the block, and its holder wrote all of it before.
        unsafe {
            backend
                .download(handle.block.stream, handle.block.address, &mut bytes)
                .unwrap()
        };
    }
    bytes
}
