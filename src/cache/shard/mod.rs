//! One thread's part of a named cache: its idle blocks, and the way back for those handed out.
//!
//! Who may touch what:
//! - `state` says who holds the shard: nobody, a thread inside its scope, a visitor for a moment,
//!   or nobody ever again. Only the holder reaches `inner` and writes `counters`, through
//!   [`Access`] or, for the shard that is bound on its thread, at once; anyone may read the counters.
//! - `lessee` says whom it is kept for; nothing depends on it but which shard a thread enters.
//! - A block dropped by the holding thread goes straight to its bin; dropped anywhere else, or
//!   while the shard is not held, it goes to `returned`.
//! - A closed shard is empty. Each block of it that is still out is an orphan: it goes down to the
//!   memory when it drops, and the last one lets go of what kept shard and device alive.
//!
//! Architecture invariant: this file is about who and when; what happens to the blocks is plain
//! bookkeeping and stands in [`access`](super::access).

mod asked;
mod bound;
mod lease;
mod orphans;

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::Caches;
use super::access::Access;
use super::chunk::SetAside;
use super::handle::CachesRef;
use super::identity::Identity;
use super::inner::Inner;
use super::record::{FinishedRecord, Noted};
use super::remote::Remote;
use super::stats::Counters;
use crate::device::Backend;
#[cfg(all(test, not(loom)))]
use crate::device::StreamId;
use crate::error::Result;
use crate::memory::header::{Handle, Header, Home, List};
use crate::sync::barrier::light_barrier;
use crate::sync::{
    Arc, AtomicI64, AtomicU64, Mutex, Ordering, RaceDetector, UnsafeCell, plain, thread_token,
    yield_now,
};

use asked::ASKED;
pub(super) use asked::{CLOSE, DRAIN, INVALIDATE, ask_each};
pub(super) use bound::{
    LocalShard, bind, bind_stream, bound_shard, publish_bound, take_at_once, take_bound_slowly,
    take_bump, take_planned, with_bound,
};
pub(super) use lease::Leases;

/// `state`: nobody holds the shard.
const IDLE: u64 = 0;
/// `state`: set beside the token of a visitor, who is not inside a scope and soon gone.
const VISIT: u64 = 1 << 63;
/// `state`: nobody will hold the shard again.
const CLOSED: u64 = u64::MAX;

/// A thread's part of a cache.
pub(crate) struct Shard {
    state: AtomicU64,
    marks: AtomicU64,
    /// Which thread the shard is kept for.
    lessee: AtomicU64,
    returned: Remote<Shard>,
    pub(super) counters: Counters,
    /// The device's epoch at the last entry: what rung 3 orders by.
    used_at: plain::AtomicU64,
    /// Whose shard this is; `None` for the blocks of a device that belong to no cache.
    pub(super) identity: Option<Arc<Identity>>,
    /// The device, uncounted, because idle memory must not keep it alive: `keep` does, once the
    /// shard is closed, and until then whoever holds the shard holds the device as well.
    device: ManuallyDrop<CachesRef>,
    inner: UnsafeCell<Inner>,
    /// After closing: blocks still out. Before: 0 less the orphans that overtook the closing.
    orphans: AtomicI64,
    keep: Mutex<Option<Keep>>,
    /// Whoever takes `keep` out comes after all others that used the shard as orphans.
    end: RaceDetector,
    /// The chunks under the parts among the orphans.
    orphaned: Mutex<SetAside>,
    /// Of the entry that was recorded last.
    record: Mutex<FinishedRecord>,
}

// SAFETY: `inner` is reached only by the thread that `state` names, as a holder or a visitor;
// everything else is `Sync` by itself.
unsafe impl Sync for Shard {}
// SAFETY: nothing in a shard belongs to the thread that made it.
unsafe impl Send for Shard {}

/// What the orphans of a closed shard keep alive together.
type Keep = (Arc<Caches>, Arc<Shard>);

impl Shard {
    /// A shard of the cache `identity`, or of no cache.
    pub(super) fn new(caches: &Caches, identity: Option<Arc<Identity>>) -> Arc<Self> {
        let uncached = identity.is_none();
        Arc::new(Self {
            state: AtomicU64::new(IDLE),
            marks: AtomicU64::new(asked::unmarked()),
            lessee: AtomicU64::new(lease::NOBODY),
            returned: Remote::new(),
            counters: Counters::default(),
            used_at: plain::AtomicU64::new(0),
            identity,
            device: caches.uncounted(),
            inner: UnsafeCell::new(Inner::new(uncached, caches.config.fill_recycled.is_some())),
            orphans: AtomicI64::new(0),
            keep: Mutex::new(None),
            end: RaceDetector::new(),
            orphaned: Mutex::default(),
            record: Mutex::default(),
        })
    }

