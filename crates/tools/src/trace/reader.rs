//! A reader of recorded programs: logs of RMM or lifetimes.

use std::fmt::Display;
use std::io::BufRead;
use std::vec::IntoIter;

use super::csv_table::CsvTable;
use super::event::TraceEvent;
use super::lifetimes::{self, Lifetime};
use super::rmm_log::{self, RmmLog};
use crate::error::Result;

/// The number of events per batch: enough to amortise clock reads, few enough to fit in the cache.
const BATCH_EVENTS: usize = 1 << 14;

/// A recorded program.
#[derive(Debug)]
pub struct Trace<R> {
    events: EventReader<R>,
}

#[derive(Debug)]
enum EventReader<R> {
    /// The lifetimes with their events. A slot is an index of `lifetimes`.
    Lifetimes {
        lifetimes: Vec<Lifetime>,
        events: IntoIter<TraceEvent>,
    },
    Log(RmmLog<R>),
}

impl<R: BufRead> Trace<R> {
    /// Creates a reader of `input`. Errors refer to the input as `name`. The header distinguishes a
    /// log of RMM from lifetimes in MiniMalloc's format. Lifetimes are read completely.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::trace::Trace;
    ///
    /// let trace = Trace::new("a file", &b"id,lower,upper,size\na,0,2,512\n"[..])?;
    /// assert_eq!(trace.lifetimes().map(<[_]>::len), Some(1));
    /// assert!(Trace::new("a file", &b"neither,format\n"[..]).is_err());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`Io`](crate::ErrorKind::Io) if the input has neither format or is malformed.
    pub fn new(name: impl Display, input: R) -> Result<Self> {
        let table = CsvTable::new(name, input)?;
        let events = if is_log(&table) {
            EventReader::Log(RmmLog::new(table)?)
        } else {
            return Ok(Self::of(Lifetime::read_table(table)?));
        };
        Ok(Self { events })
    }

    /// Creates a trace from lifetimes.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::trace::TraceEvent::{Allocate, Free};
    /// use cachescope::trace::{Lifetime, Trace};
    ///
    /// let lifetime = Lifetime { id: "a".into(), lower: 0, upper: 2, size_bytes: 512 };
    /// let (mut trace, mut events) = (Trace::<&[u8]>::of(vec![lifetime]), Vec::new());
    /// assert!(trace.read(&mut events)?);
    /// assert_eq!(events, [Allocate { slot: 0, bytes: 512 }, Free { slot: 0 }]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn of(lifetimes: Vec<Lifetime>) -> Self {
        let events = events_of(&lifetimes).into_iter();
        Self {
            events: EventReader::Lifetimes { lifetimes, events },
        }
    }

    /// Returns the lifetimes, or `None` for a log. A slot is an index of this slice.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::trace::Trace;
    ///
    /// let lifetimes = &b"id,lower,upper,size\na,0,2,512\n"[..];
    /// assert_eq!(Trace::new("a file", lifetimes)?.lifetimes().unwrap()[0].id, "a");
    /// let log = &b"Thread,Time,Action,Pointer,Size,Stream\n"[..];
    /// assert!(Trace::new("a log", log)?.lifetimes().is_none());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn lifetimes(&self) -> Option<&[Lifetime]> {
        match &self.events {
            EventReader::Lifetimes { lifetimes, .. } => Some(lifetimes),
            EventReader::Log(_) => None,
        }
    }

    /// Replaces the content of `batch` by the next events. Returns whether these events are the
    /// last.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::trace::Trace;
    /// use cachescope::trace::TraceEvent::Allocate;
    ///
    /// let log = "Thread,Time,Action,Pointer,Size,Stream\n1,0,allocate,0x10,1000,0\n";
    /// let (mut trace, mut events) = (Trace::new("a log", log.as_bytes())?, Vec::new());
    /// let is_last = trace.read(&mut events)?;
    /// assert_eq!((is_last, events), (true, vec![Allocate { slot: 0, bytes: 1000 }]));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`Io`](crate::ErrorKind::Io) with the line and the column of a malformed field.
    pub fn read(&mut self, batch: &mut Vec<TraceEvent>) -> Result<bool> {
        batch.clear();
        match &mut self.events {
            EventReader::Lifetimes { events, .. } => batch.extend(events.take(BATCH_EVENTS)),
            EventReader::Log(log) => {
                while batch.len() < BATCH_EVENTS
                    && let Some(entry) = log.next_entry()?
                {
                    batch.push(entry.event);
                }
            }
        }
        Ok(batch.len() < BATCH_EVENTS)
    }
}

/// Returns whether the header has more columns of a log than of lifetimes.
pub(super) fn is_log(table: &CsvTable<impl BufRead>) -> bool {
    let named = |columns: &[&str]| columns.iter().filter(|column| table.has(column)).count();
    named(&rmm_log::COLUMNS) > named(&lifetimes::COLUMNS)
}

/// Returns the events of lifetimes, ordered by time. At one step, frees precede allocations. Frees
/// and allocations each keep the order of the file. A buffer with an empty lifetime becomes a
/// request of 0 bytes that is freed immediately.
fn events_of(lifetimes: &[Lifetime]) -> Vec<TraceEvent> {
    let count = lifetimes.len() as u64;
    let mut events = Vec::with_capacity(2 * lifetimes.len());
    for (slot, lifetime) in (0..).zip(lifetimes) {
        let index = u64::from(slot);
        let Lifetime { lower, upper, .. } = *lifetime;
        let bytes = if lifetime.occupies() {
            lifetime.size_bytes
        } else {
            0
        };
        // Ranks order the events of one step. The rank of a free is its index, below `count`. Each
        // allocation has two ranks from `count` on. The second rank is for its free, if its
        // lifetime is empty.
        let allocation = count + 2 * index;
        let free = if lower < upper { index } else { allocation + 1 };
        events.push((lower, allocation, TraceEvent::Allocate { slot, bytes }));
        events.push((upper, free, TraceEvent::Free { slot }));
    }
    events.sort_unstable_by_key(|&(time, rank, _)| (time, rank));
    events.into_iter().map(|(_, _, event)| event).collect()
}
