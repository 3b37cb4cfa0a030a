//! A shard: one thread's share of a named cache. It holds idle blocks, and is the home of the
//! blocks that it handed out.
//!
//! Access rules:
//! - `state` names the holder of the shard: nobody, a thread inside its scope, a visitor, or nobody
//!   ever again. Only the holder accesses `allocator` and writes `counters`: through [`Guard`], or
//!   directly for the current shard of its thread. Any thread may read the counters.
//! - `bound_thread` names the thread that the shard is reserved for. It determines only which shard
//!   a thread enters.
//! - A block that the holding thread drops goes straight to the shard's free list. If another
//!   thread drops it, or the shard is not held, the block goes to `remote`.
//! - A closed shard is empty. Each of its blocks that is still handed out is an orphan. When an
//!   orphan drops, it returns to the pool. The last orphan drops the references that keep shard and
//!   device alive.
//!
//! Architecture invariant: this folder decides which thread accesses a shard, and when. The
//! [`allocator`](super::allocator) decides what happens to the blocks.

mod binding;
mod caches;
mod current;
mod guard;
mod handle;
mod named;
mod observe;
mod orphans;
mod remote;
mod shared;
mod signals;
mod skipped;

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::allocator::{Allocator, AllocatorState, FastPath};
use super::arena::DetachedArenas;
use super::record::{AllocationRecord, FinishedRecord};
use super::settings::CacheSettings;
use super::stats::Counters;
use crate::device::Backend;
#[cfg(all(test, not(loom)))]
use crate::device::StreamId;
use crate::error::Result;
use crate::memory::header::Home;
#[cfg(all(test, not(loom)))]
use crate::memory::order::Streams;
use crate::sync::barrier::light_barrier;
use crate::sync::{
    Arc, AtomicI64, AtomicU64, Mutex, Ordering, RaceDetector, UnsafeCell, Weak, plain,
    thread_token, yield_now,
};

pub(super) use caches::LocalShard;
pub(crate) use caches::{Caches, CachesConfig, CachesRef, WeakCaches, is_planned};
pub(super) use current::{
    current_has_waiter, current_shard, hide_current, publish_current, refill_current,
    reveal_current, set_current, set_current_stream, with_current,
};
pub(super) use guard::Guard;
pub(crate) use handle::{BlockHandle, Pinned};
pub(super) use named::NamedCache;
pub(super) use remote::RemoteFreeList;
pub(super) use shared::free_by_visit;
use signals::ANY_SIGNAL;
pub(super) use signals::{CLOSE, INVALIDATE, signal_each};
use skipped::Skips;

/// The value of `state` while no thread holds the shard.
const IDLE: u64 = 0;
/// The bit of `state` that a visitor sets. A visitor is not inside a scope and leaves soon.
const VISIT: u64 = 1 << 63;
/// The value of `state` once no thread will hold the shard again.
const CLOSED: u64 = u64::MAX;

/// One thread's share of a cache.
pub(crate) struct Shard {
    state: AtomicU64,
    signals: AtomicU64,
    /// The thread that the shard is reserved for, and its name, for reports.
    bound_thread: AtomicU64,
    thread_name: plain::Mutex<String>,
    pub(super) remote: RemoteFreeList,
    pub(super) counters: Counters,
    fast_path: FastPath,
    /// The device's miss epoch at the last entry; rung 3 sorts shards by it.
    last_used: plain::AtomicU64,
    skips: Skips,
    /// The cache of this shard; `None` for the blocks of a device that belong to no cache.
    pub(super) settings: Option<Arc<CacheSettings>>,
    /// The device, uncounted, because idle memory must not keep it alive. Once the shard is closed,
    /// `kept_alive` keeps the device alive. Until then, every holder of the shard also holds the
    /// device.
    device: ManuallyDrop<CachesRef>,
    /// The state of the allocator, which only the holder accesses.
    allocator: UnsafeCell<AllocatorState>,
    /// The number of orphans that are still live. Before the closing has counted the orphans, minus
    /// the number of orphans that have dropped.
    orphans: AtomicI64,
    kept_alive: Mutex<Option<OrphanReferences>>,
    /// The check that a thread takes `kept_alive` out only after all other uses of the shard by
    /// orphans.
    end: RaceDetector,
    /// The arenas that contain the suballocations among the orphans.
    orphaned: Mutex<DetachedArenas>,
    /// The record of the entry that was recorded last.
    record: Mutex<Option<Arc<FinishedRecord>>>,
    /// True if every request and free takes the slow path, so that the device's recorder records
    /// all of them.
    follows_recording: plain::AtomicBool,
}

