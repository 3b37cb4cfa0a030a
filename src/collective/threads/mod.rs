//! Ranks that are threads of one process. They access each other's memory directly.

mod rendezvous;

use std::panic::catch_unwind;
use std::ptr;

use super::absence::has_left;
use super::call::{Call, Operation, part_of};
use super::engine::{CallMemory, Completion, Engine, Members, Work, failed, report_outcome};
use super::reduce_rows::reduce_rows;
use crate::device::host_streams::HostFailure;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Arc;
use rendezvous::{Message, RankSlot, Rendezvous, WaitLimit};

/// The engine of a rank that is a thread.
#[derive(Debug)]
pub(super) struct ThreadEngine {
    rendezvous: Arc<Rendezvous>,
    /// The world rank.
    rank: usize,
    /// The error of this rank's failure, after which the rank takes part in no call.
    broken: Option<Error>,
}

impl ThreadEngine {
    /// Creates the engines of a world, in rank order.
    pub(super) fn world(size: usize) -> Vec<Self> {
        let rendezvous = Arc::new(Rendezvous::new(size));
        let rank = |rank| Self {
            rendezvous: Arc::clone(&rendezvous),
            rank,
            broken: None,
        };
        (0..size).map(rank).collect()
    }

    /// Returns a handle of the rank's status, which any thread may change.
    pub(super) fn status(&self) -> RankStatus {
        RankStatus {
            rendezvous: Arc::clone(&self.rendezvous),
            rank: self.rank,
        }
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
        let Work { members, call, .. } = work;
        let operation = call.operation.name();
        let arriving = WaitLimit {
            operation,
            timeout: Some(work.settings.timeout),
        };
        let slot = RankSlot {
            call: *call,
            source: memory.source.expose_provenance(),
            target: memory.target.expose_provenance(),
        };
        if let Err(error) = self
            .rendezvous
            .arrive_and_wait(members, Some(slot), arriving)
        {
            self.broken = Some(error.clone());
            return failed(completion, error);
        }
        let slots = self.rendezvous.slots(members);
        let calls = members
            .ranks
            .iter()
            .copied()
            .zip(slots.iter().map(|own| &own.call));
        let outcome = match call.check_same(calls) {
            Ok(()) => {
                completion(Ok(()));
                // Without the catch, the other members would wait for ever after a panic.
                let shared = catch_unwind(|| {
                    // SAFETY: all members have arrived with equal calls, so each slot has memory of
                    // the call's sizes. The memory stays valid until the next rendezvous.
                    unsafe { share(members, call, &slots) }
                });
                shared.map_err(|_| {
                    let error = panicked(operation);
                    self.rendezvous.fail(members, &error);
                    error.into()
                })
            }
            Err(error) => failed(completion, error),
        };
        // No member may leave before all members have read and written. All members are in the
        // call, and are certain to arrive.
        let leaving = WaitLimit {
            operation,
            timeout: None,
        };
        self.rendezvous.arrive_and_wait(members, None, leaving)?;
        outcome.and_then(|()| Ok(self.rendezvous.check_parts(members, operation)?))
    }

    /// # Safety
    ///
    /// The contract of [`run`](Engine::run) must hold.
    unsafe fn send(&self, work: &Work, memory: CallMemory, to: usize) -> Result<()> {
        let bytes = work.call.bytes();
        // SAFETY: the source has the bytes of the call, by this function's contract.
        let bytes = unsafe { std::slice::from_raw_parts(memory.source, bytes) }.to_vec();
        let message = Message {
            call: work.call,
            bytes,
        };
        self.rendezvous.send(&work.members, to, message)
    }

    /// # Safety
    ///
    /// The contract of [`run`](Engine::run) must hold.
    unsafe fn receive(&mut self, work: &Work, memory: CallMemory, from: usize) -> Result<()> {
        let limit = WaitLimit {
            operation: work.call.operation.name(),
            timeout: Some(work.settings.timeout),
        };
        let message = self.rendezvous.receive(&work.members, from, limit);
        let message = message.inspect_err(|error| self.broken = Some(error.clone()))?;
        work.call
            .check_received(&message.call, work.members.ranks[from])?;
        // SAFETY: the target has the bytes of the call, by this function's contract. The message
        // has as many bytes, as checked.
        unsafe {
            let bytes = message.bytes.as_ptr();
            memory
                .target
                .copy_from_nonoverlapping(bytes, message.bytes.len());
        }
        Ok(())
    }
}

impl Engine for ThreadEngine {
    unsafe fn run(
        &mut self,
        work: &Work,
        memory: CallMemory,
        completion: &mut Completion<'_>,
    ) -> Result<(), HostFailure> {
        debug_assert!(
            !memory.is_of_device,
            "this engine supports only host memory"
        );
        if let Some(error) = &self.broken {
            return failed(completion, error.clone());
        }
        // SAFETY: this function has the callees' contract.
        let outcome = unsafe {
            match work.call.operation {
                Operation::Send(to) => self.send(work, memory, to),
                Operation::Receive(from) => self.receive(work, memory, from),
                _ => return self.together(work, memory, completion),
            }
        };
        report_outcome(completion, outcome)
    }

    fn fail(&mut self, error: &Error) {
        self.broken.get_or_insert_with(|| error.clone());
        self.rendezvous.mark_gone(self.rank, &error.to_string());
    }

