//! The memory of a device: a source of segments, the pool that cuts them into blocks, and their
//! statistics.
//!
//! [`allocate`](DeviceMemory::allocate) implements the whole reclaim ladder. The layer above has
//! idle memory of its own. The ladder calls this layer only through [`Reclaim`].
//!
//! Architecture invariant: this layer does not name scopes, cache types or arrays. A block is plain
//! data. Its holder must free it.

mod allocate;
mod attachments;
mod census;
mod foreign;
pub(crate) mod header;
pub(crate) mod order;
pub(crate) mod pending;
mod phases;
mod pressure;
mod release;
mod report;
mod reserve;
mod segments;
mod stats;
#[cfg(test)]
mod tests;
pub(crate) mod uses;
mod waiting;

use std::fmt;
use std::time::Duration;

use crate::device::{Backend, Destination, DevicePtr, PageCost, StreamId};
use crate::error::{Error, ErrorCode, OutOfMemoryReport, Result};
use crate::pool::{PoolKind, Rounding, SegmentId, Span};
use crate::recorder::{EventKind, EventRecord, Recorder};
use crate::source::direct::DirectSource;
use crate::source::expandable::Expandable;
use crate::source::fault::{Fault, FaultPlan};
use crate::source::limit::Limit;
use crate::source::stream_ordered::StreamOrdered;
use crate::source::{Source, SourcePart};
use crate::sync::plain::AtomicU64;
use crate::sync::{Arc, Mutex, OnceLock, Weak};
pub(crate) use census::{Census, OwnedBytes};
pub(crate) use foreign::Destructor;
use order::Streams;
pub(crate) use pending::WaitMode;
pub use phases::PhaseReport;
use phases::{Phase, Phases};
pub(crate) use pressure::{CallbackId, Callbacks};
pub use report::MemoryReport;
use segments::{MemoryState, Segment};
pub use stats::MemoryStats;
use uses::StreamUses;
use waiting::Waiting;

/// The interface through which the ladder calls the layer above.
pub(crate) trait Reclaim: Send + Sync {
    /// Frees idle blocks, least recently used first, until about `need_bytes` are freed. Returns
    /// the freed bytes. The result 0 means that no idle block is left.
    fn reclaim(&self, need_bytes: u64) -> u64;

    /// Returns a census of the device's memory at one moment.
    fn census(&self) -> Census;

    /// Writes the census and the memory of the named caches to `report`.
    fn describe(&self, report: &mut OutOfMemoryReport);
}

/// The default of [`MemoryConfig::reclaim_wait`]. On a busy machine, a thread gets a processor
/// within a fraction of this time.
pub(crate) const DEFAULT_RECLAIM_WAIT: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(crate) struct MemoryConfig {
    pub(crate) pool: PoolKind,
    pub(crate) limit_bytes: Option<u64>,
    /// True to use ranges (expandable segments) if pool and device support them.
    pub(crate) expandable: bool,
    pub(crate) fault: Option<FaultPlan>,
    pub(crate) time_phases: bool,
    /// The maximum time that a request waits for threads inside of scopes.
    pub(crate) reclaim_wait: Duration,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            pool: PoolKind::default(),
            limit_bytes: None,
            expandable: true,
            fault: None,
            time_phases: false,
            reclaim_wait: DEFAULT_RECLAIM_WAIT,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// Bytes requested; not 0.
    pub(crate) bytes: u64,
    /// The stream that will use the block first.
    pub(crate) stream: StreamId,
    /// The requesting scope, for the report.
    pub(crate) scope: Option<&'a str>,
}

/// A block that is handed out: plain data, to be returned with [`DeviceMemory::free`].
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) address: DevicePtr,
    /// The stream that orders the block's contents.
    pub(crate) stream: StreamId,
    /// After the block is freed, the uses by other streams that may be uncompleted.
    pub(crate) other_uses: StreamUses,
    span: Span,
}

impl Block {
    /// The placeholder for arrays without bytes.
    pub(crate) const EMPTY: Self = Self {
        address: DevicePtr(0),
        stream: StreamId(0),
        other_uses: StreamUses::NONE,
        span: Span {
            segment: SegmentId(u32::MAX),
            offset: 0,
            bytes: 0,
            node: u32::MAX,
        },
    };

    /// Returns an empty suballocation of this block. The suballocation never returns to the pool.
    pub(crate) fn new_suballocation(&self) -> Self {
        let span = Span {
            bytes: 0,
            ..self.span
        };
        Self {
            span,
            other_uses: StreamUses::NONE,
            ..*self
        }
    }

