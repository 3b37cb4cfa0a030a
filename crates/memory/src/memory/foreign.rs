//! Imported memory: foreign code allocated it, and this crate uses it while its block is alive. No
//! source has reserved the memory, no pool contains it, and only its destructor can free it.
//!
//! An imported block is freed like any other block. The block is pending until every stream that
//! may use it is done, and then its destructor is called. Destructors are foreign code. The next
//! thread that allocates or waits calls the destructors, with no lock held. A thread that drops an
//! array never calls a destructor.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::uses::StreamUses;
use super::{Block, DeviceMemory, WaitMode};
use crate::device::{DevicePtr, StreamId, Use};
use crate::error::{Error, ErrorKind};
use crate::pool::{SegmentId, Span};
use crate::sync::plain::Ordering;

pub(crate) type Destructor = Box<dyn FnOnce() + Send>;

/// The segment number of imported blocks that may be written to.
const IMPORTED_SEGMENT: SegmentId = SegmentId(u32::MAX - 1);
/// The segment number of imported blocks that may only be read.
const READ_ONLY_SEGMENT: SegmentId = SegmentId(u32::MAX - 2);

/// The destructors of imported blocks.
///
/// Invariants: a number belongs to a block while the block is used or pending, and `vacant` lists
/// the unused numbers. A destructor is stored once, and removed before it is called.
#[derive(Default)]
pub(super) struct ImportedBlocks {
    /// The destructors, by the number of the block.
    destructors: Vec<Option<Destructor>>,
    vacant: Vec<u32>,
    /// The destructors of freed blocks whose streams are done.
    finished: Vec<Destructor>,
}

impl ImportedBlocks {
    fn insert(&mut self, destructor: Destructor) -> u32 {
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.destructors.push(None);
            u32::try_from(self.destructors.len() - 1)
                .expect("the number of imported blocks is below 2^32")
        });
        self.destructors[number as usize] = Some(destructor);
        number
    }

    /// Marks a block as done: its destructor can be called.
    #[expect(clippy::needless_pass_by_value, reason = "the block is consumed")]
    pub(super) fn finish(&mut self, block: Block) {
        let number = block.span.node;
        self.vacant.push(number);
        self.finished
            .extend(self.destructors[number as usize].take());
    }

    fn take_finished(&mut self) -> Vec<Destructor> {
        std::mem::take(&mut self.finished)
    }

    /// Takes all destructors, once no block is in use.
    fn take_all(&mut self) -> Vec<Destructor> {
        let mut all = self.take_finished();
        all.extend(self.destructors.drain(..).flatten());
        self.vacant.clear();
        all
    }
}

impl Block {
    /// Returns true if the memory is imported. The length of the block counts as 0, because byte
    /// counts cover only the pool.
    pub(super) fn is_imported(&self) -> bool {
        self.span.segment == IMPORTED_SEGMENT || self.is_read_only()
    }

    /// Returns true if the memory is imported and must not be written to.
    pub(crate) fn is_read_only(&self) -> bool {
        self.span.segment == READ_ONLY_SEGMENT
    }
}

impl DeviceMemory {
    /// Makes a block of foreign memory, ordered by `stream`, for uses up to `allowed`. `destructor`
    /// is called once, after the block was freed and its streams are done.
    pub(crate) fn import_foreign(
        &self,
        address: DevicePtr,
        stream: StreamId,
        allowed: Use,
        destructor: Destructor,
    ) -> Block {
        self.imported_blocks.fetch_add(1, Ordering::Relaxed);
        let node = self.state.lock().imported.insert(destructor);
        Block {
            address,
            stream,
            other_uses: StreamUses::NONE,
            span: Span {
                segment: match allowed {
                    Use::Read => READ_ONLY_SEGMENT,
                    Use::Write => IMPORTED_SEGMENT,
                },
                offset: 0,
                bytes: 0,
                node,
            },
        }
    }

    /// Frees the imported blocks whose streams are done. The caller must hold no lock and no borrow
    /// of a shard.
    pub(crate) fn free_imported(&self) {
        // Captured work may use imported blocks whenever the graph runs, so a capture frees none.
        if self.has_imported() && !self.backend.is_capturing() {
            self.reclaim_pending(&mut self.state.lock(), WaitMode::Poll);
            self.call_destructors();
        }
    }

    /// Calls the destructors of finished blocks. The caller must hold no lock and no borrow of a
    /// shard.
    pub(super) fn call_destructors(&self) {
        if self.has_imported() {
            let finished = self.state.lock().imported.take_finished();
            self.call_each(finished);
        }
    }

    /// Calls all destructors, when the memory ends and every block has returned.
    pub(super) fn call_all_destructors(&self) {
        if self.has_imported() {
            let all = self.state.lock().imported.take_all();
            self.call_each(all);
        }
    }

    /// Returns true if a destructor is still to be called.
    pub(super) fn has_imported(&self) -> bool {
        self.imported_blocks.load(Ordering::Relaxed) > 0
    }

    fn call_each(&self, destructors: Vec<Destructor>) {
        for destructor in destructors {
            self.imported_blocks.fetch_sub(1, Ordering::Relaxed);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(destructor)) {
                std::mem::forget(panic); // A payload may panic again as it drops.
                let text = "the destructor of imported memory panicked";
                self.defer(Error::new(ErrorKind::Panic, text));
            }
        }
    }
}
