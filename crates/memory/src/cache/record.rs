//! The allocations and frees of an entry, in order: for reports, and for the planner.
//!
//! A record is not read from the recorder. The recorder's rings exist only during a recording and
//! contain only the newest events. A record counts steps, not time. It is complete, or reports
//! which requests are missing.

use std::ops::Range;
use std::panic::Location;

use super::request::Request;
use crate::device::StreamId;
use crate::sync::plain::{AtomicBool, AtomicU64, Ordering};

/// Set in the epoch of a block whose free is to be recorded.
pub(super) const RECORDED: u64 = 1 << 62;

/// The maximum number of recorded allocations of an entry. An allocation takes 220 bytes in a
/// record with its growth, the previous record and that record's copy. In total, 28 MiB.
pub(super) const MAX_RECORDED: usize = 1 << 17;

/// The maximum number of requests that a scope plans. A request takes about 1,200 bytes: in the
/// record, the sequences, their plan, its suballocations and the planning itself. In total, 38 MiB.
pub(super) const MAX_PLANNED: usize = 1 << 15;

/// One allocation of an entry of a scope.
///
/// Times are steps of the entry: each allocation is one step, and so is each drop.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::{Buffer, CacheConfig, Device, cache_scope};
///
/// let device = Device::current();
/// device.configure_cache("recorded", CacheConfig { record: true, ..Default::default() });
/// cache_scope!("recorded", {
///     let a = Buffer::new(&device, 1024)?;
///     let b = Buffer::new(&device, 1024)?;
/// });
/// let record = device.cache_record("recorded");
/// assert_eq!((record.len(), record[0].bytes), (2, 1024));
/// assert_eq!((record[0].allocated_at, record[1].allocated_at), (0, 1));
/// assert_eq!(record[0].freed_at, Some(3), "in the reverse order of their declaration");
/// assert!(record[1].call_site.file().ends_with(".rs"));
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocationRecord {
    /// Bytes requested.
    pub bytes: u64,
    /// The call that allocated.
    pub call_site: &'static Location<'static>,
    /// The step in which it was allocated.
    pub allocated_at: u64,
    /// The step in which it was dropped; `None` if it outlived the entry.
    pub freed_at: Option<u64>,
    /// True if it is the copy that a write to an array with shared memory made; see
    /// [`CacheStats::copies_on_write`](crate::CacheStats::copies_on_write).
    pub is_copy_on_write: bool,
    /// The line that made the handle which forced that copy, if it is known. Only in builds with
    /// debug assertions.
    pub shared_at: Option<&'static Location<'static>>,
}

impl AllocationRecord {
    /// Makes the record of a live allocation.
    pub(super) fn new(
        bytes: u64,
        call_site: &'static Location<'static>,
        allocated_at: u64,
    ) -> Self {
        Self {
            bytes,
            call_site,
            allocated_at,
            freed_at: None,
            is_copy_on_write: false,
            shared_at: None,
        }
    }
}

/// The record of an allocation, with the data that the planner needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordedAllocation {
    pub(super) record: AllocationRecord,
    /// The requested bytes, as the pool rounds them.
    pub(super) rounded_bytes: u64,
    pub(super) stream: StreamId,
}

/// The record of an entry in progress.
///
/// Invariant: it has at most `most` allocations, and no capacity for more.
#[derive(Debug)]
pub(super) struct Recording {
    recorded: Vec<RecordedAllocation>,
    most: usize,
    step: u64,
    /// The number of allocations that were known before the record began.
    known: usize,
    /// The entry's first epoch. Blocks that were handed out before it belong to an earlier entry.
    entry_epoch: u64,
    /// The number of requests that the shard had served before the first request that did not fit.
    stopped_at: Option<u64>,
}

impl Recording {
    /// Begins a record of up to `most` allocations. The record continues after `recorded`, the
    /// allocations that are already known. Frees among these allocations do not count as steps.
    pub(super) fn new(entry_epoch: u64, most: usize, recorded: Vec<RecordedAllocation>) -> Self {
        debug_assert!(recorded.len() <= most);
        Self {
            step: recorded.len() as u64,
            known: recorded.len(),
            recorded,
            most,
            entry_epoch,
            stopped_at: None,
        }
    }

    /// Returns true unless the record was stopped.
    pub(super) fn is_open(&self) -> bool {
        self.stopped_at.is_none()
    }

