//! A recorded program as events, whichever of the two formats it comes in.

use std::fmt::Display;
use std::io::BufRead;
use std::vec::IntoIter;

use super::event::TraceEvent;
use super::lifetimes::{self, Lifetime};
use super::rmm_log::{self, RmmLog};
use super::table::Table;
use crate::error::Result;

/// How many events are read and then run at once: enough that reading the clock does not count, few
/// enough that they stay in a processor's cache.
const BATCH_EVENTS: usize = 1 << 14;

/// A recorded program.
#[derive(Debug)]
pub struct Trace<R> {
    events: EventReader<R>,
}

#[derive(Debug)]
enum EventReader<R> {
    /// Slots are indices of `lifetimes`.
    Lifetimes {
        lifetimes: Vec<Lifetime>,
        events: IntoIter<TraceEvent>,
    },
    Log(RmmLog<R>),
}

impl<R: BufRead> Trace<R> {
    /// Begins to read `input`, which errors call `name`. The header decides whether it is a log of RMM
    /// or MiniMalloc's lifetimes; these are read whole.
    ///
    /// # Errors
    ///
    /// [`Io`](crate::ErrorKind::Io) where it is neither, or holds what it may not.
    pub fn new(name: impl Display, input: R) -> Result<Self> {
        let table = Table::new(name, input)?;
        let events = if is_log(&table) {
            EventReader::Log(RmmLog::new(table)?)
        } else {
            let lifetimes = Lifetime::read_table(table)?;
            let events = events_of(&lifetimes).into_iter();
            EventReader::Lifetimes { lifetimes, events }
        };
        Ok(Self { events })
    }

    /// What was read, where it is lifetimes; a slot is an index here.
    pub fn lifetimes(&self) -> Option<&[Lifetime]> {
        match &self.events {
            EventReader::Lifetimes { lifetimes, .. } => Some(lifetimes),
            EventReader::Log(_) => None,
        }
    }

    /// Replaces what is in `batch` by the next events, some thousands; answers whether these are the
    /// last ones.
    ///
    /// # Errors
    ///
    /// [`Io`](crate::ErrorKind::Io) with the line and the column of what is wrong.
    pub fn read(&mut self, batch: &mut Vec<TraceEvent>) -> Result<bool> {
        batch.clear();
        match &mut self.events {
            EventReader::Lifetimes { events, .. } => batch.extend(events.take(BATCH_EVENTS)),
            EventReader::Log(log) => {
                while batch.len() < BATCH_EVENTS
                    && let Some(event) = log.next()?
                {
                    batch.push(event);
                }
            }
        }
        Ok(batch.len() < BATCH_EVENTS)
    }
}

/// Whether a header has more in common with that of a log than with that of lifetimes.
fn is_log(table: &Table<impl BufRead>) -> bool {
    let named = |columns: &[&str]| columns.iter().filter(|column| table.has(column)).count();
    named(&rmm_log::COLUMNS) > named(&lifetimes::COLUMNS)
}

/// The events of lifetimes, in the order of time: at equal times frees first, then allocations, each in
/// the order of the file. What lives in no event is a request of nothing, freed at once.
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
        // The ranks of one moment: a free its index, and from `count` on two for each allocation.
        let allocation = count + 2 * index;
        let free = if lower < upper { index } else { allocation + 1 };
        events.push((lower, allocation, TraceEvent::Allocate { slot, bytes }));
        events.push((upper, free, TraceEvent::Free { slot }));
    }
    events.sort_unstable_by_key(|&(time, rank, _)| (time, rank));
    events.into_iter().map(|(_, _, event)| event).collect()
}
