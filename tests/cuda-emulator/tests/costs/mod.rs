//! Tests of the driver's memory calls and their cost on the emulator's virtual clock. The cost is
//! simulated, and not measured on a GPU.

mod attention;
mod biases;
mod clock;
mod growth;
mod half;
mod norms;
mod warm;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cachescope::{Device, Result};
use cuda_emulator::Control;

/// Prepares the process before `main`. Loads the emulator, and sets a separate cache for kernels
/// that count their bytes.
pub(super) fn prepare() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    cuda_emulator::start(target);
    // SAFETY: the process has only one thread.
    unsafe { std::env::set_var("CACHESCOPE_KERNEL_CACHE", target.join("kernels-that-count")) };
}

/// The functions that allocate or free memory on the device or on the host.
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

const WAITING: [&str; 4] = [
    "cuCtxSynchronize",
    "cuStreamSynchronize",
    "cuEventSynchronize",
    "cuMemFree_v2",
];

/// The lock that serialises the tests, because the emulator's counters are per process.
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

    /// Returns the call counts of the given functions, without zeros.
    fn calls(&self, names: &[&'static str]) -> Vec<(&'static str, u64)> {
        let calls = names
            .iter()
            .map(|&name| (name, self.control.calls_of(name)));
        calls.filter(|&(_, count)| count > 0).collect()
    }

    /// Returns the launches and products of `work`, and the bytes that its kernels read and write.
    fn costs_of(&self, device: &Device, work: &dyn Fn() -> Result<()>) -> Result<[u64; 3]> {
        work()?; // Compiles the kernels.
        let count = || {
            device.synchronize()?;
            let products = "cublasGemmStridedBatchedEx";
            let calls = ["cuLaunchKernel", products].map(|name| self.control.calls_of(name));
            Result::Ok([calls[0], calls[1], self.control.kernel_bytes()])
        };
        let before = count()?;
        work()?;
        let after = count()?;
        Ok([0, 1, 2].map(|at| after[at] - before[at]))
    }

    /// Returns the host's virtual time in microseconds.
    fn clock(&self) -> f64 {
        self.control.clock().expect("the clock runs")
    }
}
