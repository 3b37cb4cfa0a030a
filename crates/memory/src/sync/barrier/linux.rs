//! Asymmetric barriers by `membarrier`, which interrupts the processors that run this process.

use std::ffi::{c_int, c_long, c_uint};
use std::sync::atomic::{AtomicU8, Ordering, fence};

/// `MEMBARRIER_CMD_QUERY`, `_PRIVATE_EXPEDITED` and `_REGISTER_PRIVATE_EXPEDITED` of
/// `linux/membarrier.h`.
const QUERY: c_int = 0;
const BARRIER: c_int = 1 << 3;
const REGISTER: c_int = 1 << 4;

/// Returns whether the kernel has the system call. The result never changes, so any thread may
/// query it first.
pub(crate) fn is_asymmetric() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    if KNOWN.load(Ordering::Relaxed) == UNKNOWN {
        let commands = membarrier(QUERY);
        let has = commands > 0 && commands & c_long::from(BARRIER) != 0;
        KNOWN.store(if has { YES } else { NO }, Ordering::Relaxed);
    }
    KNOWN.load(Ordering::Relaxed) == YES
}

/// Makes a system call of about half a microsecond. The process is registered only at the first
/// call, because a registration needs milliseconds if other threads are running.
#[cold]
pub(crate) fn heavy_barrier() {
    fence(Ordering::SeqCst);
    if !is_asymmetric() {
        return;
    }
    // The process is not registered yet, or is a fork, which must register again. If a filter of
    // system calls forbids the call, this barrier orders only the calling thread. One thread then
    // sees the other thread's store at its next check.
    if membarrier(BARRIER) < 0 && membarrier(REGISTER) == 0 {
        membarrier(BARRIER);
    }
}

/// Makes the system call. For [`QUERY`], returns the commands of the kernel, else 0. If the call
/// fails, returns a negative number.
fn membarrier(command: c_int) -> c_long {
    const FLAGS: c_uint = 0;
    // SAFETY: the call takes two integers and accesses no memory of the process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, FLAGS) }
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
        assert_eq!(membarrier(BARRIER), 0);
    }
}
