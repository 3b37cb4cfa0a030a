//! The memory that a captured graph uses.
//!
//! A graph names memory by address only, so the graph must pin the memory. A block is pinned
//! without a counted handle, so that later writes to its arrays do not copy. For a suballocation of
//! a planned slab, the graph holds the whole slab. Otherwise, an entry on another thread or stream
//! could write to the suballocation. While the graph holds the slab, another entry of the scope
//! gets a second slab.

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
    /// The pinned blocks by address. Two blocks never have an equal address.
    pinned: HashMap<u64, PinnedBlock>,
    /// The address ranges of suballocations of slabs.
    planned: Vec<Range<u64>>,
}

/// The memory that a graph names by address. The memory stays reserved as long as the graph exists.
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

/// A guard that tracks the memory used by this thread's operations, until the guard drops.
#[must_use]
#[derive(Debug)]
pub struct CaptureTracking(());

impl CaptureTracking {
    /// Begins tracking. Returns `None` if this thread already tracks memory.
    pub fn begin() -> Option<Self> {
        USED.with_borrow_mut(|used| {
            used.is_none().then(|| {
                *used = Some(Uses::default());
                Self(())
            })
        })
    }

    /// Ends tracking, and returns the used memory, which is pinned.
    ///
    /// # Errors
    ///
    /// Fails if a used slab was released, because its scope was invalidated or entered by another
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
        // The value is dropped outside the borrow, because its drop may return blocks to their
        // homes.
        let used = USED.try_with(RefCell::take);
        drop(used);
    }
}

#[cold]
#[track_caller]
fn slab_is_gone() -> Error {
    let text = "graph::capture: the scope released its memory before the capture ended: run the \
                scope once before the capture, and enter it only in the capturing thread";
    Error::new(ErrorCode::Capture, text)
}

impl Buffer {
    /// If this thread captures a graph, tracks an operation's use of this memory.
    #[doc(hidden)]
    pub fn track_use(&self, used: Use) {
        if self.size_bytes() == 0 || !self.device().backend().is_capturing() {
            return;
        }
        USED.with_borrow_mut(|uses| {
            let Some(uses) = uses else { return };
            if cache::is_planned(&self.block) {
                // Because of this mark, later users of the suballocation are ordered after graph
                // launches.
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

fn streams_of(block: &BlockHandle) -> Streams<'_> {
    block.home().device().memory().streams()
}

impl CapturedMemory {
    /// Launches `graph` on the stream of its capture, after all uses of this memory on other
    /// streams. The graph uses no memory outside this memory.
    ///
    /// # Errors
    ///
    /// Fails if the stream is being captured. Fails if another thread exports an array in this
    /// memory to foreign code, and the export or the graph writes.
    #[track_caller]
    pub fn launch(&self, gpu: &Cuda, graph: &Executable, stream: StreamId) -> Result<()> {
        // The lock is taken before the checks, so that their results stay valid until the launch.
        // Meanwhile, no other thread can begin to use this memory, or begin to use several streams.
        let alone = gpu.lock_launches_exclusive(stream)?;
        alone.check(self.ranges())?;
        if gpu.uses_streams() {
            self.use_on(stream)?;
        }
        // SAFETY: the capture tracked all memory that the graph uses, so this memory stays
        // reserved. `use_on` ordered the stream after all earlier uses of the memory. Later users
        // are ordered after the launch.
        unsafe { gpu.launch_graph(graph, stream, &alone) }
    }

    fn ranges(&self) -> impl Iterator<Item = (Range<u64>, Use)> {
        let blocks = self.blocks.iter();
        let blocks = blocks.map(|pinned| (range_of(&pinned.block), pinned.used));
        let slabs = self.slabs.iter().map(|slab| (range_of(slab), Use::Write));
        blocks.chain(slabs)
    }

    /// Orders the next work of `stream` after all earlier uses of this memory. No other thread may
    /// begin to use the memory until the launch is submitted.
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
