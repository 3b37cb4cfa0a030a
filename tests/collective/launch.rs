//! Launches ranks as processes under `mpirun`, with a time limit.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::Part;

/// The environment variable with the name of the case to run.
pub(crate) const PART: &str = "CACHESCOPE_MPI_PART";

/// The result of a case's processes.
pub(crate) struct Ended {
    pub(crate) is_success: bool,
    pub(crate) ran_too_long: bool,
    /// The standard output and standard error of the processes.
    pub(crate) output: String,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.output)
    }
}

pub(crate) fn has_mpirun() -> bool {
    let version = Command::new("mpirun").arg("--version").output();
    version.is_ok_and(|version| version.status.success())
}

/// Returns the path of the program `cuda-emulator`, if `cargo build -p cuda-emulator` has built it.
fn emulator() -> Option<PathBuf> {
    let own = std::env::current_exe().expect("the path of this program");
    let folder = own.parent()?.parent()?;
    Some(folder.join("cuda-emulator")).filter(|emulator| emulator.is_file())
}

/// Returns whether programs can run on the emulated device. The first call compiles the emulator.
pub(crate) fn has_emulator() -> bool {
    let ended = emulator().map(|emulator| Command::new(emulator).output());
    ended.is_some_and(|ended| ended.is_ok_and(|ended| ended.status.success()))
}

/// Runs this program as `size` ranks, for at most `longest`. If `size` is above 1, uses `mpirun`.
pub(crate) fn start(part: &Part, size: usize, longest: Duration) -> Ended {
    let own = std::env::current_exe().expect("the path of this program");
    // `timeout` sends a signal to `mpirun`, which then ends the ranks.
    let mut command = Command::new("timeout");
    command
        .arg("--kill-after=10")
        .arg(longest.as_secs().to_string());
    if size > 1 {
        command.args(["mpirun", "-n", &size.to_string()]);
    }
    if let Some(takes_device_memory) = part.takes_device_memory {
        command.arg(emulator().expect("it is built"));
        command.env("CACHESCOPE_MPI_CUDA", takes_device_memory);
    }
    // By default, Open MPI refuses to run as root or with more ranks than cores. Open MPI 5 reads
    // the last variable.
    let settings = [
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
        ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
    ];
    let output = command
        .arg(own)
        .env(PART, part.name)
        .envs(settings)
        .output();
    let output = output.expect("`timeout` of coreutils runs");
    let text = [output.stdout, output.stderr].concat();
    Ended {
        is_success: output.status.success(),
        ran_too_long: output.status.code() == Some(124),
        output: String::from_utf8_lossy(&text).into_owned(),
    }
}
