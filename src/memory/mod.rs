//! One memory space of a device: a source of segments, the pool that cuts them into blocks, and
//! what is counted about both.
//!
//! [`allocate`](DeviceMemory::allocate) is the whole reclaim ladder. What stands above this layer
//! and holds idle memory of its own is reached through [`Reclaim`] alone.
//!
//! Architecture invariant: nothing here knows of scopes, caches by type, or arrays; a block is
//! plain data, and whoever holds it must bring it back.

mod allocate;
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

use std::fmt;
use std::path::PathBuf;

use crate::device::{Backend, DevicePtr, StreamId};
use crate::error::{Error, ErrorKind, OomReport, Result};
use crate::pool::{PoolKind, Rounding, SegmentId, Span};
use crate::source::Source;
use crate::source::direct::Direct;
use crate::source::expandable::Expandable;
use crate::source::fault::{Fault, FaultPlan};
use crate::source::limit::Limit;
use crate::source::log::Log;
use crate::source::stream_ordered::StreamOrdered;
use crate::source::trace::Trace;
use crate::sync::plain::AtomicU64;
use crate::sync::{Arc, Mutex, OnceLock, Weak};
pub(crate) use foreign::Destructor;
use order::Streams;
pub(crate) use pending::Patience;
pub use phases::PhaseReport;
use phases::{Phase, Phases};
pub(crate) use pressure::CallbackId;
use pressure::Callbacks;
pub use report::MemoryReport;
use segments::{Segment, State};
pub use stats::MemoryStats;

/// What the ladder asks of the layer above, without knowing it.
pub(crate) trait Reclaim: Send + Sync {
    /// Gives idle blocks back to the memory, least recently used first, until about `need_bytes`
    /// came back; the answer is how many did. 0 means that nothing is left to give.
    fn reclaim(&self, need_bytes: u64) -> u64;

    /// Fills in what only that layer knows.
    fn describe(&self, report: &mut OomReport);
}

/// How a memory is set up.
#[derive(Clone, Debug)]
pub(crate) struct MemoryConfig {
    pub(crate) pool: PoolKind,
    /// Bounds what is reserved from the device.
    pub(crate) limit_bytes: Option<u64>,
    /// Whether segments may be ranges of pages, where pool and device can have them.
    pub(crate) expandable: bool,
    pub(crate) fault: Option<FaultPlan>,
    /// Where to log what is reserved and released.
    pub(crate) trace: Option<PathBuf>,
    /// Whether phases are timed.
    pub(crate) time_phases: bool,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            pool: PoolKind::default(),
            limit_bytes: None,
            expandable: true,
            fault: None,
            trace: None,
            time_phases: false,
        }
    }
}

/// One request for a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// Bytes wanted; not 0.
    pub(crate) bytes: u64,
    /// The stream that will use the block first.
    pub(crate) stream: StreamId,
    /// The scope that asks, for the report.
    pub(crate) scope: Option<&'a str>,
}

/// A block that is handed out; plain data, to be given back with [`DeviceMemory::free`].
#[derive(Debug)]
pub(crate) struct Block {
    /// Where it begins.
    pub(crate) address: DevicePtr,
    /// The stream whose order its contents follow.
    pub(crate) stream: StreamId,
    /// Once nobody holds it: other streams that may still use it.
    pub(crate) others: Streams,
    span: Span,
}

impl Block {
    /// No block: what an array of no bytes has.
    pub(crate) const EMPTY: Self = Self {
        address: DevicePtr(0),
        stream: StreamId(0),
        others: Streams::NONE,
        span: Span {
            segment: SegmentId(u32::MAX),
            offset: 0,
            bytes: 0,
            node: u32::MAX,
        },
    };

    /// A part of this block, of no length yet, for one who hands it out piece by piece; it never goes
    /// back to the memory.
    pub(crate) fn new_part(&self) -> Self {
        let span = Span {
            bytes: 0,
            ..self.span
        };
        Self {
            span,
            others: Streams::NONE,
            ..*self
        }
    }

    /// Moves a part to where it is handed out, under a number of its owner's.
    #[inline]
    pub(crate) fn become_part(&mut self, address: DevicePtr, bytes: u64, number: usize) {
        self.address = address;
        self.span.bytes = bytes;
        self.span.node = number as u32;
    }

    /// The number that a part was handed out under.
    #[inline]
    pub(crate) fn part(&self) -> usize {
        self.span.node as usize
    }

    /// The block's own length, at least what was asked.
    pub(crate) fn bytes(&self) -> u64 {
        self.span.bytes
    }
}

/// A source, a pool over its segments, and their statistics.
pub(crate) struct DeviceMemory {
    backend: Arc<dyn Backend>,
    source: Limit<Box<dyn Source>>,
    /// At the bottom of `source`, where pool and device can have ranges.
    expandable: Option<Arc<Expandable>>,
    /// At the bottom of `source`, where the pool is the driver's own.
    ordered: Option<Arc<StreamOrdered>>,
    log: Option<Arc<Log>>,
    /// The pool's, which is asked without the lock.
    rounding: Rounding,
    state: Mutex<State>,
    /// Blocks of memory of others whose destructor was not called yet; asked without the lock.
    foreign_blocks: AtomicU64,
    reclaim: OnceLock<Weak<dyn Reclaim>>,
    callbacks: Callbacks,
    phases: Phases,
}

