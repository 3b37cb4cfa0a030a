//! By `membarrier`, which interrupts the processors that run a thread of this process.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};

use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

/// Whether the kernel has the system call.
pub(crate) fn is_asymmetric() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| membarrier_query().contains_command(MembarrierCommand::PrivateExpedited))
}

/// A system call of about half a microsecond. The first one of a process registers it, which takes
/// milliseconds where other threads run already: not before somebody needs it.
#[cold]
pub(crate) fn heavy_barrier() {
    fence(Ordering::SeqCst);
    if !is_asymmetric() {
        return;
    }
    let barrier = || membarrier(MembarrierCommand::PrivateExpedited);
    // Not registered yet, or anew in a forked process. Where a filter forbids it, what one side does not
    // see now it sees at its next look.
    if barrier().is_err() && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok() {
        let _ = barrier();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_barrier_registers_the_process() {
        if !is_asymmetric() {
            return;
        }
        heavy_barrier();
        assert!(membarrier(MembarrierCommand::PrivateExpedited).is_ok());
    }
}
