//! Runs `check.py` with the library of this package. Without NumPy, prints that the test was
//! skipped.

use std::path::Path;
use std::process::{Command, ExitCode};

/// The environment variable with the path of a Python that has NumPy and the other packages.
const PYTHON: &str = "CACHESCOPE_PYTHON";

/// A Python program that fails if NumPy is missing or cannot import writable tensors.
const NUMPY: &str =
    "import numpy, sys; sys.exit(numpy.lib.NumpyVersion(numpy.__version__) < '2.3.0')";

fn main() -> ExitCode {
    let python = std::env::var(PYTHON).unwrap_or_else(|_| "python3".to_owned());
    let has_numpy = Command::new(&python)
        .args(["-c", NUMPY])
        .output()
        .is_ok_and(|output| output.status.success());
    if !has_numpy {
        println!("skipped: {python} has no NumPy 2.3 or later; set {PYTHON} to one that has");
        return ExitCode::SUCCESS;
    }
    let name = format!(
        "{}dlpack_python{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    );
    let test = std::env::current_exe().expect("the path of this test");
    let library = test.with_file_name(name);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("check.py");
    let status = Command::new(&python)
        .arg(script)
        .arg(&library)
        .env("CACHESCOPE_DEVICE", "host")
        .status()
        .expect("Python starts");
    match status.success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
