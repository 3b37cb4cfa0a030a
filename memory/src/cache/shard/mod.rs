//! A shard: what one thread has of a named cache. Its idle blocks, and the way back for those
//! handed out.
//!
//! Who may touch what:
//! - `state` says who holds the shard: nobody, a thread inside its scope, a visitor for a moment,
//!   or nobody ever again. Only the holder reaches `inside` and writes `counters`, through
//!   [`Guard`] or, for the current shard of its thread, at once; anyone may read the counters.
//! - `bound_thread` says whom it is kept for; nothing depends on it but which shard a thread
//!   enters.
//! - A block dropped by the holding thread goes straight to its free list; dropped anywhere else,
//!   or while the shard is not held, it goes to `remote`.
//! - A closed shard is empty. Each block of it that is still out is an orphan: it goes down to the
//!   memory when it drops, and the last one lets go of what kept shard and device alive.
//!
//! Architecture invariant: this folder is about who and when; what happens to the blocks is the
//! [`allocator`](super::allocator)'s.

mod binding;
mod guard;
mod observe;
mod orphans;
mod remote;
mod signals;

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::allocator::Allocator;
use super::arena::DetachedArenas;
use super::policy::Hot;
use super::record::{AllocationRecord, FinishedRecord, Recorded};
use super::settings::CacheSettings;
use super::stats::Counters;
use super::totals::DeviceTotals;
use crate::device::Backend;
use crate::device::StreamId;
use crate::error::Result;
use crate::memory::DeviceMemory;
use crate::memory::header::{Handle, Header, Home, List};
#[cfg(all(test, not(loom)))]
use crate::memory::order::Streams;
use crate::sync::barrier::light_barrier;
use crate::sync::{
    Arc, AtomicI64, AtomicU64, Mutex, Ordering, RaceDetector, UnsafeCell, Weak, plain,
    thread_token, yield_now,
};

pub(super) use guard::Guard;

pub(super) use remote::RemoteFreeList;
use signals::ANY_SIGNAL;
pub(super) use signals::{CLOSE, DRAIN, INVALIDATE, signal_each};

/// `state`: nobody holds the shard.
const IDLE: u64 = 0;
/// `state`: set beside the token of a visitor, who is not inside a scope and soon gone.
const VISIT: u64 = 1 << 63;
/// `state`: nobody will hold the shard again.
const CLOSED: u64 = u64::MAX;

/// What a shard needs of its device. Implemented above, so that a shard names neither the caches
/// nor the scopes.
pub(crate) trait Owner: Sized + Send + Sync + 'static {
    /// Keeps the device's caches alive.
    type KeepAlive: Send;

    fn memory(&self) -> &DeviceMemory;

    fn totals(&self) -> &DeviceTotals;

    /// Gives blocks back to the pool, and (`release`) to the device what thereby falls idle there.
    fn give_back(&self, blocks: List<Shard<Self>>, release: bool);

    /// Closes what is left of removed caches, as far as nobody is inside.
    fn close_removed(&self);

    /// Whether that is the current shard of the calling thread.
    fn is_current(shard: NonNull<Shard<Self>>) -> bool;

    /// [`free_slowly`], compiled once.
    ///
    /// # Safety
    ///
    /// As for [`Home::give_back`].
    unsafe fn free_slowly(home: NonNull<Shard<Self>>, header: Box<Header<Shard<Self>>>);
}

/// What one thread has of a cache.
pub(crate) struct Shard<D: Owner> {
    state: AtomicU64,
    signals: AtomicU64,
    /// Which thread the shard is kept for.
    bound_thread: AtomicU64,
    pub(super) remote: RemoteFreeList<Self>,
    pub(super) counters: Counters,
    /// The device's miss epoch at the last entry: what rung 3 orders by.
    last_used: plain::AtomicU64,
    /// Whose shard this is; `None` for the blocks of a device that belong to no cache.
    pub(super) settings: Option<Arc<CacheSettings>>,
    /// The device, uncounted, because idle memory must not keep it alive: `keep` does, once the
    /// shard is closed, and until then whoever holds the shard holds the device as well.
    device: ManuallyDrop<D>,
    inside: UnsafeCell<Inside<D>>,
    /// After closing: blocks still out. Before: 0 less the orphans that overtook the closing.
    orphans: AtomicI64,
    keep: Mutex<Option<Keep<D>>>,
    /// Whoever takes `keep` out comes after all others that used the shard as orphans.
    end: RaceDetector,
    /// The arenas under the suballocations among the orphans.
    orphaned: Mutex<DetachedArenas<Self>>,
    /// Of the entry that was recorded last.
    record: Mutex<FinishedRecord>,
    /// Whether every request and free takes the slow path, so that the device's recorder hears of
    /// all of them.
    follows_recording: plain::AtomicBool,
}

/// What only the holder reaches.
pub(super) struct Inside<D: Owner> {
    pub(super) allocator: Allocator<Shard<D>>,
    /// The `live_bytes` that the device's totals know of.
    published_bytes: u64,
}

