//! A pool and an oracle of plain byte ranges with their streams, and the steps of a random program.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use proptest::prelude::*;

use super::{MIB, UNIT};
use crate::device::StreamId;
use crate::pool::{Pool, SegmentId, Span, StreamOwner};

/// The part of a segment that a pool hands out.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum BlockShape {
    Split,
    Whole,
}

/// A pool and its oracle. Each call is made on the pool and the oracle. Then the results are
/// compared, and `check()` runs.
pub(super) struct Tested {
    pub(super) pool: Box<dyn Pool>,
    cut: BlockShape,
    group: fn(u64, u64) -> u32,
    pub(super) segments: BTreeMap<SegmentId, SegmentModel>,
    pub(super) taken: Vec<Span>,
    /// The default stream of takes and gives.
    stream: StreamId,
}

/// The streams that may still use some bytes.
pub(super) type ByteStreams = BTreeSet<u16>;

#[derive(Clone)]
pub(super) struct SegmentModel {
    pub(super) bytes: u64,
    pub(super) group: u32,
    /// The handed-out ranges, by offset. The ranges are disjoint.
    used: Vec<Range<u64>>,
    pub(super) is_range: bool,
    /// The uncommitted pages of a range, unordered.
    pub(super) uncommitted: Vec<Range<u64>>,
    /// The streams of each byte that was ever freed, in disjoint ranges.
    streams: Vec<(Range<u64>, ByteStreams)>,
}

/// Returns the owner that a free block with these streams must have.
pub(super) fn owner_of(streams: &ByteStreams) -> StreamOwner {
    match streams.first() {
        None => StreamOwner::NONE,
        Some(&one) if streams.len() == 1 => StreamOwner::of(StreamId(one)),
        Some(_) => StreamOwner::MANY,
    }
}

impl SegmentModel {
    pub(super) fn new(bytes: u64, group: u32) -> Self {
        Self {
            bytes,
            group,
            used: Vec::new(),
            is_range: false,
            uncommitted: Vec::new(),
            streams: Vec::new(),
        }
    }

    /// Returns the maximal ranges that are committed and free.
    pub(super) fn free(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let mut out = [self.used.as_slice(), &self.uncommitted].concat();
        out.sort_by_key(|range| range.start);
        out.push(self.bytes..self.bytes);
        let mut begin = 0;
        let between = out.into_iter().map(move |range| {
            let free = begin..range.start;
            begin = range.end;
            free
        });
        between.filter(|range| !range.is_empty())
    }

    fn uncommitted_bytes(&self) -> u64 {
        self.uncommitted
            .iter()
            .map(|page| page.end - page.start)
            .sum()
    }

    fn is_idle(&self) -> bool {
        let uncommitted_bytes = if self.is_range { self.bytes } else { 0 };
        self.used.is_empty() && self.uncommitted_bytes() == uncommitted_bytes
    }

    pub(super) fn streams(&self, range: &Range<u64>) -> ByteStreams {
        let touching = |of: &Range<u64>| of.start < range.end && range.start < of.end;
        let parts = self.streams.iter().filter(|(of, _)| touching(of));
        parts.flat_map(|(_, streams)| streams).copied().collect()
    }

    pub(super) fn set_streams(&mut self, range: Range<u64>, streams: ByteStreams) {
        let before = std::mem::take(&mut self.streams).into_iter();
        let outside = before.flat_map(|(of, streams)| {
            let front = of.start..of.end.min(range.start);
            let back = of.start.max(range.end)..of.end;
            [front, back].map(|part| (part, streams.clone()))
        });
        self.streams = outside.filter(|(part, _)| !part.is_empty()).collect();
        self.streams.push((range, streams));
    }

    fn hand_out(&mut self, span: Span) {
        let range = bytes_of(span);
        assert!(range.end <= self.bytes, "{span:?} ends outside its segment");
        let at = self.used.partition_point(|used| used.start < range.start);
        let apart = self.used[..at]
            .last()
            .is_none_or(|used| used.end <= range.start)
            && self.used[at..]
                .first()
                .is_none_or(|used| range.end <= used.start);
        assert!(apart, "{span:?} overlaps a block that is out");
        self.used.insert(at, range);
    }

    fn free_span(&mut self, span: Span, stream: StreamId) {
        let given = bytes_of(span);
        self.used.retain(|used| *used != given);
        let begin = given.start;
        self.set_streams(given, ByteStreams::from([stream.0]));
        self.join(begin);
    }

