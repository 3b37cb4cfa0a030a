//! What a test asks of the emulator beside the driver's own functions.

use std::ffi::{CStr, CString, c_char, c_int};

use libloading::os::unix::{Library, RTLD_NOW, Symbol};

/// What is alive on all devices.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Of `cuMemAlloc`.
    pub allocations: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// Of `cuMemHostAlloc`.
    pub host_allocations: u64,
    /// Of memory pools.
    pub pool_allocations: u64,
    /// Of `cuMemCreate`.
    pub physical: u64,
    /// Of `cuMemAddressReserve`.
    pub reservations: u64,
    /// Of `cuMemMap`.
    pub mappings: u64,
    /// Streams.
    pub streams: u64,
    /// Events.
    pub events: u64,
    /// Modules.
    pub modules: u64,
    /// Graphs.
    pub graphs: u64,
    /// Graphs that can be launched.
    pub executables: u64,
    /// Memory pools but the default ones.
    pub pools: u64,
    /// Primary contexts that were ever retained.
    pub contexts: u64,
    /// Work that no stream has run yet.
    pub pending: u64,
    /// What is taken from the devices' memory.
    pub used_bytes: u64,
    /// Communicators of NCCL.
    pub communicators: u64,
    /// Ranges of memory that are registered with one.
    pub registrations: u64,
}

/// The emulator of this process.
#[derive(Debug)]
pub struct Control {
    driver: Library,
}

impl Control {
    /// The emulator that is loaded; `None` where there is none, as on a real device.
    #[must_use]
    pub fn of_process() -> Option<Self> {
        // SAFETY: by this name the loader finds what is loaded, or a driver that is safe to load.
        let driver = unsafe { Library::open(Some("libcuda.so"), RTLD_NOW) }.ok()?;
        // SAFETY: the symbol is only looked for.
        unsafe { driver.get::<*const ()>(b"emulator_calls\0") }.ok()?;
        Some(Self { driver })
    }

    fn function<F>(&self, name: &CStr) -> Symbol<F> {
        // SAFETY: the callers name functions of `native/report.cpp` with their signatures.
        let found = unsafe { self.driver.get(name.to_bytes_with_nul()) };
        found.unwrap_or_else(|error| panic!("{name:?}: {error}"))
    }

    /// How many calls of the driver and of the other libraries there were.
    #[must_use]
    pub fn calls(&self) -> u64 {
        let calls = self.function::<unsafe extern "C" fn(*const c_char) -> u64>(c"emulator_calls");
        // SAFETY: a null name asks for all.
        unsafe { calls(std::ptr::null()) }
    }

    /// How often this function was called.
    #[must_use]
    pub fn calls_of(&self, name: &str) -> u64 {
        let calls = self.function::<unsafe extern "C" fn(*const c_char) -> u64>(c"emulator_calls");
        // SAFETY: the name ends with a zero byte.
        unsafe { calls(c_name(name).as_ptr()) }
    }

    /// Lets the `n`-th call from now fail with that error of the driver; 0: none.
    pub fn fail_call(&self, n: u64, error: i32) {
        let fail = self.function::<unsafe extern "C" fn(u64, c_int)>(c"emulator_fail_call");
        // SAFETY: takes plain numbers.
        unsafe { fail(n, error) }
    }

    /// Lets the `n`-th call of this function from now fail with that error; 0: none.
    pub fn fail_named(&self, name: &str, n: u64, error: i32) {
        type Fail = unsafe extern "C" fn(*const c_char, u64, c_int);
        let fail = self.function::<Fail>(c"emulator_fail_named");
        // SAFETY: the name ends with a zero byte, and is copied.
        unsafe { fail(c_name(name).as_ptr(), n, error) }
    }

    /// Lets the next compilations of kernels wait for each other until so many are under way. Where
    /// one waits for half a minute, nothing lets the others begin: it fails.
    pub fn meet_compilations(&self, count: u32) {
        let meet = self.function::<unsafe extern "C" fn(u32)>(c"emulator_meet");
        // SAFETY: takes a plain number.
        unsafe { meet(count) }
    }

    /// How many calls were made to fail.
    #[must_use]
    pub fn failed(&self) -> u64 {
        let failed = self.function::<unsafe extern "C" fn() -> u64>(c"emulator_failed");
        // SAFETY: takes nothing.
        unsafe { failed() }
    }

    /// How many misuses were seen: faults of kernels, calls with handles that are gone, and the
    /// like.
    #[must_use]
    pub fn complaints(&self) -> u64 {
        let complaints = self.function::<unsafe extern "C" fn() -> u64>(c"emulator_complaints");
        // SAFETY: takes nothing.
        unsafe { complaints() }
    }

    /// Takes the last `count` misuses back, which were provoked: they are not told of at exit.
    pub fn forgive(&self, count: u64) {
        let forgive = self.function::<unsafe extern "C" fn(u64)>(c"emulator_forgive");
        // SAFETY: takes a plain number.
        unsafe { forgive(count) }
    }

    /// The text of the last misuse.
    #[must_use]
    pub fn last_complaint(&self) -> String {
        type Last = unsafe extern "C" fn(*mut c_char, usize);
        let last = self.function::<Last>(c"emulator_last_complaint");
        let mut text = [0; 1024];
        // SAFETY: writes a text with its end into so many bytes.
        unsafe { last(text.as_mut_ptr().cast(), text.len()) };
        let text = CStr::from_bytes_until_nul(&text);
        text.map_or_else(
            |_| String::new(),
            |text| text.to_string_lossy().into_owned(),
        )
    }

    /// Lets the virtual clock run from now on: kernels that are compiled later count what they
    /// move.
    pub fn run_clock(&self) {
        let run = self.function::<unsafe extern "C" fn()>(c"emulator_run_clock");
        // SAFETY: takes nothing.
        unsafe { run() }
    }

    /// The host's virtual clock, in microseconds; `None` where it does not run.
    #[must_use]
    pub fn clock(&self) -> Option<f64> {
        let clock = self.function::<unsafe extern "C" fn() -> f64>(c"emulator_clock");
        // SAFETY: takes nothing.
        Some(unsafe { clock() }).filter(|&time| time >= 0.0)
    }

    /// What all calls of this function took by it, in microseconds.
    #[must_use]
    pub fn spent(&self, name: &str) -> f64 {
        let spent = self.function::<unsafe extern "C" fn(*const c_char) -> f64>(c"emulator_spent");
        // SAFETY: the name ends with a zero byte.
        unsafe { spent(c_name(name).as_ptr()) }
    }

    /// What is alive.
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
