//! The record of an entry's allocations and frees, in order. Reports and the planner use it.
//!
//! A record does not use the recorder. The recorder's rings exist only during a recording, and
//! contain only the newest events. A record counts steps instead of time. If a record is
//! incomplete, the number of missing requests is known.

use std::ops::Range;
use std::panic::Location;

use super::request::Request;
use crate::device::StreamId;
use crate::sync::plain::{AtomicBool, AtomicU64, Ordering};

/// The bit of a block's epoch that marks the block as included in the record of its entry.
pub(super) const RECORDED: u64 = 1 << 62;

/// The maximum number of recorded allocations of an entry. An allocation needs 220 bytes in the
/// growing record, the previous record, and the previous record's copy. The maximum needs 28 MiB.
pub(super) const MAX_RECORDED: usize = 1 << 17;

/// The maximum number of requests that a scope plans. A request needs about 1,200 bytes in the
/// record, the sequences, the plan, the suballocations and the planner. The maximum needs 38 MiB.
pub(super) const MAX_PLANNED: usize = 1 << 15;

/// One allocation of an entry of a scope.
///
/// Times are counted in steps of the entry. Each allocation is one step, and each drop is one step.
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
    /// The requested bytes.
    pub bytes: u64,
    /// The call site of the allocation.
    pub call_site: &'static Location<'static>,
    /// The step of the allocation.
    pub allocated_at: u64,
    /// The step of the drop; `None` if the block outlived the entry.
    pub freed_at: Option<u64>,
    /// True if a write to an array with shared memory made this allocation for a copy. See
    /// [`CacheStats::copies_on_write`](crate::CacheStats::copies_on_write).
    pub is_copy_on_write: bool,
    /// The call site that created the handle which forced the copy, if known. Builds without debug
    /// assertions do not record it.
    pub shared_at: Option<&'static Location<'static>>,
}

impl AllocationRecord {
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
    /// The requested bytes after the pool's rounding.
    pub(super) rounded_bytes: u64,
    pub(super) stream: StreamId,
}

/// The record of an entry in progress.
///
/// Invariant: the length and the capacity of `recorded` are at most `most`.
#[derive(Debug)]
pub(super) struct Recording {
    recorded: Vec<RecordedAllocation>,
    most: usize,
    step: u64,
    /// The number of allocations that were known before the record began.
    known: usize,
    /// The first epoch of the entry. Blocks with a lower epoch belong to earlier entries.
    entry_epoch: u64,
    /// The number of requests that the shard served before the first unrecorded request; `None`
    /// while the record is open.
    stopped_at: Option<u64>,
}

impl Recording {
    /// Begins a record of up to `most` allocations. The record begins with `recorded`, the
    /// allocations that are already known. Frees between the known allocations do not count as
    /// steps.
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

    pub(super) fn is_open(&self) -> bool {
        self.stopped_at.is_none()
    }

    /// Stops the record before the entry ends. `served` is the number of requests that the shard
    /// served before the first unrecorded request. If `keeps` is false, discards the record.
    pub(super) fn stop(&mut self, served: u64, keeps: bool) {
        self.stopped_at = Some(served);
        if !keeps {
            self.recorded = Vec::new();
        }
    }

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
            self.recorded.reserve_exact(more.min(room)); // The capacity doubles, up to `most`.
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

    /// If `epoch` belongs to this entry, marks the allocation `number` as a copy-on-write copy.
    /// `shared_at` is the call site that created the handle which forced the copy.
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

    /// Returns the record. If the record is incomplete, also returns the number of requests that
    /// the shard served before the first unrecorded request.
    pub(super) fn finish(self) -> (Vec<RecordedAllocation>, Option<u64>) {
        (self.recorded, self.stopped_at)
    }
}

/// The record of an ended entry. Records of later entries have a higher `number`.
#[derive(Debug)]
pub(super) struct FinishedRecord {
    pub(super) number: u64,
    records: Vec<AllocationRecord>,
    /// For each allocation, true if its block is live. For allocations from before the record
    /// began, the value is false, because their drops are not recorded.
    is_live: Vec<AtomicBool>,
    /// The epochs in which the blocks of the entry were handed out.
    epochs: Range<u64>,
}

impl FinishedRecord {
    pub(super) fn records(&self) -> &[AllocationRecord] {
        &self.records
    }

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
