//! The emulator's control functions for tests: counters, injected failures and the virtual clock.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

use libloading::os::unix::{Library, RTLD_NOW, Symbol};

/// The numbers of live objects on all devices.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The number of allocations by `cuMemAlloc`.
    pub allocations: u64,
    /// The total bytes of allocations by `cuMemAlloc`.
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
    /// The number of executable graphs.
    pub executables: u64,
    /// The number of memory pools, without the default pools.
    pub pools: u64,
    /// The number of primary contexts that were retained since the start.
    pub contexts: u64,
    /// The number of enqueued operations that have not run yet.
    pub pending: u64,
    /// The used bytes of device memory.
    pub used_bytes: u64,
    /// The number of NCCL communicators.
    pub communicators: u64,
    /// The number of memory ranges that are registered with a communicator.
    pub registrations: u64,
    /// The number of descriptors of cublasLt.
    pub descriptors: u64,
}

/// A handle to the emulator of this process.
#[derive(Debug)]
pub struct Control {
    driver: Library,
}

impl Control {
    /// Returns the loaded emulator, or `None` if a real driver is used.
    #[must_use]
    pub fn of_process() -> Option<Self> {
        // SAFETY: the loader finds a loaded library of this name, or a driver that is safe to load.
        let driver = unsafe { Library::open(Some("libcuda.so"), RTLD_NOW) }.ok()?;
        // SAFETY: the symbol is only looked up, and not used.
        unsafe { driver.get::<*const ()>(b"emulator_calls\0") }.ok()?;
        Some(Self { driver })
    }

    fn function<F>(&self, name: &CStr) -> Symbol<F> {
        // SAFETY: the callers pass names and matching signatures of `native/report.cpp`.
        let found = unsafe { self.driver.get(name.to_bytes_with_nul()) };
        found.unwrap_or_else(|error| panic!("{name:?}: {error}"))
    }

    /// Returns the number of calls of all emulated libraries.
    #[must_use]
    pub fn calls(&self) -> u64 {
        let calls = self.function::<unsafe extern "C" fn(*const c_char) -> u64>(c"emulator_calls");
        // SAFETY: the function accepts null, which means all functions.
        unsafe { calls(std::ptr::null()) }
    }

    /// Returns the number of calls of the function `name`.
    #[must_use]
    pub fn calls_of(&self, name: &str) -> u64 {
        let calls = self.function::<unsafe extern "C" fn(*const c_char) -> u64>(c"emulator_calls");
        // SAFETY: the name is NUL-terminated.
        unsafe { calls(c_name(name).as_ptr()) }
    }

    /// Makes the `n`-th call from now fail with a driver error. If `n` is 0, no call fails.
    pub fn fail_call(&self, n: u64, error: i32) {
        let fail = self.function::<unsafe extern "C" fn(u64, c_int)>(c"emulator_fail_call");
        // SAFETY: the function takes only integers.
        unsafe { fail(n, error) }
    }

    /// Makes the `n`-th call of the function `name` from now fail with a driver error. If `n` is 0,
    /// no call fails.
    pub fn fail_named(&self, name: &str, n: u64, error: i32) {
        type Fail = unsafe extern "C" fn(*const c_char, u64, c_int);
        let fail = self.function::<Fail>(c"emulator_fail_named");
        // SAFETY: the name is NUL-terminated, and the emulator copies it.
        unsafe { fail(c_name(name).as_ptr(), n, error) }
    }

