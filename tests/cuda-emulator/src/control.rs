//! The emulator's additional functions for tests: counts, injected failures and the virtual clock.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use libloading::os::unix::{Library, RTLD_NOW, Symbol};

/// The numbers of objects that are alive on all devices.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The number of allocations by `cuMemAlloc`.
    pub allocations: u64,
    /// The bytes of the allocations by `cuMemAlloc`.
    pub allocated_bytes: u64,
    /// The number of allocations by `cuMemHostAlloc`.
    pub host_allocations: u64,
    /// The number of allocations from memory pools.
    pub pool_allocations: u64,
    /// The number of allocations by `cuMemCreate`.
    pub physical: u64,
    /// The number of reservations by `cuMemAddressReserve`.
    pub reservations: u64,
    /// The number of mappings by `cuMemMap`.
    pub mappings: u64,
    /// The number of streams.
    pub streams: u64,
    /// The number of events.
    pub events: u64,
    /// The number of modules.
    pub modules: u64,
    /// The number of graphs.
    pub graphs: u64,
    /// The number of graphs that can be launched.
    pub executables: u64,
    /// The number of memory pools, without the default pools.
    pub pools: u64,
    /// The number of primary contexts that were ever retained.
    pub contexts: u64,
    /// The number of pieces of work that no stream has run yet.
    pub pending: u64,
    /// The bytes of the devices' memory that are in use.
    pub used_bytes: u64,
    /// The number of NCCL communicators.
    pub communicators: u64,
    /// The number of memory ranges that are registered with a communicator.
    pub registrations: u64,
}

/// The emulator of this process.
#[derive(Debug)]
pub struct Control {
    driver: Library,
}

impl Control {
    /// Returns the loaded emulator; `None` if none is loaded, as on a real device.
    #[must_use]
    pub fn of_process() -> Option<Self> {
        // SAFETY: with this name, the loader finds a library that is already loaded, or a driver
        // that is safe to load.
        let driver = unsafe { Library::open(Some("libcuda.so"), RTLD_NOW) }.ok()?;
        // SAFETY: the symbol is looked up, but not used.
        unsafe { driver.get::<*const ()>(b"emulator_calls\0") }.ok()?;
        Some(Self { driver })
    }

    fn function<F>(&self, name: &CStr) -> Symbol<F> {
        // SAFETY: the callers name functions of `native/report.cpp` with their signatures.
        let found = unsafe { self.driver.get(name.to_bytes_with_nul()) };
        found.unwrap_or_else(|error| panic!("{name:?}: {error}"))
    }

    /// Returns the number of calls of the driver and of the other libraries.
    #[must_use]
    pub fn calls(&self) -> u64 {
        let calls = self.function::<unsafe extern "C" fn(*const c_char) -> u64>(c"emulator_calls");
        // SAFETY: the function accepts a null name, which represents all functions.
        unsafe { calls(std::ptr::null()) }
    }

    /// Returns the number of calls of the driver function `name`.
    #[must_use]
    pub fn calls_of(&self, name: &str) -> u64 {
        let calls = self.function::<unsafe extern "C" fn(*const c_char) -> u64>(c"emulator_calls");
        // SAFETY: the name ends with a zero byte.
        unsafe { calls(c_name(name).as_ptr()) }
    }

    /// Makes the `n`-th call from now fail with this error of the driver. 0 disables the failure.
    pub fn fail_call(&self, n: u64, error: i32) {
        let fail = self.function::<unsafe extern "C" fn(u64, c_int)>(c"emulator_fail_call");
        // SAFETY: takes plain numbers.
        unsafe { fail(n, error) }
    }

    /// Makes the `n`-th call of the function `name` from now fail with this error. 0 disables the
    /// failure.
    pub fn fail_named(&self, name: &str, n: u64, error: i32) {
        type Fail = unsafe extern "C" fn(*const c_char, u64, c_int);
        let fail = self.function::<Fail>(c"emulator_fail_named");
        // SAFETY: the name ends with a zero byte, and is copied.
        unsafe { fail(c_name(name).as_ptr(), n, error) }
    }

