//! Processes under `mpirun`, which end in time in any case.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::Part;

/// The variable that tells a process its part.
pub(crate) const PART: &str = "CACHESCOPE_MPI_PART";

/// How the processes of a case ended.
pub(crate) struct Ended {
    pub(crate) is_success: bool,
    pub(crate) ran_too_long: bool,
    /// What they wrote, to either stream.
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

/// What runs a program on the emulated device, if it is built: `cargo build -p cuda-emulator`.
fn emulator() -> Option<PathBuf> {
    let own = std::env::current_exe().expect("the path of this program");
    let folder = own.parent()?.parent()?;
    Some(folder.join("cuda-emulator")).filter(|emulator| emulator.is_file())
}

/// Whether programs can run on it. The first time, that compiles it.
pub(crate) fn has_emulator() -> bool {
    let ended = emulator().map(|emulator| Command::new(emulator).output());
    ended.is_some_and(|ended| ended.is_ok_and(|ended| ended.status.success()))
}

/// Runs this program as so many ranks, or by itself as one, for so long at most.
pub(crate) fn start(part: &Part, size: usize, longest: Duration) -> Ended {
    let own = std::env::current_exe().expect("the path of this program");
    // It ends `mpirun` in a way that lets that end the ranks.
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
    // Open MPI refuses the administrator, and more ranks than cores, unless it is told otherwise;
    // version 5 reads the last.
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
