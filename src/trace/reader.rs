//! A recorded program as steps, whichever of the two formats it comes in.

use std::fmt::Display;
use std::io::BufRead;
use std::vec::IntoIter;

use super::lifetimes::{self, Lifetime};
use super::log::{self, Log};
use super::step::Step;
use super::table::Table;
use crate::error::Result;

/// How many steps are read and then run at once: enough that reading the clock does not count, few
/// enough that they stay in a processor's cache.
const BATCH_STEPS: usize = 1 << 14;

/// A recorded program.
#[derive(Debug)]
pub struct Trace<R> {
    steps: Steps<R>,
}

#[derive(Debug)]
enum Steps<R> {
    /// Slots are indices of `lifetimes`.
    Lifetimes {
        lifetimes: Vec<Lifetime>,
        steps: IntoIter<Step>,
    },
    Log(Log<R>),
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
        let steps = if is_log(&table) {
            Steps::Log(Log::new(table)?)
        } else {
            let lifetimes = Lifetime::read_table(table)?;
            let steps = steps_of(&lifetimes).into_iter();
            Steps::Lifetimes { lifetimes, steps }
        };
        Ok(Self { steps })
    }

    /// What was read, where it is lifetimes; a slot is an index here.
    pub fn lifetimes(&self) -> Option<&[Lifetime]> {
        match &self.steps {
            Steps::Lifetimes { lifetimes, .. } => Some(lifetimes),
            Steps::Log(_) => None,
        }
    }

    /// Replaces what is in `batch` by the next steps, some thousands; answers whether these are the
    /// last ones.
    ///
    /// # Errors
    ///
    /// [`Io`](crate::ErrorKind::Io) with the line and the column of what is wrong.
    pub fn read(&mut self, batch: &mut Vec<Step>) -> Result<bool> {
        batch.clear();
        match &mut self.steps {
            Steps::Lifetimes { steps, .. } => batch.extend(steps.take(BATCH_STEPS)),
            Steps::Log(log) => {
                while batch.len() < BATCH_STEPS
                    && let Some(step) = log.next()?
                {
                    batch.push(step);
                }
            }
        }
        Ok(batch.len() < BATCH_STEPS)
    }
}

/// Whether a header has more in common with that of a log than with that of lifetimes.
fn is_log(table: &Table<impl BufRead>) -> bool {
    let named = |columns: &[&str]| columns.iter().filter(|column| table.has(column)).count();
    named(&log::COLUMNS) > named(&lifetimes::COLUMNS)
}

/// The steps of lifetimes, in the order of time: at equal times frees first, then allocations, each in
/// the order of the file. What lives in no step is a request of nothing, freed at once.
fn steps_of(lifetimes: &[Lifetime]) -> Vec<Step> {
    let count = lifetimes.len() as u64;
    let mut steps = Vec::with_capacity(2 * lifetimes.len());
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
        steps.push((lower, allocation, Step::Allocate { slot, bytes }));
        steps.push((upper, free, Step::Free { slot }));
    }
    steps.sort_unstable_by_key(|&(time, rank, _)| (time, rank));
    steps.into_iter().map(|(_, _, step)| step).collect()
}