    /// Runs `work` before the calling thread's `n`-th call of the function `name` from now, where
    /// `n` is at least 1. `work` delays the call like a slow device, and other threads may call the
    /// driver meanwhile.
    pub fn before_named<F: FnOnce() + 'static>(&self, name: &str, n: u64, work: F) {
        unsafe extern "C" fn run<F: FnOnce()>(work: *mut c_void) {
            // SAFETY: the address is the address of the box below, and this function runs only
            // once.
            let work = unsafe { Box::from_raw(work.cast::<F>()) };
            work();
        }
        type Work = unsafe extern "C" fn(*mut c_void);
        type Before = unsafe extern "C" fn(*const c_char, u64, Work, *mut c_void);
        let before = self.function::<Before>(c"emulator_before_named");
        let work = Box::into_raw(Box::new(work));
        // SAFETY: the name ends with a zero byte, and is copied; only this thread calls `run`.
        unsafe { before(c_name(name).as_ptr(), n, run::<F>, work.cast()) }
    }

    /// Makes the next compilations of kernels wait for each other until `count` of them run. If a
    /// compilation waits for 30 seconds, it fails: something else, such as a lock, kept the others
    /// from starting.
    pub fn meet_compilations(&self, count: u32) {
        let meet = self.function::<unsafe extern "C" fn(u32)>(c"emulator_meet");
        // SAFETY: takes a plain number.
        unsafe { meet(count) }
    }

    /// Returns the number of calls that were made to fail.
    #[must_use]
    pub fn failed(&self) -> u64 {
        let failed = self.function::<unsafe extern "C" fn() -> u64>(c"emulator_failed");
        // SAFETY: takes nothing.
        unsafe { failed() }
    }

    /// Returns the number of misuses, such as kernel faults and calls with handles that were
    /// destroyed.
    #[must_use]
    pub fn complaints(&self) -> u64 {
        let complaints = self.function::<unsafe extern "C" fn() -> u64>(c"emulator_complaints");
        // SAFETY: takes nothing.
        unsafe { complaints() }
    }

    /// Removes the last `count` misuses, which the test provoked, so that they are not reported at
    /// exit.
    pub fn forgive(&self, count: u64) {
        let forgive = self.function::<unsafe extern "C" fn(u64)>(c"emulator_forgive");
        // SAFETY: takes a plain number.
        unsafe { forgive(count) }
    }

    /// Returns the text of the last misuse.
    #[must_use]
    pub fn last_complaint(&self) -> String {
        type Last = unsafe extern "C" fn(*mut c_char, usize);
        let last = self.function::<Last>(c"emulator_last_complaint");
        let mut text = [0; 1024];
        // SAFETY: the function writes at most `text.len()` bytes, including a terminating zero.
        unsafe { last(text.as_mut_ptr().cast(), text.len()) };
        let text = CStr::from_bytes_until_nul(&text);
        text.map_or_else(
            |_| String::new(),
            |text| text.to_string_lossy().into_owned(),
        )
    }

    /// Starts the virtual clock. Kernels that are compiled later count the bytes that they move.
    pub fn run_clock(&self) {
        let run = self.function::<unsafe extern "C" fn()>(c"emulator_run_clock");
        // SAFETY: takes nothing.
        unsafe { run() }
    }

    /// Returns the host's virtual clock in microseconds; `None` if the clock does not run.
    #[must_use]
    pub fn clock(&self) -> Option<f64> {
        let clock = self.function::<unsafe extern "C" fn() -> f64>(c"emulator_clock");
        // SAFETY: takes nothing.
        Some(unsafe { clock() }).filter(|&time| time >= 0.0)
    }

    /// Returns the total time of all calls of the driver function `name` by the virtual clock, in
    /// microseconds.
    #[must_use]
    pub fn spent(&self, name: &str) -> f64 {
        let spent = self.function::<unsafe extern "C" fn(*const c_char) -> f64>(c"emulator_spent");
        // SAFETY: the name ends with a zero byte.
        unsafe { spent(c_name(name).as_ptr()) }
    }

    /// Returns the numbers of objects that are alive.
    #[must_use]
    pub fn report(&self) -> Report {
        let report = self.function::<unsafe extern "C" fn(*mut Report)>(c"emulator_report");
        let mut filled = Report::default();
        // SAFETY: fills a structure of this layout.
        unsafe { report(&raw mut filled) };
        filled
    }
}

fn c_name(name: &str) -> CString {
    CString::new(name).unwrap_or_default()
}
