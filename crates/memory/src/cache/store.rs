//! The state that every policy needs: free lists, pending frees, detached arenas, the epoch and the
//! record of the entry. One thread at a time uses a store. The module [`shard`](super::shard)
//! selects this thread.

use super::arena::{DetachedArenas, SUBALLOCATION};
use super::record::{FinishedRecord, MAX_RECORDED, RecordedAllocation, Recording};
use super::request::{Request, Size};
use super::stats::Counters;
use crate::device::StreamId;
use crate::memory::Block;
use crate::memory::header::{Header, Home, List};
use crate::memory::order::Streams;
use crate::memory::pending::{EventQueue, StreamEvents};
use crate::memory::uses::StreamUses;
use crate::pool::size_class::{CLASSES, floor_class};
use crate::recorder::{EventKind, EventRecord};
use crate::sync::Arc;

/// The number of free lists: one per class and one for idle suballocations, rounded up to a power
/// of two. A masked index then needs no bounds check.
const LISTS: usize = CLASSES.next_power_of_two();

/// The state that the policies of a shard share.
///
/// Invariants, asserted by [`check`](super::shard::Guard::check):
/// - A free list has idle blocks of its class. Only a block's own stream may still use the block.
/// - `exit_epoch` and `invalidation_epoch` are at most `epoch`.
pub(super) struct Store {
    home: Home,
    free_lists: [List; LISTS],
    /// The set of classes that ever had a block. Searches visit only the lists of these classes.
    classes: [u64; CLASSES.div_ceil(64)],
    /// Blocks that go to the pool later. A drop adds a block to this list, because a drop must not
    /// lock.
    pub(super) to_release: List,
    /// Freed blocks that other streams may still use. The events of these blocks are recorded
    /// later, because a drop must not record an event.
    pub(super) deferred: List,
    /// Deferred blocks with the events that they wait for.
    pub(super) pending: EventQueue<Box<Header>>,
    pub(super) detached: DetachedArenas,
    /// The current epoch, which advances at each outermost exit and each invalidation. A block
    /// stores the epoch in which it was handed out.
    pub(super) epoch: u64,
    /// The epoch limit for escaped blocks: blocks with a lower epoch count as escaped.
    pub(super) exit_epoch: u64,
    /// The epoch limit for invalidated blocks: blocks with a lower epoch go to the pool when they
    /// drop.
    pub(super) invalidation_epoch: u64,
    pub(super) recording: Option<Recording>,
    /// The record of the last recorded entry.
    pub(super) finished: Option<Arc<FinishedRecord>>,
    /// True if the settings request a record of each entry.
    pub(super) records: bool,
}

impl Store {
    pub(super) fn new(home: Home) -> Self {
        Self {
            home,
            free_lists: [const { List::new() }; LISTS],
            classes: [0; CLASSES.div_ceil(64)],
            to_release: List::new(),
            deferred: List::new(),
            pending: EventQueue::new(),
            detached: DetachedArenas::default(),
            epoch: 1,
            exit_epoch: 0,
            invalidation_epoch: 0,
            recording: None,
            finished: None,
            records: false,
        }
    }

    pub(super) fn home(&self) -> Home {
        self.home
    }

    #[inline]
    pub(super) fn list(&mut self, class: usize) -> &mut List {
        const { assert!(CLASSES <= SUBALLOCATION && SUBALLOCATION < LISTS) };
        &mut self.free_lists[class & (LISTS - 1)]
    }

    #[inline]
    pub(super) fn idle_suballocations(&mut self) -> &mut List {
        &mut self.free_lists[SUBALLOCATION]
    }

    /// Returns the headers of [`idle_suballocations`](Self::idle_suballocations), and the recording
    /// that records their frees.
    pub(super) fn idle_and_recording(&mut self) -> (&mut List, Option<&mut Recording>) {
        let recording = self.recording.as_mut();
        (&mut self.free_lists[SUBALLOCATION], recording)
    }

    /// Removes and returns the shortest block that fits and wastes at most 1/8 of `size`. Among
    /// blocks of equal length, selects the most recently freed block.
    pub(super) fn pop_tightest(&mut self, size: Size, stream: StreamId) -> Option<Box<Header>> {
        let waste_bytes = size.rounded_bytes / 8;
        let waste = |header: &Header| {
            let fits = header.block.stream == stream;
            let waste = header.block.bytes().checked_sub(size.rounded_bytes);
            waste.filter(|waste| fits && *waste <= waste_bytes)
        };
        let last = floor_class(size.rounded_bytes.saturating_add(waste_bytes));
        let mut classes = floor_class(size.rounded_bytes)..=last;
        classes.find_map(|class| self.list(class).take_best(waste))
    }

    #[inline]
    pub(super) fn push(&mut self, header: Box<Header>) {
        self.list(header.class).push(header);
    }

    /// Iterates over the idle blocks, without deferred and pending blocks.
    pub(super) fn idle(&self) -> impl Iterator<Item = &Header> {
        set_bits(self.classes).flat_map(|class| self.free_lists[class].iter())
    }

    #[cfg(test)]
    pub(super) fn lists(&self) -> (impl Iterator<Item = (usize, &List)>, &List) {
        let lists = self.free_lists[..CLASSES].iter().enumerate();
        (lists, &self.free_lists[SUBALLOCATION])
    }

    pub(super) fn new_header(&mut self, counters: &Counters, block: Block) -> Box<Header> {
        counters.owned_blocks.add(1);
        counters.owned_bytes.add(block.bytes());
        let class = floor_class(block.bytes());
        self.classes[class / 64] |= 1 << (class % 64);
        Header::new(block, class, self.home)
    }