// SAFETY: `inside` is reached only by the thread that `state` names, as a holder or a visitor;
// everything else is `Sync` by itself.
unsafe impl<D: Owner> Sync for Shard<D> {}
// SAFETY: nothing in a shard belongs to the thread that made it.
unsafe impl<D: Owner> Send for Shard<D> {}

/// What the orphans of a closed shard keep alive together.
type Keep<D> = (<D as Owner>::KeepAlive, Arc<Shard<D>>);

impl<D: Owner> Shard<D> {
    /// A shard of the cache `settings`, or of no cache. On a device that `fills` every block, no
    /// request is a hit.
    pub(super) fn new(
        device: ManuallyDrop<D>,
        settings: Option<Arc<CacheSettings>>,
        fills: bool,
    ) -> Arc<Self> {
        let is_uncached = settings.is_none();
        Arc::new_cyclic(|this: &Weak<Self>| {
            // Where the shard will stand; headers that are made later name it.
            let home = NonNull::new(this.as_ptr().cast_mut()).expect("not null");
            let inside = Inside {
                allocator: Allocator::new(home, is_uncached, fills),
                published_bytes: 0,
            };
            Self {
                state: AtomicU64::new(IDLE),
                signals: AtomicU64::new(signals::no_signals()),
                bound_thread: AtomicU64::new(binding::NO_THREAD),
                remote: RemoteFreeList::new(),
                counters: Counters::default(),
                last_used: plain::AtomicU64::new(0),
                settings,
                device,
                inside: UnsafeCell::new(inside),
                orphans: AtomicI64::new(0),
                keep: Mutex::new(None),
                end: RaceDetector::new(),
                orphaned: Mutex::default(),
                record: Mutex::default(),
                follows_recording: plain::AtomicBool::new(false),
            }
        })
    }

    /// The device of the shard's blocks; for whoever holds the shard or one of its blocks.
    pub(crate) fn device(&self) -> &D {
        &self.device
    }

    /// Whether this is a shard of that very cache.
    pub(super) fn is_of(&self, settings: &Arc<CacheSettings>) -> bool {
        self.settings
            .as_ref()
            .is_some_and(|own| Arc::ptr_eq(own, settings))
    }

    pub(super) fn last_used(&self) -> u64 {
        self.last_used.load(Ordering::Relaxed)
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
        if self.signals.load(Ordering::Relaxed) & CLOSE != 0 {
            return false;
        }
        let free = self
            .state
            .compare_exchange(IDLE, token, Ordering::Acquire, Ordering::Relaxed);
        match free {
            Ok(_) => self.arrive(),
            Err(state) if state == token => self.own().begin_nested(),
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
        self.last_used
            .store(self.device.totals().miss_epoch(), Ordering::Relaxed);
        self.own().begin();
        if !self.remote.is_empty() || self.signals.load(Ordering::Relaxed) & ANY_SIGNAL != 0 {
            self.drain_at_entry();
        }
    }

    #[cold]
    #[inline(never)]
    fn drain_at_entry(&self) {
        let idle = self.own().drain_deferred();
        self.device.give_back(idle, false);
    }

    /// Leaves the innermost entry, and the shard with the outermost.
    #[inline]
    pub(super) fn exit(&self) {
        let mut guard = self.own();
        if !guard.end_nested() {
            return;
        }
        let signals = self.signals.load(Ordering::Relaxed);
        if signals & ANY_SIGNAL == 0 && self.remote.is_empty() && guard.is_quiet() {
            guard.end();
            guard.begin_window();
            drop(guard);
        } else {
            drop(guard);
            self.drain_at_exit(signals);
        }
        self.state.store(IDLE, Ordering::Release);
        light_barrier();
        let late = self.signals.load(Ordering::Relaxed);
        if late != 0 {
            self.follow_late_signals(late);
        }
    }

    #[inline(never)]
    fn drain_at_exit(&self, signals: u64) {
        let mut guard = self.own();
        guard.drain_remote();
        guard.end();
        if self.counters.count_growth() {
            self.warn_of_growth();
        }
        let idle = guard.drain_deferred();
        guard.publish();
        drop(guard);
        self.give_as_signalled(idle, signals);
    }

    /// The shard's inside, for a moment; `None` while another thread is inside or once it is
    /// closed. Waits for another visitor.
    pub(super) fn guard(&self) -> Option<Guard<'_, D>> {
        let token = thread_token();
        if self.is_held() {
            return Some(self.own());
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

    /// The hit, if `P` serves it.
    ///
    /// # Safety
    ///
    /// The calling thread is inside.
    #[inline]
    pub(super) unsafe fn allocate<P: Hot<Self>>(
        &self,
        bytes: u64,
        stream: StreamId,
    ) -> Option<Handle<Self>> {
        // SAFETY: nobody else has a `Guard` (the caller's promise), and nothing below makes one.
        let inside = unsafe { &mut *self.inside.get() };
        inside
            .allocator
            .allocate::<P>(&self.counters, bytes, stream)
    }

    /// The guard of a thread that is inside; the caller has just seen that it is.
    #[inline]
    pub(super) fn own(&self) -> Guard<'_, D> {
        debug_assert!(self.is_held());
        self.held(false)
    }

    #[inline]
    fn held(&self, visiting: bool) -> Guard<'_, D> {
        // SAFETY: `state` names this thread, so no other has a `Guard`. This one has no second:
        // each lives only while `Guard`'s own methods run, and those come back to no shard.
        Guard::new(self, unsafe { &mut *self.inside.get() }, visiting)
    }

