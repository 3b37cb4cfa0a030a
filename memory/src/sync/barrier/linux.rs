//! Asymmetric barriers by `membarrier`, which interrupts the processors that run this process.

use std::sync::atomic::{AtomicU8, Ordering, fence};

use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

/// Returns whether the kernel has the system call. The result never changes, so it does not matter
/// which thread queries it first.
pub(crate) fn is_asymmetric() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    if KNOWN.load(Ordering::Relaxed) == UNKNOWN {
        let has = membarrier_query().contains_command(MembarrierCommand::PrivateExpedited);
        KNOWN.store(if has { YES } else { NO }, Ordering::Relaxed);
    }
    KNOWN.load(Ordering::Relaxed) == YES
}

/// Makes a system call of about half a microsecond. The first call registers the process, which
/// takes milliseconds if other threads are running, so it is done on demand.
#[cold]
pub(crate) fn heavy_barrier() {
    fence(Ordering::SeqCst);
    if !is_asymmetric() {
        return;
    }
    let barrier = || membarrier(MembarrierCommand::PrivateExpedited);
    // The process is not registered yet, or is a fork, which must register again. If a filter
    // forbids the call, one side sees the other's store at its next check.
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