// SAFETY: only the thread that `state` names, as a holder or a visitor, accesses `allocator`. The
// other fields are `Sync` themselves.
unsafe impl Sync for Shard {}
// SAFETY: nothing in a shard belongs to the thread that made it.
unsafe impl Send for Shard {}

/// The references that the orphans of a closed shard keep alive together.
type OrphanReferences = (Arc<Caches>, Arc<Shard>);

impl Shard {
    /// Makes a shard of the cache `settings`, or of no cache. If the device `fills` every block, no
    /// request is a hit.
    pub(super) fn new(
        device: ManuallyDrop<CachesRef>,
        settings: Option<Arc<CacheSettings>>,
        fills: bool,
    ) -> Arc<Self> {
        let is_uncached = settings.is_none();
        Arc::new_cyclic(|this: &Weak<Self>| {
            // The address that the shard will have. Headers that are made later store this address.
            let home = NonNull::new(this.as_ptr().cast_mut()).expect("not null");
            // SAFETY: a named cache and its device keep their shards until these are closed. A
            // closed shard keeps itself, in `kept_alive`, for its orphans.
            let home = unsafe { Home::of(home) };
            let mut allocator = AllocatorState::new(home, is_uncached, fills);
            Self {
                state: AtomicU64::new(IDLE),
                signals: AtomicU64::new(signals::no_signals()),
                bound_thread: AtomicU64::new(binding::NO_THREAD),
                thread_name: plain::Mutex::new(String::new()),
                remote: RemoteFreeList::new(),
                counters: Counters::default(),
                fast_path: FastPath::of(&mut allocator),
                last_used: plain::AtomicU64::new(0),
                skips: Skips::default(),
                settings,
                device,
                allocator: UnsafeCell::new(allocator),
                orphans: AtomicI64::new(0),
                kept_alive: Mutex::new(None),
                end: RaceDetector::new(),
                orphaned: Mutex::default(),
                record: Mutex::default(),
                follows_recording: plain::AtomicBool::new(false),
            }
        })
    }

    /// Returns the device of the shard's blocks. The caller holds the shard or one of its blocks.
    pub(crate) fn device(&self) -> &CachesRef {
        &self.device
    }

    /// Returns true if this is a shard of the cache with exactly these settings.
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

    /// Returns true if the calling thread is inside.
    #[inline]
    pub(super) fn is_held(&self) -> bool {
        self.state.load(Ordering::Relaxed) == thread_token()
    }

    /// Enters the shard, by one compare-and-swap if no thread is inside. Returns false if another
    /// thread is inside, or if the shard is closed or about to be closed.
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

    /// Enters once a visitor has left. Does not wait for another thread's scope, which may last
    /// long.
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

    /// Begins an outermost entry, now that `state` names this thread.
    #[inline]
    fn arrive(&self) {
        self.last_used
            .store(self.device.totals.miss_epoch(), Ordering::Relaxed);
        self.own().begin();
        if !self.remote.is_empty() || self.signals.load(Ordering::Relaxed) & ANY_SIGNAL != 0 {
            self.drain_at_entry();
        }
    }

    #[cold]
    #[inline(never)]
    fn drain_at_entry(&self) {
        let idle = self.own().drain_deferred();
        self.device.return_idle(idle);
    }

    /// Ends the innermost entry. The end of the outermost entry also leaves the shard.
    #[inline]
    pub(super) fn exit(&self) {
        let mut guard = self.own();
        if !guard.end_nested() {
            return;
        }
        let signals = self.signals.load(Ordering::Relaxed);
        if signals & ANY_SIGNAL == 0 && self.remote.is_empty() && guard.is_quiet() {
            guard.end();
            self.counters.begin_window();
            guard.allow_skips();
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
        let idle = guard.end_and_drain();
        guard.allow_skips();
        drop(guard);
        self.return_as_signalled(idle, signals);
    }

    /// Returns a guard on the shard's state, to hold briefly. Returns `None` if another thread is
    /// inside or the shard is closed. Waits for another visitor to leave.
    pub(super) fn guard(&self) -> Option<Guard<'_>> {
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

    /// Returns the allocator, for a hit or a free.
    ///
    /// # Safety
    ///
    /// The calling thread holds the shard. No other `Guard` or allocator of it is in use.
    #[inline]
    unsafe fn allocator(&self) -> Allocator<'_> {
        Allocator {
            // SAFETY: the caller's promise.
            state: unsafe { &mut *self.allocator.get() },
            counters: &self.counters,
            fast_path: &self.fast_path,
        }
    }

