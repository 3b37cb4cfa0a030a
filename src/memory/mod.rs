//! One memory space of a device: a source of segments, the pool that cuts them into blocks, and
//! what is counted about both.
//!
//! [`allocate`](DeviceMemory::allocate) is the whole reclaim ladder. What stands above this layer
//! and holds idle memory of its own is reached through [`Reclaim`] alone.
//!
//! Architecture invariant: nothing here knows of scopes, caches by type, or arrays; a block is
//! plain data, and whoever holds it must bring it back.

mod allocate;
pub(crate) mod header;
pub(crate) mod order;
pub(crate) mod pending;
mod pressure;
mod stats;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;

use crate::device::{Backend, DevicePtr, StreamId};
use crate::error::{Error, ErrorKind, OomReport, Result};
use crate::pool::{Pool, PoolKind, Rounding, SegmentId, Span};
use crate::source::direct::Direct;
use crate::source::expandable::Expandable;
use crate::source::fault::{Fault, FaultPlan};
use crate::source::limit::Limit;
use crate::source::log::Log;
use crate::source::trace::Trace;
use crate::source::{Place, Source};
use crate::sync::{Arc, Mutex, OnceLock, Weak};
use order::Streams;
pub(crate) use pending::Patience;
use pending::Pending;
pub(crate) use pressure::CallbackId;
use pressure::Callbacks;
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
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            pool: PoolKind::default(),
            limit_bytes: None,
            expandable: true,
            fault: None,
            trace: None,
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

/// One reservation from the source.
#[derive(Clone, Copy, Debug)]
struct Segment {
    address: DevicePtr,
    bytes: u64,
}

/// A source, a pool over its segments, and their statistics.
pub(crate) struct DeviceMemory {
    backend: Arc<dyn Backend>,
    source: Limit<Box<dyn Source>>,
    log: Option<Arc<Log>>,
    /// The pool's, which is asked without the lock.
    rounding: Rounding,
    state: Mutex<State>,
    reclaim: OnceLock<Weak<dyn Reclaim>>,
    callbacks: Callbacks,
}

/// Invariants, asserted by [`DeviceMemory::check`]:
/// - the pool knows exactly the segments that stand in `segments`, under their index;
/// - their bytes add up to what the source counts as reserved;
/// - `vacant` lists the indices at which none stands;
/// - a pool that does not keep idle segments has none;
/// - a block is pending only where its streams were not known to be done when it was last looked at.
struct State {
    pool: Box<dyn Pool>,
    pending: Pending,
    segments: Vec<Option<Segment>>,
    vacant: Vec<SegmentId>,
    /// The first error of a release, kept for the next call that can tell it.
    deferred: Option<Error>,
    peak_reserved_bytes: u64,
    reserves: u64,
    releases: u64,
    retries: u64,
    out_of_memory: u64,
}

impl DeviceMemory {
    pub(crate) fn new(backend: Arc<dyn Backend>, config: &MemoryConfig) -> Result<Self> {
        let log = config.trace.as_deref().map(Log::open).transpose()?;
        let expandable = config
            .expandable
            .then(|| Expandable::new(&backend))
            .flatten();
        let source = stack(&backend, expandable, config.fault, log.as_ref())?;
        let pool = config.pool.build();
        Ok(Self {
            backend,
            source: Limit::new(source, config.limit_bytes),
            log,
            rounding: pool.rounding(),
            state: Mutex::new(State {
                pool,
                pending: Pending::new(),
                segments: Vec::new(),
                vacant: Vec::new(),
                deferred: None,
                peak_reserved_bytes: 0,
                reserves: 0,
                releases: 0,
                retries: 0,
                out_of_memory: 0,
            }),
            reclaim: OnceLock::new(),
            callbacks: Callbacks::default(),
        })
    }

