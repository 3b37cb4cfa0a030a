//! The entries of a snapshot, and the final memory state.
//!
//! The viewer walks the entries backwards from the final state. If a block is outside of all
//! segments, or a pending block is missing, the walk fails. If an unknown segment is unmapped, the
//! walk also fails. So this module simulates the memory forwards, and adds entries for lost events.
//! If an allocation or a released segment overlaps blocks, these blocks are freed first. The
//! addresses of a block are mapped before its allocation. If a freed block has no recorded
//! allocation, an allocation is added after the earlier entries of its addresses.

use std::collections::BTreeMap;
use std::io;

use super::names::{NameKey, Names};
use super::pickle::{List, Pickle};
use super::reserved::{AddressSpan, Range, Reserved};
use crate::place::Place;
use crate::profile::{Event, EventKind, Profile};

/// The origin of a request: its stream, its scope and its place.
#[derive(Clone, Copy, Debug)]
struct BlockOrigin {
    stream: u32,
    scope: Option<u32>,
    place: Place,
}

impl BlockOrigin {
    fn of(event: &Event) -> Self {
        Self {
            stream: event.stream,
            scope: event.scope,
            place: Place::of(event),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct TracedBlock {
    pub(super) span: AddressSpan,
    pub(super) requested_bytes: u64,
    /// True if the block was freed, but other streams may still use it.
    pub(super) is_pending: bool,
    /// True if no known segment contains the memory. Then the segment is mapped and unmapped
    /// together with the block.
    is_foreign: bool,
    origin: BlockOrigin,
}

impl TracedBlock {
    fn of(event: &Event) -> Self {
        let span = AddressSpan::new(event.address, event.block_bytes.max(event.bytes));
        Self {
            span,
            requested_bytes: event.bytes.min(span.bytes()),
            is_pending: false,
            is_foreign: false,
            origin: BlockOrigin::of(event),
        }
    }

    pub(super) fn place(&self) -> Place {
        self.origin.place
    }
}

/// The memory state. Blocks do not overlap, are not empty, and lie in reserved ranges.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) reserved: Reserved,
    pub(super) blocks: BTreeMap<u64, TracedBlock>,
}

/// Writes the list of entries. Returns the final memory state.
pub(super) fn write(
    profile: &Profile,
    pickle: &mut Pickle<'_>,
    names: &mut Names<'_>,
) -> io::Result<Memory> {
    let list = pickle.begin_list();
    let mut trace = SnapshotTrace {
        began_unix_ns: profile.began_unix_ns,
        pickle,
        names,
        list,
        memory: Memory::default(),
        touched: Reserved::default(),
    };
    for segment in &profile.segments {
        trace.assume(AddressSpan::new(segment.address, segment.bytes), 0);
    }
    for event in &profile.events {
        trace.apply(event);
        trace.pickle.drain()?;
    }
    trace.end(profile.duration_ns);
    let SnapshotTrace { list, memory, .. } = trace;
    pickle.end_list(list);
    Ok(memory)
}

struct SnapshotTrace<'a, 'b, 'p> {
    began_unix_ns: u64,
    pickle: &'a mut Pickle<'b>,
    names: &'a mut Names<'p>,
    list: List,
    memory: Memory,
    /// The addresses that entries have changed. All other addresses have the state from before the
    /// recording.
    touched: Reserved,
}

impl SnapshotTrace<'_, '_, '_> {
    fn apply(&mut self, event: &Event) {
        match event.kind {
            kind if kind.is_allocation() => self.allocate(event),
            kind if kind.is_free() => self.free(event),
            EventKind::FreeCompleted => self.free_completed(event),
            EventKind::Reserve => self.reserve(event),
            EventKind::Release => self.release(event),
            EventKind::OutOfMemory => self.out_of_memory(event),
            _ => {}
        }
    }

    fn allocate(&mut self, event: &Event) {
        let mut block = TracedBlock::of(event);
        if block.span.is_empty() {
            return;
        }
        self.end_overlapping(block.span, event.time_ns);
        let gaps = self.memory.reserved.gaps(block.span);
        block.is_foreign = gaps == [block.span];
        self.map(&gaps, block.origin, event.time_ns);
        self.memory.blocks.insert(block.span.start, block);
        self.entry(NameKey::Alloc, block.span, block.origin, event.time_ns);
    }

    fn free(&mut self, event: &Event) {
        let known = self.memory.blocks.get(&event.address);
        if known.is_none_or(|block| block.is_pending) {
            self.allocated_before(event);
        }
        let known = self.memory.blocks.get_mut(&event.address);
        let Some(block) = known.filter(|block| !block.is_pending) else {
            return;
        };
        block.is_pending = true;
        let block = *block;
        let origin = BlockOrigin::of(event);
        self.entry(NameKey::FreeRequested, block.span, origin, event.time_ns);
        if event.kind == EventKind::Free {
            self.complete(&block, origin, event.time_ns);
        }
    }

    /// Completes the frees of the pending blocks in the event's span. A block whose address was
    /// already reused is not pending any more.
    fn free_completed(&mut self, event: &Event) {
        let span = AddressSpan::new(event.address, event.bytes);
        let blocks = self.memory.blocks.range(span.start..span.end);
        let pending = blocks.filter(|(_, block)| block.is_pending);
        let pending: Vec<TracedBlock> = pending.map(|(_, block)| *block).collect();
        for block in pending {
            self.complete(&block, block.origin, event.time_ns);
        }
    }