    /// Runs `work` before this thread's `n`-th call of the function `name` from now. `n` must be at
    /// least 1. `work` delays the call like a slow device. Meanwhile, other threads may call the
    /// driver.
    pub fn before_named<F: FnOnce() + 'static>(&self, name: &str, n: u64, work: F) {
        unsafe extern "C" fn run<F: FnOnce()>(work: *mut c_void) {
            // SAFETY: `work` is the address of the box that `before_named` leaks, and this function
            // runs only once.
            let work = unsafe { Box::from_raw(work.cast::<F>()) };
            work();
        }
        type Work = unsafe extern "C" fn(*mut c_void);
        type Before = unsafe extern "C" fn(*const c_char, u64, Work, *mut c_void);
        let before = self.function::<Before>(c"emulator_before_named");
        let work = Box::into_raw(Box::new(work));
        // SAFETY: the name is NUL-terminated, and the emulator copies it. Only this thread calls
        // `run`.
        unsafe { before(c_name(name).as_ptr(), n, run::<F>, work.cast()) }
    }

    /// Makes the next `count` kernel compilations wait until all of them have started. If a
    /// compilation waits for 30 seconds, it fails: a lock then prevents the other compilations from
    /// starting.
    pub fn meet_compilations(&self, count: u32) {
        let meet = self.function::<unsafe extern "C" fn(u32)>(c"emulator_meet");
        // SAFETY: the function takes only an integer.
        unsafe { meet(count) }
    }

    /// Returns the number of injected failures that have occurred.
    #[must_use]
    pub fn failed(&self) -> u64 {
        let failed = self.function::<unsafe extern "C" fn() -> u64>(c"emulator_failed");
        // SAFETY: the function has no parameters.
        unsafe { failed() }
    }

    /// Returns the number of misuses, such as kernel faults and uses of destroyed handles.
    #[must_use]
    pub fn complaints(&self) -> u64 {
        let complaints = self.function::<unsafe extern "C" fn() -> u64>(c"emulator_complaints");
        // SAFETY: the function has no parameters.
        unsafe { complaints() }
    }

    /// Removes the last `count` misuses, which the test provoked. So they are not reported at exit.
    pub fn forgive(&self, count: u64) {
        let forgive = self.function::<unsafe extern "C" fn(u64)>(c"emulator_forgive");
        // SAFETY: the function takes only an integer.
        unsafe { forgive(count) }
    }

    /// Returns the description of the last misuse.
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

    /// Starts the virtual clock. Kernels compiled later count the bytes that they read and write.
    pub fn run_clock(&self) {
        let run = self.function::<unsafe extern "C" fn()>(c"emulator_run_clock");
        // SAFETY: the function has no parameters.
        unsafe { run() }
    }

    /// Returns the host's virtual time in microseconds, or `None` if the clock is not started.
    #[must_use]
    pub fn clock(&self) -> Option<f64> {
        let clock = self.function::<unsafe extern "C" fn() -> f64>(c"emulator_clock");
        // SAFETY: the function has no parameters.
        Some(unsafe { clock() }).filter(|&time| time >= 0.0)
    }

    /// Returns the total virtual time of all calls of the function `name`, in microseconds.
    #[must_use]
    pub fn spent(&self, name: &str) -> f64 {
        let spent = self.function::<unsafe extern "C" fn(*const c_char) -> f64>(c"emulator_spent");
        // SAFETY: the name is NUL-terminated.
        unsafe { spent(c_name(name).as_ptr()) }
    }

    /// Returns the name of each kernel that was launched, and the number of its launches.
    #[must_use]
    pub fn launches(&self) -> BTreeMap<String, u64> {
        type Read = unsafe extern "C" fn(*mut c_char, u64) -> u64;
        let read = self.function::<Read>(c"emulator_launches");
        // SAFETY: the function writes nothing to a buffer of 0 bytes.
        let size = unsafe { read(std::ptr::null_mut(), 0) };
        let mut text = vec![0u8; size as usize + 1];
        // SAFETY: the buffer has the size that is passed.
        unsafe { read(text.as_mut_ptr().cast(), text.len() as u64) };
        let lines = String::from_utf8_lossy(&text);
        let lines = lines.trim_end_matches('\0').lines();
        let counts = lines.filter_map(|line| line.rsplit_once(' '));
        let counts =
            counts.filter_map(|(name, count)| Some((name.to_owned(), count.parse().ok()?)));
        counts.collect()
    }

    /// Returns the bytes of device memory that kernels have read and written. Only kernels that are
    /// compiled while the clock runs are counted.
    #[must_use]
    pub fn kernel_bytes(&self) -> u64 {
        let bytes = self.function::<unsafe extern "C" fn() -> u64>(c"emulator_kernel_bytes");
        // SAFETY: the function has no parameters.
        unsafe { bytes() }
    }

    /// Returns the numbers of live objects.
    #[must_use]
    pub fn report(&self) -> Report {
        let report = self.function::<unsafe extern "C" fn(*mut Report)>(c"emulator_report");
        let mut filled = Report::default();
        // SAFETY: `Report` has the layout of the structure that the function fills.
        unsafe { report(&raw mut filled) };
        filled
    }
}

fn c_name(name: &str) -> CString {
    CString::new(name).unwrap_or_default()
}
