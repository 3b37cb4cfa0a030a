//! The shutdown of a rank. The rank announces its end, so that MPI can be finalised, or it aborts
//! all ranks.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use mpi::ffi;

use super::MpiEngine;
use super::peers::{ControlMessage, back_off};
use crate::error::Result;
use crate::sync::plain::{Condvar, Mutex};

/// The outcome of a rank's thread, for the thread that ends the process.
#[derive(Debug)]
pub(super) struct Shutdown {
    /// True if the library initialised MPI, and must finalise it.
    is_ours: bool,
    end: Mutex<Option<Result<ExitStep>>>,
    changed: Condvar,
}

/// The step that remains at exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExitStep {
    Finalise,
    /// No step: the program finalises MPI itself.
    Skip,
    /// An abort, because other processes do not end by themselves.
    Abort,
}

/// The time that a failed rank waits for the other ranks to end.
pub(super) const LAST_WAIT: Duration = Duration::from_secs(2);

impl Shutdown {
    pub(super) fn new(is_ours: bool) -> Self {
        Self {
            is_ours,
            end: Mutex::new(None),
            changed: Condvar::default(),
        }
    }

    /// Returns true if the program has finalised MPI.
    pub(super) fn is_over(&self) -> bool {
        !self.is_ours && is_finalised()
    }

    /// Sets the outcome, unless it is set.
    pub(super) fn set(&self, end: Result<ExitStep>) {
        self.end.lock().get_or_insert(end);
        self.changed.notify_all();
    }

    /// Waits until the outcome is set.
    pub(super) fn wait(&self) -> Result<ExitStep> {
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
    // SAFETY: MPI allows this call at any time. The pointer is to a variable of this function.
    unsafe { ffi::MPI_Finalized(&mut is_finalised) };
    is_finalised != 0
}

impl MpiEngine {
    /// Announces that this process ends. If the library initialised MPI, also waits until all other
    /// processes end. `MPI_Finalize` waits for them, too, but cannot receive a message about a
    /// failure.
    pub(super) fn sign_off(&mut self) -> Result<ExitStep> {
        if self.shutdown.is_over() {
            return Ok(ExitStep::Skip);
        }
        self.peers
            .notify(&self.comm, 0..self.comm.size, &ControlMessage::Ends)?;
        let began = Instant::now();
        loop {
            self.messages.reap()?;
            self.peers.receive_control(&self.comm)?;
            let is_sent = self.peers.reap()?;
            let all_end = self.peers.all_end(self.comm.rank);
            let waited = began.elapsed();
            let end = match self.shutdown.is_ours {
                // All ranks end, so a message that is still unsent may have no receiver.
                true if all_end && (is_sent || waited >= LAST_WAIT) => Some(ExitStep::Finalise),
                true if self.broken.is_some() && !self.has_left && waited >= LAST_WAIT => {
                    Some(ExitStep::Abort)
                }
                false if is_sent && self.messages.are_all_sent() => Some(ExitStep::Skip),
                false if waited >= LAST_WAIT => Some(ExitStep::Skip),
                _ => None,
            };
            if let Some(end) = end {
                return Ok(end);
            }
            back_off(waited);
        }
    }
}
