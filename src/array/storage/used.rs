//! Which memory a thread's operations use, for who does them again later.
//!
//! What is recorded for later runs by addresses alone. So whoever records keeps what is used: blocks one by
//! one, without holding them, so that arrays are written to where they stand as before; and parts of a
//! planned slab, which the scope's other requests use in their turn, by the slab.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

use super::Buffer;
use crate::cache::{self, BlockHandle, Shard};
use crate::context::Device;
use crate::device::cuda::{Cuda, Executable};
use crate::device::{Backend, DevicePtr, StreamId, Use};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::header::Kept;

thread_local! {
    static USED: RefCell<Option<Uses>> = const { RefCell::new(None) };
}

/// What was noted so far.
#[derive(Default)]
struct Uses {
    /// By address; no two that are kept at a time have one.
    kept: HashMap<u64, KeptBlock>,
    /// Parts of slabs.
    planned: Vec<Range<u64>>,
}

/// Memory that is used by its address, and stays reserved for that.
pub(crate) struct UsedMemory {
    blocks: Vec<KeptBlock>,
    slabs: Vec<BlockHandle>,
}

struct KeptBlock {
    block: Kept<Shard>,
    used: Use,
}

/// The memory that operations of this thread use is noted until this drops.
#[must_use]
pub(crate) struct CaptureTracking(());

impl CaptureTracking {
    /// Begins; `None` where this thread does so already.
    pub(crate) fn begin() -> Option<Self> {
        USED.with_borrow_mut(|used| {
            used.is_none().then(|| {
                *used = Some(Uses::default());
                Self(())
            })
        })
    }

    /// Ends; the answer keeps whatever was used.
    ///
    /// # Errors
    ///
    /// Where a slab that was used is gone: its scope was invalidated, or is entered by another thread.
    #[track_caller]
    pub(crate) fn end(self, device: &Device) -> Result<UsedMemory> {
        let uses = USED.with_borrow_mut(Option::take).unwrap_or_default();
        let mut slabs: Vec<BlockHandle> = Vec::new();
        for part in uses.planned {
            let holds = |slab: &BlockHandle| {
                let whole = range_of(slab);
                whole.start <= part.start && part.end <= whole.end
            };
            if !slabs.iter().any(holds) {
                let lent = device.caches().export_slab(DevicePtr(part.start));
                slabs.push(lent.filter(holds).ok_or_else(slab_is_gone)?);
            }
        }
        Ok(UsedMemory {
            blocks: uses.kept.into_values().collect(),
            slabs,
        })
    }
}

impl Drop for CaptureTracking {
    fn drop(&mut self) {
        // Dropped out here: what is kept may go home by it.
        let used = USED.try_with(RefCell::take);
        drop(used);
    }
}

#[cold]
#[track_caller]
fn slab_is_gone() -> Error {
    let text = "graph::capture: the scope gave its memory up before the capture ended: run the scope once \
                before, and enter it in this thread alone";
    Error::new(ErrorKind::Unsupported, text)
}

impl Buffer {
    /// Notes what an operation does with this memory, where the thread records what it does.
    pub(crate) fn note_use(&self, used: Use) {
        if self.size_bytes() == 0 || !self.device().backend().is_capturing() {
            return;
        }
        USED.with_borrow_mut(|uses| {
            let Some(uses) = uses else { return };
            if cache::is_planned(&self.block) {
                // Now: who gets the part from here on has to be ordered with launches.
                self.block.mark_exported();
                uses.planned.push(range_of(&self.block));
                return;
            }
            let kept = uses.kept.entry(self.address());
            let kept = kept.or_insert_with(|| KeptBlock {
                block: self.block.keep(),
                used,
            });
            kept.used = kept.used.max(used);
        });
    }
}

/// Where the requested bytes of a block lie.
fn range_of(block: &BlockHandle) -> Range<u64> {
    let first = block.block.address.0;
    first..first + block.requested_bytes
}

impl UsedMemory {
    /// Launches a graph on the stream that it was captured on, after what other streams do with the memory;
    /// `graph` uses no other than this.
    ///
    /// # Errors
    ///
    /// Where the stream is being captured, or another thread lends an array whose memory this is to foreign
    /// code, and one of both writes.
    #[track_caller]
    pub(crate) fn launch(&self, gpu: &Cuda, graph: &Executable, stream: StreamId) -> Result<()> {
        // First: nobody begins to use several streams, or the memory, from here until the graph is launched.
        let alone = gpu.lock_launches_exclusive(stream)?;
        alone.check(self.ranges())?;
        if gpu.uses_streams() {
            self.use_on(gpu, stream)?;
        }
        // SAFETY: while it was captured, all that it uses was noted here, and so stays reserved; the stream
        // was just ordered after others that use it, and whoever does later orders itself after that.
        unsafe { gpu.launch_graph(graph, stream, &alone) }
    }

    /// Where all of this lies, and whether it is written.
    fn ranges(&self) -> impl Iterator<Item = (Range<u64>, Use)> {
        let blocks = self.blocks.iter();
        let blocks = blocks.map(|kept| (range_of(&kept.block), kept.used));
        let slabs = self.slabs.iter().map(|slab| (range_of(slab), Use::Write));
        blocks.chain(slabs)
    }

    /// Orders `stream`, which is about to use all of this; while it does, nobody else does.
    #[track_caller]
    fn use_on(&self, backend: &dyn Backend, stream: StreamId) -> Result<()> {
        self.blocks.iter().try_for_each(|kept| match kept.used {
            Use::Read => kept.block.read_on(backend, stream),
            Use::Write => kept.block.write_on(backend, stream),
        })?;
        let mut slabs = self.slabs.iter();
        slabs.try_for_each(|slab| slab.launch_on(backend, stream))
    }
}
