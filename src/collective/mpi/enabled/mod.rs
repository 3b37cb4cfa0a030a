//! Ranks that are processes, over the MPI library that the program was built with.
//!
//! Architecture invariant: while the world exists, only the thread that has the engine calls MPI.
//! No call of MPI blocks. A wait is a loop with a deadline. The loop lets MPI make progress, and
//! receives control messages about ranks that are gone.

mod comm;
mod cuda;
mod deadlock;
mod messages;
mod movement;
mod opening;
mod peers;
mod reduction;
mod shutdown;
mod transfer;
mod world;

use std::time::{Duration, Instant};

use super::super::absence::{GRACE, has_left};
use super::super::call::Operation;
use super::super::engine::{CallMemory, Completion, Engine, Members, Work, failed, report_outcome};
use crate::device::host_streams::HostFailure;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Arc;
use comm::Comm;
use messages::Messages;
use opening::{HeaderBuffers, INLINE};
use peers::{ControlMessage, Peers, Wait, WaitTarget, back_off};
use shutdown::Shutdown;
use transfer::Transfer;

pub(super) use world::world;

/// The engine of a rank that is an MPI process.
#[derive(Debug)]
struct MpiEngine {
    comm: Comm,
    peers: Peers,
    messages: Messages,
    /// Buffers of the headers that members exchange at the start of a call.
    buffers: HeaderBuffers,
    /// Scratch memory for the inputs of other ranks in a reduction, reused between calls.
    ring: Vec<u64>,
    /// The error of this rank's failure, after which the rank takes part in no call.
    broken: Option<Error>,
    /// True if the program's own work failed, instead of a call.
    has_left: bool,
    shutdown: Arc<Shutdown>,
    /// True if the library is CUDA-aware.
    knows_cuda: bool,
}

impl MpiEngine {
    fn new(comm: Comm, shutdown: Arc<Shutdown>, knows_cuda: bool) -> Self {
        Self {
            peers: Peers::new(comm.size),
            comm,
            messages: Messages::default(),
            buffers: HeaderBuffers::default(),
            ring: Vec::new(),
            broken: None,
            has_left: false,
            shutdown,
            knows_cuda,
        }
    }

    /// Sends the reason of this rank's failure to all other ranks.
    fn notify_of_failure(&mut self, reason: &str) {
        if self.shutdown.is_over() {
            return;
        }
        let message = ControlMessage::Failed(reason.to_owned());
        // A rank that cannot be notified times out.
        let _ = self.peers.notify(&self.comm, 0..self.comm.size, &message);
    }

    /// Executes a collective call: waits for all members, checks that they agree, and does this
    /// rank's part.
    ///
    /// # Safety
    ///
    /// The contract of [`run`](Engine::run) must hold.
    unsafe fn together(
        &mut self,
        work: &Work,
        memory: CallMemory,
        completion: &mut Completion<'_>,
    ) -> Result<(), HostFailure> {
        // SAFETY: this function has the contract of `open`.
        match unsafe { self.open(work, memory) } {
            Ok(Ok(())) => completion(Ok(())),
            Ok(Err(disagreement)) => return failed(completion, disagreement),
            Err(error) => {
                self.fail(&error);
                return failed(completion, error);
            }
        };
        // SAFETY: this function has the callees' contract, and all members have agreed on this
        // call.
        let outcome = unsafe {
            match work.call.operation {
                Operation::AllReduce(reduce)
                | Operation::Reduce(reduce, _)
                | Operation::ReduceScatter(reduce) => self.reduce(work, memory, reduce),
                Operation::Broadcast(root) => self.broadcast(work, memory, root),
                _ => self.exchange(work, memory),
            }
        };
        outcome.inspect_err(|failure| self.fail(&failure.error))
    }

    /// Runs all transfers to their end. In each iteration, `step` may mark more pieces as ready.
    /// `step` returns true if it did any work.
    ///
    /// # Errors
    ///
    /// If MPI may still use the memory of a transfer, the failure keeps the memory.
    fn carry(
        &mut self,
        work: &Work,
        transfers: &mut [Transfer],
        step: &mut dyn FnMut(&mut [Transfer]) -> bool,
    ) -> Result<(), HostFailure> {
        let outcome = self.carry_transfers(work, transfers, step);
        outcome.map_err(|error| {
            let cancelled = transfers.iter_mut().map(Transfer::cancel);
            HostFailure {
                error,
                keeps_memory: cancelled.filter(|is_certain| !is_certain).count() > 0,
            }
        })
    }

