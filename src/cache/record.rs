//! What an entry allocates and frees, in its order: for people who ask, and for the planner.

use std::panic::Location;

use super::Wanted;
use crate::device::StreamId;
use crate::sync::plain::{AtomicU64, Ordering};

/// Set in the stamp of a block whose way back is to be noted.
pub(super) const NOTED: u64 = 1 << 62;

/// So many allocations of an entry are recorded at most. A record with what it grows by, the one before
/// it and a copy of that take 164 bytes for each: 21 MiB.
pub(super) const RECORDED: usize = 1 << 17;

/// A scope plans so many requests at most. The notes of an entry, the sequences, their plan, its parts and
/// what planning itself takes come to some 1,200 bytes for each: 38 MiB.
pub(super) const PLANNED: usize = 1 << 15;

/// One allocation of an entry of a scope.
///
/// Times are steps of the entry: each allocation is one, and so is each drop.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, CacheConfig, Device, cache_scope};
///
/// let device = Device::current();
/// device.configure_cache("recorded", CacheConfig { record: true, ..Default::default() });
/// cache_scope!("recorded", {
///     let a = Array::<f32>::ones([256])?;
///     let b = (&a + 1.0).eval()?;
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
}

/// What the planner needs beside that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
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
    noted: Vec<Noted>,
    most: usize,
    step: u64,
    /// Blocks handed out before this clock are of an earlier entry.
    begun_at: u64,
    /// How many requests the shard had served before the first that there was no room for.
    cut_at: Option<u64>,
}

impl Recording {
    /// Of up to `most` allocations.
    pub(super) fn new(begun_at: u64, most: usize) -> Self {
        Self::after(begun_at, most, Vec::new())
    }

    /// Goes on from what is known of an entry already, in whose steps only the allocations count.
    pub(super) fn after(begun_at: u64, most: usize, noted: Vec<Noted>) -> Self {
        debug_assert!(noted.len() <= most);
        Self {
            step: noted.len() as u64,
            noted,
            most,
            begun_at,
            cut_at: None,
        }
    }

    /// Whether there is room for more.
    pub(super) fn is_open(&self) -> bool {
        self.cut_at.is_none()
    }

    /// Ends the record before the entry ends, at a request before which the shard had served so many;
    /// what was noted is of use to somebody, or forgotten.
    pub(super) fn cut(&mut self, served: u64, keeps: bool) {
        self.cut_at = Some(served);
        if !keeps {
            self.noted = Vec::new();
        }
    }

    /// Notes an allocation; answers its number, or `None` where there is no room for it.
    pub(super) fn allocated(&mut self, wanted: &Wanted) -> Option<u32> {
        if self.noted.len() == self.most || !self.is_open() {
            return None;
        }
        if self.noted.len() == self.noted.capacity() {
            let more = self.noted.len().max(4);
            let room = self.most - self.noted.len();
            self.noted.reserve_exact(more.min(room)); // As a vector grows, but not beyond.
        }
        let number = self.noted.len() as u32;
        let record = AllocationRecord {
            bytes: wanted.size.requested_bytes,
            call_site: wanted.call_site,
            allocated_at: self.step,
            freed_at: None,
        };
        self.noted.push(Noted {
            record,
            rounded_bytes: wanted.size.rounded_bytes,
            stream: wanted.stream,
        });
        self.step += 1;
        Some(number)
    }

    /// Notes that the block of an allocation came back, which was handed out at `stamp`.
    pub(super) fn freed(&mut self, number: u32, stamp: u64) {
        if stamp < self.begun_at {
            return;
        }
        let noted = self.noted.get_mut(number as usize);
        if let Some(noted) = noted.filter(|noted| noted.record.freed_at.is_none()) {
            noted.record.freed_at = Some(self.step);
            self.step += 1;
        }
    }

    /// What was noted, and, where that is not the whole entry, how many requests the shard had served
    /// before the first that is missing.
    pub(super) fn finish(self) -> (Vec<Noted>, Option<u64>) {
        (self.noted, self.cut_at)
    }
}

/// The record of an entry that has ended, and when that was, compared with others.
#[derive(Clone, Debug, Default)]
pub(super) struct FinishedRecord {
    pub(super) number: u64,
    records: Vec<AllocationRecord>,
}

impl FinishedRecord {
    pub(super) fn new(noted: &[Noted]) -> Self {
        static FINISHED: AtomicU64 = AtomicU64::new(1);
        Self {
            number: FINISHED.fetch_add(1, Ordering::Relaxed),
            records: noted.iter().map(|noted| noted.record).collect(),
        }
    }

    pub(super) fn into_records(self) -> Vec<AllocationRecord> {
        self.records
    }
}
