//! What carries bytes between ranks: the interface of threads and MPI.

use std::time::Duration;

use super::call::Call;
use crate::device::host_streams::HostFailure;
use crate::error::{Error, Result};
use crate::sync::Arc;

/// The number of the group of all ranks of a world.
pub(super) const WORLD: u64 = 0;

/// The ranks of a group.
#[derive(Debug)]
pub(super) struct Members {
    /// The number of the group, which no other group of the world has.
    pub(super) group: u64,
    /// What the world calls them, in the order of the group.
    pub(super) ranks: Vec<usize>,
    /// Which of these this rank is.
    pub(super) own: usize,
}

impl Members {
    /// All ranks of a world.
    pub(super) fn all(own: usize, size: usize) -> Self {
        Self {
            group: WORLD,
            ranks: (0..size).collect(),
            own,
        }
    }

    pub(super) fn size(&self) -> usize {
        self.ranks.len()
    }
}

/// A call of this rank.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) members: Arc<Members>,
    pub(super) call: Call,
    /// How long it waits for the others.
    pub(super) timeout: Duration,
    /// Whether the ranks compare what they call, where that costs time.
    pub(super) checks: bool,
}

/// Memory that a call is about: the host's, or a device's that the engine takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// Whether it is a device's. The rank's own part is in its place then.
    pub(super) is_of_device: bool,
    /// What the rank gives: so many elements as the call says; nothing where it receives, or does
    /// not broadcast.
    pub(super) source: *const u8,
    /// What it gets: of all_gather what all ranks give, of reduce_scatter its part, nothing where
    /// it sends or is not the one that is reduced to, else as much as it gives. It may be the
    /// source, but of all_gather, reduce_scatter and all_to_all.
    pub(super) target: *mut u8,
}

/// Who asked for a piece of work, and may wait to hear whether the ranks agree.
pub(super) trait Asker {
    /// Tells whether all ranks came and agree, before anything is read or written. Answers whether
    /// somebody hears it.
    fn tell(&mut self, agreed: Result<()>) -> bool;
}

/// Carries the bytes of one rank. Its calls are made one after the other, in the order in which the
/// rank asked for them.
///
/// Invariant: each pair of ranks takes up what it does together in one order. A rank that finds out
/// that another one does not, or is gone, or does not come in time, fails, and is gone for the
/// others from then on.
pub(super) trait Engine: Send {
    /// Takes part in a call. Where the ranks do not agree, all of them hear of it, and may go on.
    ///
    /// # Safety
    ///
    /// Until this returns, and for good where its failure keeps the memory, source and target are
    /// readable and writable, aligned for the elements, and used by nothing else.
    unsafe fn run(
        &mut self,
        work: &Work,
        memory: Memory,
        asker: &mut dyn Asker,
    ) -> Result<(), HostFailure>;

    /// Whether the call may be made on memory of a device. If not, it is made on a copy of the
    /// host's.
    fn takes_device_memory(&self, _work: &Work) -> bool {
        false
    }

    /// This rank could not take part in a call: it takes part in nothing any more, and the others
    /// hear why.
    fn fail(&mut self, error: &Error);

    /// This rank has the group no longer.
    fn end(&mut self, members: &Members);

    /// Nothing is asked for: goes on with what other ranks wait for. Answers after what time to go
    /// on; `None` where there is nothing of the kind.
    fn go_on(&mut self) -> Option<Duration> {
        None
    }

    /// The rank asks for nothing any more.
    fn close(&mut self) {}
}

/// Tells whoever asked what came of a call that is over.
pub(super) fn told(asker: &mut dyn Asker, outcome: Result<()>) -> Result<(), HostFailure> {
    match outcome {
        Ok(()) => {
            asker.tell(Ok(()));
            Ok(())
        }
        Err(error) => failed(asker, error),
    }
}

/// Of what failed before anything was read or written: whoever asked hears it, or else who waits
/// for the memory.
pub(super) fn failed(asker: &mut dyn Asker, error: Error) -> Result<(), HostFailure> {
    if asker.tell(Err(error.clone())) {
        return Ok(());
    }
    Err(error.into())
}