    /// Calls `callback` with the bytes wanted before an allocation fails; it answers how many it
    /// gave back.
    pub(crate) fn on_pressure(
        &self,
        callback: impl Fn(u64) -> u64 + Send + Sync + 'static,
    ) -> CallbackId {
        self.callbacks.add(Arc::new(callback))
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

    /// Takes blocks back, all in one locked step.
    pub(crate) fn free(&self, blocks: impl IntoIterator<Item = Block>) {
        self.give(&mut self.state.lock(), blocks);
    }

    /// Takes blocks back, and releases the segments that thereby fall idle: at once where the streams
    /// are done with them, or else as [`settle`](Self::settle) says.
    pub(crate) fn free_and_release(&self, blocks: impl IntoIterator<Item = Block>) {
        self.give_and_release(&mut self.state.lock(), blocks);
    }

    /// Takes blocks back and hands one of `bytes` (rounded) out of what is free then, in one locked
    /// step that reserves nothing.
    pub(crate) fn exchange(
        &self,
        blocks: impl IntoIterator<Item = Block>,
        bytes: u64,
        stream: StreamId,
    ) -> Option<Block> {
        let mut state = self.state.lock();
        self.give(&mut state, blocks);
        match self.take(&mut state, bytes, stream) {
            Ok(block) => block,
            Err(error) => {
                state.defer(error);
                None
            }
        }
    }

    /// Releases idle segments while more than `keep_bytes` are reserved; answers the bytes released.
    pub(crate) fn trim(&self, keep_bytes: u64, patience: Patience) -> u64 {
        let before = self.source.reserved_bytes();
        if before <= keep_bytes {
            return 0;
        }
        self.settle(patience);
        self.release_idle(keep_bytes, patience);
        before.saturating_sub(self.source.reserved_bytes())
    }

    fn release_idle(&self, keep_bytes: u64, patience: Patience) {
        if patience == Patience::Wait
            && let Err(error) = self.wait_for_idle()
        {
            self.defer(error);
        }
        let mut state = self.state.lock();
        let mut idle = state.pool.idle_segments();
        while let Some(excess) = self
            .source
            .reserved_bytes()
            .checked_sub(keep_bytes)
            .filter(|&e| e > 0)
        {
            let Some(index) = state.segment_to_trim(&idle, excess) else {
                break;
            };
            let segment = idle.remove(index);
            self.release_segment(&mut state, segment, patience);
        }
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
    pub(crate) fn deferred_error(&self) -> Result<()> {
        self.state.lock().tell_deferred()?;
        self.log.as_ref().map_or(Ok(()), |log| {
            log.flush();
            log.tell_error()
        })
    }

    /// Keeps an error for the next call that can tell it; the first one wins.
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
        let state = self.state.lock();
        state.pool.check();
        let reserved: u64 = state
            .segments
            .iter()
            .flatten()
            .map(|segment| segment.bytes)
            .sum();
        assert_eq!(
            reserved,
            self.source.reserved_bytes(),
            "segments add up to the reserved bytes"
        );
        assert!(
            state.pool.free_bytes() <= reserved,
            "no more is free than is reserved"
        );
        let vacant = state.vacant.iter();
        assert!(
            vacant
                .clone()
                .all(|id| state.segments[id.0 as usize].is_none())
        );
        assert_eq!(
            vacant.len() + state.segments.iter().flatten().count(),
            state.segments.len(),
            "a vacant number is lost"
        );
        assert!(
            state.pool.keeps_idle_segments() || state.pool.free_bytes() == 0,
            "a pool that keeps nothing idle has something"
        );
    }

    fn give(&self, state: &mut State, blocks: impl IntoIterator<Item = Block>) {
        if state.pool.keeps_idle_segments() {
            state.give(blocks);
        } else {
            self.give_and_release(state, blocks);
        }
    }

    /// Takes blocks back whose segments go to the device if they fall idle, as far as the streams are
    /// done with them.
    fn give_and_release(&self, state: &mut State, blocks: impl IntoIterator<Item = Block>) {
        for block in blocks {
            state.part_with(block, true);
        }
        self.reclaim_pending(state, Patience::Leave);
    }

    /// Releases what the pool has not needed for long.
    fn release_surplus(&self, state: &mut State) {
        for segment in state.pool.surplus() {
            self.release_segment(state, segment, Patience::Wait);
        }
    }

    /// A block out of the pool.
    fn take(&self, state: &mut State, bytes: u64, stream: StreamId) -> Result<Option<Block>> {
        let taken = state.pool.take(bytes, stream);
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
        let taken = state.pool.take_from_any(bytes, stream);
        let ordered = taken.map(|taken| self.ordered(state, taken, stream));
        ordered.transpose()
    }

    /// Tries to add a segment that a block of `bytes` (rounded) fits in: as large as the pool
    /// would like, or exactly what is asked where the source has no room for that.
    fn reserve_segment(&self, state: &mut State, bytes: u64, stream: StreamId) -> Result<bool> {
        let wanted = state.pool.segment_bytes(bytes);
        for segment_bytes in [wanted, bytes] {
            if let Some(address) = self
                .source
                .reserve(Place::Anywhere, segment_bytes, stream)?
            {
                state.add_segment(
                    Segment {
                        address,
                        bytes: segment_bytes,
                    },
                    bytes,
                );
                state.reserves += 1;
                state.peak_reserved_bytes =
                    state.peak_reserved_bytes.max(self.source.reserved_bytes());
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Releases a segment if its every byte is free, and the work on it done.
    fn release_segment(&self, state: &mut State, id: SegmentId, patience: Patience) {
        let Some(owner) = state.pool.owner_of_idle(id) else {
            return;
        };
        match self.may_release(owner, patience) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return state.defer(error),
        }
        if state.pool.remove_segment(id).is_none() {
            return;
        }
        if let Some(segment) = state.segments[id.0 as usize].take() {
            state.vacant.push(id);
            state.releases += 1;
            if let Err(error) =
                self.source
                    .release(segment.address, segment.bytes, StreamId::default())
            {
                state.defer(error);
            }
        }
    }
}

impl State {
    fn tell_deferred(&mut self) -> Result<()> {
        self.deferred.take().map_or(Ok(()), Err)
    }

    fn defer(&mut self, error: Error) {
        self.deferred.get_or_insert(error);
    }

    fn add_segment(&mut self, segment: Segment, request_bytes: u64) {
        let id = self.vacant.pop().unwrap_or_else(|| {
            let number = u32::try_from(self.segments.len()).expect("fewer than 2^32 segments");
            self.segments.push(None);
            SegmentId(number)
        });
        self.segments[id.0 as usize] = Some(segment);
        self.pool.add_segment(id, segment.bytes, request_bytes);
    }

    /// Which of the `idle` segments (the smallest first) comes closest to `excess` bytes: the
    /// largest that is not more, else the smallest.
    fn segment_to_trim(&self, idle: &[SegmentId], excess: u64) -> Option<usize> {
        let within = idle.partition_point(|&id| self.segment(id).bytes <= excess);
        (!idle.is_empty()).then(|| within.saturating_sub(1))
    }

    fn segment(&self, id: SegmentId) -> Segment {
        self.segments[id.0 as usize].expect("the pool names only segments that it was given")
    }

    fn block(&self, span: Span, stream: StreamId) -> Block {
        let address = self.segment(span.segment).address.offset(span.offset);
        Block {
            address,
            stream,
            others: Streams::NONE,
            span,
        }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // Nobody is left to come back for what is not done.
        for number in 0..self.backend.streams() {
            let _ = self.backend.synchronize(StreamId(number));
        }
        let mut state = self.state.lock();
        let segments = std::mem::take(&mut state.segments);
        for segment in segments.into_iter().flatten() {
            // Nobody is left to tell.
            let _ = self
                .source
                .release(segment.address, segment.bytes, StreamId::default());
        }
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceMemory")
            .field("device", &self.backend.id())
            .finish_non_exhaustive()
    }
}

/// What stands between the limit and the device.
fn stack(
    backend: &Arc<dyn Backend>,
    expandable: Option<Expandable>,
    fault: Option<FaultPlan>,
    log: Option<&Arc<Log>>,
) -> Result<Box<dyn Source>> {
    let page_bytes = expandable.as_ref().map_or(u64::MAX, Expandable::page_bytes);
    let mut source: Box<dyn Source> = match expandable {
        Some(expandable) => Box::new(expandable),
        None => Box::new(Direct::new(Arc::clone(backend))),
    };
    if let Some(plan) = fault {
        source = Box::new(Fault::new(source, plan)?);
    }
    if let Some(log) = log {
        source = Box::new(Trace::new(source, page_bytes, Arc::clone(log)));
    }
    Ok(source)
}

/// The error for a size that cannot be addressed at all.
fn unaddressable(bytes: u64) -> Error {
    Error::new(
        ErrorKind::InvalidShape,
        format!("a size of {bytes} bytes overflows what can be addressed"),
    )
}
