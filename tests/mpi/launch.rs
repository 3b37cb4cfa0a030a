//! Processes under `mpirun`, which end in time in any case.

use std::fmt;
use std::process::Command;
use std::time::Duration;

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

/// Runs this program as so many ranks, or by itself as one, for so long at most.
pub(crate) fn start(part: &str, size: usize, longest: Duration) -> Ended {
    let own = std::env::current_exe().expect("the path of this program");
    // It ends `mpirun` in a way that lets that end the ranks.
    let mut command = Command::new("timeout");
    command
        .arg("--kill-after=10")
        .arg(longest.as_secs().to_string());
    if size > 1 {
        command.args(["mpirun", "-n", &size.to_string()]);
    }
    // Open MPI refuses the administrator, and more ranks than cores, unless it is told otherwise; version 5 reads the last.
    let settings = [
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
        ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
    ];
    let output = command.arg(own).env(PART, part).envs(settings).output();
    let output = output.expect("`timeout` of coreutils runs");
    let text = [output.stdout, output.stderr].concat();
    Ended {
        is_success: output.status.success(),
        ran_too_long: output.status.code() == Some(124),
        output: String::from_utf8_lossy(&text).into_owned(),
    }
}