    /// Sets the address and length of a suballocation, and the index that the layer above assigns.
    #[inline]
    pub(crate) fn set_suballocation(&mut self, address: DevicePtr, bytes: u64, number: usize) {
        self.address = address;
        self.span.bytes = bytes;
        self.span.node = number as u32;
    }

    #[inline]
    pub(crate) fn suballocation_index(&self) -> usize {
        self.span.node as usize
    }

    /// Returns the length of the block: at least the requested bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.span.bytes
    }
}

/// The cost of returning idle blocks to the pool and taking other blocks from the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExchangeCost {
    /// Both an exchange and growth are cheap.
    Low,
    /// An exchange is cheap, and growth is expensive.
    BelowGrowth,
    /// Both are expensive. The pool keeps no idle memory, so each exchange calls the driver.
    High,
}

/// The allocator of a device. Its pool cuts the segments of its source into blocks.
pub struct DeviceMemory {
    backend: Arc<dyn Backend>,
    source: Limit<Box<dyn Source>>,
    /// The innermost source, if pool and device support ranges.
    expandable: Option<Arc<Expandable>>,
    /// The innermost source, if the pool is the driver's own.
    stream_ordered: Option<Arc<StreamOrdered>>,
    /// The pool's rounding, readable without the lock.
    rounding: Rounding,
    /// The cost of an exchange with the pool, readable without the lock.
    exchange_cost: ExchangeCost,
    state: Mutex<MemoryState>,
    /// The number of imported blocks with an uncalled destructor, readable without the lock.
    imported_blocks: AtomicU64,
    reclaim: OnceLock<Weak<dyn Reclaim>>,
    reclaim_wait: Duration,
    waiting: Waiting,
    callbacks: Callbacks,
    phases: Phases,
    recorder: Arc<Recorder>,
}

impl DeviceMemory {
    pub(crate) fn new(backend: Arc<dyn Backend>, config: &MemoryConfig) -> Result<Self> {
        let pool = config.pool.build();
        let expands = config.expandable && pool.supports_ranges();
        let expandable = expands.then(|| Expandable::new(&backend, config.limit_bytes));
        let expandable = expandable.flatten().map(Arc::new);
        let is_ordered = config.pool == PoolKind::StreamOrdered;
        let ordered = is_ordered.then(|| StreamOrdered::new(&backend));
        let ordered = ordered.transpose()?.map(Arc::new);
        let source: Box<dyn Source> = match (&expandable, &ordered) {
            (Some(expandable), _) => Box::new(Arc::clone(expandable)),
            (None, Some(ordered)) => Box::new(Arc::clone(ordered)),
            (None, None) => Box::new(DirectSource::new(Arc::clone(&backend))),
        };
        let page_cost = expandable.as_ref().map(|source| source.page_cost());
        let exchange_cost = match page_cost {
            _ if !pool.keeps_idle_segments() && backend.cuda().is_some() => ExchangeCost::High,
            Some(PageCost::High) => ExchangeCost::BelowGrowth,
            Some(PageCost::Low) | None => ExchangeCost::Low,
        };
        let source = match config.fault {
            Some(plan) => Box::new(Fault::new(source, plan)?),
            None => source,
        };
        Ok(Self {
            backend,
            source: Limit::new(source, config.limit_bytes),
            expandable,
            stream_ordered: ordered,
            rounding: pool.rounding(),
            exchange_cost,
            state: Mutex::new(MemoryState::new(pool)),
            imported_blocks: AtomicU64::new(0),
            reclaim: OnceLock::new(),
            reclaim_wait: config.reclaim_wait,
            waiting: Waiting::default(),
            callbacks: Callbacks::default(),
            phases: Phases::new(config.time_phases),
            recorder: Arc::new(Recorder::new()),
        })
    }

    pub(crate) fn callbacks(&self) -> &Callbacks {
        &self.callbacks
    }

    /// Sets the layer that rung 3 of the ladder calls. May be called only once.
    pub(crate) fn set_reclaim(&self, reclaim: Weak<dyn Reclaim>) {
        self.reclaim
            .set(reclaim)
            .expect("a memory has one layer above it");
    }