    pub(super) fn end_visit(&self) {
        self.state.store(IDLE, Ordering::Release);
    }

    /// Keeps what was recorded of an entry that ends.
    #[cold]
    pub(super) fn keep_record(&self, recorded: &[Recorded]) {
        *self.record.lock() = FinishedRecord::new(recorded);
    }

    /// Where entries are recorded: what is live of the present one, and what escaped from the last.
    pub(super) fn live_records(&self) -> Vec<AllocationRecord> {
        let mut records = self.record().into_records();
        if let Some(guard) = self.guard() {
            records.extend(guard.recorded());
        }
        records.retain(|record| record.freed_at.is_none());
        records
    }

    /// What was recorded of the last entry that was.
    pub(super) fn record(&self) -> FinishedRecord {
        self.record.lock().clone()
    }
}

// SAFETY: a shard outlives every header that names it: a named cache and its device keep their
// shards until these are closed, and a closed shard keeps itself, in `keep`, for its orphans.
unsafe impl<D: Owner> Home for Shard<D> {
    #[inline]
    unsafe fn give_back(home: NonNull<Self>, header: Box<Header<Self>>) {
        let slow = if D::is_current(home) {
            // SAFETY: `home` is the shard that the header was made with, and the header keeps it.
            let shard = unsafe { home.as_ref() };
            // SAFETY: this thread is inside of the shard that is current, so nobody else has a
            // `Guard`, and nothing below makes one.
            let inside = unsafe { &mut *shard.inside.get() };
            inside.allocator.free(&shard.counters, header)
        } else {
            Some(header)
        };
        if let Some(header) = slow {
            // SAFETY: the caller's promise.
            unsafe { D::free_slowly(home, header) };
        }
    }
}

/// Gives any block back, on any thread.
///
/// # Safety
///
/// As for [`Home::give_back`].
pub(super) unsafe fn free_slowly<D: Owner>(home: NonNull<Shard<D>>, header: Box<Header<Shard<D>>>) {
    let last = {
        // SAFETY: `home` is the shard that the header was made with, and the header keeps it.
        let shard = unsafe { home.as_ref() };
        shard.record_free(&header);
        if shard.is_held() {
            return shard.own().free(header);
        }
        shard.take_back(header)
    };
    // Out here, where nothing borrows the shard, because this may be its end.
    drop(last);
}

impl<D: Owner> fmt::Debug for Shard<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// A handle that is not counted, for what a device owns itself.
pub(super) fn uncounted<T>(this: &Weak<T>) -> ManuallyDrop<Arc<T>> {
    // SAFETY: the pointer is that of a living `Arc`, since somebody calls through it; the count
    // that `from_raw` assumes is never given back, because nobody drops a `ManuallyDrop`.
    ManuallyDrop::new(unsafe { Arc::from_raw(this.as_ptr()) })
}

/// Overwrites a block that was just handed out.
pub(super) fn fill<H: Home>(backend: &dyn Backend, handle: &Handle<H>, byte: u8) -> Result<()> {
    let block = &handle.block;
    if block.bytes() == 0 {
        return Ok(());
    }
    // SAFETY: the block lies in reserved memory, and its only handle has not left this crate yet.
    unsafe { backend.fill(block.stream, block.address, block.bytes(), &[byte]) }
}

/// What a block holds; for tests.
#[cfg(all(test, not(loom)))]
pub(super) fn read<H: Home>(backend: &dyn Backend, handle: &Handle<H>) -> Vec<u8> {
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
pub(super) fn write_on<H: Home>(
    streams: Streams<'_>,
    handle: &Handle<H>,
    stream: StreamId,
    byte: u8,
) -> Result<()> {
    handle.write_on(streams, stream.into())?;
    let (address, bytes) = (handle.block.address, handle.requested_bytes);
    // SAFETY: the block lies in reserved memory, and the stream was ordered after its other users.
    unsafe { streams.backend.fill(stream, address, bytes, &[byte]) }
}

/// Lets a stream of a host that delays its work look, when it comes to that, whether a block holds
/// `byte` throughout; for tests.
#[cfg(all(test, not(loom)))]
pub(super) fn expect_on<H: Home>(
    streams: Streams<'_>,
    handle: &Handle<H>,
    stream: StreamId,
    byte: u8,
) -> Result<()> {
    handle.read_on(streams, stream.into())?;
    let (address, bytes) = (handle.block.address, handle.requested_bytes as usize);
    let delayed = streams.backend.delayed().expect("made so");
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
