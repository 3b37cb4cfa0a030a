//! Memory that somebody else allocated, and that is used here for as long as its block is out: no source
//! reserved it, no pool knows it, and only its destructor knows where it goes.
//!
//! Such a block comes back as any other does, is pending until every stream that may use it is done, and
//! then ends. Destructors are foreign code: they are called with no lock held, by whoever allocates or
//! waits next, and never by whoever drops an array.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::order::Streams;
use super::{Block, DeviceMemory, Patience};
use crate::device::{DevicePtr, StreamId};
use crate::error::{Error, ErrorKind};
use crate::pool::{SegmentId, Span};
use crate::sync::plain::Ordering;

/// What gives memory back to where it came from.
pub(crate) type Destructor = Box<dyn FnOnce() + Send>;

/// The segment that foreign blocks name instead of one of the pool's.
const FOREIGN: SegmentId = SegmentId(u32::MAX - 1);

/// The destructors of foreign blocks.
///
/// Invariants: a number is a block's for as long as that is out or pending, and `vacant` lists the others;
/// a destructor stands in one place, and is taken out of it to be called.
#[derive(Default)]
pub(super) struct Foreign {
    /// By the number of their block.
    lent: Vec<Option<Destructor>>,
    vacant: Vec<u32>,
    /// Those of blocks that nobody uses any more.
    ended: Vec<Destructor>,
}

impl Foreign {
    fn insert(&mut self, destructor: Destructor) -> u32 {
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.lent.push(None);
            u32::try_from(self.lent.len() - 1).expect("fewer than 2^32 blocks")
        });
        self.lent[number as usize] = Some(destructor);
        number
    }

    /// Ends a block that every stream is done with.
    #[expect(clippy::needless_pass_by_value, reason = "there is no block any more")]
    pub(super) fn end(&mut self, block: Block) {
        let number = block.span.node;
        self.vacant.push(number);
        self.ended.extend(self.lent[number as usize].take());
    }

    fn take_ended(&mut self) -> Vec<Destructor> {
        std::mem::take(&mut self.ended)
    }

    /// All of them, where no block is out any more.
    fn take_all(&mut self) -> Vec<Destructor> {
        let mut all = self.take_ended();
        all.extend(self.lent.drain(..).flatten());
        self.vacant.clear();
        all
    }
}

impl Block {
    /// Whether the memory is somebody else's. Its length counts as 0, because all that is counted by it is
    /// the pool's.
    pub(super) fn is_foreign(&self) -> bool {
        self.span.segment == FOREIGN
    }
}

impl DeviceMemory {
    /// A block of foreign memory, whose contents follow `stream`; `destructor` is called once, after it
    /// came back and the streams that used it are done.
    pub(crate) fn take_in(
        &self,
        address: DevicePtr,
        stream: StreamId,
        destructor: Destructor,
    ) -> Block {
        self.foreign_blocks.fetch_add(1, Ordering::Relaxed);
        let node = self.state.lock().foreign.insert(destructor);
        Block {
            address,
            stream,
            others: Streams::NONE,
            span: Span {
                segment: FOREIGN,
                offset: 0,
                bytes: 0,
                node,
            },
        }
    }

    /// Ends the foreign blocks that came back and that the streams are done with. Called with no lock and
    /// no borrow of a shard held.
    pub(crate) fn end_foreign(&self) {
        // What was recorded may use them, whenever that runs.
        if self.has_foreign() && !self.backend.is_capturing() {
            self.reclaim_pending(&mut self.state.lock(), Patience::Leave);
            self.call_destructors();
        }
    }

    /// Calls the destructors of what has ended. Called with no lock and no borrow of a shard held.
    pub(super) fn call_destructors(&self) {
        if self.has_foreign() {
            let ended = self.state.lock().foreign.take_ended();
            self.call_each(ended);
        }
    }

    /// The same for what is pending too, when the memory ends and every block is back.
    pub(super) fn call_all_destructors(&self) {
        if self.has_foreign() {
            let all = self.state.lock().foreign.take_all();
            self.call_each(all);
        }
    }

    /// Whether a destructor is yet to be called.
    pub(super) fn has_foreign(&self) -> bool {
        self.foreign_blocks.load(Ordering::Relaxed) > 0
    }

    fn call_each(&self, destructors: Vec<Destructor>) {
        for destructor in destructors {
            self.foreign_blocks.fetch_sub(1, Ordering::Relaxed);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(destructor)) {
                std::mem::forget(panic); // What was thrown may throw again as it drops.
                let text = "the destructor of memory that an array took in has panicked";
                self.defer(Error::new(ErrorKind::Driver, text));
            }
        }
    }
}
