//! What memory asks of the driver, and what that costs by the emulator's virtual clock: a
//! simulation, of no GPU.

mod clock;
mod growth;
mod warm;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_emulator::Control;

/// Before `main`: the emulator, and a folder of its own for kernels, which count what they move.
pub(super) fn prepare() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    cuda_emulator::start(target);
    // SAFETY: there is one thread yet.
    unsafe { std::env::set_var("CACHESCOPE_KERNEL_CACHE", target.join("kernels-that-count")) };
}

/// The functions that take memory of the device or the host, or give it back.
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

/// The emulator counts for the whole process, so the tests take turns.
struct Turn {
    control: Control,
    _turn: MutexGuard<'static, ()>,
}

impl Turn {
    fn take() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            control: Control::of_process().expect("the emulator is loaded"),
            _turn: turn,
        }
    }

    /// The calls of these functions so far, those that were called at all.
    fn calls(&self, names: &[&'static str]) -> Vec<(&'static str, u64)> {
        let calls = names
            .iter()
            .map(|&name| (name, self.control.calls_of(name)));
        calls.filter(|&(_, count)| count > 0).collect()
    }

    /// The host's virtual clock, in microseconds.
    fn clock(&self) -> f64 {
        self.control.clock().expect("the clock runs")
    }
}
