//! What stands under a memory's lock: the pool, and what of the source lies under each number that
//! the pool knows.

use super::Block;
use super::foreign::Foreign;
use super::order::Streams;
use super::pending::Pending;
use crate::device::{DevicePtr, StreamId};
use crate::error::{Error, Result};
use crate::pool::{Pool, SegmentId, Span};

/// What a number of the pool stands for.
///
/// Invariants: a segment that is no range holds all its bytes by one reservation; a range that holds
/// nothing has no reservations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) address: DevicePtr,
    /// The stream that it was reserved for; a range is nobody's.
    pub(super) stream: StreamId,
    /// Held from the source: of a range, its committed pages.
    pub(super) held_bytes: u64,
    /// The reservations that this came by, of which none counts as released yet.
    pub(super) reserves: u64,
    pub(super) is_range: bool,
}

impl Segment {
    pub(super) fn whole(address: DevicePtr, bytes: u64, stream: StreamId) -> Self {
        Self {
            address,
            stream,
            held_bytes: bytes,
            reserves: 1,
            is_range: false,
        }
    }

    /// Addresses, nothing of which is held.
    pub(super) fn range(address: DevicePtr) -> Self {
        Self {
            address,
            stream: StreamId::default(),
            held_bytes: 0,
            reserves: 0,
            is_range: true,
        }
    }

    /// Counts `bytes` less, and answers how many reservations end: one, while that leaves one for what
    /// is still held, and with the last byte all.
    pub(super) fn shrink(&mut self, bytes: u64) -> u64 {
        self.held_bytes -= bytes;
        let ended = match self.held_bytes {
            0 => self.reserves,
            _ => self.reserves.saturating_sub(1).min(1),
        };
        self.reserves -= ended;
        ended
    }
}

/// Invariants, asserted by [`DeviceMemory::check`](super::DeviceMemory::check):
/// - the pool knows exactly the segments and ranges that stand in `segments`, under their index;
/// - the bytes that they hold add up to what the source counts as reserved, and the reservations that
///   they came by to `reserves` less `releases`;
/// - `vacant` lists the indices at which none stands;
/// - a pool that does not keep idle segments has none;
/// - a block is pending only where its streams were not known to be done when it was last looked at, or
///   where its memory is released in the order of a stream that was captured then.
pub(super) struct State {
    pub(super) pool: Box<dyn Pool>,
    pub(super) pending: Pending,
    pub(super) foreign: Foreign,
    segments: Vec<Option<Segment>>,
    vacant: Vec<SegmentId>,
    /// The first error that could not be told, kept for the next call that can, and how many more there
    /// were.
    deferred: Option<(Error, u64)>,
    pub(super) peak_reserved_bytes: u64,
    /// The most that was handed out as pages were reserved.
    pub(super) peak_used_bytes: u64,
    pub(super) reserves: u64,
    pub(super) releases: u64,
    pub(super) retries: u64,
    pub(super) out_of_memory: u64,
}

impl State {
    /// Of a memory that holds nothing.
    pub(super) fn new(pool: Box<dyn Pool>) -> Self {
        Self {
            pool,
            pending: Pending::new(),
            foreign: Foreign::default(),
            segments: Vec::new(),
            vacant: Vec::new(),
            deferred: None,
            peak_reserved_bytes: 0,
            peak_used_bytes: 0,
            reserves: 0,
            releases: 0,
            retries: 0,
            out_of_memory: 0,
        }
    }

    pub(super) fn tell_deferred(&mut self) -> Result<()> {
        match self.deferred.take() {
            None => Ok(()),
            Some((first, more)) => Err(first.and_more(more)),
        }
    }

    pub(super) fn defer(&mut self, error: Error) {
        match &mut self.deferred {
            Some((_, more)) => *more += 1,
            none => *none = Some((error, 0)),
        }
    }

    /// Finds a number for a segment, which the pool is to be told of next.
    pub(super) fn insert(&mut self, segment: Segment) -> SegmentId {
        let id = self.vacant.pop().unwrap_or_else(|| {
            let number = u32::try_from(self.segments.len()).expect("fewer than 2^32 segments");
            self.segments.push(None);
            SegmentId(number)
        });
        self.segments[id.0 as usize] = Some(segment);
        id
    }

    /// Takes out what the pool no longer knows.
    pub(super) fn remove(&mut self, id: SegmentId) -> Option<Segment> {
        let segment = self.segments[id.0 as usize].take()?;
        self.vacant.push(id);
        Some(segment)
    }

    pub(super) fn segment(&self, id: SegmentId) -> Segment {
        self.segments[id.0 as usize].expect("the pool names only segments that it was given")
    }

    pub(super) fn segment_mut(&mut self, id: SegmentId) -> &mut Segment {
        let segment = self.segments[id.0 as usize].as_mut();
        segment.expect("the pool names only segments that it was given")
    }

    /// What of the source is held, under any number.
    pub(super) fn held(&self) -> impl Iterator<Item = Segment> {
        let present = self.segments.iter().flatten().copied();
        present.filter(|segment| segment.held_bytes > 0)
    }

    /// Which of the `idle` segments (the smallest first) is the largest that is not more than `bytes`.
    pub(super) fn largest_within(&self, idle: &[SegmentId], bytes: u64) -> Option<usize> {
        idle.partition_point(|&id| self.segment(id).held_bytes <= bytes)
            .checked_sub(1)
    }

    pub(super) fn block(&self, span: Span, stream: StreamId) -> Block {
        let address = self.segment(span.segment).address.offset(span.offset);
        Block {
            address,
            stream,
            others: Streams::NONE,
            span,
        }
    }

    /// Asserts the invariants, of a source that counts `reserved_bytes`.
    #[cfg(test)]
    pub(super) fn check(&self, reserved_bytes: u64) {
        self.pool.check();
        let held_bytes: u64 = self.held().map(|segment| segment.held_bytes).sum();
        assert_eq!(held_bytes, reserved_bytes, "segments and pages add up");
        let reserves: u64 = self.held().map(|segment| segment.reserves).sum();
        assert_eq!(
            reserves,
            self.reserves - self.releases,
            "reservations add up"
        );
        let count = self.segments.iter().flatten().count();
        assert_eq!(
            self.vacant.len() + count,
            self.segments.len(),
            "a number is lost"
        );
        let mut vacant = self.vacant.iter();
        assert!(vacant.all(|id| self.segments[id.0 as usize].is_none()));
        let free_bytes = self.pool.free_bytes();
        assert!(free_bytes <= held_bytes, "no more is free than is held");
        assert!(
            self.pool.keeps_idle_segments() || free_bytes == 0,
            "a pool that keeps nothing idle has something"
        );
    }
}