    /// Creates the header of an arena, which does not count as a block.
    pub(super) fn new_arena(&self, counters: &Counters, block: Block) -> Box<Header> {
        counters.owned_bytes.add(block.bytes());
        Header::new(block, super::arena::ARENA, self.home)
    }

    /// Creates the header of a suballocation. The bytes of a suballocation are not counted, because
    /// the bytes of its arena are counted.
    pub(super) fn new_suballocation(&self, counters: &Counters, block: Block) -> Box<Header> {
        counters.owned_blocks.add(1);
        Header::new(block, SUBALLOCATION, self.home)
    }

    pub(super) fn release_where(&mut self, is_released: impl Fn(&Header) -> bool) {
        for class in set_bits(self.classes) {
            let mut released = self.free_lists[class].extract(&is_released);
            self.to_release.append(&mut released);
        }
    }

    /// Releases all idle blocks except arenas.
    pub(super) fn release_free_lists(&mut self) {
        self.release_where(|_| true);
    }

    /// Releases suballocation headers and arenas.
    pub(super) fn release(&mut self, mut headers: List) {
        self.to_release.append(&mut headers);
    }

    /// Defers the free of a block that other streams may still use.
    pub(super) fn defer(&mut self, counters: &Counters, header: Box<Header>) {
        counters.pending_blocks.add(1);
        counters.pending_bytes.add(header.block.bytes());
        self.deferred.push(header);
    }

    pub(super) fn has_pending(&self) -> bool {
        !(self.deferred.is_empty() && self.pending.is_empty())
    }

    /// Moves the deferred and pending blocks that other streams no longer use to their free lists.
    pub(super) fn reclaim_pending(&mut self, counters: &Counters, streams: Streams<'_>) {
        let backend = streams.backend;
        let mut events_of = StreamEvents::new(backend);
        for header in std::mem::take(&mut self.deferred) {
            match events_of.events(&header.block.other_uses) {
                Ok(events) => self.pending.push(events, header),
                // The next call retries this block.
                Err(_) => self.deferred.push(header),
            }
        }
        for mut header in self.pending.take_finished(backend) {
            header.block.other_uses = StreamUses::NONE;
            counters.pending_blocks.sub(1);
            counters.pending_bytes.sub(header.block.bytes());
            streams.recorder.record(|| EventRecord {
                stream: header.block.stream,
                address: header.block.address.0,
                ..EventRecord::of(EventKind::FreeCompleted, header.block.bytes())
            });
            self.push(header);
        }
    }

    /// Releases deferred and pending blocks to the pool, which waits for their streams.
    pub(super) fn release_pending(&mut self, counters: &Counters) {
        self.to_release.append(&mut self.deferred);
        for header in self.pending.take_all() {
            self.to_release.push(header);
        }
        counters.pending_blocks.set(0);
        counters.pending_bytes.set(0);
    }

    /// Takes back a suballocation whose entry has ended.
    pub(super) fn free_detached(&mut self, header: Box<Header>) {
        let arenas = self.detached.free(header.epoch(), header.block.bytes());
        self.release(arenas);
        self.to_release.push(header);
    }

    /// Begins a record of the entry, up to `most` allocations. The record begins with the
    /// allocations `known`.
    pub(super) fn record(&mut self, most: usize, known: Vec<RecordedAllocation>) {
        self.recording = Some(Recording::new(self.exit_epoch, most, known));
    }

    /// If the settings request a record, begins a record of the whole entry.
    pub(super) fn record_as_set(&mut self) {
        if self.records {
            self.record(MAX_RECORDED, Vec::new());
        }
    }

    pub(super) fn is_recording(&self) -> bool {
        self.recording.as_ref().is_some_and(Recording::is_open)
    }

    /// Records an allocation that `counters` already include. Returns its index; `None` if the
    /// entry has no record, or if the record is full.
    pub(super) fn record_allocation(
        &mut self,
        counters: &Counters,
        request: &Request,
    ) -> Option<u32> {
        let recording = self.recording.as_mut()?;
        let index = recording.allocated(request);
        if index.is_none() && recording.is_open() {
            recording.stop(counters.served().wrapping_sub(1), self.records);
        }
        index
    }

    pub(super) fn record_drop(&mut self, number: u32, epoch: u64) {
        if let Some(recording) = &mut self.recording {
            recording.freed(number, epoch);
        }
        if let Some(finished) = &self.finished {
            finished.dropped(number, epoch);
        }
    }

    /// Ends the record of the entry. Returns the record, and true if the record is complete.
    pub(super) fn finish_recording(
        &mut self,
        counters: &Counters,
    ) -> Option<(Vec<RecordedAllocation>, bool)> {
        let recording = self.recording.as_ref()?; // This avoids a move of the large record.
        if recording.is_open() || self.records {
            self.finished = Some(Arc::new(recording.finished(self.epoch)));
        }
        let (recorded, stopped_at) = self.recording.take()?.finish();
        if let Some(served) = stopped_at {
            let missing = counters.served().wrapping_sub(served);
            counters.unrecorded.add(missing);
        }
        Some((recorded, stopped_at.is_none()))
    }
}

fn set_bits(words: [u64; CLASSES.div_ceil(64)]) -> impl Iterator<Item = usize> {
    let bits = |(index, word): (usize, u64)| {
        let rest = |word: &u64| Some(word & (word - 1)).filter(|rest| *rest != 0);
        let words = std::iter::successors(Some(word).filter(|word| *word != 0), rest);
        words.map(move |word| index * 64 + word.trailing_zeros() as usize)
    };
    words.into_iter().enumerate().flat_map(bits)
}