    /// Returns the guard of a thread that is inside. The caller has just checked that its thread is
    /// inside.
    #[inline]
    pub(super) fn own(&self) -> Guard<'_> {
        debug_assert!(self.is_held());
        self.held(false)
    }

    #[inline]
    fn held(&self, visiting: bool) -> Guard<'_> {
        Guard {
            shard: self,
            // SAFETY: `state` names this thread, so no other thread has a `Guard`. This thread has
            // no second guard, because a guard lives only while its or its allocator's methods run.
            // These methods do not reenter a shard.
            allocator: unsafe { self.allocator() },
            visiting,
        }
    }

    pub(super) fn end_visit(&self) {
        self.state.store(IDLE, Ordering::Release);
    }

    /// Stores the record of an entry that ends.
    #[cold]
    pub(super) fn keep_record(&self, record: Option<Arc<FinishedRecord>>) {
        *self.record.lock() = record;
    }

    /// Returns the recorded allocations of the present entry that are live, and those that escaped
    /// from the last entry. Returns none if entries are not recorded, or the shard is closed.
    pub(super) fn live_records(&self) -> Vec<AllocationRecord> {
        if self.is_closed() {
            return Vec::new();
        }
        let guard = self.guard(); // First: no entry ends between the two records.
        let last = self.record();
        let escaped = last.iter().flat_map(|record| record.live());
        let present = guard.iter().flat_map(Guard::live_records);
        escaped.chain(present).collect()
    }

    /// Returns the record of the entry that was recorded last.
    pub(super) fn record(&self) -> Option<Arc<FinishedRecord>> {
        self.record.lock().clone()
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Returns a handle that is not counted, for the objects that a device owns itself.
pub(super) fn uncounted<T>(this: &Weak<T>) -> ManuallyDrop<Arc<T>> {
    // SAFETY: the pointer comes from a living `Arc`, because a caller calls through that `Arc`. The
    // count that `from_raw` assumes is never decremented, because a `ManuallyDrop` is never
    // dropped.
    ManuallyDrop::new(unsafe { Arc::from_raw(this.as_ptr()) })
}

/// Overwrites a block that was just handed out.
pub(super) fn fill(backend: &dyn Backend, handle: &BlockHandle, byte: u8) -> Result<()> {
    let block = &handle.block;
    if block.bytes() == 0 {
        return Ok(());
    }
    // SAFETY: the block lies in reserved memory, and its only handle has not left this crate yet.
    unsafe { backend.fill(block.stream, block.address, block.bytes(), &[byte]) }
}

/// Returns the bytes of a block; for tests.
#[cfg(all(test, not(loom)))]
pub(super) fn read(backend: &dyn Backend, handle: &BlockHandle) -> Vec<u8> {
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

/// Enqueues on a stream, after all other users of a block, a write to the block; for tests.
#[cfg(all(test, not(loom)))]
pub(super) fn write_on(
    streams: Streams<'_>,
    handle: &BlockHandle,
    stream: StreamId,
    byte: u8,
) -> Result<()> {
    handle.write_on(streams, stream.into())?;
    let (address, bytes) = (handle.block.address, handle.requested_bytes);
    // SAFETY: the block lies in reserved memory, and the stream was ordered after its other users.
    unsafe { streams.backend.fill(stream, address, bytes, &[byte]) }
}

/// Enqueues a check that a block holds only `byte`, on a stream of a host that delays work; for
/// tests.
#[cfg(all(test, not(loom)))]
pub(super) fn expect_on(
    streams: Streams<'_>,
    handle: &BlockHandle,
    stream: StreamId,
    byte: u8,
) -> Result<()> {
    handle.read_on(streams, stream.into())?;
    let (address, bytes) = (handle.block.address, handle.requested_bytes as usize);
    let delayed = streams.backend.delayed().expect("made so");
    delayed.push(stream, move || {
        let first = crate::device::host::host_pointer(address);
        // SAFETY: segments are released only after the streams have completed the work that uses
        // their blocks. The block was written throughout for its last holder, on a stream that this
        // stream is ordered after.
        let found = unsafe { std::slice::from_raw_parts(first, bytes) };
        assert!(
            found.iter().all(|other| *other == byte),
            "read what others wrote"
        );
    });
    Ok(())
}
