//! The driver's calls for memory, and their cost by the emulator's virtual clock. The cost is a
//! simulation, not a measurement of a GPU.

mod clock;
mod growth;
mod warm;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_emulator::Control;

/// Prepares the process before `main`: the emulator, and a separate kernel cache for kernels that
/// count their bytes.
pub(super) fn prepare() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    cuda_emulator::start(target);
    // SAFETY: the process has only one thread.
    unsafe { std::env::set_var("CACHESCOPE_KERNEL_CACHE", target.join("kernels-that-count")) };
}

/// The functions that allocate or free memory of the device or the host.
const MEMORY: [&str; 16] = [
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemRelease",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
    "cuMemPoolTrimTo",
    "cuMemPoolCreate",
];

/// The functions that wait for the device.
const WAITING: [&str; 4] = [
    "cuCtxSynchronize",
    "cuStreamSynchronize",
    "cuEventSynchronize",
    "cuMemFree_v2",
];

/// The lock that one test at a time holds, because the emulator counts for the whole process.
struct EmulatorLock {
    control: Control,
    _lock: MutexGuard<'static, ()>,
}

impl EmulatorLock {
    fn take() -> Self {
        static LOCK: Mutex<()> = Mutex::new(());
        let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            control: Control::of_process().expect("the emulator is loaded"),
            _lock: lock,
        }
    }

    /// Returns the calls of these functions so far, without functions that were not called.
    fn calls(&self, names: &[&'static str]) -> Vec<(&'static str, u64)> {
        let calls = names
            .iter()
            .map(|&name| (name, self.control.calls_of(name)));
        calls.filter(|&(_, count)| count > 0).collect()
    }

    /// Returns the host's virtual clock, in microseconds.
    fn clock(&self) -> f64 {
        self.control.clock().expect("the clock runs")
    }
}