    /// Sets the streams of the free range at `offset` to the union of the streams of its parts.
    pub(super) fn join(&mut self, offset: u64) {
        let joined = self.free().find(|free| free.contains(&offset));
        let joined = joined.expect("it is free");
        let streams = self.streams(&joined);
        self.set_streams(joined, streams);
    }
}

fn bytes_of(span: Span) -> Range<u64> {
    span.offset..span.offset + span.bytes
}

impl Tested {
    pub(super) fn new(pool: Box<dyn Pool>, cut: BlockShape, group: fn(u64, u64) -> u32) -> Self {
        Self {
            pool,
            cut,
            group,
            segments: BTreeMap::new(),
            taken: Vec::new(),
            stream: StreamId(0),
        }
    }

    /// Sets the stream of the following calls.
    pub(super) fn on(&mut self, stream: u16) -> &mut Self {
        self.stream = StreamId(stream);
        self
    }

    pub(super) fn add(&mut self, bytes: u64, request_bytes: u64) -> SegmentId {
        let id = self.vacant_number();
        self.pool.add_segment(id, bytes, request_bytes);
        let group = self.group_of(bytes, request_bytes);
        self.segments.insert(id, SegmentModel::new(bytes, group));
        self.compare();
        id
    }

    pub(super) fn vacant_number(&self) -> SegmentId {
        let used = self.segments.keys().zip(0..);
        let used = used.take_while(|(id, number)| id.0 == *number);
        SegmentId(used.count() as u32)
    }

    pub(super) fn group_of(&self, segment_bytes: u64, request_bytes: u64) -> u32 {
        (self.group)(segment_bytes, request_bytes)
    }

    /// Takes a block that must be available.
    pub(super) fn take(&mut self, bytes: u64) -> Span {
        self.try_take(bytes)
            .unwrap_or_else(|| panic!("no {bytes} bytes in {:?}", self.pool))
    }

    /// Takes a block. The pool must refuse exactly if no free range of the group is long enough.
    pub(super) fn try_take(&mut self, request_bytes: u64) -> Option<Span> {
        let bytes = self.round(request_bytes);
        let group = self.group_of(bytes, bytes);
        let longest = self.longest(Some(group));
        let taken = self.pool.take(bytes, self.stream);
        if let Some((span, _)) = taken {
            let model = &self.segments[&span.segment];
            assert_eq!(model.group, group, "{span:?} is of another group");
        }
        self.taken(bytes, longest, taken)
    }

    /// Takes a block from any group. A pool of whole segments must use only the group of the
    /// request.
    pub(super) fn try_take_from_any(&mut self, request_bytes: u64) -> Option<Span> {
        let bytes = self.round(request_bytes);
        let longest = self.longest(match self.cut {
            BlockShape::Split => None,
            BlockShape::Whole => Some(self.group_of(bytes, bytes)),
        });
        let taken = self.pool.take_from_any(bytes, self.stream);
        self.taken(bytes, longest, taken)
    }

    /// Checks the result of a request. `longest` is the longest range available to the request.
    fn taken(
        &mut self,
        bytes: u64,
        longest: u64,
        taken: Option<(Span, StreamOwner)>,
    ) -> Option<Span> {
        assert_eq!(
            taken.is_some(),
            longest >= bytes,
            "{bytes} of {longest} bytes"
        );
        if let Some((span, owner)) = taken {
            let model = self.segments.get_mut(&span.segment).unwrap();
            let lengths = match self.cut {
                BlockShape::Split => bytes..bytes + UNIT,
                BlockShape::Whole => model.bytes..model.bytes + 1,
            };
            assert_eq!(span.offset % UNIT, 0, "{span:?}");
            assert!(
                span.bytes >= bytes && lengths.contains(&span.bytes),
                "{span:?} for {bytes}"
            );
            model.hand_out(span);
            let streams = model.streams(&bytes_of(span));
            assert_eq!(owner, owner_of(&streams), "{span:?} followed {streams:?}");
            self.taken.push(span);
        }
        self.compare();
        taken.map(|(span, _)| span)
    }

    pub(super) fn round(&self, bytes: u64) -> u64 {
        self.pool.rounding().round(bytes).unwrap()
    }

    pub(super) fn give(&mut self, span: Span) {
        self.taken.retain(|taken| *taken != span);
        let model = self.segments.get_mut(&span.segment).unwrap();
        model.free_span(span, self.stream);
        let idle = model.is_idle();
        let owner = StreamOwner::of(self.stream);
        assert_eq!(self.pool.give(span, owner), idle, "{span:?}");
        self.compare();
    }

