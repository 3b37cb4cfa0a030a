//! The segments of a snapshot, tiled by blocks.

use std::io;
use std::iter::Peekable;

use super::names::{NameKey, Names};
use super::pickle::{List, Pickle};
use super::reserved::{AddressSpan, Range};
use super::trace::{Memory, TracedBlock};
use crate::place::Place;

pub(super) fn write(
    memory: &Memory,
    device: u64,
    pickle: &mut Pickle<'_>,
    names: &mut Names<'_>,
) -> io::Result<()> {
    let mut segments = pickle.begin_list();
    let mut blocks = memory.blocks.values().peekable();
    for segment in whole(memory) {
        pickle.item(&mut segments);
        let mut writer = SegmentWriter {
            pickle,
            names,
            allocated_bytes: 0,
            pending_bytes: 0,
            requested_bytes: 0,
        };
        writer.segment(device, segment, &mut blocks)?;
    }
    pickle.end_list(segments);
    Ok(())
}

/// Returns the reserved ranges. If a block spans two adjacent ranges, the ranges are merged,
/// regardless of their streams.
fn whole(memory: &Memory) -> Vec<Range> {
    let mut segments: Vec<Range> = Vec::new();
    for range in memory.reserved.iter() {
        let start = range.span.start;
        let across = memory.blocks.range(..start).next_back();
        match segments.last_mut() {
            Some(last) if across.is_some_and(|(_, block)| block.span.end > start) => {
                last.span.end = range.span.end;
            }
            _ => segments.push(range),
        }
    }
    segments
}

/// A writer of one segment. It accumulates the sums over the segment's blocks.
struct SegmentWriter<'a, 'b, 'p> {
    pickle: &'a mut Pickle<'b>,
    names: &'a mut Names<'p>,
    allocated_bytes: u64,
    pending_bytes: u64,
    requested_bytes: u64,
}

impl SegmentWriter<'_, '_, '_> {
    fn segment<'m>(
        &mut self,
        device: u64,
        segment: Range,
        blocks: &mut Peekable<impl Iterator<Item = &'m TracedBlock>>,
    ) -> io::Result<()> {
        self.pickle.begin_dict();
        self.number(NameKey::Device, device);
        self.number(NameKey::Address, segment.span.start);
        self.number(NameKey::TotalSize, segment.span.bytes());
        self.number(NameKey::Stream, segment.stream.into());
        self.text(NameKey::SegmentType, NameKey::Large);
        self.names.key(self.pickle, NameKey::IsExpandable);
        self.pickle.yes();
        self.frames(Place::NOWHERE);
        self.blocks(segment.span, blocks)?;
        self.number(NameKey::AllocatedSize, self.allocated_bytes);
        self.number(
            NameKey::ActiveSize,
            self.allocated_bytes + self.pending_bytes,
        );
        self.number(NameKey::RequestedSize, self.requested_bytes);
        self.pickle.end_dict();
        Ok(())
    }

    fn blocks<'m>(
        &mut self,
        segment: AddressSpan,
        blocks: &mut Peekable<impl Iterator<Item = &'m TracedBlock>>,
    ) -> io::Result<()> {
        self.names.key(self.pickle, NameKey::Blocks);
        let mut list = self.pickle.begin_list();
        let mut at = segment.start;
        while let Some(block) = blocks.next_if(|block| block.span.start < segment.end) {
            let end = block.span.start;
            self.idle(&mut list, AddressSpan { start: at, end });
            self.block(&mut list, block);
            at = block.span.end;
            self.pickle.drain()?;
        }
        let end = segment.end;
        self.idle(&mut list, AddressSpan { start: at, end });
        self.pickle.end_list(list);
        Ok(())
    }

    fn block(&mut self, list: &mut List, block: &TracedBlock) {
        let bytes = block.span.bytes();
        let state = if block.is_pending {
            self.pending_bytes += bytes;
            NameKey::ActivePendingFree
        } else {
            self.allocated_bytes += bytes;
            self.requested_bytes += block.requested_bytes;
            NameKey::ActiveAllocated
        };
        self.tile(
            list,
            block.span,
            state,
            block.requested_bytes,
            block.place(),
        );
    }

    fn idle(&mut self, list: &mut List, span: AddressSpan) {
        if !span.is_empty() {
            self.tile(list, span, NameKey::Inactive, 0, Place::NOWHERE);
        }
    }

    fn tile(
        &mut self,
        list: &mut List,
        span: AddressSpan,
        state: NameKey,
        requested: u64,
        place: Place,
    ) {
        self.pickle.item(list);
        self.pickle.begin_dict();
        self.number(NameKey::Address, span.start);
        self.number(NameKey::Size, span.bytes());
        self.number(NameKey::RequestedSize, requested);
        self.text(NameKey::State, state);
        self.frames(place);
        self.pickle.end_dict();
    }

    fn number(&mut self, key: NameKey, number: u64) {
        self.names.key(self.pickle, key);
        self.pickle.number(number);
    }

    fn text(&mut self, key: NameKey, text: NameKey) {
        self.names.key(self.pickle, key);
        self.names.key(self.pickle, text);
    }

    fn frames(&mut self, place: Place) {
        self.names.key(self.pickle, NameKey::Frames);
        self.names.frames(self.pickle, place);
    }
}