    fn leave(&mut self, reason: &str) {
        self.broken.get_or_insert_with(|| has_left(reason));
        self.rendezvous.mark_gone(self.rank, reason);
    }

    fn end(&mut self, members: &Members) {
        self.rendezvous.end(members);
    }
}

/// The status of a rank, which lets another thread mark the rank as gone.
#[derive(Clone, Debug)]
pub(super) struct RankStatus {
    rendezvous: Arc<Rendezvous>,
    pub(super) rank: usize,
}

impl RankStatus {
    pub(super) fn mark_gone(&self, reason: &str) {
        self.rendezvous.mark_gone(self.rank, reason);
    }
}

#[cold]
fn panicked(operation: &str) -> Error {
    let text = format!("{operation}: the work of this rank panicked");
    Error::new(ErrorKind::Panic, text)
}

/// Executes one member's part of a collective: reads the inputs of all members and writes outputs.
/// Only one member writes each address.
///
/// # Safety
///
/// Each slot has an equal call, and memory as [`CallMemory`] describes it. Only these calls use the
/// memory. No member leaves before all members have finished.
unsafe fn share(members: &Members, call: &Call, slots: &[RankSlot]) {
    let (own, size) = (members.own, members.size());
    let (count, bytes, width) = (call.count(), call.bytes(), call.dtype.size_bytes());
    let source = |rank: usize| ptr::with_exposed_provenance::<u8>(slots[rank].source);
    let target = |rank: usize| ptr::with_exposed_provenance_mut::<u8>(slots[rank].target);
    let rows = |at: usize| -> Vec<*const u8> {
        let rows = (0..size).map(|rank| source(rank).wrapping_add(at));
        rows.collect()
    };
    // SAFETY: this member's ranges are inside of the memory of each member's slot. No other member
    // writes the target ranges. If a target range is also a source range, no other member reads it.
    unsafe {
        match call.operation {
            Operation::AllReduce(reduce) => {
                let part = part_of(count, own, size);
                let at = part.start * width;
                let targets: Vec<_> = (0..size).map(|rank| target(rank).add(at)).collect();
                reduce_rows((reduce, call.dtype), &rows(at), &targets, part.len());
            }
            Operation::Reduce(reduce, root) => {
                let part = part_of(count, own, size);
                let at = part.start * width;
                let targets = [target(root).add(at)];
                reduce_rows((reduce, call.dtype), &rows(at), &targets, part.len());
            }
            Operation::ReduceScatter(reduce) => {
                let part = count / size;
                let rows = rows(own * part * width);
                reduce_rows((reduce, call.dtype), &rows, &[target(own)], part);
            }
            Operation::Broadcast(root) if root != own => {
                target(own).copy_from_nonoverlapping(source(root), bytes);
            }
            Operation::AllGather => {
                for rank in 0..size {
                    let place = target(own).add(rank * bytes);
                    place.copy_from_nonoverlapping(source(rank), bytes);
                }
            }
            Operation::AllToAll => {
                let part = bytes / size;
                for rank in 0..size {
                    let place = target(own).add(rank * part);
                    place.copy_from_nonoverlapping(source(rank).add(own * part), part);
                }
            }
            Operation::Broadcast(_) | Operation::Barrier => {}
            Operation::Send(_) | Operation::Receive(_) => {
                unreachable!("only two ranks participate")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::array::{DType, Shape};
    use crate::collective::call::Reduce;
    use crate::collective::engine::Settings;

    #[test]
    fn the_other_ranks_name_a_rank_that_panicked() {
        let outcomes: Vec<_> = std::thread::scope(|threads| {
            let engines = ThreadEngine::world(2);
            let ranks: Vec<_> = engines
                .into_iter()
                .map(|engine| threads.spawn(|| sums_a_bool(engine)))
                .collect();
            ranks.into_iter().map(|own| own.join().unwrap()).collect()
        });
        let errors = outcomes.into_iter().map(|own| own.unwrap_err().error);
        let errors: Vec<Error> = errors.collect();
        assert_eq!(errors[0].kind(), ErrorKind::Panic);
        let texts: Vec<_> = errors.iter().map(Error::to_string).collect();
        assert!(texts[0].contains("this rank panicked"), "{texts:?}");
        assert!(
            texts[1].contains("rank 0 no longer participates"),
            "{texts:?}"
        );
    }

    /// Runs an all-reduce that `Reduce::check` would reject. The first of two ranks reduces the
    /// only element, and panics.
    fn sums_a_bool(mut engine: ThreadEngine) -> Result<(), HostFailure> {
        let work = Work {
            call: Call {
                operation: Operation::AllReduce(Reduce::Sum),
                dtype: DType::Bool,
                shape: Shape::from(1),
            },
            members: Arc::new(Members::all(engine.rank, 2)),
            settings: Settings {
                timeout: Duration::from_secs(60),
                checks: false,
            },
        };
        let (source, mut target) = ([true], [false]);
        let memory = CallMemory {
            is_of_device: false,
            source: source.as_ptr().cast(),
            target: target.as_mut_ptr().cast(),
        };
        let mut completion = |_: Result<()>| true;
        // SAFETY: both arrays have the one element of the call, and live until the engine returns.
        unsafe { engine.run(&work, memory, &mut completion) }
    }
}