    #[inline]
    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Returns the device's streams, to order one stream after other streams.
    #[inline]
    pub(crate) fn streams(&self) -> Streams<'_> {
        Streams {
            backend: &*self.backend,
            recorder: &self.recorder,
        }
    }

    /// Records the times of operations that the device has completed. Called after a wait.
    #[doc(hidden)]
    pub fn finish_kernels(&self) {
        if self.recorder.is_active() {
            self.recorder.finish_kernels(&*self.backend);
        }
    }

    /// Returns the recorder of the device, to which its caches write as well.
    #[inline]
    #[doc(hidden)]
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// Returns the address and length of each reserved part. Adjacent memory is one part.
    pub(crate) fn reserved_parts(&self) -> Vec<(u64, u64)> {
        let state = self.state.lock();
        let parts = state.reserved.iter();
        parts
            .map(|part| (part.span.start, part.span.bytes()))
            .collect()
    }

    fn record_segment(&self, kind: EventKind, part: SourcePart) {
        self.recorder.record(|| EventRecord {
            stream: part.stream,
            address: part.address.0,
            block_bytes: part.bytes,
            ..EventRecord::of(kind, part.bytes)
        });
    }

    #[inline]
    pub(crate) fn rounding(&self) -> Rounding {
        self.rounding
    }

    /// Returns the cost that a cache pays to exchange idle blocks for blocks of other sizes.
    #[inline]
    pub(crate) fn exchange_cost(&self) -> ExchangeCost {
        self.exchange_cost
    }

    /// Sets the limit on reserved bytes, and trims to it.
    pub(crate) fn set_limit(&self, limit_bytes: Option<u64>) {
        self.source.set_limit(limit_bytes);
        if let Some(source) = &self.expandable {
            source.set_limit(limit_bytes);
        }
        if let Some(bytes) = limit_bytes {
            self.trim(bytes, WaitMode::Wait);
        }
    }

    pub(crate) fn limit(&self) -> Option<u64> {
        self.source.limit()
    }

    /// Removes and returns the deferred error, which an earlier call could not return.
    pub(crate) fn take_deferred_error(&self) -> Result<()> {
        self.state.lock().take_deferred_error()
    }

    /// Defers an error to the next call that can return an error. That call returns the first
    /// deferred error in full, and the number of later errors.
    #[doc(hidden)]
    pub fn defer(&self, error: Error) {
        self.state.lock().defer(error);
    }

    /// Returns the bytes held from the device: the reserved bytes and the kept bytes.
    fn device_bytes(&self) -> u64 {
        self.source.reserved_bytes() + self.kept_bytes()
    }

    /// Returns the bytes that a source keeps for the next growth.
    fn kept_bytes(&self) -> u64 {
        let source = self.expandable.as_ref();
        source.map_or(0, |source| source.kept_bytes())
    }

    pub(crate) fn reset_peaks(&self) {
        self.state.lock().counted.peak_reserved_bytes = self.device_bytes();
    }

    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.state.lock().check(self.source.reserved_bytes());
    }

    pub(crate) fn phases(&self) -> Vec<PhaseReport> {
        self.phases.report()
    }

    fn take(&self, state: &mut MemoryState, bytes: u64, stream: StreamId) -> Result<Option<Block>> {
        let take = || state.pool.take(bytes, stream);
        let taken = self.phases.time(Phase::Take, take);
        self.ordered_block(state, taken, stream)
    }

    /// Takes a block from any segment of the pool: the last resort before a failure.
    fn take_from_any(
        &self,
        state: &mut MemoryState,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Option<Block>> {
        let take = || state.pool.take_from_any(bytes, stream);
        let taken = self.phases.time(Phase::Take, take);
        self.ordered_block(state, taken, stream)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // The drop waits for all streams, because no later call waits for unfinished work.
        for number in 0..self.backend.streams() {
            let stream = StreamId(number);
            match self.backend.host_stream(stream) {
                // An error is ignored: the caller that began the work may still receive it.
                Some(host_stream) => host_stream.settle(&host_stream.event()),
                None => drop(self.backend.synchronize(stream)),
            }
        }
        self.finish_kernels();
        // Every block has returned, because blocks keep their memory alive. All streams are done,
        // and so are all pending blocks.
        let mut state = self.state.lock();
        self.reclaim_pending(&mut state, WaitMode::Wait);
        self.release_idle(&mut state, 0, WaitMode::Wait, Destination::Device);
        drop(state);
        self.call_all_destructors();
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceMemory")
            .field("device", &self.backend.id())
            .finish_non_exhaustive()
    }
}

pub(crate) fn unaddressable(bytes: u64) -> Error {
    Error::new(
        ErrorCode::Size,
        format!("a size of {bytes} bytes exceeds the address space"),
    )
}
