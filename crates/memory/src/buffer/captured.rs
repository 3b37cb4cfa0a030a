//! The memory that a capture uses.
//!
//! A graph names memory by address alone, so it pins the memory. A block is pinned without a
//! counted handle, so that later writes to its arrays still use that block. For suballocations of a
//! planned slab, the whole slab is held. Otherwise, an entry on another thread or stream would
//! write to these addresses. If the scope is entered again, it gets a second slab.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use super::Buffer;
use crate::cache::{self, BlockHandle, Pinned};
use crate::context::Device;
use crate::device::cuda::{Cuda, Executable};
use crate::device::{Backend, DevicePtr, StreamId, Use};
use crate::error::{Error, ErrorCode, Result};
use crate::memory::order::Streams;

thread_local! {
    static USED: RefCell<Option<Uses>> = const { RefCell::new(None) };
}

/// The memory that operations of a capture have used so far.
#[derive(Default)]
struct Uses {
    /// The pinned blocks by address; no two of them have one address.
    pinned: HashMap<u64, PinnedBlock>,
    /// Address ranges of suballocations of slabs.
    planned: Vec<Range<u64>>,
}

/// Memory that a graph names by address; it stays reserved as long as the graph.
pub struct CapturedMemory {
    blocks: Vec<PinnedBlock>,
    slabs: Vec<BlockHandle>,
}

impl fmt::Debug for CapturedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CapturedMemory").finish_non_exhaustive()
    }
}

struct PinnedBlock {
    block: Pinned,
    used: Use,
}

/// A guard: while it lives, the memory that this thread's operations use is tracked.
#[must_use]
#[derive(Debug)]
pub struct CaptureTracking(());

impl CaptureTracking {
    /// Begins tracking. Returns `None` if this thread already tracks.
    pub fn begin() -> Option<Self> {
        USED.with_borrow_mut(|used| {
            used.is_none().then(|| {
                *used = Some(Uses::default());
                Self(())
            })
        })
    }

    /// Ends tracking, and returns the memory that was used, pinned.
    ///
    /// # Errors
    ///
    /// If a used slab has been released, because its scope was invalidated or entered by another
    /// thread.
    #[track_caller]
    pub fn end(self, device: &Device) -> Result<CapturedMemory> {
        let uses = USED.with_borrow_mut(Option::take).unwrap_or_default();
        let mut slabs: Vec<BlockHandle> = Vec::new();
        for range in uses.planned {
            let holds = |slab: &BlockHandle| {
                let whole = range_of(slab);
                whole.start <= range.start && range.end <= whole.end
            };
            if !slabs.iter().any(holds) {
                let slab = device.caches().export_slab(DevicePtr(range.start));
                slabs.push(slab.filter(holds).ok_or_else(slab_is_gone)?);
            }
        }
        Ok(CapturedMemory {
            blocks: uses.pinned.into_values().collect(),
            slabs,
        })
    }
}

impl Drop for CaptureTracking {
    fn drop(&mut self) {
        // Dropped outside the borrow, because the drop may return blocks to their homes.
        let used = USED.try_with(RefCell::take);
        drop(used);
    }
}

#[cold]
#[track_caller]
fn slab_is_gone() -> Error {
    let text = "graph::capture: the scope gave its memory up before the capture ended: run the scope once \
                before, and enter it in this thread alone";
    Error::new(ErrorCode::Capture, text)
}

impl Buffer {
    /// Tracks an operation's use of this memory, if this thread captures.
    #[doc(hidden)]
    pub fn track_use(&self, used: Use) {
        if self.size_bytes() == 0 || !self.device().backend().is_capturing() {
            return;
        }
        USED.with_borrow_mut(|uses| {
            let Some(uses) = uses else { return };
            if cache::is_planned(&self.block) {
                // From here on, later users of this suballocation are ordered with launches.
                self.block.mark_exported();
                uses.planned.push(range_of(&self.block));
                return;
            }
            let pinned = uses.pinned.entry(self.address());
            let pinned = pinned.or_insert_with(|| PinnedBlock {
                block: self.block.pin(),
                used,
            });
            pinned.used = pinned.used.max(used);
        });
    }
}

/// Returns the address range of the block's requested bytes.
fn range_of(block: &BlockHandle) -> Range<u64> {
    let first = block.block.address.0;
    first..first + block.requested_bytes
}

/// Returns the streams of the block's device.
fn streams_of(block: &BlockHandle) -> Streams<'_> {
    block.home().device().memory().streams()
}

impl CapturedMemory {
    /// Launches `graph` on the stream that it was captured on, after all uses of the memory on
    /// other streams. The graph uses no other memory.
    ///
    /// # Errors
    ///
    /// If the stream is being captured. If another thread exports an array in this memory to
    /// foreign code, and the export or the graph writes.
    #[track_caller]
    pub fn launch(&self, gpu: &Cuda, graph: &Executable, stream: StreamId) -> Result<()> {
        // Locked before the checks: until the launch, no other thread begins to use several
        // streams, or the memory.
        let alone = gpu.lock_launches_exclusive(stream)?;
        alone.check(self.ranges())?;
        if gpu.uses_streams() {
            self.use_on(stream)?;
        }
        // SAFETY: the capture tracked all memory that the graph uses, so this memory stays
        // reserved. The stream was just ordered after the other streams that use it; later users
        // order themselves after the launch.
        unsafe { gpu.launch_graph(graph, stream, &alone) }
    }

    /// Returns the address ranges, and how the graph uses each.
    fn ranges(&self) -> impl Iterator<Item = (Range<u64>, Use)> {
        let blocks = self.blocks.iter();
        let blocks = blocks.map(|pinned| (range_of(&pinned.block), pinned.used));
        let slabs = self.slabs.iter().map(|slab| (range_of(slab), Use::Write));
        blocks.chain(slabs)
    }

    /// Orders `stream` before it uses all of this memory. No other thread may begin to use the
    /// memory until the launch is submitted.
    #[track_caller]
    fn use_on(&self, stream: StreamId) -> Result<()> {
        self.blocks
            .iter()
            .try_for_each(|pinned| match pinned.used {
                Use::Read => pinned
                    .block
                    .read_on(streams_of(&pinned.block), stream.into()),
                Use::Write => pinned
                    .block
                    .write_on(streams_of(&pinned.block), stream.into()),
            })?;
        let mut slabs = self.slabs.iter();
        slabs.try_for_each(|slab| slab.launch_on(streams_of(slab), stream))
    }
}
