//! A shard: one thread's part of a named cache. A shard stores idle blocks, and is the home of the
//! blocks that it has handed out.
//!
//! Access rules:
//! - `state` names the holder of the shard: a thread inside the scope, a visitor, or no thread. A
//!   closed shard never has a holder again. Only the holder accesses `allocator` and writes
//!   `counters`. The holder uses a [`Guard`], or accesses its current shard directly. Any thread
//!   may read the counters.
//! - `bound_thread` names the thread that the shard is bound to. A binding determines only which
//!   shard a thread enters.
//! - If the holder drops a block, the block is added to the shard's free list. If a thread that is
//!   not the holder drops a block, the block is added to `remote`.
//! - A closed shard has no idle blocks. Each live block of a closed shard is an orphan. A dropped
//!   orphan returns to the pool. The drop of the last orphan also drops the references that keep
//!   the shard and the device alive.
//!
//! Architecture invariant: this module selects the thread that accesses a shard. The
//! [`allocator`](super::allocator) manages the blocks.

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
/// The bit of `state` that a visitor sets. A visitor is not inside the scope, and holds the shard
/// only briefly.
const VISIT: u64 = 1 << 63;
/// The value of `state` after the close of the shard.
const CLOSED: u64 = u64::MAX;

pub(crate) struct Shard {
    state: AtomicU64,
    signals: AtomicU64,
    /// The token of the thread that the shard is bound to.
    bound_thread: AtomicU64,
    /// The name of the bound thread, for reports.
    thread_name: plain::Mutex<String>,
    pub(super) remote: RemoteFreeList,
    pub(super) counters: Counters,
    fast_path: FastPath,
    /// The device's miss epoch at the last entry. Rung 3 sorts shards by this value.
    last_used: plain::AtomicU64,
    skips: Skips,
    /// The settings of the shard's cache; `None` for the shard of blocks that belong to no cache.
    pub(super) settings: Option<Arc<CacheSettings>>,
    /// An uncounted handle on the device, because idle memory must not keep the device alive. After
    /// the close of the shard, `kept_alive` keeps the device alive. Before the close, every holder
    /// of the shard also has a reference to the device.
    device: ManuallyDrop<CachesRef>,
    allocator: UnsafeCell<AllocatorState>,
    /// The number of live orphans. Until the close has counted the orphans, the value is the
    /// negative number of dropped orphans.
    orphans: AtomicI64,
    kept_alive: Mutex<Option<OrphanReferences>>,
    /// The race detector of the shard's end. A thread may take `kept_alive` only after all other
    /// uses of the shard by orphans.
    end: RaceDetector,
    /// The arenas of orphaned suballocations.
    orphaned: Mutex<DetachedArenas>,
    /// The record of the last recorded entry.
    record: Mutex<Option<Arc<FinishedRecord>>>,
    /// True if the device's recorder records every request and free. Requests and frees then take
    /// the slow path.
    follows_recording: plain::AtomicBool,
}

// SAFETY: only the holder that `state` names accesses `allocator`. All other fields are `Sync`.
unsafe impl Sync for Shard {}
// SAFETY: no field of a shard depends on the thread that created the shard.
unsafe impl Send for Shard {}

/// The references that the orphans of a closed shard keep alive.
type OrphanReferences = (Arc<Caches>, Arc<Shard>);