impl DeviceMemory {
    pub(crate) fn new(backend: Arc<dyn Backend>, config: &MemoryConfig) -> Result<Self> {
        let pool = config.pool.build();
        let expands = config.expandable && pool.supports_ranges();
        let expandable = expands.then(|| Expandable::new(&backend, config.limit_bytes));
        let expandable = expandable.flatten();
        let expandable = expandable.map(Arc::new);
        let is_ordered = config.pool == PoolKind::StreamOrdered;
        let ordered = is_ordered.then(|| StreamOrdered::new(&backend));
        let ordered = ordered.transpose()?.map(Arc::new);
        let log = config.trace.as_deref().map(Log::open).transpose()?;
        let page_bytes = expandable
            .as_ref()
            .map_or(u64::MAX, |source| source.page_bytes());
        let source: Box<dyn Source> = match (&expandable, &ordered) {
            (Some(expandable), _) => Box::new(Arc::clone(expandable)),
            (None, Some(ordered)) => Box::new(Arc::clone(ordered)),
            (None, None) => Box::new(Direct::new(Arc::clone(&backend))),
        };
        let source = wrapped(source, page_bytes, config.fault, log.as_ref())?;
        Ok(Self {
            backend,
            source: Limit::new(source, config.limit_bytes),
            expandable,
            ordered,
            log,
            rounding: pool.rounding(),
            state: Mutex::new(State::new(pool)),
            foreign_blocks: AtomicU64::new(0),
            reclaim: OnceLock::new(),
            callbacks: Callbacks::default(),
            phases: Phases::new(config.time_phases),
        })
    }

    /// Calls `callback` with the bytes wanted before an allocation fails; it answers how many it
    /// gave back.
    pub(crate) fn on_pressure(
        &self,
        callback: impl Fn(u64) -> u64 + Send + Sync + 'static,
    ) -> CallbackId {
        self.callbacks.add(callback)
    }

    pub(crate) fn remove_callback(&self, id: CallbackId) {
        self.callbacks.remove(id);
    }

    /// Installs what rung 3 of the ladder calls; once.
    pub(crate) fn set_reclaim(&self, reclaim: Weak<dyn Reclaim>) {
        self.reclaim
            .set(reclaim)
            .expect("a memory has one layer above it");
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// How the pool rounds requests up.
    #[inline]
    pub(crate) fn rounding(&self) -> Rounding {
        self.rounding
    }

    /// Bounds what may be reserved from now on, and trims down to it.
    pub(crate) fn set_limit(&self, limit_bytes: Option<u64>) {
        self.source.set_limit(limit_bytes);
        if let Some(bytes) = limit_bytes {
            self.trim(bytes, Patience::Wait);
        }
    }

    pub(crate) fn limit(&self) -> Option<u64> {
        self.source.limit()
    }

    /// The error of an earlier call that could not tell it.
    pub(crate) fn tell_deferred(&self) -> Result<()> {
        self.state.lock().tell_deferred()
    }

    /// The same, and with it what the trace could not be told; that is complete then.
    pub(crate) fn deferred_error(&self) -> Result<()> {
        self.tell_deferred()?;
        self.log.as_ref().map_or(Ok(()), |log| {
            log.flush();
            log.tell_error()
        })
    }

    /// Keeps an error for the next call that can tell it: the first one whole, and of others how many.
    pub(crate) fn defer(&self, error: Error) {
        self.state.lock().defer(error);
    }

    pub(crate) fn reset_peaks(&self) {
        let mut state = self.state.lock();
        state.peak_reserved_bytes = self.source.reserved_bytes();
    }

    /// Asserts the invariants of this layer and of its pool; for tests.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.state.lock().check(self.source.reserved_bytes());
    }

    /// Where this memory's time went.
    pub(crate) fn phases(&self) -> Vec<PhaseReport> {
        self.phases.report()
    }

    /// A block out of the pool.
    fn take(&self, state: &mut State, bytes: u64, stream: StreamId) -> Result<Option<Block>> {
        let taken = self
            .phases
            .time(Phase::Take, || state.pool.take(bytes, stream));
        let ordered = taken.map(|taken| self.ordered(state, taken, stream));
        ordered.transpose()
    }

    /// The same where it is this or failing.
    fn take_from_any(
        &self,
        state: &mut State,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Option<Block>> {
        let taken = self
            .phases
            .time(Phase::Take, || state.pool.take_from_any(bytes, stream));
        let ordered = taken.map(|taken| self.ordered(state, taken, stream));
        ordered.transpose()
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // Nobody is left to come back for what is not done.
        for number in 0..self.backend.streams() {
            let _ = self.backend.synchronize(StreamId(number));
        }
        // Every block is back: they keep their memory. Those that were pending need not be any more.
        let mut state = self.state.lock();
        self.reclaim_pending(&mut state, Patience::Wait);
        self.release_idle(&mut state, 0, Patience::Wait);
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

/// A source, of pages if any of that length, with the adaptors that are wanted below the limit.
fn wrapped(
    mut source: Box<dyn Source>,
    page_bytes: u64,
    fault: Option<FaultPlan>,
    log: Option<&Arc<Log>>,
) -> Result<Box<dyn Source>> {
    if let Some(plan) = fault {
        source = Box::new(Fault::new(source, plan)?);
    }
    if let Some(log) = log {
        source = Box::new(Trace::new(source, page_bytes, Arc::clone(log)));
    }
    Ok(source)
}

/// The error for a size that cannot be addressed at all.
pub(crate) fn unaddressable(bytes: u64) -> Error {
    Error::new(
        ErrorKind::InvalidShape,
        format!("a size of {bytes} bytes overflows what can be addressed"),
    )
}
