//! The end of a rank: it takes leave of the others, so that MPI can be finalised, or is ended with
//! all of them.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use mpi::ffi;

use super::MpiEngine;
use super::peers::{News, rest};
use crate::error::Result;
use crate::sync::plain::{Condvar, Mutex};

/// How a rank's thread came to its end, told to the thread that ends the process.
#[derive(Debug)]
pub(super) struct Ending {
    /// Whether the library initialised MPI, and so finalises it.
    is_ours: bool,
    end: Mutex<Option<Result<End>>>,
    changed: Condvar,
}

/// What is left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Finalise,
    /// Nothing: somebody else does or did.
    Leave,
    /// Other processes do not end by themselves.
    Abort,
}

/// So long a rank that failed waits for the others to end.
pub(super) const LAST_WAIT: Duration = Duration::from_secs(2);

impl Ending {
    pub(super) fn new(is_ours: bool) -> Self {
        Self {
            is_ours,
            end: Mutex::new(None),
            changed: Condvar::default(),
        }
    }

    /// Whether the program has finalised MPI.
    pub(super) fn is_over(&self) -> bool {
        !self.is_ours && is_finalised()
    }

    /// Tells, once.
    pub(super) fn tell(&self, end: Result<End>) {
        self.end.lock().get_or_insert(end);
        self.changed.notify_all();
    }

    /// Waits until it is told.
    pub(super) fn wait(&self) -> Result<End> {
        let mut end = self.end.lock();
        loop {
            if let Some(end) = &*end {
                return end.clone();
            }
            end = self.changed.wait(&self.end, end);
        }
    }
}

pub(super) fn is_finalised() -> bool {
    let mut is_finalised: c_int = 0;
    // SAFETY: MPI allows it at any time; the place is this function's.
    unsafe { ffi::MPI_Finalized(&mut is_finalised) };
    is_finalised != 0
}

impl MpiEngine {
    /// Tells the others that this process ends, and waits until theirs do: who finalises MPI waits
    /// for them without hearing of any failure.
    pub(super) fn take_leave(&mut self) -> Result<End> {
        if self.ending.is_over() {
            return Ok(End::Leave);
        }
        self.peers
            .tell(&self.comm, 0..self.comm.size(), &News::Ends)?;
        let began = Instant::now();
        loop {
            self.letters.reap()?;
            self.peers.listen(&self.comm)?;
            let is_told = self.peers.reap()?;
            let all_end = self.peers.all_end(self.comm.rank());
            let waited = began.elapsed();
            let end = match self.ending.is_ours {
                // Nobody receives letters any more.
                true if all_end && (is_told || waited >= LAST_WAIT) => Some(End::Finalise),
                true if self.broken.is_some() && waited >= LAST_WAIT => Some(End::Abort),
                false if is_told && self.letters.are_all_out() => Some(End::Leave),
                false if waited >= LAST_WAIT => Some(End::Leave),
                _ => None,
            };
            if let Some(end) = end {
                return Ok(end);
            }
            rest(waited);
        }
    }
}