    /// Adds a block without a recorded allocation. If its addresses have no earlier entries, the
    /// block precedes the recording. Otherwise, an allocation is added now.
    fn allocated_before(&mut self, event: &Event) {
        let mut block = TracedBlock::of(event);
        if block.span.is_empty() {
            return;
        }
        if self.touched.gaps(block.span) != [block.span] {
            return self.allocate(event);
        }
        block.is_foreign = self.assume(block.span, event.stream) == [block.span];
        self.memory.blocks.insert(block.span.start, block);
    }

    fn reserve(&mut self, event: &Event) {
        let span = AddressSpan::new(event.address, event.bytes);
        for (_, block) in self.memory.blocks.range_mut(span.start..span.end) {
            block.is_foreign = false;
        }
        let gaps = self.memory.reserved.gaps(span);
        self.map(&gaps, BlockOrigin::of(event), event.time_ns);
    }

    fn release(&mut self, event: &Event) {
        let span = AddressSpan::new(event.address, event.bytes);
        if span.is_empty() {
            return;
        }
        self.end_overlapping(span, event.time_ns);
        for untouched in self.touched.gaps(span) {
            self.assume(untouched, event.stream);
        }
        self.unmap(span, BlockOrigin::of(event), event.time_ns);
    }

    fn out_of_memory(&mut self, event: &Event) {
        self.begin_entry(NameKey::Oom);
        // The viewer requires a number for the free device memory, which is not recorded.
        self.number(NameKey::DeviceFree, 0);
        self.number(NameKey::Size, event.bytes);
        self.category(NameKey::Oom, event.scope);
        self.end_entry(BlockOrigin::of(event), event.time_ns);
    }

    /// Writes the last entry, with the category `unknown`. If any other entry has a category and
    /// the last entry has none, the viewer fails.
    fn end(&mut self, time_ns: u64) {
        self.begin_entry(NameKey::Snapshot);
        self.number(NameKey::Addr, 0);
        self.number(NameKey::Size, 0);
        self.names.key(self.pickle, NameKey::Category);
        self.names.key(self.pickle, NameKey::Unknown);
        let nobody = BlockOrigin {
            stream: 0,
            scope: None,
            place: Place::NOWHERE,
        };
        self.end_entry(nobody, time_ns);
    }

    /// Completes the frees of all blocks that overlap a span. If a block is not pending, its free
    /// was lost.
    fn end_overlapping(&mut self, span: AddressSpan, time_ns: u64) {
        while let Some((_, &block)) = self.memory.blocks.range(..span.end).next_back()
            && block.span.end > span.start
        {
            if !block.is_pending {
                self.entry(NameKey::FreeRequested, block.span, block.origin, time_ns);
            }
            self.complete(&block, block.origin, time_ns);
        }
    }

    fn complete(&mut self, block: &TracedBlock, origin: BlockOrigin, time_ns: u64) {
        self.memory.blocks.remove(&block.span.start);
        self.entry(NameKey::FreeCompleted, block.span, origin, time_ns);
        if block.is_foreign {
            self.unmap(block.span, origin, time_ns);
        }
    }

    /// Marks a span as reserved before the recording. Returns the parts that were not yet reserved.
    fn assume(&mut self, span: AddressSpan, stream: u32) -> Vec<AddressSpan> {
        self.memory.reserved.fill(span, stream)
    }

    fn map(&mut self, gaps: &[AddressSpan], origin: BlockOrigin, time_ns: u64) {
        for &span in gaps {
            let stream = self.memory.reserved.add(span, origin.stream);
            let origin = BlockOrigin { stream, ..origin };
            self.entry(NameKey::SegmentMap, span, origin, time_ns);
        }
    }

    /// Unmaps a span range by range, each with its own stream. So when the viewer walks back, it
    /// merges the ranges again.
    fn unmap(&mut self, span: AddressSpan, origin: BlockOrigin, time_ns: u64) {
        for Range { span, stream } in self.memory.reserved.remove(span) {
            let origin = BlockOrigin { stream, ..origin };
            self.entry(NameKey::SegmentUnmap, span, origin, time_ns);
        }
    }

    fn entry(&mut self, action: NameKey, span: AddressSpan, origin: BlockOrigin, time_ns: u64) {
        self.touched.fill(span, 0);
        self.begin_entry(action);
        self.number(NameKey::Addr, span.start);
        self.number(NameKey::Size, span.bytes());
        self.category(action, origin.scope);
        self.end_entry(origin, time_ns);
    }

    /// Writes the category of an entry, if the entry concerns a block or has a scope.
    fn category(&mut self, action: NameKey, scope: Option<u32>) {
        if scope.is_some() || is_of_block(action) {
            self.names.key(self.pickle, NameKey::Category);
            self.names.scope(self.pickle, scope);
        }
    }

    fn begin_entry(&mut self, action: NameKey) {
        self.pickle.item(&mut self.list);
        self.pickle.begin_dict();
        self.names.key(self.pickle, NameKey::Action);
        self.names.key(self.pickle, action);
    }

    fn end_entry(&mut self, origin: BlockOrigin, time_ns: u64) {
        let unix_ns = self.began_unix_ns.saturating_add(time_ns);
        self.number(NameKey::Stream, origin.stream.into());
        self.number(NameKey::TimeUs, unix_ns / 1000);
        self.names.key(self.pickle, NameKey::Frames);
        self.names.frames(self.pickle, origin.place);
        self.pickle.end_dict();
    }

    fn number(&mut self, key: NameKey, number: u64) {
        self.names.key(self.pickle, key);
        self.pickle.number(number);
    }
}

fn is_of_block(action: NameKey) -> bool {
    matches!(
        action,
        NameKey::Alloc | NameKey::FreeRequested | NameKey::FreeCompleted
    )
}