    /// The device of the shard's blocks; for whoever holds the shard or one of its blocks.
    pub(crate) fn device(&self) -> &CachesRef {
        &self.device
    }

    /// Whether this is a shard of that very cache.
    pub(super) fn is_of(&self, identity: &Arc<Identity>) -> bool {
        self.identity
            .as_ref()
            .is_some_and(|own| Arc::ptr_eq(own, identity))
    }

    pub(super) fn used_at(&self) -> u64 {
        self.used_at.load(Ordering::Relaxed)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLOSED
    }

    /// Whether the calling thread is inside.
    #[inline]
    pub(super) fn is_held(&self) -> bool {
        self.state.load(Ordering::Relaxed) == thread_token()
    }

    /// Enters, one compare-and-swap where nobody is inside; false where another thread is, or the
    /// shard is closed or about to be.
    #[inline]
    pub(super) fn enter(&self) -> bool {
        let token = thread_token();
        if self.marks.load(Ordering::Relaxed) & CLOSE != 0 {
            return false;
        }
        let free = self
            .state
            .compare_exchange(IDLE, token, Ordering::Acquire, Ordering::Relaxed);
        match free {
            Ok(_) => self.arrive(),
            Err(state) if state == token => self.mine().begin_again(),
            Err(_) => return self.enter_after_visit(token),
        }
        true
    }

    /// Enters once a visitor is gone; another thread's scope may last, and is not waited for.
    #[cold]
    #[inline(never)]
    fn enter_after_visit(&self, token: u64) -> bool {
        while let Err(state) =
            self.state
                .compare_exchange(IDLE, token, Ordering::Acquire, Ordering::Relaxed)
        {
            if state == CLOSED || state & VISIT == 0 {
                return false;
            }
            yield_now();
        }
        self.arrive();
        true
    }

    /// An outermost entry begins, now that the state names this thread.
    #[inline]
    fn arrive(&self) {
        self.used_at.store(self.device.epoch(), Ordering::Relaxed);
        self.mine().begin();
        if !self.returned.is_empty() || self.marks.load(Ordering::Relaxed) & ASKED != 0 {
            self.settle_at_entry();
        }
    }

    #[cold]
    #[inline(never)]
    fn settle_at_entry(&self) {
        let idle = self.mine().settle();
        self.device.give(idle);
    }

    /// Leaves the innermost entry, and the shard with the outermost.
    #[inline]
    pub(super) fn exit(&self) {
        let mut access = self.mine();
        if !access.end() {
            return;
        }
        let marks = self.marks.load(Ordering::Relaxed);
        if marks & ASKED == 0 && self.returned.is_empty() && access.is_quiet() {
            access.end_turn();
            access.begin_window();
            drop(access);
        } else {
            drop(access);
            self.settle_at_exit(marks);
        }
        self.state.store(IDLE, Ordering::Release);
        light_barrier();
        let late = self.marks.load(Ordering::Relaxed);
        if late != 0 {
            self.follow_late_marks(late);
        }
    }

    #[inline(never)]
    fn settle_at_exit(&self, marks: u64) {
        let mut access = self.mine();
        access.collect();
        access.end_turn();
        let idle = access.settle();
        access.publish();
        drop(access);
        self.give_as_asked(idle, marks);
    }