impl Shard {
    /// Creates a shard of the cache with `settings`, or of no cache. If `fills` is true, the device
    /// fills every block, so no request is a hit.
    pub(super) fn new(
        device: ManuallyDrop<CachesRef>,
        settings: Option<Arc<CacheSettings>>,
        fills: bool,
    ) -> Arc<Self> {
        let is_uncached = settings.is_none();
        Arc::new_cyclic(|this: &Weak<Self>| {
            // `this` has the address of the new shard. Later headers store this address.
            let home = NonNull::new(this.as_ptr().cast_mut()).expect("not null");
            // SAFETY: a named cache and its device keep their shards alive until the shards are
            // closed. A closed shard keeps itself alive with `kept_alive`, for its orphans.
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

    /// Returns the device of the shard's blocks. The caller must hold the shard or a live block of
    /// the shard.
    pub(crate) fn device(&self) -> &CachesRef {
        &self.device
    }

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

    #[inline]
    pub(super) fn is_held(&self) -> bool {
        self.state.load(Ordering::Relaxed) == thread_token()
    }

    /// Enters the shard. If no thread is inside, the entry needs one compare-and-swap. Returns
    /// false if another thread is inside, or if the shard is closed or about to be closed.
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

    /// Enters the shard after a visitor has left. If another thread is inside its scope, returns
    /// false, because the wait may be long.
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

    /// Begins an outermost entry. `state` already names this thread.
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

    /// Ends the innermost entry. If no entry remains, leaves the shard.
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

    /// Returns a guard on the shard. The caller must hold the guard only briefly. Returns `None` if
    /// another thread is inside, or if the shard is closed. If another thread visits the shard,
    /// waits until this visit ends.
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
    /// The calling thread holds the shard. No other `Guard` or allocator of the shard is in use.
    #[inline]
    unsafe fn allocator(&self) -> Allocator<'_> {
        Allocator {
            // SAFETY: by this function's contract, this thread holds the shard, and no other borrow
            // of the state is in use.
            state: unsafe { &mut *self.allocator.get() },
            counters: &self.counters,
            fast_path: &self.fast_path,
        }
    }

    /// Returns a guard for the calling thread, which must be inside the shard.
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
            // no second guard, because a guard exists only while its methods or its allocator's
            // methods run. These methods do not reenter a shard.
            allocator: unsafe { self.allocator() },
            visiting,
        }
    }

    pub(super) fn end_visit(&self) {
        self.state.store(IDLE, Ordering::Release);
    }

    #[cold]
    pub(super) fn keep_record(&self, record: Option<Arc<FinishedRecord>>) {
        *self.record.lock() = record;
    }

    /// Returns the live recorded allocations of the current entry, and the live escaped allocations
    /// of the last recorded entry. If entries are not recorded or the shard is closed, the result
    /// is empty.
    pub(super) fn live_records(&self) -> Vec<AllocationRecord> {
        if self.is_closed() {
            return Vec::new();
        }
        let guard = self.guard(); // It prevents the end of an entry between the two reads.
        let last = self.record();
        let escaped = last.iter().flat_map(|record| record.live());
        let present = guard.iter().flat_map(Guard::live_records);
        escaped.chain(present).collect()
    }

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

/// Returns an uncounted handle, for the objects that a device owns.
pub(super) fn uncounted<T>(this: &Weak<T>) -> ManuallyDrop<Arc<T>> {
    // SAFETY: the pointer comes from a live `Arc`, because a caller calls through this `Arc`.
    // `from_raw` takes over one reference count. A `ManuallyDrop` does not drop its value, so this
    // count is never decremented.
    ManuallyDrop::new(unsafe { Arc::from_raw(this.as_ptr()) })
}

pub(super) fn fill(backend: &dyn Backend, handle: &BlockHandle, byte: u8) -> Result<()> {
    let block = &handle.block;
    if block.bytes() == 0 {
        return Ok(());
    }
    // SAFETY: the block lies in reserved memory, and its only handle has not left this crate yet.
    unsafe { backend.fill(block.stream, block.address, block.bytes(), &[byte]) }
}

#[cfg(all(test, not(loom)))]
pub(super) fn read(backend: &dyn Backend, handle: &BlockHandle) -> Vec<u8> {
    let mut bytes = vec![0; handle.requested_bytes as usize];
    if !bytes.is_empty() {
        // SAFETY: the handle keeps the block alive, and its holder has written the whole block.
        unsafe {
            backend
                .download(handle.block.stream, handle.block.address, &mut bytes)
                .unwrap();
        };
    }
    bytes
}

/// Enqueues a write to a block on `stream`, after all other users of the block.
#[cfg(all(test, not(loom)))]
pub(super) fn write_on(
    streams: Streams<'_>,
    handle: &BlockHandle,
    stream: StreamId,
    byte: u8,
) -> Result<()> {
    handle.write_on(streams, stream.into())?;
    let (address, bytes) = (handle.block.address, handle.requested_bytes);
    // SAFETY: the block lies in reserved memory, and the stream was ordered after the block's other
    // users.
    unsafe { streams.backend.fill(stream, address, bytes, &[byte]) }
}

/// Enqueues a check that a block contains only `byte`. The stream must belong to a host device that
/// delays work.
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
        // their blocks. The last holder has written the whole block, and `read_on` ordered this
        // stream after the write.
        let found = unsafe { std::slice::from_raw_parts(first, bytes) };
        assert!(
            found.iter().all(|other| *other == byte),
            "read what others wrote"
        );
    });
    Ok(())
}
