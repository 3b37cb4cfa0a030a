//! The interface of the engines (threads and MPI), which transfer bytes between ranks.

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
    /// The number of the group, unique in the world.
    pub(super) group: u64,
    /// World ranks of the members, in group order.
    pub(super) ranks: Vec<usize>,
    /// The index of this rank in `ranks`.
    pub(super) own: usize,
}

impl Members {
    /// Returns the group of all ranks of a world.
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

/// The settings of calls, which must be equal on all ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// The longest time to wait for the other ranks.
    pub(super) timeout: Duration,
    /// True if the ranks compare their calls, even if the comparison costs time.
    pub(super) checks: bool,
}

/// A call of this rank, with its group and its settings.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) members: Arc<Members>,
    pub(super) call: Call,
    pub(super) settings: Settings,
}

/// The memory of a call: host memory, or device memory if the engine supports it.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallMemory {
    /// True for device memory. In this case, the rank's own part is already in the target.
    pub(super) is_of_device: bool,
    /// The rank's input, with the number of elements of the call. Unused if the rank receives a
    /// message, or if it is not the root of a broadcast.
    pub(super) source: *const u8,
    /// The rank's output. For all_gather, it is as large as all inputs together. For
    /// reduce_scatter, it is as large as the rank's part. Otherwise, it is as large as the input.
    /// Unused if the rank sends a message, or if it is not the root of a reduction. The target may
    /// equal the source, except for all_gather, reduce_scatter and all_to_all.
    pub(super) target: *mut u8,
}

/// Completion callback of a call. Receives `Ok` if all ranks issued equal calls, and an error
/// otherwise. For a collective call, it runs before any memory is read or written. Returns true if
/// a thread waits for the report.
pub(super) type Completion<'a> = dyn FnMut(Result<()>) -> bool + 'a;

/// The part of a rank that transfers bytes. The engine executes the rank's calls one at a time, in
/// the order in which the rank issued them.
///
/// Invariant: every pair of ranks executes its shared calls in one order. If a rank detects that
/// another rank breaks the order, is gone, or is late for the call, the detecting rank fails. After
/// the failure, it is gone for all other ranks.
pub(super) trait Engine: Send {
    /// Executes a call. If the ranks' calls differ, all ranks report an error, and the group
    /// remains usable.
    ///
    /// # Safety
    ///
    /// Source and target are readable and writable, and aligned for the elements. Nothing else uses
    /// them until the function returns. If the failure keeps the memory, nothing else ever uses
    /// them.
    unsafe fn run(
        &mut self,
        work: &Work,
        memory: CallMemory,
        completion: &mut Completion<'_>,
    ) -> Result<(), HostFailure>;

    /// Returns true if the call may use device memory. Otherwise the call uses a copy in host
    /// memory.
    fn takes_device_memory(&self, _work: &Work) -> bool {
        false
    }

    /// Marks this rank as failed, because it could not execute a call. The rank takes part in no
    /// later call, and the other ranks receive the error.
    fn fail(&mut self, error: &Error);

    /// Marks this rank as gone because the program's own work failed. The other ranks receive the
    /// reason, and this rank does not end before the other ranks.
    fn leave(&mut self, reason: &str);

    /// Records that this rank has dropped the group.
    fn end(&mut self, members: &Members);

    /// Makes progress on work that other ranks wait for, while this rank has no call queued.
    /// Returns the time after which this function should be called again, or `None` if no work
    /// remains.
    fn make_progress(&mut self) -> Option<Duration> {
        None
    }

    /// Shuts down. The rank issues no more calls.
    fn close(&mut self) {}
}

/// Reports the outcome of a completed call to the caller.
pub(super) fn report_outcome(
    completion: &mut Completion<'_>,
    outcome: Result<()>,
) -> Result<(), HostFailure> {
    match outcome {
        Ok(()) => {
            completion(Ok(()));
            Ok(())
        }
        Err(error) => failed(completion, error),
    }
}

/// Reports an error that occurred before any memory was read or written. If no caller waits for the
/// report, returns the error as the failure of the stream. The next user of the memory then gets
/// the error.
pub(super) fn failed(completion: &mut Completion<'_>, error: Error) -> Result<(), HostFailure> {
    if completion(Err(error.clone())) {
        return Ok(());
    }
    Err(error.into())
}
