//! What an entry allocates and frees, in its order: for people who ask, and for the planner.

use std::panic::Location;

use super::request::Request;
use crate::device::StreamId;
use crate::sync::plain::{AtomicU64, Ordering};

/// Set in the epoch of a block whose free is to be recorded.
pub(super) const RECORDED: u64 = 1 << 62;

/// So many allocations of an entry are recorded at most. A record with what it grows by, the one
/// before it and a copy of that take 220 bytes for each: 28 MiB.
pub(super) const MAX_RECORDED: usize = 1 << 17;

/// A scope plans so many requests at most. The record of an entry, the sequences, their plan, its
/// suballocations and planning itself take some 1,200 bytes for each: 38 MiB.
pub(super) const MAX_PLANNED: usize = 1 << 15;

/// One allocation of an entry of a scope.
///
/// Times are steps of the entry: each allocation is one, and so is each drop.
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
    /// When it was allocated.
    pub allocated_at: u64,
    /// When it was dropped; `None` where it outlived the entry.
    pub freed_at: Option<u64>,
    /// Whether a write to an array that shared its memory made it, to copy to; see
    /// [`CacheStats::copies_on_write`](crate::CacheStats::copies_on_write).
    pub is_copy_on_write: bool,
    /// The line that made the handle which forced that copy: in builds with debug assertions, where
    /// it is known.
    pub shared_at: Option<&'static Location<'static>>,
}

impl AllocationRecord {
    /// Of an allocation that lives.
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

/// What the planner needs beside that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recorded {
    pub(super) record: AllocationRecord,
    /// The request as the pool rounds it.
    pub(super) rounded_bytes: u64,
    pub(super) stream: StreamId,
}

/// The record of an entry that is under way.
///
/// Invariant: it has `most` allocations at most, and room for no more.
#[derive(Debug)]
pub(super) struct Recording {
    recorded: Vec<Recorded>,
    most: usize,
    step: u64,
    /// Blocks handed out before this epoch are of an earlier entry.
    entry_epoch: u64,
    /// How many requests the shard had served before the first that there was no room for.
    stopped_at: Option<u64>,
}

impl Recording {
    /// Of up to `most` allocations. Goes on from those that are known already, among whose steps no
    /// frees count.
    pub(super) fn new(entry_epoch: u64, most: usize, recorded: Vec<Recorded>) -> Self {
        debug_assert!(recorded.len() <= most);
        Self {
            step: recorded.len() as u64,
            recorded,
            most,
            entry_epoch,
            stopped_at: None,
        }
    }

    /// Whether there is room for more.
    pub(super) fn is_open(&self) -> bool {
        self.stopped_at.is_none()
    }

    /// Stops before the entry ends, at a request before which the shard had served so many. Keeps
    /// the record, or forgets it.
    pub(super) fn stop(&mut self, served: u64, keeps: bool) {
        self.stopped_at = Some(served);
        if !keeps {
            self.recorded = Vec::new();
        }
    }

    /// What is recorded so far.
    pub(super) fn records(&self) -> impl Iterator<Item = AllocationRecord> {
        self.recorded.iter().map(|recorded| recorded.record)
    }

    /// Records an allocation; answers its index, or `None` where there is no room for it.
    pub(super) fn allocated(&mut self, request: &Request) -> Option<u32> {
        if self.recorded.len() == self.most || !self.is_open() {
            return None;
        }
        if self.recorded.len() == self.recorded.capacity() {
            let more = self.recorded.len().max(4);
            let room = self.most - self.recorded.len();
            self.recorded.reserve_exact(more.min(room)); // As a vector grows, but not beyond.
        }
        let number = self.recorded.len() as u32;
        let bytes = request.size.requested_bytes;
        let record = AllocationRecord::new(bytes, request.call_site, self.step);
        self.recorded.push(Recorded {
            record,
            rounded_bytes: request.size.rounded_bytes,
            stream: request.stream,
        });
        self.step += 1;
        Some(number)
    }

    /// Marks a block that was handed out in `epoch`: a write copied to it, because its array shared
    /// memory since `shared_at`.
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

    /// The record. Where it is not the whole entry, also how many requests the shard had served
    /// before the first that is missing.
    pub(super) fn finish(self) -> (Vec<Recorded>, Option<u64>) {
        (self.recorded, self.stopped_at)
    }
}

/// The record of an entry that has ended, and when that was, compared with others.
#[derive(Clone, Debug, Default)]
pub(super) struct FinishedRecord {
    pub(super) number: u64,
    records: Vec<AllocationRecord>,
}

impl FinishedRecord {
    pub(super) fn new(recorded: &[Recorded]) -> Self {
        static FINISHED: AtomicU64 = AtomicU64::new(1);
        Self {
            number: FINISHED.fetch_add(1, Ordering::Relaxed),
            records: recorded.iter().map(|recorded| recorded.record).collect(),
        }
    }

    pub(super) fn into_records(self) -> Vec<AllocationRecord> {
        self.records
    }
}