    pub(super) fn remove(&mut self, id: SegmentId) -> bool {
        let model = self.segments.get(&id);
        let idle = model.filter(|model| model.is_idle());
        let owner = idle.map(|model| owner_of(&model.streams(&(0..model.bytes))));
        assert_eq!(self.pool.remove_segment(id), owner, "{id:?}");
        if owner.is_some() {
            self.segments.remove(&id);
        }
        self.compare();
        owner.is_some()
    }

    /// Returns the length of the longest free range of one group, or of all groups.
    fn longest(&self, group: Option<u32>) -> u64 {
        let models = self.segments.values();
        let models = models.filter(|model| group.is_none_or(|group| model.group == group));
        let lengths = models
            .flat_map(SegmentModel::free)
            .map(|free| free.end - free.start);
        lengths.max().unwrap_or(0)
    }

    pub(super) fn compare(&self) {
        self.pool.check();
        let used: u64 = self.taken.iter().map(|span| span.bytes).sum();
        let models = self.segments.values();
        let total: u64 = models
            .map(|model| model.bytes - model.uncommitted_bytes())
            .sum();
        assert_eq!(used + self.pool.free_bytes(), total);
        assert_eq!(self.pool.largest_free_block_bytes(), self.longest(None));
        let whole = self.segments.iter().filter(|(_, model)| !model.is_range);
        let idle = whole.filter(|(_, model)| model.is_idle());
        let mut idle: Vec<_> = idle.map(|(&id, model)| (model.bytes, id)).collect();
        idle.sort();
        let idle: Vec<_> = idle.into_iter().map(|(_, id)| id).collect();
        assert_eq!(self.pool.idle_segments(), idle);
        self.compare_idle_pages();
    }

    pub(super) fn step(&mut self, step: PoolStep) {
        match step {
            // A program has few segments, so that it fills its segments instead of adding segments.
            PoolStep::Add { .. } | PoolStep::AddRange { .. } if self.segments.len() == 4 => {}
            PoolStep::Add { bytes, request } => {
                self.add(bytes, self.round(request));
            }
            PoolStep::AddRange { .. } | PoolStep::Expand(_) | PoolStep::Decommit { .. }
                if !self.pool.supports_ranges() => {}
            PoolStep::AddRange { pages, request } => {
                self.add_range(pages, self.round(request));
            }
            PoolStep::Expand(bytes) => {
                self.take_expanding(bytes);
            }
            PoolStep::Decommit { part, skip, most } => self.decommit_some(part, skip, most),
            PoolStep::On(stream) => {
                self.on(stream);
            }
            PoolStep::Take(bytes) => {
                self.try_take(bytes);
            }
            PoolStep::TakeFromAny(bytes) => {
                self.try_take_from_any(bytes);
            }
            PoolStep::Give(_) if self.taken.is_empty() => {}
            PoolStep::Give(pick) => self.give(*pick.get(&self.taken)),
            PoolStep::Remove(number) => {
                self.remove(SegmentId(number));
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum PoolStep {
    Add { bytes: u64, request: u64 },
    AddRange { pages: u64, request: u64 },
    Expand(u64),
    Decommit { part: usize, skip: u64, most: u64 },
    On(u16),
    Take(u64),
    TakeFromAny(u64),
    Give(prop::sample::Index),
    Remove(u32),
}

/// Returns requests of every kind that a pool may treat differently. Small requests, which fill a
/// segment, are more frequent than large requests.
fn request() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1..8 * UNIT,
        2 => (1u64..64).prop_map(|units| units * UNIT),
        1 => 1..2 * MIB,
        1 => (MIB - 2 * UNIT)..(MIB + 2 * UNIT),
    ]
}

pub(super) fn step() -> impl Strategy<Value = PoolStep> {
    let bytes = prop_oneof![
        2 => (1u64..100).prop_map(|units| units * UNIT),
        1 => 1..64 * UNIT,
        1 => (2u64..9).prop_map(|mib| mib * MIB),
    ];
    prop_oneof![
        2 => (bytes, request()).prop_map(|(bytes, request)| PoolStep::Add { bytes, request }),
        2 => (1u64..24, request()).prop_map(|(pages, request)| PoolStep::AddRange { pages, request }),
        6 => (1..24 * UNIT).prop_map(PoolStep::Expand),
        3 => (0usize..8, 0u64..4, 1u64..4)
            .prop_map(|(part, skip, most)| PoolStep::Decommit { part, skip, most }),
        2 => (0u16..3).prop_map(PoolStep::On),
        8 => request().prop_map(PoolStep::Take),
        1 => request().prop_map(PoolStep::TakeFromAny),
        6 => any::<prop::sample::Index>().prop_map(PoolStep::Give),
        1 => (0u32..5).prop_map(PoolStep::Remove),
    ]
}