    /// The shard's inside, for a moment; `None` while another thread is inside or once it is
    /// closed. Waits for another visitor.
    pub(super) fn access(&self) -> Option<Access<'_>> {
        let token = thread_token();
        if self.is_held() {
            return Some(self.mine());
        }
        loop {
            match self.state.compare_exchange(
                IDLE,
                token | VISIT,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(self.held(true)),
                Err(state) if state != CLOSED && state & VISIT != 0 => yield_now(),
                Err(_) => return None,
            }
        }
    }

    /// The access of a thread that is inside; the caller has just seen that it is.
    #[inline]
    fn mine(&self) -> Access<'_> {
        debug_assert!(self.is_held());
        self.held(false)
    }

    #[inline]
    fn held(&self, visiting: bool) -> Access<'_> {
        // SAFETY: `state` names this thread, so no other has an `Access`. This one has no second:
        // each lives only while `Access`'s own methods run, and those come back to no shard.
        Access::new(self, unsafe { &mut *self.inner.get() }, visiting)
    }

    pub(super) fn end_visit(&self) {
        self.state.store(IDLE, Ordering::Release);
    }

    /// Keeps what was noted of an entry that ends.
    #[cold]
    pub(super) fn keep_record(&self, noted: &[Noted]) {
        *self.record.lock() = FinishedRecord::new(noted);
    }

    /// What was noted of the last entry that was.
    pub(super) fn record(&self) -> FinishedRecord {
        self.record.lock().clone()
    }

    /// What was dropped elsewhere; for the holder.
    #[inline]
    pub(super) fn take_returned(&self) -> List<Self> {
        self.returned.drain()
    }
}

// SAFETY: a shard outlives every header that names it: a named cache and its device keep their
// shards until these are closed, and a closed shard keeps itself, in `keep`, for its orphans.
unsafe impl Home for Shard {
    #[inline]
    unsafe fn give_back(home: NonNull<Self>, header: Box<Header<Self>>) {
        if bound::is_bound(home) {
            // SAFETY: `home` is the shard that the header was made with, and the header keeps it.
            let shard = unsafe { home.as_ref() };
            // SAFETY: this thread is inside of the shard that is bound, so nobody else has an
            // `Access`, and nothing below makes one.
            let inner = unsafe { &mut *shard.inner.get() };
            return inner.put(&shard.counters, header);
        }
        give_back_elsewhere(home, header);
    }
}

/// The same where the home is not the innermost scope's shard: with what `give_back` is called with.
#[inline(never)]
fn give_back_elsewhere(home: NonNull<Shard>, header: Box<Header<Shard>>) {
    let last = {
        // SAFETY: as in `give_back`.
        let shard = unsafe { home.as_ref() };
        if shard.is_held() {
            return shard.mine().put(header);
        }
        shard.take_back(header)
    };
    // Out here, where nothing borrows the shard, because this may be its end.
    drop(last);
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
    unsafe { backend.fill(block.stream, block.address, block.bytes(), &[byte]) }
}

/// What a block holds; for tests.
#[cfg(all(test, not(loom)))]
pub(super) fn read(backend: &dyn Backend, handle: &Handle<Shard>) -> Vec<u8> {
    let mut bytes = vec![0; handle.requested_bytes as usize];
    if !bytes.is_empty() {
        // SAFETY: the handle keeps the block, and its holder wrote all of it before.
        unsafe {
            backend
                .download(handle.block.stream, handle.block.address, &mut bytes)
                .unwrap();
        };
    }
    bytes
}

/// Lets a stream overwrite a block, after whoever uses it; for tests.
#[cfg(all(test, not(loom)))]
pub(super) fn write_on(
    backend: &dyn Backend,
    handle: &Handle<Shard>,
    stream: StreamId,
    byte: u8,
) -> Result<()> {
    handle.write_on(backend, stream)?;
    let (address, bytes) = (handle.block.address, handle.requested_bytes);
    // SAFETY: the block lies in reserved memory, and the stream was ordered after its other users.
    unsafe { backend.fill(stream, address, bytes, &[byte]) }
}

/// Lets a stream of a host that delays its work look, when it comes to that, whether a block holds
/// `byte` throughout; for tests.
#[cfg(all(test, not(loom)))]
pub(super) fn expect_on(
    backend: &dyn Backend,
    handle: &Handle<Shard>,
    stream: StreamId,
    byte: u8,
) -> Result<()> {
    handle.read_on(backend, stream)?;
    let (address, bytes) = (handle.block.address, handle.requested_bytes as usize);
    let delayed = backend.delayed().expect("made so");
    delayed.push(stream, move || {
        let first = crate::device::host::host_pointer(address);
        // SAFETY: segments are released only once the streams are done that use their blocks, and
        // what the block was last given to was written throughout, on a stream that this follows.
        let found = unsafe { std::slice::from_raw_parts(first, bytes) };
        assert!(
            found.iter().all(|other| *other == byte),
            "read what others wrote"
        );
    });
    Ok(())
}
