//! What an entry allocates and frees, in its order: for people who ask, and for the planner.

use std::panic::Location;

use super::Wanted;
use crate::device::StreamId;
use crate::sync::plain::{AtomicU64, Ordering};

/// Set in the stamp of a block whose way back is to be noted.
pub(super) const NOTED: u64 = 1 << 62;

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
#[derive(Debug)]
pub(super) struct Recording {
    noted: Vec<Noted>,
    step: u64,
    /// Blocks handed out before this clock are of an earlier entry.
    begun_at: u64,
}

impl Recording {
    pub(super) fn new(begun_at: u64) -> Self {
        Self {
            noted: Vec::new(),
            step: 0,
            begun_at,
        }
    }

    /// Goes on from what is known of an entry already, in whose steps only the allocations count.
    pub(super) fn after(begun_at: u64, noted: Vec<Noted>) -> Self {
        let step = noted.len() as u64;
        Self {
            noted,
            step,
            begun_at,
        }
    }

    /// Notes an allocation; answers its number.
    pub(super) fn allocated(&mut self, wanted: &Wanted) -> u32 {
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
        number
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

    pub(super) fn finish(self) -> Vec<Noted> {
        self.noted
    }
}

/// The record of an entry that has ended, and when that was, compared with others.
#[derive(Clone, Debug, Default)]
pub(super) struct FinishedRecord {
    pub(super) number: u64,
    records: Vec<AllocationRecord>,
}

impl FinishedRecord {
    pub(super) fn new(noted: Vec<Noted>) -> Self {
        static FINISHED: AtomicU64 = AtomicU64::new(1);
        Self {
            number: FINISHED.fetch_add(1, Ordering::Relaxed),
            records: noted.into_iter().map(|noted| noted.record).collect(),
        }
    }

    pub(super) fn into_records(self) -> Vec<AllocationRecord> {
        self.records
    }
}
