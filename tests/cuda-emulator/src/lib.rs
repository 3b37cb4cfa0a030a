//! Loads an emulated CUDA driver, NVRTC, cuBLAS, cuSOLVER, cuFFT and NCCL into a test, before
//! anything loads the real ones.
//!
//! The libraries are C++ in `native/`, compiled by g++ when the first test starts. Their SONAMEs
//! are the names that cudarc tries first, so its `dlopen` finds the loaded libraries.

mod build;
mod control;
mod suites;

use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::thread;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

pub use build::build;
pub use control::{Control, Report};
pub use suites::{Run, Suite, start_suites};

/// The libraries in the order of their dependencies.
pub const LIBRARIES: [&str; 6] = [
    "libcuda.so",
    "libnvrtc.so",
    "libcublas.so",
    "libcusolver.so",
    "libcufft.so",
    "libnccl.so",
];

/// Makes the process run on a CUDA device: the real device if there is one, otherwise the emulated
/// device. If there is neither, prints the reason and ends the process.
///
/// Must be called before `main`, while there is only one thread and no driver is loaded.
pub fn start(target: &Path) {
    set("CACHESCOPE_DEVICE", "cuda:0".as_ref());
    if has_device() {
        return;
    }
    match build(target) {
        Ok(folder) => {
            // A second run reuses the kernels of the first run, if one compiler made them.
            set("CACHESCOPE_KERNEL_CACHE", &folder.join("kernels"));
            load(&folder);
        }
        Err(reason) => {
            print_skipped(&format!(
                "no CUDA device, and none can be emulated: {reason}"
            ));
            process::exit(i32::from(is_set("CACHESCOPE_REQUIRE_CUDA")));
        }
    }
}

/// Loads the libraries from `folder` for as long as the process lives.
///
/// # Panics
///
/// If the loader refuses a library.
pub fn load(folder: &Path) {
    for name in LIBRARIES {
        load_one(&folder.join(name));
    }
}

/// Loads one library for as long as the process lives. Its dependencies must be loaded before.
///
/// # Panics
///
/// If the loader refuses the library.
pub fn load_one(path: &Path) {
    // SAFETY: the initialisers of the emulator's libraries set up plain data.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    let library = library.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    std::mem::forget(library);
}

/// Returns whether tests run on a real device.
pub fn has_device() -> bool {
    !is_set("CACHESCOPE_CUDA_EMULATOR") && has_real_device()
}

/// Returns whether a driver with a device is installed.
fn has_real_device() -> bool {
    ["libcuda.so.1", "libcuda.so"].iter().any(|name| {
        // SAFETY: a CUDA driver may be loaded at any time, and these are its functions' signatures.
        unsafe {
            let Ok(driver) = Library::open(Some(*name), RTLD_NOW) else {
                return false;
            };
            let initialise = driver.get::<unsafe extern "C" fn(u32) -> i32>(b"cuInit\0");
            let count = driver.get::<unsafe extern "C" fn(*mut i32) -> i32>(b"cuDeviceGetCount\0");
            let (Ok(initialise), Ok(count)) = (initialise, count) else {
                return false;
            };
            let mut devices = 0;
            initialise(0) == 0 && count(&raw mut devices) == 0 && devices > 0
        }
    })
}

/// Returns whether an environment variable is set and neither empty nor 0.
#[must_use]
pub fn is_set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Prints why a test is skipped. `println!` would print only with `--nocapture`, because libtest
/// captures the output of successful tests.
pub fn print_skipped(reason: &str) {
    let name = thread::current().name().unwrap_or("main").to_owned();
    let _ = writeln!(io::stderr(), "skipped: {name}: {reason}");
}

/// Sets an environment variable. Must be called before the process starts other threads.
fn set(name: &str, value: &Path) {
    // SAFETY: called only before `main`, when no other thread can read the environment.
    unsafe { env::set_var(name, value) };
}

/// Returns the value of the environment variable by which the loader prefers the libraries in
/// `folder`.
#[must_use]
pub fn preload(folder: &Path) -> String {
    let paths = LIBRARIES.map(|name| folder.join(name).display().to_string());
    paths.join(":")
}

/// Returns the folder for tests in the workspace's `target` folder.
#[must_use]
pub fn default_target() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target =
        target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    target.join("tmp")
}

/// Returns a command that runs the program on a CUDA device: the real device if there is one,
/// otherwise the emulated device. If there is neither, prints the reason and returns `None`.
#[must_use]
pub fn command_on_cuda(program: &Path, target: &Path) -> Option<Command> {
    let mut command = Command::new(program);
    command.env("CACHESCOPE_DEVICE", "cuda:0");
    if has_device() {
        return Some(command);
    }
    match build(target) {
        Ok(folder) => {
            command.env("CACHESCOPE_KERNEL_CACHE", folder.join("kernels"));
            command.env("LD_PRELOAD", preload(&folder));
            Some(command)
        }
        Err(reason) => {
            print_skipped(&format!(
                "no CUDA device, and none can be emulated: {reason}"
            ));
            None
        }
    }
}
