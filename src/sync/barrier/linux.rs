//! By `membarrier`, which interrupts the processors that run a thread of this process.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};

use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

/// Whether the kernel has the system call, and lets this process use it.
pub(crate) fn is_asymmetric() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        membarrier_query().contains_command(MembarrierCommand::PrivateExpedited) && register()
    })
}

fn register() -> bool {
    membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
}

/// One system call of about a microsecond, and an interruption of the other threads that run.
#[cold]
pub(crate) fn heavy_barrier() {
    fence(Ordering::SeqCst);
    if !is_asymmetric() {
        return;
    }
    let barrier = || membarrier(MembarrierCommand::PrivateExpedited);
    // A forked process may have to register anew. Where it is forbidden by now, what one side does not
    // see it will see at its next look.
    if barrier().is_err() && register() {
        let _ = barrier();
    }
}