    fn carry_transfers(
        &mut self,
        work: &Work,
        transfers: &mut [Transfer],
        step: &mut dyn FnMut(&mut [Transfer]) -> bool,
    ) -> Result<()> {
        let mut wait = Wait::new(work, WaitTarget::Data);
        loop {
            let has_stepped = step(transfers);
            let has_advanced = Transfer::advance(transfers, &self.comm)?;
            if has_stepped || has_advanced {
                wait.progressed();
                continue;
            }
            let late = || transfers.iter().filter(|transfer| !transfer.is_done());
            if late().next().is_none() {
                return Ok(());
            }
            let missing = || {
                let mut ranks: Vec<usize> = late().map(|transfer| transfer.peer).collect();
                ranks.sort_unstable();
                ranks.dedup();
                ranks
            };
            self.peers.pause(&self.comm, &mut wait, missing)?;
        }
    }
}

impl Engine for MpiEngine {
    unsafe fn run(
        &mut self,
        work: &Work,
        memory: CallMemory,
        completion: &mut Completion<'_>,
    ) -> Result<(), HostFailure> {
        if let Some(error) = &self.broken {
            return failed(completion, error.clone());
        }
        if self.shutdown.is_over() {
            return failed(completion, is_over(work.call.operation.name()));
        }
        // SAFETY: this function has the callees' contract.
        let outcome = unsafe {
            match work.call.operation {
                Operation::Send(to) => self.send(work, memory, to),
                Operation::Receive(from) => match self.receive(work, memory, from) {
                    Ok(received) => received,
                    Err(failure) => {
                        self.fail(&failure.error);
                        // If MPI may still use the memory, the stream reports the failure to the
                        // next user of the memory.
                        return match failure.keeps_memory {
                            true => Err(failure),
                            false => failed(completion, failure.error),
                        };
                    }
                },
                _ => return self.together(work, memory, completion),
            }
        };
        report_outcome(completion, outcome)
    }

    /// Returns true for data that is sent unchanged. Data that is reduced or sent with the header
    /// must be in host memory, because the host reads it.
    fn takes_device_memory(&self, work: &Work) -> bool {
        let bytes = match work.call.operation {
            Operation::Broadcast(_) | Operation::AllGather => work.call.bytes(),
            Operation::AllToAll => work.call.bytes() / work.members.size(),
            _ => 0,
        };
        self.knows_cuda && bytes > INLINE
    }

    fn fail(&mut self, error: &Error) {
        if self.broken.is_some() {
            return;
        }
        self.broken = Some(error.clone());
        self.notify_of_failure(&error.to_string());
    }

    fn leave(&mut self, reason: &str) {
        if self.broken.is_some() {
            return;
        }
        self.broken = Some(has_left(reason));
        self.has_left = true;
        self.notify_of_failure(reason);
        // The program may finalise MPI next, so the reason must be sent before.
        let began = Instant::now();
        while !self.shutdown.is_over() && began.elapsed() < GRACE {
            match self.peers.reap() {
                Ok(false) => back_off(began.elapsed()),
                Ok(true) | Err(_) => return,
            }
        }
    }

    fn end(&mut self, members: &Members) {
        self.messages.forget(members.group);
        self.peers.drop_group(members);
        if self.shutdown.is_over() {
            return;
        }
        let ranks = members.ranks.iter().copied();
        // A rank that cannot be notified times out.
        let _ = self
            .peers
            .notify(&self.comm, ranks, &ControlMessage::Dropped(members.group));
    }

    fn make_progress(&mut self) -> Option<Duration> {
        /// The pause between two calls of this function. A receiver may wait this long between two
        /// pieces.
        const PAUSE: Duration = Duration::from_micros(50);
        if self.messages.are_all_sent() || self.shutdown.is_over() {
            return None;
        }
        // The error is ignored, because it recurs in `sign_off`, which reports it.
        let _ = self.messages.reap();
        Some(PAUSE)
    }

    fn close(&mut self) {
        let end = self.sign_off();
        self.shutdown.set(end);
    }
}

impl Drop for MpiEngine {
    fn drop(&mut self) {
        // After `close`, `set` has no effect. It has an effect only if a panic prevented `close`.
        self.shutdown.set(Err(is_over("the end")));
        self.peers.abandon();
        self.messages.abandon();
    }
}

#[cold]
fn is_over(operation: &str) -> Error {
    let text = format!("{operation}: MPI has been finalised");
    Error::new(ErrorKind::Communication, text)
}
