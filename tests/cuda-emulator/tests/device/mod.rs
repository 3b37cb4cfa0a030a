//! Tests of CUDA devices on the emulator, through the library's public API.

mod biases;
mod ending;
mod failures;
mod kernels;
mod launches;
mod memory;
mod opening;
mod timing;
mod transfers;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cachescope::{Device, DeviceConfig, PoolKind};
use cuda_emulator::{Control, Report};

/// The memory size of each emulated device.
const DEVICE_BYTES: usize = 64 << 20;
const DEVICES: usize = 3;

/// Prepares the process before `main`. The emulator is used even if a real device exists, because
/// the tests inspect its counters.
pub(super) fn prepare() {
    let settings = [
        ("CACHESCOPE_CUDA_EMULATOR", "1".to_owned()),
        ("CACHESCOPE_EMULATOR_DEVICES", DEVICES.to_string()),
        ("CACHESCOPE_EMULATOR_MEMORY", DEVICE_BYTES.to_string()),
    ];
    for (name, value) in settings {
        if std::env::var_os(name).is_none() {
            // SAFETY: the process has only one thread.
            unsafe { std::env::set_var(name, value) };
        }
    }
    ending::drop_after_the_driver();
    if std::env::var_os("CACHESCOPE_TEST_WITHOUT").is_none() {
        cuda_emulator::start(Path::new(env!("CARGO_TARGET_TMPDIR")));
    }
    if let Some(cache) = std::env::var_os("CACHESCOPE_TEST_KERNELS") {
        // SAFETY: the process has only one thread.
        unsafe { std::env::set_var("CACHESCOPE_KERNEL_CACHE", cache) };
    }
}

/// The lock that serialises the tests, because the emulator's counters are per process.
struct EmulatorLock {
    control: Control,
    before: Report,
    complaints: u64,
    _lock: MutexGuard<'static, ()>,
}

impl EmulatorLock {
    fn take() -> Self {
        static LOCK: Mutex<()> = Mutex::new(());
        let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let control = Control::of_process().expect("the emulator is loaded");
        Self {
            before: control.report(),
            complaints: control.complaints(),
            control,
            _lock: lock,
        }
    }

    /// Returns the number of calls of `name` during `body`.
    fn calls_of(&self, name: &str, body: impl FnOnce()) -> u64 {
        let before = self.control.calls_of(name);
        body();
        self.control.calls_of(name) - before
    }

    /// Checks that this test's devices released all objects, except contexts and modules.
    #[track_caller]
    fn end(&self) {
        let kept = Report {
            contexts: self.control.report().contexts,
            modules: self.control.report().modules,
            ..self.before
        };
        assert_eq!(self.control.report(), kept, "something is left");
        self.assert_no_misuse();
    }

    /// Checks that `count` pools were destroyed with memory in them, because the test made frees
    /// fail. Checks that no other misuse occurred.
    #[track_caller]
    fn forgive_pools(&self, count: u64) {
        let complaints = self.control.complaints() - self.complaints;
        let last = self.control.last_complaint();
        assert_eq!(complaints, count, "{last}");
        assert!(
            count == 0 || last.starts_with("a memory pool is destroyed with"),
            "{last}"
        );
        self.control.forgive(count);
    }

    #[track_caller]
    fn assert_no_misuse(&self) {
        let complaints = self.control.complaints();
        let last = self.control.last_complaint();
        assert_eq!(complaints, self.complaints, "{last}");
    }
}

fn device(pool: PoolKind) -> Device {
    let config = DeviceConfig {
        pool,
        ..DeviceConfig::default()
    };
    Device::cuda_with(0, config).unwrap()
}

const POOLS: [PoolKind; 4] = [
    PoolKind::BestFit,
    PoolKind::Binned,
    PoolKind::Direct,
    PoolKind::StreamOrdered,
];

/// Returns numbers that depend on `seed`.
fn numbers(seed: usize, count: usize) -> Vec<u32> {
    let number = |index: usize| (index.wrapping_mul(2_654_435_761) ^ seed.wrapping_mul(97)) as u32;
    (0..count).map(number).collect()
}