    /// Stops the record before the entry ends, at a request after the first `served` ones of the
    /// shard. If `keeps` is false, discards the record.
    pub(super) fn stop(&mut self, served: u64, keeps: bool) {
        self.stopped_at = Some(served);
        if !keeps {
            self.recorded = Vec::new();
        }
    }

    /// Iterates over the allocations recorded so far that are live.
    pub(super) fn live(&self) -> impl Iterator<Item = AllocationRecord> {
        let records = self.recorded.iter().map(|recorded| recorded.record);
        records.filter(|record| record.freed_at.is_none())
    }

    /// Records an allocation. Returns its index, or `None` if the record is full.
    pub(super) fn allocated(&mut self, request: &Request) -> Option<u32> {
        if self.recorded.len() == self.most || !self.is_open() {
            return None;
        }
        if self.recorded.len() == self.recorded.capacity() {
            let more = self.recorded.len().max(4);
            let room = self.most - self.recorded.len();
            self.recorded.reserve_exact(more.min(room)); // Grows like a `Vec`, up to `most`.
        }
        let number = self.recorded.len() as u32;
        let bytes = request.size.requested_bytes;
        let record = AllocationRecord::new(bytes, request.call_site, self.step);
        self.recorded.push(RecordedAllocation {
            record,
            rounded_bytes: request.size.rounded_bytes,
            stream: request.stream,
        });
        self.step += 1;
        Some(number)
    }

    /// Marks a block that was handed out in `epoch` as a copy that a write forced. The handle that
    /// forced the copy was made at `shared_at`.
    pub(super) fn copied_on_write(
        &mut self,
        number: u32,
        epoch: u64,
        shared_at: Option<&'static Location<'static>>,
    ) {
        if epoch < self.entry_epoch {
            return;
        }
        if let Some(recorded) = self.recorded.get_mut(number as usize) {
            recorded.record.is_copy_on_write = true;
            recorded.record.shared_at = shared_at;
        }
    }

    /// Records the free of a block that was handed out in `epoch`.
    pub(super) fn freed(&mut self, number: u32, epoch: u64) {
        if epoch < self.entry_epoch {
            return;
        }
        let recorded = self.recorded.get_mut(number as usize);
        if let Some(recorded) = recorded.filter(|recorded| recorded.record.freed_at.is_none()) {
            recorded.record.freed_at = Some(self.step);
            self.step += 1;
        }
    }

    /// Returns the record for reports. The entry ends in the epoch `last`.
    pub(super) fn finished(&self, last: u64) -> FinishedRecord {
        static FINISHED: AtomicU64 = AtomicU64::new(1);
        let records: Vec<_> = self.recorded.iter().map(|own| own.record).collect();
        let is_live = |(index, record): (usize, &AllocationRecord)| {
            AtomicBool::new(index >= self.known && record.freed_at.is_none())
        };
        FinishedRecord {
            number: FINISHED.fetch_add(1, Ordering::Relaxed),
            is_live: records.iter().enumerate().map(is_live).collect(),
            records,
            epochs: self.entry_epoch..last + 1,
        }
    }

    /// Returns the record. If it is incomplete, also returns how many requests the shard had served
    /// before the first one that is missing.
    pub(super) fn finish(self) -> (Vec<RecordedAllocation>, Option<u64>) {
        (self.recorded, self.stopped_at)
    }
}

/// The record of an entry that has ended. A later end has a higher `number`.
#[derive(Debug)]
pub(super) struct FinishedRecord {
    pub(super) number: u64,
    records: Vec<AllocationRecord>,
    /// For each allocation, whether its block is live. False for requests that followed a plan
    /// before the record began: their drops are not recorded.
    is_live: Vec<AtomicBool>,
    /// The epochs in which the blocks of the entry were handed out.
    epochs: Range<u64>,
}

impl FinishedRecord {
    pub(super) fn records(&self) -> &[AllocationRecord] {
        &self.records
    }

    /// Marks the block of an allocation as dropped, if it was handed out in an `epoch` of the
    /// entry.
    pub(super) fn dropped(&self, number: u32, epoch: u64) {
        let is_live = self.is_live.get(number as usize);
        if let Some(is_live) = is_live.filter(|_| self.epochs.contains(&epoch)) {
            is_live.store(false, Ordering::Relaxed);
        }
    }

    /// Iterates over the allocations that escaped from the entry and are live.
    pub(super) fn live(&self) -> impl Iterator<Item = AllocationRecord> {
        let records = self.records.iter().zip(&self.is_live);
        let live = records.filter(|(_, is_live)| is_live.load(Ordering::Relaxed));
        live.map(|(record, _)| *record)
    }
}
