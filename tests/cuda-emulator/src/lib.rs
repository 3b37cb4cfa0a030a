//! Loads an emulated CUDA driver, NVRTC, cuBLAS, cublasLt, cuSOLVER, cuFFT and NCCL into a test
//! process. The emulated libraries must be loaded before the real libraries.
//!
//! The libraries are C++ sources in `native/`. g++ compiles them when the first test starts. The
//! SONAMEs of the libraries are the names that cudarc tries first, so cudarc's `dlopen` finds the
//! loaded libraries.

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

/// The libraries, ordered by their dependencies.
pub const LIBRARIES: [&str; 7] = [
    "libcuda.so",
    "libnvrtc.so",
    build::CUBLAS_LT,
    "libcublas.so",
    "libcusolver.so",
    "libcufft.so",
    "libnccl.so",
];

/// Prepares the process for a CUDA device: the real device if one exists, otherwise the emulated
/// device. If neither is available, prints the reason and exits.
///
/// Must be called before `main`, while the process has one thread and no loaded driver.
pub fn start(target: &Path) {
    set("CACHESCOPE_DEVICE", "cuda:0".as_ref());
    if has_device() {
        return;
    }
    match build(target) {
        Ok(folder) => {
            // If the compiler is unchanged, later runs reuse the kernels of the first run.
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

/// Loads the libraries from `folder`, and never unloads them. If `CACHESCOPE_EMULATOR_CUBLASLT=0`,
/// loads a library cublasLt without functions.
///
/// # Panics
///
/// Panics if the loader refuses a library.
pub fn load(folder: &Path) {
    let without_lt = env::var_os("CACHESCOPE_EMULATOR_CUBLASLT").is_some_and(|value| value == "0");
    for name in LIBRARIES {
        match name == build::CUBLAS_LT && without_lt {
            true => load_one(&folder.join(build::EMPTY).join(name)),
            false => load_one(&folder.join(name)),
        }
    }
}

/// Loads one library, and never unloads it. Its dependencies must already be loaded.
///
/// # Panics
///
/// Panics if the loader refuses the library.
pub fn load_one(path: &Path) {
    // SAFETY: the initialisers of the emulator's libraries only set up plain data.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    let library = library.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    std::mem::forget(library);
}

/// Returns whether tests run on a real device.
pub fn has_device() -> bool {
    !is_set("CACHESCOPE_CUDA_EMULATOR") && has_real_device()
}

/// Returns whether a driver with at least one device is installed.
fn has_real_device() -> bool {
    ["libcuda.so.1", "libcuda.so"].iter().any(|name| {
        // SAFETY: a CUDA driver may be loaded at any time, and the functions have these signatures.
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

/// Prints the reason why a test is skipped. Does not use `println!`, because libtest hides its
/// output if the test succeeds.
pub fn print_skipped(reason: &str) {
    let name = thread::current().name().unwrap_or("main").to_owned();
    let _ = writeln!(io::stderr(), "skipped: {name}: {reason}");
}

/// Sets an environment variable. The process must have only one thread.
fn set(name: &str, value: &Path) {
    // SAFETY: the function is only called before `main`, when no other thread reads the
    // environment.
    unsafe { env::set_var(name, value) };
}

/// Returns the value of the environment variable that makes the loader prefer the libraries in
/// `folder`.
#[must_use]
pub fn preload(folder: &Path) -> String {
    let paths = LIBRARIES.map(|name| folder.join(name).display().to_string());
    paths.join(":")
}

/// Returns the folder for tests in the workspace's target folder.
#[must_use]
pub fn default_target() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target =
        target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    target.join("tmp")
}

/// Returns a command that runs `program` on a CUDA device: the real device if one exists, otherwise
/// the emulated device. If neither is available, prints the reason and returns `None`.
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
